"""Masks what looks like a credential in a text: private keys, tokens, and the values of names such as password. Pure.

Each pattern takes time linear in the text, which a pod may have written.
"""

import re

MASK = "<masked>"

# JSON inside a string of JSON has a backslash before each quote, and more of them at each further level.
_QUOTE = r"""(?: \\{0,15} ["'] )?"""
_OBJECT = rf"(?! {_QUOTE} \s{{0,4}} [=:] \s{{0,4}} {_QUOTE} (?-i:[a-z0-9-]{{1,63}}/[a-z0-9.-]{{1,253}}) (?![\w+/=]) )"
_NAMES = r"password | passwd | (?: secret|access|api|account|shared|ssh )[_-]?key | client-key-data | auth[_-]?token"
# These end the names of credentials. A name that is just `key` belongs to a label; `secret=namespace/name` is a
# Kubernetes object.
_ENDS = (
    rf"token | secret {_OBJECT} | [_-]key | (?: private|encryption|signing )key | passphrase | credentials?"
    r" | pwd(?!=/) | (?<![a-z0-9])pass"
)
_NAME = rf"[\w.-]{{0,64}} (?: {_NAMES} | {_ENDS} )"
_IN_QUOTES = r""" (?P<open> \\{0,15} ["'] ) ) (?: (?! (?<!\\) (?P=open) ) . )+"""
_BARE = (
    r"""(?! (?: true|false|null|none|nil ) \b | <masked> | [{\[|>] ) (?: [^\s"',;&\\] | \\+ (?!["'\\abfnrtvx0-9u]) )+"""
)
# A value after `(open) (name):` that begins a structure of JSON or YAML is searched in turn.
_NO_STRUCTURE = r"""(?! [{\[] \s{0,40} \\{0,15} (?: ["'\]}] | $ ) )"""
_BLOCK = rf"""(?: -[ ] )? [\w.-]{{0,64}} (?: {_NAMES} | {_ENDS} ) : [ ]{{1,4}} [|>][-+\d]{{0,2}} ) [ ]{{0,4}}"""
_FLAG = rf"(?<![\w-]) --?[\w-]{{0,64}} (?: {_NAMES} | {_ENDS} )"
_WORDS = (
    # These words follow a flag's name in prose.
    r"(?! (?: is|are|was|to|and|or|not|in|of|for|with|from|has|must|needs|cannot|file ) \b )"
)

_WORDS_OF_NAMES = ("pass", "secret", "token", "key", "credential", "pwd")
# Letters that `re.IGNORECASE` takes for ASCII letters and that are still others in lower case.
_AS_ASCII = {0x130: "i", 0x131: "i", 0x17F: "s"}

# How a match of a pattern that begins with `_NAMES` or `_ENDS` begins, in lower case.
_STARTS = re.compile(
    "pass|secret|access|api|account|shared|ssh|client-key-data|auth|token|[_-]key|private|encryption|signing|credential|pwd"
)

# Each pattern matches one form of a credential; the text beside it replaces the match. The words before it are lower
# case, and each match has one of them: to look for a word takes a hundredth of the time of a pattern. One with
# `_STARTS` is tried only where these match, which takes a tenth of the time of a search.
_PATTERNS: tuple[tuple[tuple[str, ...] | re.Pattern[str], re.Pattern[str], str], ...] = (
    # PEM, with real or escaped line breaks, or its base64. A certificate begins otherwise.
    (
        ("-----begin",),
        re.compile(r"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?)-----.*?(?:-----END \1-----|\Z)", re.DOTALL),
        MASK,
    ),
    (("ls0tls1crudjtib",), re.compile(r"LS0tLS1CRUdJTiB[^D\W_](?:[\w+/=]|\s{1,40}(?=[\w+/]{60}))*"), MASK),
    (("eyj",), re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), MASK),  # a JSON web token
    # The base64 of a docker configuration, recognized by its beginning, or by its key in a Secret.
    (
        ("eyj", "eya", "ewo"),
        re.compile(
            r"(?<![\w+/])(?:eyJhdXRo|eyAiYXV0aHMi|ewogImF1dGhz|ewogICJhdXRo|ewogICAgImF1dGhz|ewoJImF1dGhz)[\w+/=]*"
        ),
        MASK,
    ),
    (
        (".dockerc",),
        re.compile(
            r"""(?x) ( \.dockerc(?:onfigjson|fg) \\{0,15}["']? \s{0,4} : \s{0,4} \\{0,15}["']? ) [\w+/=]{16,}"""
        ),
        rf"\1{MASK}",
    ),
    # Tokens of clouds and forges, recognized by their beginnings, and bootstrap tokens.
    (("akia", "asia"), re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"), MASK),
    (
        ("gh", "github_pat_", "glpat-", "xox", "_live_", "sk-", "npm_", "hv", "dckr_pat_", "aiza"),
        re.compile(
            r"(?<![A-Za-z0-9])(?:gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|[rs]k_live_|sk-(?:proj|ant)-|npm_|hv[bs]\."
            r"|dckr_pat_|AIza)[\w-]{10,}"
        ),
        MASK,
    ),
    ((".",), re.compile(r"(?<![\w.-])[a-z0-9]{6}\.(?=[a-z]{0,15}\d)[a-z0-9]{16}(?![\w.-])"), MASK),
    (("bearer", "basic"), re.compile(r"(?i)\b(bearer|basic)(\s{1,4})[\w.~+/=-]{8,}"), rf"\1\2{MASK}"),
    (
        ("authorization",),
        re.compile(
            r"""(?ix) ( \bauthorization \\{0,15}["']? \s{0,4} [:=] [ ]{0,4} \[? \\{0,15}["']? (?: [\w-]{1,20} [ ] )? )
            [\w.~+/=-]{8,} (?= \\{0,15}["'\]] | [ ]{0,4}$ )""",
            re.MULTILINE,
        ),
        rf"\1{MASK}",
    ),
    (
        ("cookie",),
        re.compile(r"""(?i)\b((?:set-)?cookie\\{0,15}["']?:[ \t]{0,4}\\{0,15}["']?)[^\s"'\\][^\r\n"']*"""),
        rf"\1{MASK}",
    ),
    # A password in a URL, also without a user, or with an `@` in the password.
    (("://",), re.compile(r"(?i)(://[^\s/:@]{0,256}:)[^\s/\"'<>]{1,1024}(@)"), rf"\1{MASK}\2"),
    (("://",), re.compile(r"(://)[^\s/:@?#\"'<>]{16,256}(@)"), rf"\1{MASK}\2"),  # a token in place of the user
    (
        ("=",),
        re.compile(r"(?i)([?&][\w.-]{0,32}(?:token|signature|sig|secret|key|credential)=)[^\s\"'&#]+"),
        rf"\1{MASK}",
    ),  # a parameter of a URL that grants access to it
    # A block of YAML: the lines that are indented further, also inside a string of JSON.
    (
        _WORDS_OF_NAMES,
        re.compile(rf"""(?imx) ( ^ ([ \t]{{0,64}}) {_BLOCK} (?: \n (?: \2 [ \t] [^\n]* | (?=\n) ) )+"""),
        rf"\1 {MASK}",
    ),
    (
        _WORDS_OF_NAMES,
        re.compile(
            rf"""(?imx) ( \\n ([ ]{{0,64}}) {_BLOCK} (?: \\n (?: \2 [ ] (?: [^\\\n"] | \\ [^n"] )* | (?=\\n) ) )+"""
        ),
        rf"\1 {MASK}",
    ),
    # A quoted value. It ends at the next quote with as many backslashes before it; a quote with more backslashes is
    # part of it.
    (
        _STARTS,
        re.compile(rf"""(?ix) ( (?: {_NAMES} | {_ENDS} ) {_QUOTE} \s{{0,4}} [=:] \s{{0,4}} {_IN_QUOTES}"""),
        rf"\1{MASK}",
    ),
    (
        _STARTS,
        re.compile(
            rf"""(?ix) ( (?: {_NAMES} ) {_QUOTE} \s{{0,4}} [=:] \s{{0,4}} {_QUOTE} )
                    (?! <masked> | [|>][-+\d]{{0,2}} [ ] <masked> )
                    {_NO_STRUCTURE} (?: [^\s"',;&\\] | \\+ (?!["'\\]) )+"""
        ),
        rf"\1{MASK}",
    ),
    (_STARTS, re.compile(rf"""(?ix) ( (?: {_ENDS} ) = ) {_BARE}"""), rf"\1{MASK}"),
    # A line of YAML, also inside a string of JSON. In prose, a colon after `secret` or `token` begins a message.
    (
        _WORDS_OF_NAMES,
        re.compile(
            rf"""(?imx) ( (?: ^ | \\n ) [ \t]{{0,64}} (?: -[ ] )?
                    [\w.-]{{0,64}} (?: {_ENDS} ) : [ \t]{{1,4}} ) {_BARE}"""
        ),
        rf"\1{MASK}",
    ),
    # A variable of a container: the value follows its name, as YAML or JSON.
    (
        _WORDS_OF_NAMES,
        re.compile(
            rf"""(?ix) ( \b(?: name|key ) {_QUOTE} \s{{0,4}} : \s{{0,4}} {_QUOTE} {_NAME} {_QUOTE}
                    (?: ,\s{{0,40}} | \s{{1,40}} | \\n[ ]{{0,40}} ) {_QUOTE} value {_QUOTE}
                    \s{{0,4}} : \s{{0,4}} {_IN_QUOTES}"""
        ),
        rf"\1{MASK}",
    ),
    (
        _WORDS_OF_NAMES,
        re.compile(
            rf"""(?ix) ( \bname: [ ]{{1,4}} {_NAME}
                    (?: \s{{1,40}} | \\n[ ]{{0,40}} ) value: [ ]{{1,4}} ) {_BARE}"""
        ),
        rf"\1{MASK}",
    ),
    # A flag and its value, as two words, or as two strings of a list in JSON or YAML.
    (
        _WORDS_OF_NAMES,
        re.compile(
            rf"""(?ix) ( {_FLAG} (?: [ ]{{1,4}} | \\{{0,15}}["'] ,? \s{{0,40}} )
                    (?= \\{{0,15}}["'] [^-,\]] ) {_IN_QUOTES}"""
        ),
        rf"\1{MASK}",
    ),
    (
        _WORDS_OF_NAMES,
        re.compile(
            rf"""(?ix) ( {_FLAG} \\{{0,15}}["']? [ ]{{0,4}} (?: \n | \\n ) [ ]{{0,64}} -[ ]{{1,4}} \\{{0,15}}["']? )
                    {_WORDS} (?!-) {_BARE}"""
        ),
        rf"\1{MASK}",
    ),
    (
        _WORDS_OF_NAMES,
        re.compile(
            rf"""(?ix) ( {_FLAG}
                    (?: [ ]{{1,4}} | \\{{0,15}}["'] ,? \s{{1,40}} \\{{0,15}}["'] | \\{{0,15}}["'],\\{{0,15}}["'] ) )
                    {_WORDS} (?!-) {_BARE}"""
        ),
        rf"\1{MASK}",
    ),
    # The login for an image registry in a docker configuration: the base64 of user and password.
    (
        ("auth",),
        re.compile(r"""(?x) ( (?<![\w-]) auth \\{0,15}["'] \s{0,4} : \s{0,4} \\{0,15}["'] ) [\w+/=]{8,}"""),
        rf"\1{MASK}",
    ),
    (("auth",), re.compile(r"""(?m)^([ \t]{0,64}auth:[ ]{1,4}["']?)[\w+/]{8,}={0,2}(?=["']?[ \t]*$)"""), rf"\1{MASK}"),
)


def without_credentials(text: str) -> str:
    """Return the text with each credential replaced by `MASK`."""
    lower = _lower(text)
    for found_by, pattern, replacement in _PATTERNS:
        if isinstance(found_by, re.Pattern):
            text = _substitute_from(found_by, pattern, replacement, text)
        elif any(word in lower for word in found_by):
            text = pattern.sub(replacement, text)
    return text


def _lower(text: str) -> str:
    """Return the text in lower case, with as many characters."""
    return (text if text.isascii() else text.translate(_AS_ASCII)).lower()


def _substitute_from(starts: re.Pattern[str], pattern: re.Pattern[str], replacement: str, text: str) -> str:
    """Return what `pattern.sub` does, whose matches begin only where `starts` matches in lower case."""
    lower, parts, done, position = _lower(text), list[str](), 0, 0
    while (start := starts.search(lower, position)) is not None:
        found = pattern.match(text, start.start())
        position = found.end() if found is not None else start.start() + 1
        if found is not None:
            parts += [text[done : found.start()], found.expand(replacement)]
            done = found.end()
    return "".join([*parts, text[done:]])
