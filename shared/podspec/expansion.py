"""$(VAR) in commands, arguments, environment values and subPathExpr (pods.md 6.3, B.5).

One scan, in time linear to the text; a result longer than allowed is an error before it is built.
"""

import re
from collections.abc import Callable, Mapping

from shared.podspec.exec_space import MAX_STRING_BYTES, TooLongError, utf8_length

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand(text: str, *environments: Mapping[str, str], longest: int = MAX_STRING_BYTES) -> str:
    """Replace `$(NAME)` by its value in the first environment that has it, else leave it; replace `$$` by `$`.
    Values are not expanded again. Raise TooLongError for a result of more than `longest` bytes of UTF-8."""

    def value(name: str) -> str:
        for environment in environments:
            if name in environment:
                return environment[name]
        return f"$({name})"

    return _replace(text, value, longest)


def expand_strictly(text: str, environment: Mapping[str, str], *, longest: int) -> tuple[str, tuple[str, ...]]:
    """Return the text as `expand` does, and the names in it that are undefined or empty, in their order; with such a
    name the text must not be used. `longest`: bytes, as for `expand`."""
    missing: dict[str, None] = {}

    def value(name: str) -> str:
        found = environment.get(name, "")
        if not found:
            missing[name] = None
        return found

    return _replace(text, value, longest), tuple(missing)


def _replace(text: str, value: Callable[[str], str], longest: int) -> str:
    """Every `$(` before the last `)` is a reference, so that the search of its end is never in vain."""
    room = longest

    def replaced(match: re.Match[str]) -> str:
        nonlocal room
        if match[1] is None:
            return "$"
        found = value(match[1])
        room -= utf8_length(found)
        if room < 0:
            raise TooLongError
        return found

    end = text.rfind(")") + 1
    expanded = _REFERENCE.sub(replaced, text[:end]) + text[end:].replace("$$", "$")
    if utf8_length(expanded) > longest:
        raise TooLongError
    return expanded
