"""Says what a line of a story can be."""

from enum import StrEnum
from typing import Any

from msgspec import Struct, field

Line = dict[str, Any]
_NO_CLOCK = 1e18


class Kind(StrEnum):
    """`what` of a line, with its fields."""

    POD = "pod"  # name, namespace, uid, source: heads each file
    START = "life"  # boot, machine_started: podsync began to write (again)
    # source, change: "new", "changed", "to be deleted", "gone"; with `offlinePods` also "recorded" and "confirmed";
    # grace; recorded: the moment of that record
    SEEN = "seen"
    STATE = "state"  # state, rejected: as in pods.admitted
    WAITS = "waits"  # waits_for
    VOLUME = "volume"  # volume, state, error
    BEGUN = "begun"  # call and its subject: container, attempt, image, grace
    DONE = "done"  # the keys of BEGUN, took, bytes
    FAILED = "failed"  # the keys of BEGUN, text, interrupted
    SANDBOX = "sandbox"  # attempt, state
    CONTAINER = "container"  # container, attempt, state, exit_code, reason, started, finished, id
    PROBE = "probe"  # container, probe, result, times, output
    PULL = "pull"  # image, and the other fields of an item of pods.pulls
    EVENT = "event"  # type, reason, message, container
    STATUS = "status"  # phase, ready


def is_moment(value: Any) -> bool:
    """Return whether it is a number of seconds, however wild the clock."""
    return isinstance(value, int | float) and abs(value) < _NO_CLOCK


class Story(Struct, frozen=True, kw_only=True):
    """All lines there are of one pod, oldest first. `cut`: earlier ones had to make room."""

    uid: str
    name: str = ""
    namespace: str = ""
    source: str = ""
    cut: bool = False
    lines: list[Line] = field(default_factory=list)

    @property
    def newest(self) -> float:
        """Wall-clock seconds of the newest line, 0 without any."""
        return float(self.lines[-1].get("at") or 0.0) if self.lines else 0.0
