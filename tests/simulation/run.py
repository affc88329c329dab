"""One run of one seed, with or without its faults, and the verdict on it."""

import asyncio
import atexit
import functools
import gc
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.simulation.faults import Fault, draw_faults, end_of
from tests.simulation.final_state import State, difference, left_over, state_of
from tests.simulation.loop import NodeClock, SimulationLoop, StuckError
from tests.simulation.node import Node
from tests.simulation.placement import draw_placement_faults, with_placement
from tests.simulation.surroundings import clear, surroundings
from tests.simulation.workload import Workload, draw_workload

FAULTS_WITHIN = 25.0  # seconds
REST = 6.0  # seconds without a change make the end of an undisturbed run
LONGEST_REFERENCE = 400.0
SETTLE_SECONDS = 180.0  # seconds after the last fault within which everything must have come to its end
STAYS = 2.0  # seconds for which a disturbed run must stay at its end

Mutate = Callable[[str, Any], None]


@dataclass(frozen=True)
class Verdict:
    """What came of a run; `violation` None = all is well."""

    violation: str | None
    state: State
    lines: tuple[str, ...]
    digest: str
    seconds: float  # virtual


@dataclass(frozen=True)
class Case:
    """A seed's workload and faults, or what shrinking left of them."""

    seed: int
    workload: Workload
    faults: tuple[Fault, ...]


def draw(seed: int) -> Case:
    """The same for the same seed."""
    rng = Random(seed)
    workload = draw_workload(rng)
    faults = draw_faults(rng, FAULTS_WITHIN)
    of_placement = Random(f"machine {seed}")
    workload = with_placement(workload, of_placement)
    if workload.plugin is not None:
        faults += draw_placement_faults(of_placement, FAULTS_WITHIN)
    return Case(seed, workload, faults)


def check_case(case: Case, mutate: Mutate | None = None) -> Verdict:
    """Run undisturbed, then with the faults: it must end the same."""
    reference = _undisturbed(case.workload, case.seed)
    if reference.violation:
        return reference
    return run(case.workload, case.faults, case.seed, reference.state, mutate)


@functools.lru_cache(maxsize=16)
def _undisturbed(workload: Workload, seed: int) -> Verdict:
    """Always the same, so made once: shrinking and the broken agents ask for it again and again."""
    return run(workload, (), seed)


def run(
    workload: Workload,
    faults: tuple[Fault, ...],
    seed: int,
    expected: State | None = None,
    mutate: Mutate | None = None,
) -> Verdict:
    """One run in the working directory, which should be empty and in memory."""
    clear("root", "run", "logs", "manifests")
    clock = NodeClock()
    loop = SimulationLoop(clock)
    asyncio.set_event_loop(loop)
    with asyncio_without_gc():
        node = Node(loop, workload, faults, seed)
        if mutate is not None:
            node.mutate = mutate
        with surroundings(node, seed):
            try:
                loop.run_until_complete(_drive(node, expected))
            except StuckError as stuck:
                node.oracle.violated(f"{stuck}")
            state = state_of(node)
            node.oracle.closed = True
            lines, digest = tuple(node.story.numbered()), node.story.digest()
            _bury(loop, node)
    return Verdict(node.oracle.violation, state, lines, digest, node.story.seconds)


async def _drive(node: Node, expected: State | None) -> None:
    node.begin()
    if expected is None:
        await _until_rest(node)
    else:
        await _until_expected(node, expected)


async def _until_rest(node: Node) -> None:
    latest, since = None, node.story.seconds
    while node.oracle.violation is None:
        await asyncio.sleep(1.0)
        state = (state_of(node), dict(node.oracle.starts))
        if state != latest or node.users.acts_left or not node.users.is_at_its_end() or left_over(state[0]):
            latest, since = state, node.story.seconds
        elif node.story.seconds - since >= REST and node.story.seconds > end_of(node.faults):
            return
        if node.story.seconds > LONGEST_REFERENCE:
            node.oracle.violated("the undisturbed run never comes to rest")


async def _until_expected(node: Node, expected: State) -> None:
    over = end_of(node.faults)
    equal_since: float | None = None
    while node.oracle.violation is None:
        await asyncio.sleep(1.0)
        seconds = node.story.seconds
        if seconds < over or node.users.acts_left:
            if seconds > over + SETTLE_SECONDS:
                node.oracle.violated("what users wait for never happens")
            continue
        found = state_of(node)
        if found == expected:
            equal_since = seconds if equal_since is None else equal_since
            if seconds - equal_since >= STAYS:
                return
            continue
        equal_since = None
        if seconds > over + SETTLE_SECONDS:
            node.oracle.violated(f"{SETTLE_SECONDS:g} s after the last fault: {difference(expected, found)}")


class asyncio_without_gc:  # noqa: N801
    """The collector must not run what the dead left behind."""

    def __enter__(self) -> None:
        self._on = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._on:
            gc.enable()


def _bury(loop: SimulationLoop, node: Node) -> None:
    """End what is suspended, without letting it run."""
    for incarnation in [*node.incarnations.values()]:
        incarnation.dead = True
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        coroutine: Any = task.get_coro()
        for _ in range(3):
            try:
                coroutine.close()
                break
            except BaseException:
                continue
    loop._ready.clear()  # type: ignore[attr-defined]
    loop._scheduled.clear()  # type: ignore[attr-defined]
    asyncio.set_event_loop(None)
    loop.close()


def in_memory(name: str) -> None:
    """Make a fresh directory in memory the working directory: paths are relative and the same in every process."""
    directory = _memory() / f"simulation-{name}-{os.getpid()}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    os.chdir(directory)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)


def _memory() -> Path:
    return Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")


def clear_memory(name: str) -> None:
    """Remove what processes of this name left that did not live to remove it."""
    for directory in _memory().glob(f"simulation-{name}-*"):
        if not Path(f"/proc/{directory.name.rpartition('-')[2]}").exists():
            shutil.rmtree(directory, ignore_errors=True)
