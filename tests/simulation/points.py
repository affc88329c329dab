"""When an undisturbed run comes to which crash point, and what a plugin does while a process is killed."""

from collections.abc import Collection
from typing import Any

import pytest

from tests.simulation.faults import Fault, PluginFault
from tests.simulation.node import Node
from tests.simulation.run import run
from tests.simulation.workload import Workload

STATES = ("alive", "gone", "dies", "slow", "silent")  # of a device plugin or a driver


def moments(workload: Workload, seed: int = 1) -> dict[str, list[float]]:
    """Point -> the seconds at which the run comes to it."""
    found: dict[str, list[float]] = {}
    at_point = Node.crash_point

    def crash_point(node: Node, name: str) -> bool:
        found.setdefault(name, []).append(node.story.seconds)
        return at_point(node, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Node, "crash_point", crash_point)
        verdict = run(workload, (), seed)
    assert verdict.violation is None, "\n".join(verdict.lines)
    return found


def plugin_faults(state: str, seconds: float, longest: float = 15.0) -> tuple[Fault, ...]:
    """Return the faults with which the plugin is in this state when a process is killed at `seconds`. `longest`: how
    many seconds it is slow or silent."""
    match state:
        case "alive":
            return ()
        case "gone":  # right after the kill, and until the next process has waited for it
            return (PluginFault(seconds + 0.0001, 15.0, "dead"),)
        case _:
            return (PluginFault(max(seconds - 1.0, 0.0), 15.0 if state == "dies" else longest, state),)


def each(points: Collection[str], short: Collection[tuple[str, str]]) -> list[Any]:
    """Return every point with every state of the plugin. `short`: the pairs that the short lane runs."""
    pairs = [(point, state) for point in points for state in STATES]
    return [pytest.param(*pair, marks=() if pair in short else (pytest.mark.long,)) for pair in pairs]
