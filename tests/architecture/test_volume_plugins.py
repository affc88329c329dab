"""The deciding half of each volume plugin is pure: it reaches no module that does I/O, keeps time or draws numbers."""

import ast

import pytest

from services.volume.plugins.registry import PLUGINS
from tests.architecture.checkout import python_files, tree_of

DECIDING = {"read", "parts"}
PURE = ("abc", "collections", "dataclasses", "services.volume.core", "shared.model", "shared.podspec", "typing")
FILES = [name for name in python_files("services") if name.startswith("services/volume/plugins/")]


def impure_names(tree: ast.Module) -> set[str]:
    """The names that the module imports from anywhere but a pure module."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith(PURE):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


def reached(tree: ast.Module) -> set[str]:
    """The names that the deciding methods use, and the functions and values of the module that these use."""
    top = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    waiting: list[ast.AST] = [
        method
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name in DECIDING
    ]
    seen: set[str] = set()
    while waiting:
        used = {node.id for node in ast.walk(waiting.pop()) if isinstance(node, ast.Name)}
        waiting += [top[name] for name in used - seen if name in top]
        seen |= used
    return seen


def test_the_deciding_half_of_a_plugin_uses_no_impure_module(subtests: pytest.Subtests) -> None:
    for name in FILES:
        with subtests.test(name):
            tree = tree_of(name)
            assert not reached(tree) & impure_names(tree)


def test_the_check_sees_what_a_deciding_method_reaches() -> None:
    source = """
import os
from shared.time.clock import SystemClock
def helper(): return os.getpid()
class Plugin:
    @classmethod
    def read(cls): return helper()
    def set_up(self): return SystemClock()
"""
    tree = ast.parse(source)
    assert reached(tree) & impure_names(tree) == {"os"}


def test_every_plugin_has_a_file_of_its_own() -> None:
    modules = {plugin.__module__.replace(".", "/") + ".py" for plugin in PLUGINS.values()}
    assert len(modules) == len(PLUGINS) and modules <= set(FILES)
