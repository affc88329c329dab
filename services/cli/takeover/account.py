"""Reports a takeover or a give-back: lines while it works, or one JSON object at its end."""

from collections.abc import Callable, Iterable
from typing import Any

from services.cli.takeover.containers import Change
from services.cli.takeover.operation import DONE, INCOMPLETE, INTERRUPTED, REFUSED, ROLLED_BACK, Outcome
from services.cli.takeover.unit import UNIT
from services.cli.terminal.output import dump
from shared.text.plain_text import plain

Write = Callable[[str], None]
_RESULTS = {
    DONE: "done",
    REFUSED: "refused",
    ROLLED_BACK: "rolled-back",
    INCOMPLETE: "incomplete",
    INTERRUPTED: "interrupted",
}


class Account:
    """The report of one command. `form`: text, json or yaml; `out`, `err`: write a line to standard output and standard
    error."""

    def __init__(self, command: str, out: Write, err: Write, form: str = "text") -> None:
        self._command, self._out, self._err, self._form = command, out, err, form
        self._lines: list[str] = []
        self._problems: list[str] = []
        self._containers: dict[str, Any] | None = None
        self._seconds: float | None = None
        self.node = ""
        self.is_dry_run = False
        self.preflight: dict[str, Any] | None = None

    @property
    def _is_text(self) -> bool:
        return self._form == "text"

    def show(self, lines: Iterable[str]) -> None:
        """Write the report of preflight. It may have colours, and is not part of the object."""
        if self._is_text:
            for line in lines:
                self._out(line)

    def line(self, text: str) -> None:
        """Report a step that begins, a note or a conclusion. Control characters are escaped, because the text may quote
        a log."""
        self._lines.append(plain(text))
        if self._is_text:
            self._out(self._lines[-1])

    def problem(self, text: str) -> None:
        """Report why something is not done or has failed. Control characters are escaped."""
        self._problems.append(plain(text))
        if self._is_text:
            self._err(self._problems[-1])

    def ended(self, outcome: Outcome) -> None:
        """Note how the operation ended."""
        self._seconds = outcome.seconds

    def compared(self, before: int, change: Change) -> None:
        """Note what became of the containers. `before`: how many ran."""
        restarted, ended = list(change.restarted), list(change.ended)
        self._containers = {"before": before, "kept": change.kept, "restartedPods": restarted, "endedPods": ended}

    def finish(self, code: int) -> int:
        """Write the object if no lines were written. Return the exit code `code`."""
        if not self._is_text:
            self._out(dump(self._data(code), self._form))
        return code

    def _data(self, code: int) -> dict[str, Any]:
        return {
            "command": self._command,
            "dryRun": self.is_dry_run,
            "exitCode": code,
            "result": _RESULTS.get(code, "incomplete"),
            "node": self.node,
            "unit": UNIT,
            "seconds": None if self._seconds is None else round(self._seconds, 1),
            "containers": self._containers,
            "lines": self._lines,
            "problems": self._problems,
            "preflight": self.preflight,
        }
