"""A decision of podsync's core returns a record, and one place keeps it: a dropped result is a lost decision."""

import ast
from collections.abc import Iterator

import pytest

from services.podsync.core.pod.tracked_pod import TrackedPod
from tests.architecture.checkout import nodes_of, python_files

CORE = "services/podsync/core/"
RESULTS = ("TrackedPod", "Step")
KEEPERS = {
    "machine.py",
    "node_state.py",
    "listed_pods.py",
    "container_cpus.py",
    "admission/admitting.py",
    "admission/resizes.py",
}


def modules() -> Iterator[tuple[str, tuple[ast.AST, ...]]]:
    """Yield the path below the core and the nodes of the syntax tree of each module."""
    for name in python_files("services"):
        if name.startswith(CORE):
            yield name.removeprefix(CORE), nodes_of(name)


def decisions() -> set[str]:
    """Names of the functions of the core that return a record or a step, alone or with something else."""
    found = set()
    for _, nodes in modules():
        for node in nodes:
            if isinstance(node, ast.FunctionDef) and node.returns is not None:
                names = {part.id for part in ast.walk(node.returns) if isinstance(part, ast.Name)}
                quoted = {part.value for part in ast.walk(node.returns) if isinstance(part, ast.Constant)}
                found |= {node.name} if (names | quoted).intersection(RESULTS) else set()
    return found


def called(call: ast.AST) -> str:
    """The name of what is called, "" for anything else."""
    if not isinstance(call, ast.Call):
        return ""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def test_the_result_of_a_decision_is_never_dropped() -> None:
    known = decisions()
    assert {"with_termination", "next_step", "with_event", "backoff_until"} <= known
    dropped = [
        f"{path}:{node.lineno} {called(node.value)}"
        for path, nodes in modules()
        for node in nodes
        if isinstance(node, ast.Expr) and called(node.value) in known
    ]
    assert dropped == []


def test_records_are_kept_in_these_modules_alone() -> None:
    keepers = {
        path
        for path, nodes in modules()
        for node in nodes
        if called(node) in ("put", "add") and isinstance(node, ast.Call) and "pods" in ast.unparse(node.func)
    }
    assert keepers == KEEPERS


def test_a_record_cannot_be_changed() -> None:
    tracked = TrackedPod(uid="u1", name="web", namespace="default")
    with pytest.raises(AttributeError):
        tracked.call = None  # type: ignore[misc]
