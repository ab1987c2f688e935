"""What is a secret, and what only looks like one. No secret here is one: all are drawn here."""

from __future__ import annotations

import base64
import random
import string
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suture.server.prompt.secrets import has_secret, is_secret_path

SECRET_PATHS = [
    ".env",
    ".env.local",
    ".env.production",
    "deploy/prod.env",
    ".envrc",
    "server.pem",
    "tls/server.key",
    "AuthKey_2X9R4HXF34.p8",
    "store.pfx",
    "id_rsa",
    "id_ed25519.old",
    "deploy_rsa",
    ".npmrc",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".pypirc",
    ".git-credentials",
    "credentials",
    "credentials.json",
    "config/secrets.yml",
    "secrets.yaml",
    ".streamlit/secrets.toml",
    "client_secret_1.apps.json",
    "service-account-prod.json",
    "kubeconfig",
    "terraform.tfstate",
    "terraform.tfstate.backup",
    "prod.tfvars",
    "/etc/shadow",
    "/home/u/.ssh/config",
    "~/.aws/credentials",
    ".kube/config",
    ".docker/config.json",
    "/home/u/.config/gcloud/access_tokens.db",
]
OTHER_PATHS = [
    "",
    "a.py",
    ".env.example",
    "config/.env.sample",
    ".envoy.yaml",
    "environment.py",
    "secrets.py",
    "server/prompt/secrets.py",
    "botocore/credentials.py",
    "src/credentials.ts",
    "Secrets.swift",
    "keys.py",
    "key.go",
    "keyboard.c",
    "monkey.rs",
    "token.c",
    "password_reset.rb",
    "ssh/client.go",
    "docs/.ssh.md",
    "id_rsa_parser/lib.rs",
    "shadow.css",
    "main.tf",
    ".aws/task-definition.json",
    "gcloud/storage.py",
    ".kube/service.yaml",
    "site/config",
]


@pytest.mark.parametrize("path", SECRET_PATHS)
def test_y1_files_of_secrets_are_known_by_their_names(path: str) -> None:
    for spelled in (path, path.upper(), path.replace("/", "\\"), f"C:\\Users\\u\\{path}"):
        assert is_secret_path(spelled)
    assert is_secret_path(f"/a/{'b/' * 5000}{path.lstrip('/')}")
    assert is_secret_path(path + "~")


@pytest.mark.parametrize("path", OTHER_PATHS)
def test_y1_sources_and_templates_are_no_secrets(path: str) -> None:
    assert not is_secret_path(path) and not is_secret_path(f"/home/u/project/{path}")


def test_no_path_is_no_secret() -> None:
    assert not is_secret_path(None)


DRAWN = random.Random(6)


def drawn(n: int, characters: str = string.ascii_letters + string.digits) -> str:
    return "".join(DRAWN.choices(characters, k=n))


def upper(n: int) -> str:
    return drawn(n, string.ascii_uppercase + "234567")


def encoded(n: int) -> str:
    return base64.b64encode(DRAWN.randbytes(n)).decode()


def pem(kind: str) -> str:
    key = encoded(400)
    lines = "\n".join(key[at : at + 64] for at in range(0, len(key), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"


def jwt() -> str:
    parts = [f"eyJ{drawn(20)}", f"eyJ{drawn(40)}", drawn(43)]
    return ".".join(parts)


# Marks are put together, so that no scanner of repositories takes this file for a leak.
SECRETS = {
    "rsa": pem("RSA PRIVATE KEY"),
    "pkcs8": pem("PRIVATE KEY"),
    "encrypted": pem("ENCRYPTED PRIVATE KEY"),
    "openssh": pem("OPENSSH PRIVATE KEY"),
    "pgp": pem("PGP PRIVATE KEY BLOCK"),
    "json": '{"private_key": ' + repr(pem("PRIVATE KEY")).replace("'", '"') + "}",
    "source": "".join(f'    "{line}\\n"\n' for line in pem("EC PRIVATE KEY").splitlines()),
    "middle of a key": "\n".join(pem("PRIVATE KEY").splitlines()[2:6]) + "\n",
    "end of a key": "\n".join(pem("PRIVATE KEY").splitlines()[-2:]) + "\n",
    "putty": "PuTTY-User-Key-File-" + "3: ssh-rsa\n",
    "age": "AGE-SECRET-KEY-1" + upper(58),
    "aws": "AKIA" + upper(16),
    "aws secret": f'aws_secret_access_key = "{encoded(30)}"',
    "github": "ghp_" + drawn(36),
    "github fine": "github_pat_" + drawn(82),
    "gitlab": "glpat-" + drawn(20),
    "slack": "xoxb-" + drawn(11, string.digits) + "-" + drawn(24),
    "slack hook": "https://hooks.slack.com/services/T"
    + drawn(8)
    + "/B"
    + drawn(8)
    + "/"
    + drawn(24),
    "google": "AIza" + drawn(35),
    "stripe": "sk_live_" + drawn(24),
    "anthropic": "sk-ant-" + "api03-" + drawn(90),
    "openai": "sk-proj-" + drawn(60),
    "openai old": "sk-" + drawn(48),
    "hugging face": "hf_" + drawn(34),
    "npm": "//packages.internal/:_authToken=npm_" + drawn(36),
    "pypi": "pypi-AgE" + drawn(150),
    "sendgrid": "SG." + drawn(22) + "." + drawn(43),
    "jwt": jwt(),
    "azure": "AccountKey=" + encoded(64),
    "url": f"postgres://app:{drawn(12)}9a@db.internal:5432/app",
    "password": f"password = '{drawn(10)}7aB'",
    "short password": 'db_password: "hunter2!x"',
    "yaml": f"api_key: {drawn(32)}1a",
    "env": f"export SECRET_TOKEN={drawn(40)}1a",
    "short env": "DB_PASSWORD=hunter2!x",
    "quoted env": 'export DB_PASS="hunter2!x"',
    "bearer": f'curl -H "X-Proxy: Bearer {drawn(30)}1a"',
    "basic": f"Authorization: Basic {encoded(18)}",
    "private key": f"private_key = '0x{DRAWN.randbytes(32).hex()}'",
    "json value": f'"clientSecret": "{drawn(30)}1a",',
    "ruby": f":secret_key_base => '{drawn(60)}1a'",
    "go": f'apiKey := "{drawn(32)}1a"',
}


@pytest.mark.parametrize("name", SECRETS)
def test_y2_a_secret_is_found_wherever_it_stands(name: str) -> None:
    secret = SECRETS[name]
    assert has_secret(secret)
    assert has_secret("import os\n\n\n" + secret + "\n\ndef f():\n    pass\n")


HARMLESS = [
    "",
    'password = getpass.getpass("Password: ")',
    'password = os.environ["DB_PASSWORD"]',
    "password: str = Field(default=None)",
    'password = "changeme123"',
    'password = "your-password-here1"',
    'token = "xxxxxxxxxxxxxxxxxxxx"',
    'API_KEY = "<your api key>"',
    'api_key="${API_KEY_2}"',
    "token = self.tokenizer.convert_tokens_to_ids(token2)",
    'key = "user_id_2"',
    'access_key_id = "column_access_key_id_1"',
    "PRIMARY_KEY=user_id_2020",
    "Authorization: Basic authentication-with-a-name",
    'raise Unauthorized("no Bearer authentication_token_was_given")',
    "".join(f"    {name}{'InputMessages' * 5},\n" for name in "ABC"),
    'SECRET_NAME = "client_secret_basic"',
    "http://user:password@example.com",
    "https://example.com/a:b@c",
    'PEM = b"-----BEGIN PRIVATE KEY-----"',
    'if line.startswith("-----BEGIN RSA PRIVATE KEY-----"):\n    return load_rsa_private_key(line)',
    "sk-learn", "task-force-of-very-many-people-in-one-place",
    "AKIAIOSFODNN7EXAMPLE",
    "sha256:" + "a1b2c3d4" * 8,
    "\n".join(["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"] * 5) + "\n",
    "commit = 'd670460b4b4aece5915caf5c68d12f560a9fe3e4'",
    "eyJhbGciOiJIUzI1NiJ9",
    "def test_password_reset_token_expires(client): ...",
]  # fmt: skip


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_speaks_of_secrets_is_shown(text: str) -> None:
    assert not has_secret(text)


def test_real_sources_are_hardly_ever_taken_for_secrets() -> None:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    found = []
    for path in files:
        lines = path.read_text("utf-8", "replace").splitlines(keepends=True)
        found += [
            path.name for at in range(0, len(lines), 64) if has_secret("".join(lines[at : at + 64]))
        ]
    assert len(files) > 100 and len(found) <= 2, found


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300), st.text(max_size=300), st.sampled_from(sorted(SECRETS)))
def test_y2_no_text_around_it_hides_a_secret(before: str, after: str, name: str) -> None:
    assert has_secret(f"{before}\n{SECRETS[name]}\n{after}")


@pytest.mark.parametrize(
    "text",
    [
        "password=" * 30_000,
        "eyJ" * 100_000,
        "-----BEGIN " * 30_000,
        "-----BEGIN PRIVATE KEY-----" + " \n" * 100_000,
        "A" * 300_000,
        "://" + "a" * 300_000,
        "secret" + " " * 300_000,
        ("A" * 70 + "\n") * 4_000,
    ],
)  # fmt: skip
def test_y3_hostile_text_takes_no_longer_than_other_text(text: str) -> None:
    # By steps, not by the clock: with a backtracking that is not bounded this never ends.
    assert has_secret(text) in (True, False)
