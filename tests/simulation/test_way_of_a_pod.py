"""docs/way-of-a-pod.md is the way that a pod takes: a simulated node runs one pod, and its calls are compared."""

import ast
import dis
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from tests.simulation.run import in_memory, run
from tests.simulation.users import Users
from tests.simulation.workload import PodPlan, Run, Workload

CHECKOUT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| `(services/[\w/]+\.py):([\w.]+)` \| [^|]+ \| (once|each event) \|$", re.MULTILINE)
STEPS = ROW.findall((CHECKOUT / "docs" / "way-of-a-pod.md").read_text())
WAY = [(file, function) for file, function, _ in STEPS]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """The calls of the listed functions, in order, from the creation of the pod to the first status patch."""
    found: list[tuple[str, str]] = []
    listed = set(WAY)

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or (function := _named(frame.f_code)) not in listed:
            return
        if frame.f_lasti <= _first_instruction(frame.f_code) and WAY[-1] not in found:  # no resumption of a coroutine
            found.append(function)

    def create(users: Users, plan: PodPlan) -> None:
        found.clear()
        created(users, plan)

    created = Users._create
    monkeypatch.setattr(Users, "_create", create)
    before = Path.cwd()
    in_memory("way")
    pod = PodPlan("p", 10.0, "Always", ((Run(),),), volumes=("empty",))
    tracing = sys.getprofile()
    sys.setprofile(note)
    try:
        verdict = run(Workload((pod,)), (), seed=1)
    finally:
        sys.setprofile(tracing)
        os.chdir(before)
    assert verdict.violation is None, "\n".join(verdict.lines)
    yield found


@cache
def _named(code: CodeType) -> tuple[str, str]:
    file = Path(code.co_filename)
    return (str(file.relative_to(CHECKOUT)) if file.is_relative_to(CHECKOUT) else "", code.co_qualname)


@cache
def _first_instruction(code: CodeType) -> int:
    """The offset at which a call begins; a generator or coroutine is resumed at a higher one."""
    return next(one.offset for one in dis.get_instructions(code) if one.opname.startswith("RESUME"))


def test_every_step_is_a_function_of_its_file_and_no_file_is_listed_twice() -> None:
    assert len(STEPS) > 20
    files = [file for file, _ in WAY]
    assert len(set(files)) == len(files)
    assert not [step for step in WAY if step[1] not in _functions(step[0])]


def test_a_pod_passes_the_functions_in_this_order(calls: list[tuple[str, str]]) -> None:
    assert not [step for step in WAY if step not in calls]
    assert list(dict.fromkeys(calls)) == WAY


def test_what_is_passed_again_is_marked(calls: list[tuple[str, str]]) -> None:
    last = {step: place for place, step in enumerate(calls)}
    first = {step: place for place, step in reversed(list(enumerate(calls)))}
    again = {step for step, following in pairwise(WAY) if last[step] > first[following]}
    assert again == {(file, function) for file, function, passed in STEPS if passed == "each event"}


def _functions(file: str) -> set[str]:
    """The functions of a file by their qualified names."""
    found: set[str] = set()

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                visit(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(prefix + child.name)

    visit(ast.parse((CHECKOUT / file).read_text()), "")
    return found
