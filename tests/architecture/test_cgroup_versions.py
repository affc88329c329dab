"""Tests of real cgroups run on a machine with cgroup v2 alone: none needs the trees of version 1."""

import ast

from tests.architecture.checkout import python_files, text_of

LANES = ("tests/e2e/", "tests/process/")
# A fixture of this name skips where the machine has cgroup v2 alone.
VERSION_1_ONLY = "v1"


def functions_that_need_version_1(source: str) -> list[str]:
    """Functions that look up the tree of a controller, and not also the unified one."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
        given = {argument.arg for argument in function.args.args}
        if "by_controller" in names and "unified" not in names and VERSION_1_ONLY not in given:
            found.append(function.name)
    return found


def test_no_test_needs_the_trees_of_version_1() -> None:
    files = [name for name in python_files("tests") if name.startswith(LANES) and "by_controller" in text_of(name)]
    assert files
    needing = {name: found for name in files if (found := functions_that_need_version_1(text_of(name)))}
    assert needing == {}, "look at `unified` first, or take the fixture v1"


def test_a_function_that_needs_version_1_is_found() -> None:
    body = "    return (trees.by_controller['pids'] / 'pids.max').read_text()\n"
    assert functions_that_need_version_1(f"def limit(trees):\n{body}") == ["limit"]
    assert functions_that_need_version_1(f"def limit(trees, v1):\n{body}") == []
    assert functions_that_need_version_1(f"def limit(trees):\n    if trees.unified: return 0\n{body}") == []
