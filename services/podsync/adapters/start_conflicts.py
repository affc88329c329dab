"""Decides what follows where the configuration, the files of an earlier agent and the machine do not go together.

At a start of the agent podsync then does not start, as the Go kubelet. Where podsync alone starts again, the
configuration is as it was, so the machine has changed since: that keeps no process from its running pods.
"""

import logging
from collections.abc import Callable
from typing import Any

from shared.errors import OperatorError
from shared.files.checkpoint import Checkpoint

log = logging.getLogger(__name__)

RECORD = "placement"  # key of the record of the agent's start
_TROUBLE = "changed machine"


def refuse(conflict: OperatorError) -> None:
    """Keep the process from starting."""
    raise conflict


class StartConflicts:
    """Compares the start of the agent with that of the process before. `generation`: as the frame names it, "" = not
    known. A reload of the configuration begins a new one."""

    def __init__(self, checkpoint: Checkpoint, last: dict[str, Any], generation: str) -> None:
        """Compare with `last`, the record of the process before; {} = none."""
        self._checkpoint, self._generation = checkpoint, generation
        self._is_checked = bool(generation) and last.get("generation") == generation
        self._found: list[str] = []

    def report(self, conflict: OperatorError) -> None:
        """Raise the conflict at a start of the agent, note it otherwise."""
        if not self._is_checked:
            raise conflict
        log.warning("the machine has changed since the agent started: %s", conflict)
        self._found.append(str(conflict))

    def passed(self) -> None:
        """Save that this start of the agent has no conflicts."""
        if self._generation and not self._is_checked:
            self._checkpoint.save(RECORD, {"generation": self._generation})

    def announce(self, trouble: Callable[[str, str | None], None]) -> None:
        """Set the trouble of what was noted; it lasts as long as the process."""
        if self._found:
            line = f"the machine has changed since the agent started, whose next start fails: {'; '.join(self._found)}"
            trouble(_TROUBLE, line)
