"""Decides what follows where the configuration, the files of an earlier agent and the machine do not go together; pure.

At a start of the agent podsync then does not start, as the Go kubelet. Where podsync alone starts again, the
configuration is as it was, so the machine has changed since: that keeps no process from its running pods.
"""

from collections.abc import Mapping
from typing import Any

from shared.errors import OperatorError


def refuse(conflict: OperatorError) -> None:
    """Keep the process from starting."""
    raise conflict


class StartConflicts:
    """Compares the start of the agent with that of the process before. `last`: the record of the process before, {} =
    none; `generation`: of the agent, as the frame names it, "" = not known. A reload of the configuration begins a new
    one."""

    def __init__(self, last: Mapping[str, Any], generation: str) -> None:
        self._generation = generation
        self._is_checked = bool(generation) and last.get("generation") == generation
        self._found: list[str] = []

    def report(self, conflict: OperatorError) -> None:
        """Raise the conflict at a start of the agent, note it otherwise."""
        if not self._is_checked:
            raise conflict
        self._found.append(str(conflict))

    @property
    def record(self) -> dict[str, Any] | None:
        """Return the record of a start that had no conflicts; None = there is nothing new to save."""
        return {"generation": self._generation} if self._generation and not self._is_checked else None

    @property
    def trouble(self) -> str | None:
        """Return the line about what was noted, which lasts as long as the process; None = nothing was."""
        if not self._found:
            return None
        return f"the machine has changed since the agent started, whose next start fails: {'; '.join(self._found)}"
