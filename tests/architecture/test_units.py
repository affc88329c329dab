"""A public function names the unit of each number that it takes or returns: in a name, in its docstring, or by the
names of CONTRIBUTING.md that always mean the same. Of a mapping that it returns it names the keys."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.checkout import python_files, tree_of

# What these are is in CONTRIBUTING.md: moments, seconds, and random numbers.
CONVENTIONS = {"now", "wall", "timeout", "chance"}
NAMED = re.compile(
    "second|byte|port|code|count|number|attempt|index|pid|fd|uid|gid|mode|version|generation|milli|nano|percent|status"
    "|signal|level|user|group|lines|size|boot|depth|limit|capacity|width|tries|turns|most"
)
UNIT = re.compile(
    r"second|byte|minute|percent|per cent|\bms\b|\bs\b|MiB|CPU|monotonic|epoch|RFC ?3339|count|number|port|\bid\b|code"
    r"|how many|how often|at most|at least|\d to \d|descriptor|mode|status|characters|shares|version|level|weight"
    r"|attempt|\[0, 1\)|unit|\d bits|priority|millicores|group|user|`now`|`wall`|thousandths|index|newest|request|line",
    re.IGNORECASE,
)

KEYS = re.compile(r"\bby\b|->|key|[`{]|name|map|JSON|object|annotation|label|each", re.IGNORECASE)


def nameless(tree: ast.Module) -> Iterator[str]:
    """The public functions with a number or a mapping that a reader has to guess: `<name>: <parameters>`."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _nameless(node)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for member in node.body:
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from _nameless(member, node)


def _nameless(function: ast.FunctionDef | ast.AsyncFunctionDef, owner: ast.ClassDef | None = None) -> Iterator[str]:
    """The docstring of a class speaks for its constructor, and for what a method inherits from a protocol."""
    if function.name.startswith("_") and function.name != "__init__":
        return
    text = (ast.get_docstring(function) or "") + (ast.get_docstring(owner) or "" if owner is not None else "")
    given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    numbers = [each.arg for each in given if _is_number(each.annotation) and each.arg not in CONVENTIONS]
    takes_now = any(each.arg in ("now", "wall") for each in given)
    if _is_number(function.returns) and not takes_now and not _is_inherited(function):
        numbers.append(function.name)
    guessed = [name for name in numbers if not NAMED.search(name)]
    guessed = guessed if not UNIT.search(text) else []
    if _is_mapping(function.returns) and not _is_inherited(function) and not KEYS.search(text):
        guessed.append("keys")
    if guessed:
        yield f"{f'{owner.name}.' if owner else ''}{function.name}: {', '.join(guessed)}"


def _is_number(annotation: ast.expr | None) -> bool:
    parts = [part.strip() for part in ast.unparse(annotation).strip("'\"").split("|")] if annotation else []
    return bool({"int", "float"} & set(parts))


def _is_mapping(annotation: ast.expr | None) -> bool:
    return annotation is not None and bool(re.match(r"['\"]?(dict|Mapping)\[", ast.unparse(annotation)))


def _is_inherited(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return not ast.get_docstring(function)  # ruff demands one of everything public that is not inherited


def test_public_functions_name_the_units_of_numbers_and_the_keys_of_mappings() -> None:
    found = [
        f"{file}: {one}"
        for file in python_files("services", "shared", "bus")
        if not file.endswith("_pb2.py")
        for one in nameless(tree_of(file))
    ]
    assert not found, "name them in the docstring: " + "; ".join(found)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('def wait(delay: float) -> None:\n    """Wait."""', ["wait: delay"]),
        ('def wait(delay: "float | None") -> None:\n    """Wait."""', ["wait: delay"]),
        ('def wait(delay: float) -> None:\n    """Wait so many seconds."""', []),
        ('def wait(delay_seconds: float, now: float) -> None:\n    """Wait."""', []),
        ('def due() -> float:\n    """Return when it is due."""', ["due: due"]),
        ('def due(now: float) -> float:\n    """Return when it is due."""', []),
        ('class A:\n    """It."""\n    def __init__(self, period: int) -> None: ...', ["A.__init__: period"]),
        ('class A:\n    """It. `period`: seconds."""\n    def __init__(self, period: int) -> None: ...', []),
        ("def _wait(delay: float) -> None: ...", []),
        ('def found() -> dict[str, bytes]:\n    """What was found."""', ["found: keys"]),
        ('def found() -> dict[str, bytes]:\n    """The contents by path."""', []),
    ],
)
def test_what_a_reader_has_to_guess_is_found(source: str, found: list[str]) -> None:
    assert list(nameless(ast.parse(source))) == found
