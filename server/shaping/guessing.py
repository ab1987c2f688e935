"""The language of a text of which nobody has said it, by what its lines look like.

Some clients send text and neither a path nor a language. Each language has *signs*: patterns of
lines that are usual in it and rare in others. A line is a sign once, however much of it fits. The
language with the most signs is the one, where it has enough of them and clearly more than the
next; a wrong guess does more harm than none.
"""

from __future__ import annotations

import re
from functools import lru_cache

_MIN_SIGNS = 3
# So many times as many as the next language has.
_MARGIN = 1.5
# So much before a cursor and behind it is enough to tell.
_MAX_SIDE = 2000
# Of a line no more is looked at: some signs take the square of its length, whatever stands there.
_MAX_LINE = 160

_SIGNS = {
    "python": r"""
        ^\s*(?:async )?def \w+\(
        ^\s*class \w+(?:\([\w., =\[\]]*\))?:\s*(?:\#.*)?$
        ^\s*(?:from [\w.]+ import [\w(*]|import \w[\w.]*(?: as \w+)?(?:, \w+)*\s*$)
        ^\s*(?:if|elif|for|while|with|try|except|finally|else)\b[^{]*:\s*(?:\#.*)?$
        ^\s*@\w[\w.]*(?:\(.*\))?\s*$
        \bself\.\w+
        ^\s*(?:raise \w+(?:\(|$)|assert [^;]*$)
        ^\s*return [^;{]*\b(?:not|and|or|None|True|False)\b[^;{]*$
        ^\s*(?:\"\"\"|''')|(?:\"\"\"|''')\s*$
        \b(?:None|True|False)\b[^;]*$|\b(?:is not|not in)\b[^;]*$
    """,
    "javascript": r"""
        ^\s*(?:export )?(?:const|let|var) [\w{\[][^;]*\s=(?:\s|$)
        ^\s*(?:export (?:default )?)?(?:async )?function\b\*?\s*\w*\(.*\{
        =>\s*(?:[{(\[]|\w.*[,;)]|$)
        [=!]==
        ^\s*(?:import|export) (?:\w+|[{*].*)(?: from|,|;)
        \b(?:require\(['"]|module\.exports\b|console\.\w+\(|new Promise\(|await \w+|typeof \w)
        ^\s*\}\)(?:\(\))?;?\s*$
        ^\s*(?:describe|it|test|expect)\(
    """,
    "typescript": r"""
        ^\s*(?:export )?(?:declare )?(?:interface|type|enum|namespace) \w+[^;]*[{=]
        \b\w+\??: ?(?:string|number|boolean|void|unknown|any|never|Promise<|Array<|Record<)
        ^\s*import (?:type )?\{.*\} from ['"]
        \bas (?:const|any|unknown|string|\w+\[\])\b
        ^\s*(?:public|private|protected|readonly) (?:static |readonly |async )*\w+[?!]?[:(]
        \): ?[\w<>\[\]|][\w<>\[\]| ]*(?:=>|\{)$
        ^\s*(?:export )?(?:const|let) \w+: \w
    """,
    "go": r"""
        ^package \w+\s*$
        ^func (?:\(\w+ \*?\w+\) )?\w+\(
        \b\w+(?:, \w+)* := \S
        \berr != nil\b
        ^(?:import|var|const|type) \($
        ^type \w+ (?:struct|interface|func)\b
        ^\t+(?:if|for|switch|defer|go|return) [^(;]
        ^\s*(?:case [\w.", ]+|default):$
        \b(?:fmt|strings|errors|context|http|t|os)\.[A-Z]\w+\(
        ^\t"[\w./-]+"$
    """,
    "rust": r"""
        \bfn \w+(?:<.*>)?\(
        \blet (?:mut )?[\w(]+(?:: [^=]+)? = 
        ^\s*(?:pub(?:\(\w+\))? )?(?:use|mod|struct|enum|trait|const|static|type) [\w:]+.*[;{]
        ^\s*(?:unsafe )?impl\b.*\{
        ^\s*\#!?\[\w+
        \b(?:\w+::)+(?:\w+|\{)
        &(?:mut |'\w+ |self\b)|\bSelf\b|\bself\.
        \b(?:match|if let|while let|loop)\b.*\{\s*$
        ^\s*[\w:()&., {}|_]+ => 
        \b(?:Some|Ok|Err|None|Box|Vec|Option|Result)\b[(<]|\.unwrap\(|\w!\(
        ^\s*//[/!]
    """,
    "c": r"""
        ^\s*\#\s*(?:include\s*[<"]|define\s|ifn?def\s|if\s|endif|undef\s)
        ^(?:static |inline |extern |const |unsigned |struct )*\w+[ *]+\w+\([^;]*(?:\)|,)\s*\{?\s*$
        ^\s*(?:static |const |unsigned )*(?:int|char|void|long|double|\w+_t|bool) \**\w+[\[(;,]
        ^\s*(?:static |const |unsigned )*(?:int|char|void|long|float|double|\w+_t|bool) \**\w+ =
        ^\s*(?:static |const )*struct \w+ \**\w+(?:\[.*\])?(?:;| =|,|\()
        \b\w+->\w+
        \b(?:NULL|sizeof|malloc|free|memcpy|strlen|printf|goto)\b
        ^\s*(?:typedef )?(?:struct|enum|union)\b.*[{;]
    """,
    "cpp": r"""
        \bstd::\w+
        ^\s*template ?<
        ^\s*(?:inline )?namespace\b.*\{|^\s*\}\s*// ?namespace
        ^\s*\#\s*include <\w+>
        ^\s*(?:public|private|protected):
        \b(?:nullptr|constexpr|noexcept|decltype|static_cast|reinterpret_cast|const_cast|override|typename|explicit|operator\W)
        \b\w+::~?\w+\(
        \b(?:const )?auto[&*]* &?\w+ =|\bconst \w[\w:<>]*& \w
        ^\s*(?:class|struct) \w+(?: final)?(?: : (?:public|private) .*)?\s*\{
        ^\s*using (?:namespace )?\w
    """,
    "java": r"""
        ^package [\w.]+;
        ^import (?:static )?[\w.]+(?:\.\*)?;
        ^\s*(?:public|private|protected) (?:static |final |abstract )*[\w<>\[\], .?]+ \w+\(
        ^\s*(?:(?:public|private|protected|static|final|abstract) )*(?:class|interface|enum) \w+.*\{
        ^\s*@(?:Override|Test|Nullable|SuppressWarnings|Deprecated|Before|After)\b
        ^\s*(?:private|protected|public) (?:static )?(?:final )?[\w<>\[\], ]+ \w+(?: =|;)
        \b(?:System\.out|String\.|throws \w+|instanceof|assertThat\(|extends \w+|implements \w+)
        \bnew \w+(?:<.*>)?\(.*\)[;.{)]
        ^\s*(?:final )?(?:String|int|boolean|List<.*>|Map<.*>|Object|long) \w+(?: =|;|\))
        ^\s*\* (?:@\w+|\{@|<p>)
    """,
    "csharp": r"""
        ^using [\w.]+;
        ^namespace [\w.]+\s*[;{]?$
        \{ get;|\bget;|\bset;
        ^\s*(?:public|private|protected|internal) [\w<>\[\]?, .]+ \w+(?:\(| =|;|$)
        ^\s*(?:public|private|protected|internal) (?:override|virtual|async|sealed|partial)\b
        \b(?:string|var|bool|int|Task<?\w*>?|IEnumerable<) \w+ =
        \b(?:Console\.|await |nameof\(|foreach \()
        ^\s*\[\w+(?:\(.*\))?\]\s*$
        ^\s*///
    """,
    "ruby": r"""
        ^\s*def (?:self\.)?\w+[?!=]?(?:\(.*\)|(?: \w+)?)\s*$
        \bdo(?: \|.*\|)?\s*$
        ^\s*(?:require|require_relative|include|extend|attr_\w+|private|raise) [\w:'"].*[^;{]$
        ^\s*(?:elsif|unless|module|rescue|ensure|when)\b[^;{]*$
        ^\s*class [A-Z]\w*(?: < [\w:]+)?\s*$
        ^\s*@\w+\b|\b\w+\.\w+[?!]
        \#\{[^}]*\}
        (?<![:\w]):\w+ =>|\(:\w+|, :\w+|^\s*\w+ :\w+
        \.each\b|\.nil\?|\bputs\b|%w[(\[]|\.new\b
        \s(?:if|unless) [^({;]*[^{;:]$
    """,
    "php": r"""
        <\?php
        \$this->
        \$\w+(?:\[.*\])? =
        ^\s*(?:public|private|protected|static|abstract|final)\s.*function \w+\(
        ^\s*(?:use|namespace) [\w\\]+;
        \b(?:function|fn) ?\w*\(.*\$\w+
        \b(?:foreach|array|isset|echo)\b ?\(?.*\$\w+
        \$\w+->\w+
    """,
    "shell": r"""
        ^\#!.*\b(?:ba|z|k|da)?sh\b
        ^\s*(?:fi|done|esac|then|do)\s*$
        ;\s*(?:then|do)\s*$
        ^\s*(?:if|while|until|elif) (?:!? ?\[\[? |test |!? ?\w+ -)
        "\$\{?\w+|\$\(\w|"\$@"
        ^\s*\w+=(?:"?\$|\$\()
        ^\s*(?:echo|export|local|set -|source|exit|cd|readonly|printf|sudo|mkdir|rm) [^=(;]*$
        ^\s*\w+\(\) \{
        ;;\s*$
        \|\||2>&1|>/dev/null
    """,
    "lua": r"""
        ^\s*local (?:function )?\w+(?:, \w+)*(?:\s*=|\()
        \bfunction(?: [\w.:]+)?\([\w, .]*\)\s*$
        ^\s*(?:if|elseif)\b.*\bthen\b
        \bdo\s*$
        ^\s*end[,)]*\s*$
        ~=|\.\. ?["\w]|\bnil\b
        \b(?:pairs|ipairs|require|pcall|setmetatable|assert)\(
    """,
    "perl": r"""
        ^\s*(?:my|our|local) ?[$@%(]
        ^(?:use|require|package) [\w:]+.*;
        ^\s*sub \w+
        \$\w+->[\w{\[$]|[$@%]\{|@_\b|\$_\b
        ^=(?:head\d|over|item|back|cut|pod)\b
        [=!]~ |\b(?:qw|q[qr]?)\W|\bunless \(|\belsif \(
        \b(?:shift|push|print|die|return) [@$]
    """,
    "json": r"""
        ^\s*"[^"]*": ?(?:[{\["\d-]|true|false|null)
    """,
    "toml": r"""
        ^\[{1,2}[\w."-]+\]{1,2}$
        ^[\w-]+ = (?:["\[{]|\d|true|false)[^;]*$
    """,
    "kotlin": r"""
        \bfun (?:<.*> )?[\w.]+\(
        ^\s*(?:private |override |lateinit |const |internal )*va[lr] \w+(?:: \w+.*)?(?: =| by|$)
        \b(?:data|sealed|companion|open|enum) (?:class|object)\b
        \bwhen(?: \(.*\))? \{
        \?\.\w+|\?: |!!\.
    """,
    "swift": r"""
        \bfunc \w+(?:<.*>)?\(.*\)(?: (?:throws )?-> .*)? \{
        ^\s*(?:guard|if) let \w+
        ^\s*(?:(?:public|private|static|weak|lazy|@\w+) )*(?:let|var) \w+(?:: [\w\[<]|\s=)
        ^\s*(?:extension|protocol|struct|final class|class|enum) \w+(?:: [\w, ]+)? \{
        \b(?:self\.\w+|init\(|nil\b|import (?:Foundation|UIKit|SwiftUI))
    """,
    "css": r"""
        ^\s*[.\#&]?[\w-]+(?:[:.,> ][\w.:>, -]*)? \{\s*$
        ^\s*(?:--)?[a-z-]+:\s[^;{]+;\s*$
        ^\s*@(?:media|import|keyframes|supports|font-face|include|mixin)\b
    """,
    "sql": r"""
        (?i)^\s*(?:select|insert into|update|delete from|create (?:table|index|view)|alter table)\b
        (?i)^\s*(?:from|where|group by|order by|left join|inner join|join|values|having|on)\b[^{;=]*
        (?i)\b(?:varchar|primary key|not null|integer|references)\b
    """,
    "html": r"""
        (?i)^\s*<!doctype|^\s*</?(?:html|head|body|div|span|p|a|ul|li|table|tr|td|h\d|script|link|meta|img|form|input|button|section)\b
        </\w+>\s*$
    """,
    "markdown": r"""
        ^\#{2,6} \w
        ^(?:[-*+]|\d+\.) +[\w`*\[]
        ^```
        \[[^\]]+\]\([^)]+\)
        ^\|.*\|\s*$
        ^[A-Z][^{};=]{40,}[\w.,:]$
        \*\*[^*]+\*\*
    """,
    "yaml": r"""
        ^\s*(?:- )?(?!else|try|finally|default)[\w.-]+:(?: [^{;(]*[^;,{(.]|)$
        ^\s*- [\w"'./$-]
        ^---$
    """,
}


# A text of the first has signs of the second as well, and need not have many of its own.
_BASE_OF = {"cpp": "c", "typescript": "javascript"}


@lru_cache
def _patterns() -> dict[str, re.Pattern[str]]:
    """Of each language one pattern that any of its signs fits."""
    return {language: _either(signs) for language, signs in _SIGNS.items()}


def _either(signs: str) -> re.Pattern[str]:
    lines = [line.lstrip() for line in signs.strip("\n").split("\n") if line.strip()]
    flags = re.IGNORECASE if any(line.startswith("(?i)") for line in lines) else re.NOFLAG
    return re.compile("|".join(line.removeprefix("(?i)") for line in lines), flags)


def named_or_guessed(
    language: str | None, path: str | None, before: str, behind: str
) -> str | None:
    """The language that a client has named; where it has not, nor a path, what one can guess."""
    return language if language or path else guess_language(before, behind)


def guess_language(before: str, behind: str) -> str | None:
    """The language of a file by the lines around the cursor's, or None where it might be several.

    The line that is being typed says nothing, so the same answer serves while one types in it.
    """
    above = before[-_MAX_SIDE:].rpartition("\n")[0]
    return _guess(above, behind[:_MAX_SIDE].partition("\n")[2])


@lru_cache(maxsize=256)
def _guess(above: str, below: str) -> str | None:
    every = (line[:_MAX_LINE] for line in f"{above}\n{below}".split("\n"))
    lines = [line for line in dict.fromkeys(every) if line.strip()]
    found = {
        language: {line for line in lines if pattern.search(line)}
        for language, pattern in _patterns().items()
    }
    own = {language: len(found[language]) for language in _BASE_OF}
    for language, base in _BASE_OF.items():
        found[base] |= found.pop(language)
    first, second, *_ = sorted(found, key=lambda language: -len(found[language]))
    n_first, n_second = len(found[first]), len(found[second])
    if n_first < max(_MIN_SIGNS, _MARGIN * n_second):
        return None
    return next((one for one, base in _BASE_OF.items() if base == first and own[one]), first)
