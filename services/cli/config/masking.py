"""Masks what looks like a credential in a text: private keys, tokens, and values of names such as password. Pure.

Each pattern takes time linear in the text, which a pod may have written.
"""

import re

MASK = "<masked>"

# JSON in a string of JSON has a backslash before each quote, and more of them the deeper it is.
_QUOTE = r"""(?: \\{0,15} ["'] )?"""
_NAMES = r"password | passwd | secret[_-]?key | access[_-]?key | api[_-]?key | client-key-data | auth[_-]?token"
_PATTERNS = (
    # PEM, with line breaks as they are or escaped.
    (re.compile(r"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL), MASK),
    (re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), MASK),  # a JSON web token
    (re.compile(r"(?i)\b(bearer|basic)(\s{1,4})[\w.~+/=-]{8,}"), rf"\1\2{MASK}"),
    (re.compile(r"(?i)(://[^\s/:@]{1,256}:)[^\s/@]{1,1024}(@)"), rf"\1{MASK}\2"),  # a password in a URL
    (
        re.compile(r"(?i)([?&][\w.-]{0,32}(?:token|signature|sig|secret|key|credential)=)[^\s\"'&#]+"),
        rf"\1{MASK}",
    ),  # a parameter of a URL that permits to read it
    # In quotes: to the next quote with as many backslashes before it, for one with more is part of the value.
    (
        re.compile(
            rf"""(?ix) ( (?: {_NAMES} ) {_QUOTE} \s{{0,4}} [=:] \s{{0,4}} (?P<open> \\{{0,15}} ["'] ) )
                    (?: (?! (?<!\\) (?P=open) ) . )+"""
        ),
        rf"\1{MASK}",
    ),
    (
        re.compile(
            rf"""(?ix) ( (?: {_NAMES} ) {_QUOTE} \s{{0,4}} [=:] \s{{0,4}} {_QUOTE} )
                    (?: [^\s"',;&\\] | \\+ (?!["'\\]) )+"""
        ),
        rf"\1{MASK}",
    ),
)


def without_credentials(text: str) -> str:
    """The text with each credential replaced by `MASK`."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text
