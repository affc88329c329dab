"""What a file of environment variables sets (reference pods.md 6.3, fileKeyRef): a strict part of what a shell reads.

`NAME='value'`, one after another; a value stands in single quotes, may span lines and is taken as it is. Blank lines
and lines that begin with `#` are nothing. Pure.
"""

import re

_NOTHING = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_NAME = re.compile(r"[ \t]*([^\s='\"#]+)=")
_QUOTED = re.compile(r"'([^']*)'[ \t]*(?:(?<=[ \t])#[^\n]*)?(?:\n|\Z)")
_EMPTY = re.compile(r"(?:[ \t][^\n]*)?(?:\n|\Z)")


class EnvFileError(ValueError):
    """The text is no such file; says in which line. Never has a value in its text."""


def parse_env_file(text: str) -> dict[str, str]:
    """Name -> value; of two of one name the last counts. A blank right after `=` ends the value before it began, as in
    a shell. Raises EnvFileError."""
    text = text.replace("\r\n", "\n")
    variables: dict[str, str] = {}
    at = 0
    while at < len(text):
        if nothing := _NOTHING.match(text, at):
            at = nothing.end()
            continue
        name = _NAME.match(text, at)
        if name is None:
            raise EnvFileError(f"line {_line(text, at)}: must be NAME='value', without a space before =")
        value = _QUOTED.match(text, name.end()) or _EMPTY.match(text, name.end())
        if value is None:
            raise EnvFileError(f"line {_line(text, at)}: the value must stand in single quotes, alone")
        variables[name[1]] = value[1] if value.re is _QUOTED else ""
        at = value.end()
    return variables


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
