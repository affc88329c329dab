"""$(VAR) in commands, arguments, environment values and subPathExpr (reference pods.md 6.3, B.5)."""

import re
from collections.abc import Callable, Mapping

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand(text: str, *environments: Mapping[str, str]) -> str:
    """`$(NAME)` becomes its value in the first environment that has it, else stays as it is; `$$` becomes `$`.
    Values are not expanded again."""

    def value(name: str) -> str:
        for environment in environments:
            if name in environment:
                return environment[name]
        return f"$({name})"

    return _replace(text, value)


def expand_strictly(text: str, environment: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """As `expand`, and the names that were undefined or empty, in order of appearance: then the text is no good."""
    missing: list[str] = []

    def value(name: str) -> str:
        if not environment.get(name) and name not in missing:
            missing.append(name)
        return environment.get(name, "")

    return _replace(text, value), tuple(missing)


def _replace(text: str, value: Callable[[str], str]) -> str:
    return _REFERENCE.sub(lambda match: "$" if match[1] is None else value(match[1]), text)
