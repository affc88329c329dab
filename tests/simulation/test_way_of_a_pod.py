"""docs/way-of-a-pod.md is the way of a pod, a deletion and a changed Secret: a simulated node runs one pod, and the
calls are compared."""

import ast
import dis
import re
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from tests.simulation.run import run
from tests.simulation.users import Users
from tests.simulation.workload import Act, PodPlan, Run, Workload

pytestmark = pytest.mark.long  # compares a document
CHECKOUT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| `(services/[\w/]+\.py):([\w.]+)` \| [^|]+ \| (once|each event) \|$", re.MULTILINE)
PAGE = (CHECKOUT / "docs" / "way-of-a-pod.md").read_text()
STEPS = ROW.findall(PAGE)
WAY = [(file, function) for file, function, _ in STEPS]
LATER_ROW = re.compile(r"^\| `(services/[\w/]+\.py):([\w.]+)` \| [^|]+ \|$", re.MULTILINE)
LATER_WAYS = {
    heading: LATER_ROW.findall(PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0])
    for heading in ("The way of a deletion", "The way of a changed Secret")
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The calls of the listed functions, in order, from the creation of the pod to the first status patch."""
    found: list[tuple[str, str]] = []

    def create(users: Users, plan: PodPlan) -> None:
        found.clear()
        created(users, plan)

    created = Users._create
    monkeypatch.setattr(Users, "_create", create)
    # Between two readings of the node, every 10 s, which pass some of the functions as well.
    _run(PodPlan("p", 13.0, "Always", ((Run(),),), volumes=("empty",)), WAY, found, until=WAY[-1])
    return found


@pytest.fixture(params=LATER_WAYS)
def later_calls(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The listed functions of one way, and their calls from the moment when the user acts on the running pod."""
    way, found = LATER_WAYS[request.param], list[tuple[str, str]]()

    def act(users: Users, *given: object) -> None:
        found.clear()
        acted(users, *given)

    acted: Callable[..., None] = Users._act
    monkeypatch.setattr(Users, "_act", act)
    kind, volume = ("delete", "empty") if request.param == "The way of a deletion" else ("secret", "secret")
    _run(PodPlan("p", 0.0, "Always", ((Run(),),), acts=(Act(kind, 20.0),), volumes=(volume,)), way, found)
    return way, found


def _run(
    pod: PodPlan, way: list[tuple[str, str]], found: list[tuple[str, str]], until: tuple[str, str] | None = None
) -> None:
    """Run a node with this pod; append the calls of the functions in `way` to `found`, up to the first of `until`."""
    listed = set(way)

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or (function := _named(frame.f_code)) not in listed:
            return
        if frame.f_lasti <= _first_instruction(frame.f_code) and until not in found:  # no resumption of a coroutine
            found.append(function)

    tracing = sys.getprofile()
    sys.setprofile(note)
    try:
        verdict = run(Workload((pod,)), (), seed=1)
    finally:
        sys.setprofile(tracing)
    assert verdict.violation is None, "\n".join(verdict.lines)


@cache
def _named(code: CodeType) -> tuple[str, str]:
    file = Path(code.co_filename)
    return (str(file.relative_to(CHECKOUT)) if file.is_relative_to(CHECKOUT) else "", code.co_qualname)


@cache
def _first_instruction(code: CodeType) -> int:
    """The offset at which a call begins; a generator or coroutine is resumed at a higher one."""
    return next(one.offset for one in dis.get_instructions(code) if one.opname.startswith("RESUME"))


def test_every_step_is_a_function_of_its_file_and_no_step_is_listed_twice() -> None:
    assert len(STEPS) > 20
    assert len(set(WAY)) == len(WAY)
    assert not [step for step in WAY if step[1] not in _functions(step[0])]


def test_a_pod_passes_the_functions_in_this_order(calls: list[tuple[str, str]]) -> None:
    assert not [step for step in WAY if step not in calls]
    assert list(dict.fromkeys(calls)) == WAY


def test_what_is_passed_again_is_marked(calls: list[tuple[str, str]]) -> None:
    last = {step: place for place, step in enumerate(calls)}
    first = {step: place for place, step in reversed(list(enumerate(calls)))}
    again = {step for step, following in pairwise(WAY) if last[step] > first[following]}
    assert again == {(file, function) for file, function, passed in STEPS if passed == "each event"}


def test_every_step_of_the_later_ways_is_a_function_of_its_file() -> None:
    for way in LATER_WAYS.values():
        assert len(way) > 5
        assert not [step for step in way if step[1] not in _functions(step[0])]


def test_a_deletion_and_a_changed_secret_pass_the_functions_in_this_order(
    later_calls: tuple[list[tuple[str, str]], list[tuple[str, str]]],
) -> None:
    way, found = later_calls
    assert not [step for step in way if step not in found]
    assert list(dict.fromkeys(found)) == way


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
