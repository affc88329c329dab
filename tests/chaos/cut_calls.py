"""What a cut CRI call leaves outside of the runtime: shims that containerd has given up, and rules of CNI plugins.

Each is traced to the call that left it by containerd's log, so that a test can distinguish it from others.
"""

import re
from collections.abc import Iterable
from pathlib import Path

UNKNOWN = "unknown"
BRIDGE_DELETE = "CNI DEL of bridge"

_ID = r'\\"([0-9a-f]{64})\\"'
_SANDBOX_MADE = re.compile(rf"RunPodSandbox for .* returns sandbox id {_ID}")
_CONTAINER_MADE = re.compile(rf"CreateContainer within sandbox {_ID} .* returns container id {_ID}")
_START_CUT = re.compile(rf'StartContainer for {_ID} failed" error=".*context canceled"')
_DELETE_KILLED = re.compile(rf'for sandbox {_ID}: plugin type=\\"bridge\\" failed \(delete\)')


class CutCalls:
    """The calls that a log of containerd shows as cut off. Any level of logging will do."""

    def __init__(self, log: str) -> None:
        sandbox_of = {container: sandbox for sandbox, container in _CONTAINER_MADE.findall(log)}
        self._made = set(_SANDBOX_MADE.findall(log))
        self._with_a_cut_start = {sandbox_of.get(container) for container in _START_CUT.findall(log)}
        self._with_a_killed_delete = set(_DELETE_KILLED.findall(log))

    def cause_of_shim(self, sandbox_id: str) -> str:
        """The method of the call that was cut, or UNKNOWN."""
        if sandbox_id not in self._made:
            return "RunPodSandbox"
        return "StartContainer" if sandbox_id in self._with_a_cut_start else UNKNOWN

    def cause_of_rule(self, sandbox_id: str) -> str:
        """BRIDGE_DELETE where the plugin was killed at work, else UNKNOWN."""
        return BRIDGE_DELETE if sandbox_id in self._with_a_killed_delete else UNKNOWN


def is_given_up(shim: int) -> bool:
    """Whether containerd has deleted the bundle that the shim works in, and the shim has no process of a pod: no
    containerd, nor a later one, knows such a shim. False for one that has ended."""
    process = Path(f"/proc/{shim}")
    try:
        children = "".join(path.read_text() for path in process.glob("task/*/children"))
        return (process / "cwd").readlink().name.endswith(" (deleted)") and not children
    except OSError:
        return False


def sandbox_of_shim(shim: int) -> str:
    """Its argument `-id`. Raises OSError for one that has ended."""
    arguments = Path(f"/proc/{shim}/cmdline").read_text().split("\0")
    return arguments[arguments.index("-id") + 1]


def sandboxes_of_rules(rules: Iterable[str]) -> set[str]:
    """The ids in the comments of CNI's rules."""
    return set(re.findall(r'id: "([0-9a-f]{64})"', "\n".join(rules)))
