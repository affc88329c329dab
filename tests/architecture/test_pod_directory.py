"""One module defines `pods/<uid>`: no other one spells the names below it or makes the path itself."""

import ast
from collections.abc import Collection

from shared.pods import directory as pod_directory
from tests.architecture.checkout import nodes_of, python_files

OWNER = "shared/pods/directory.py"
# Names that mean nothing else anywhere; `volumes`, `plugins` and `containers` are also fields of pods and of messages.
NAMES = {pod_directory.SUBPATHS, pod_directory.ETC_HOSTS, pod_directory.USER_NAMESPACE}


def spelt(nodes: Collection[ast.AST]) -> set[str]:
    """The names below `pods/<uid>` that the module spells as a string, and `pods` where it is joined to a root."""
    found = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    joined = [
        node.left
        for node in nodes
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div)
        and isinstance(node.right, ast.Constant)
        and node.right.value == "pods"
    ]
    return (found & NAMES) | ({"'pods'"} if any("root" in ast.unparse(left) for left in joined) else set())


def test_only_one_module_spells_the_layout_of_a_pod_directory() -> None:
    spelling = {name: spelt(nodes_of(name)) for name in python_files("services", "shared", "bus")}
    assert {name for name, names in spelling.items() if names} == {OWNER}


def test_the_check_sees_a_path_and_a_name() -> None:
    tree = ast.parse("path = config.root_dir / 'pods' / uid / 'etc-hosts'")
    assert spelt(list(ast.walk(tree))) == {"'pods'", "etc-hosts"}
