"""The checkout as the architecture tests see it: its files, and what the Python ones import and call. Reads only."""

import ast
import gc
import io
import re
import subprocess
import tokenize
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent.parent


@cache
def tracked_files() -> tuple[str, ...]:
    """Every file git tracks or would track, relative to the checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        check=True,
        capture_output=True,
        text=True,
    )
    return tuple(sorted({name for name in listed.stdout.splitlines() if (CHECKOUT / name).is_file()}))


def python_files(*rooms: str) -> list[str]:
    """The Python files below the named top-level directories."""
    return [name for name in tracked_files() if name.endswith(".py") and name.split("/")[0] in rooms]


def text_of(name: str) -> str:
    """The file's text."""
    return (CHECKOUT / name).read_text()


def begins_with_a_docstring(name: str) -> bool:
    """Whether the file begins with a docstring that is not empty. Reads no further: most files are never parsed."""
    before = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING)
    tokens = tokenize.generate_tokens(io.StringIO(text_of(name)).readline)
    first, after = next(token for token in tokens if token.type not in before), next(tokens)
    return first.type == tokenize.STRING and after.type == tokenize.NEWLINE and bool(ast.literal_eval(first.string))


@cache
def tree_of(name: str) -> ast.Module:
    """The file's syntax tree. It is kept to the end, so the garbage collector need not look at it: that would take
    twice the time of parsing."""
    gc.disable()
    try:
        return ast.parse(text_of(name), filename=name)
    finally:
        gc.freeze()
        gc.enable()


@cache
def nodes_of(name: str) -> tuple[ast.AST, ...]:
    """Return all nodes of the file's syntax tree, in the order of `ast.walk`."""
    found: list[ast.AST] = [tree_of(name)]
    for node in found:  # which grows
        for value in map(vars(node).get, node._fields):
            if isinstance(value, list):
                found += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return tuple(found)


@cache
def named_after_import(name: str) -> frozenset[str]:
    """Top-level modules that the file may import: what follows `import` or `from` at the begin of a line, which is in a
    string perhaps. Parses nothing."""
    return frozenset(re.findall(r"^[ \t]*(?:import|from) (\w+)", text_of(name), re.MULTILINE))


@cache
def imports_of(name: str) -> frozenset[str]:
    """Dotted names of all modules the file imports, wherever in the file."""
    found: set[str] = set()
    for node in nodes_of(name):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return frozenset(found)
