"""Which files and texts hold secrets: nothing of them goes into a prompt.

A *secret* is what opens a door to whoever reads it: a private key, a token, a password. A model
that is shown one says it again in another file, and logs of remote engines keep it.

Files are known by their names, whatever is in them. Texts are known by the forms that makers gave
their tokens, by the marks around keys, and by what is assigned to a name like `password` if it
looks drawn at random. A text with one secret is left out as a whole: what stands around it is
seldom worth the risk that a second one was not seen.

Y1  What is known by its name is known with any directories before it, in any case, with either
    slash.
Y2  A text's secret is found wherever in it it stands, also where the text is a piece of a file.
Y3  It takes time in proportion to the text.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase

# Longer paths are cut: only their end says what they name.
_MAX_PATH = 1024

# Files whose name says so, alone or with its directory's. Sources are not among them: `secrets.py`
# is a module.
SECRET_NAMES: tuple[str, ...] = (
    *(".env", ".env.*", "*.env", ".envrc"),
    *("*.pem", "*.key", "*.p8", "*.p12", "*.pfx", "*.ppk", "*.jks", "*.keystore", "*.kdbx"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*_rsa", "*_ed25519"),
    *(".npmrc", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".pypirc", ".htpasswd", ".dockercfg"),
    *(".git-credentials", ".s3cfg", ".boto", ".vault-token", ".terraformrc", "rclone.conf"),
    *("credentials", "credentials.json", "credentials.y*ml", "credentials.toml", "credentials.csv"),
    *("secrets", "secrets.json", "secrets.y*ml", "secrets.toml", "secrets.ini", "secrets.txt"),
    *("secrets.xml", "secrets.properties", "secrets.*.json", "secrets.*.y*ml", "secret.y*ml"),
    *("client_secret*.json", "service[-_]account*.json", "serviceaccount*.json"),
    *("kubeconfig", "*.kubeconfig", "*.tfstate", "*.tfstate.*", "*.tfvars", "*.ovpn"),
    *("application_default_credentials.json", "access_tokens.db", "msal_token_cache*"),
    *(".kube/config", ".aws/config", ".docker/config.json", "etc/shadow", "etc/gshadow"),
)
# Directories all of whose files are secret.
SECRET_DIRECTORIES: tuple[str, ...] = (".ssh", ".gnupg")
# `.env.example` is there to be shown.
_TEMPLATES = ("example", "sample", "template", "tmpl", "dist", "defaults", "schema")


def is_secret_path(path: str | None) -> bool:
    """Whether a file is secret by its name (Y1)."""
    if not path:
        return False
    parts = path[-_MAX_PATH:].replace("\\", "/").lower().rstrip("~").split("/")
    *directories, name = (part.strip() for part in parts)
    if any(directory in SECRET_DIRECTORIES for directory in directories):
        return True
    if name.startswith(".env.") and name.rpartition(".")[2] in _TEMPLATES:
        return False
    within = f"{directories[-1]}/{name}" if directories else name
    return any(fnmatchcase(within if "/" in one else name, one) for one in SECRET_NAMES)


def has_secret(text: str) -> bool:
    """Whether a text holds a secret (Y2, Y3)."""
    if any(form.is_in(text) for form in _FORMS) or _has_key_lines(text):
        return True
    return _names_a_secret(text) and any(map(_assigns_secret, text.split("\n")))


@dataclass(frozen=True, slots=True)
class _Form:
    """A form of secrets. It is looked for only where one of its `marks` stands: that is fast."""

    marks: tuple[str, ...]
    pattern: re.Pattern[str]

    def is_in(self, text: str) -> bool:
        """Whether a text has a secret of this form, and not one that only shows the form."""
        if not any(mark in text for mark in self.marks):
            return False
        return any(not _is_placeholder(found[0]) for found in self.pattern.finditer(text))


def _token(marks: str, pattern: str) -> _Form:
    return _Form(tuple(marks.split()), re.compile(rf"(?<![A-Za-z0-9_])(?:{pattern})"))


_KEY_MARK = r"[A-Z0-9 ]{0,24}PRIVATE KEY(?: BLOCK)?-----"
# What stands between the lines of a key, also where it is a string of a program or of JSON.
_BETWEEN = r"(?:\\[nr]|[\s\"'+,|>]){1,64}"
_KEY_HEADERS = r"(?:[A-Z][A-Za-z-]{1,20}: [^\n]{1,80}\s{1,4}){0,4}"

_FORMS: tuple[_Form, ...] = (
    # With a part of the key: a program that reads keys has the marks alone.
    _Form(
        ("PRIVATE KEY",),
        re.compile(
            rf"-----BEGIN {_KEY_MARK}{_BETWEEN}{_KEY_HEADERS}[A-Za-z0-9+/]{{16}}"
            rf"|[A-Za-z0-9+/=]{{8}}{_BETWEEN}-----END {_KEY_MARK}"
        ),
    ),
    _token("PuTTY-User-Key-File-", r"PuTTY-User-Key-File-\d: "),
    _token("AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{50}"),
    _token("AKIA ASIA ABIA ACCA", r"A(?:KI|SI|BI|CC)A[A-Z2-7]{16}(?![A-Za-z0-9])"),
    _token("ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{36}"),
    _token("github_pat_", r"github_pat_[A-Za-z0-9_]{22}"),
    _token("glpat- gldt- glrt- glptt-", r"gl(?:pat|dt|rt|ptt)-[A-Za-z0-9_-]{20}"),
    _token("xox", r"xox[abeoprs]-[A-Za-z0-9-]{10}"),
    _token("xapp-", r"xapp-\d-[A-Za-z0-9-]{10}"),
    _token("hooks.slack.com", r"hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/]{20}"),
    _token("AIza", r"AIza[A-Za-z0-9_-]{35}"),
    _token("GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{28}"),
    _token("ya29.", r"ya29\.[A-Za-z0-9_-]{20}"),
    _token("k_live_ k_test_", r"[sr]k_(?:live|test)_[A-Za-z0-9]{16}"),
    _token("whsec_", r"whsec_[A-Za-z0-9+/]{24}"),
    _token("sk-", r"sk-(?:ant|proj|svcacct|admin|or)-[A-Za-z0-9_-]{20}|sk-[A-Za-z0-9]{32}"),
    _token("hf_", r"hf_[A-Za-z0-9]{30}"),
    _token("npm_", r"npm_[A-Za-z0-9]{36}"),
    _token("pypi-AgE", r"pypi-AgE[A-Za-z0-9_-]{50}"),
    _token("SG.", r"SG\.[\w-]{20,24}\.[\w-]{40}"),
    _token("dapi", r"dapi[0-9a-f]{32}"),
    _token("hvs. hvb.", r"hv[sb]\.[\w-]{24}"),
    _token("doo_v1_ dop_v1_ dor_v1_", r"do[opr]_v1_[a-f0-9]{64}"),
    _token("shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    _token("eyJ", r"eyJ[A-Za-z0-9_-]{10,4096}+\.eyJ[A-Za-z0-9_-]{10,4096}+\.[A-Za-z0-9_-]{10}"),
    _token("AccountKey=", r"AccountKey=[A-Za-z0-9+/]{40}"),
    _token("SharedAccessKey=", r"SharedAccessKey=[A-Za-z0-9+/]{40}"),
)

# Three of them are a key or a certificate, or other data that no model goes on with.
_KEY_LINES = re.compile(
    r"(?m)^(?:[ \t\"'+]{0,16}[A-Za-z0-9+/]{60,76}={0,2}(?:\\n)?[\"',+ ]{0,4}\n){3}"
)
_NO_LETTERS = re.compile("[0-9+/]")


def _has_key_lines(text: str) -> bool:
    """Whether a text has the lines of a key, without the marks around it; no digests in hex, and
    no list of long names."""
    return any(
        re.search("[g-z]", found[0])
        and re.search("[G-Z]", found[0])
        and all(len(_NO_LETTERS.findall(line)) > 1 for line in found[0].splitlines())
        for found in _KEY_LINES.finditer(text)
    )


_SECRET_WORDS = ("pass", "pwd", "secret", "token", "key", "auth", "credential", "bearer", "://")
_NAME = (
    r"(?:passw(?:or)?d|pwd|secret|token|(?:api|access|auth|account|private|signing|encryption)"
    r"[-_]?key|_auth|credentials?)"
)
_ASSIGNMENT = re.compile(
    rf"(?i){_NAME}[\w-]{{0,24}}[\"'\]]{{0,2}}[ \t]{{0,8}}(?:=>|:=|=|:)[ \t]{{0,8}}"
    r"(?:[\"'`]([^\"'`\s]{8,256})[\"'`]|([^\"'`\s(){}<>,;]{16,256})[ \t]*$)"
    r"|://[^\s:/@\"'<>{}$]{1,64}:([^\s:/@\"'<>{}$]{6,128})@"
    r"|\b(?:bearer|basic)[ ]{1,4}([\w+/=.~-]{16,512})"
)
# A line of a shell's environment, where values are text also without quotes.
_ENVIRONMENT = re.compile(
    r"[ \t]*(?:export )?[A-Z0-9_]{0,64}(?:PASS|PWD|SECRET|TOKEN|KEY|CREDENTIAL)[A-Z0-9_]{0,64}="
    r"[\"']?([^\s\"'`$(){}<>,;]{8,256})[\"']?[ \t]*$"
)


def _assigns_secret(line: str) -> bool:
    if not _names_a_secret(line):
        return False
    found = (*_ASSIGNMENT.finditer(line), *filter(None, [_ENVIRONMENT.match(line)]))
    values = (value for match in found for value in match.groups() if value is not None)
    return any(map(_is_random, values))


def _names_a_secret(text: str) -> bool:
    lower = text.lower()
    return any(word in lower for word in _SECRET_WORDS)


_PLACEHOLDER = re.compile(
    r"(?i)example|placeholder|change_?me|your|dummy|redacted|x{4}|\*{3}|\.{3}|12345|abcdef"
)
_NAME_LIKE = re.compile(r"[A-Za-z]+(?:[-_./:][A-Za-z]+)*(?:[0-9]{0,2}|[-_][0-9]{1,4})")
_CODE_LIKE = re.compile(r"[<>{}()$%\[\]\\]|::|//|\.\w+\.")


def _is_placeholder(value: str) -> bool:
    """Whether a value only stands for a secret, as in documentation."""
    return _PLACEHOLDER.search(value) is not None or len(set(value)) < 8


def _is_random(value: str) -> bool:
    """Whether a value looks drawn: letters and digits mixed, and neither a name nor code."""
    if _is_placeholder(value) or _NAME_LIKE.fullmatch(value) or _CODE_LIKE.search(value):
        return False
    if not any(map(str.isdigit, value)) or not any(map(str.isalpha, value)):
        return False
    if len(value) >= 16:
        return _entropy(value) >= 3.0
    has_both_cases = any(map(str.isupper, value)) and any(map(str.islower, value))
    return has_both_cases or not value.isalnum()


def _entropy(value: str) -> float:
    """Bits a character."""
    shares = [n / len(value) for n in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares)
