"""Parses a file of environment variables (pods.md 6.3, fileKeyRef), whose syntax is a strict part of a shell's.
The file has `NAME='value'` assignments; a value is in single quotes, may span lines and is taken literally. Blank lines
and lines that begin with `#` are ignored. Pure.
"""

import re
from collections.abc import Collection

_NOTHING = r"(?:[ \t]*+(?:#[^\n]*+)?\n)*+[ \t]*+(?:#[^\n]*+\Z)?"
_NAME = re.compile(r"[^\s='\"#]++=")
_VARIABLE = re.compile(
    _NOTHING + r"(?:([^\s='\"#]++)=(?:'([^']*+)'[ \t]*+(?:(?<=[ \t])#[^\n]*+)?|(?:[ \t][^\n]*+)?)(?:\n|\Z)|\Z)"
)
_BLANK = re.compile(_NOTHING)


class EnvFileError(ValueError):
    """The text is no file of variables; the message names the line and contains no value. `before`: the named variables
    that are set above that line."""

    def __init__(self, text: str, before: dict[str, str]) -> None:
        self.before = before
        super().__init__(text)


def parse_env_file(text: str, names: Collection[str]) -> dict[str, str]:
    """Return the values of these names. The first assignment of a name counts, and nothing is parsed after the last
    name was found. A blank right after `=` means an empty value, as in a shell. Raises EnvFileError."""
    text = text.replace("\r\n", "\n")
    variables: dict[str, str] = {}
    at, match = 0, _VARIABLE.match
    while at < len(text) and len(variables) < len(names):
        variable = match(text, at)
        if variable is None:
            raise _error(text, at, variables)
        name = variable[1]
        if name in names and name not in variables:
            variables[name] = variable[2] or ""
        at = variable.end()
    return variables


def _error(text: str, at: int, before: dict[str, str]) -> EnvFileError:
    blank = _BLANK.match(text, at)
    at = blank.end() if blank is not None else at
    wrong = (
        "the value must be in single quotes, alone"
        if _NAME.match(text, at)
        else "must be NAME='value', without a space before ="
    )
    return EnvFileError(f"line {text.count(chr(10), 0, at) + 1}: {wrong}", before)
