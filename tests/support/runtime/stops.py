"""When a runtime was asked to stop a container, with which timeout, and what it did: read from its own log."""

import re
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


def uptime() -> float:
    """Seconds since the machine started, as in /proc/uptime."""
    return float(Path("/proc/uptime").read_text().split()[0])


@dataclass
class Stop:
    """A StopContainer as the runtime wrote it down; moments are seconds of /proc/uptime, 0 = it did not happen."""

    asked: float
    timeout: int  # seconds
    killed: float = 0.0
    ended: float = 0.0

    def is_within(self, grace: int, since: float, at_least: float | None = None) -> bool:
        """Return whether its timeout is what was left of the grace. The agent counts whole seconds from a moment
        between `since` and `at_least`, or between `since` and the stop where `at_least` is None."""
        least = grace - int(self.asked - since + 0.05)
        most = grace if at_least is None else grace - int(max(0.0, self.asked - at_least - 0.05))
        return max(2, least) <= self.timeout <= max(2, most)  # no process gets less than two seconds


_OF_CONTAINERD = re.compile(
    r'time="(?P<time>[^"]+)" level=info msg="'
    r'(?:StopContainer for \\"(?P<asked>\w+)\\" with timeout (?P<timeout>\d+) \(s\)'
    r'|Kill container \\"(?P<killed>\w+)\\"'
    r'|StopContainer for \\"(?P<ended>\w+)\\" returns)'
)
# The last one is of Docker's containerd, when the container has no process any more.
_OF_DOCKER = re.compile(
    r'time="(?P<time>[^"]+)" level=(?:debug|info) msg="'
    r"(?:Calling POST \S+/containers/(?P<asked>\w+)/stop\?t=(?P<timeout>\d+)"
    r'|Container failed to exit within \S+ of signal \d+ - using the force" container=(?P<killed>\w+)'
    r'|shim disconnected" id=(?P<ended>\w+))'
)


def stops_of_containerd(log: Path) -> dict[str, Stop]:
    """Return the first stop of each container, by id, from containerd's log."""
    return _stops(_OF_CONTAINERD, log)


def stops_of_docker(log: Path) -> dict[str, Stop]:
    """Return the first stop of each container, by id, from the log of a dockerd with `--debug`."""
    return _stops(_OF_DOCKER, log)


def _stops(pattern: re.Pattern[str], log: Path) -> dict[str, Stop]:
    found: dict[str, Stop] = {}
    booted = time.time() - uptime()
    for match in pattern.finditer(log.read_text(errors="replace")):
        when = datetime.fromisoformat(f"{match['time'][:26].rstrip('Z')}+00:00").timestamp() - booted
        if match["asked"]:
            found.setdefault(match["asked"], Stop(when, int(match["timeout"])))
        elif (stop := found.get(match["killed"] or match["ended"])) is not None:
            what = "killed" if match["killed"] else "ended"
            setattr(stop, what, getattr(stop, what) or when)
    return found
