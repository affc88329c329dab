"""Keeps the troubles of sources: each is logged when it begins and when it is over, and is in the beat meanwhile."""

import logging
from collections.abc import Mapping

from bus.interface import Bus

log = logging.getLogger(__name__)


class Troubles:
    """The named troubles of this process."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._lines: dict[str, str] = {}

    def set(self, name: str, line: str | None, *, logged: bool = False) -> None:
        """Set the trouble, or with None clear it. `logged`: the caller has written it to the log already."""
        if self._lines.get(name) == line:
            return
        if line is None:
            log.info("%s: no longer in trouble", name)
            del self._lines[name]
        else:
            if not logged:
                log.warning("%s", line)
            self._lines[name] = line
        self._bus.trouble(name, line)

    def set_all(self, kind: str, lines: Mapping[str, str], *, logged: bool = False) -> None:
        """Set all troubles of one kind, by their subjects; troubles of this kind that are missing are over."""
        current = {f"{kind} {about}": line for about, line in lines.items()}
        for name in [name for name in self._lines if name.startswith(f"{kind} ") and name not in current]:
            self.set(name, None)
        for name, line in current.items():
            self.set(name, line, logged=logged)
