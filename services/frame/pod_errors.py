"""Contains the unexpected exceptions of one pod: logs each once, reports it as a trouble in the beat, suppresses it."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shared.pods.failures import PodFailures
from shared.time.clock import Clock

_NO_POD = "-"


class PodErrors:
    """Logs and reports exceptions by pod. `log` is the service's logger; `trouble` sets or clears (None) a named
    trouble of its beat."""

    def __init__(self, log: logging.Logger, trouble: Callable[[str, str | None], None], clock: Clock) -> None:
        self._log, self._trouble, self._clock = log, trouble, clock
        self._failures = PodFailures()

    def note(self, uid: str, what: str, error: BaseException, after: str = "") -> None:
        """Record that `what` raised. The traceback is logged once for each type of error, and again after ten
        minutes. `after` is the event from which the work followed, for the log."""
        if self._failures.failed(uid or _NO_POD, what, error, self._clock.monotonic()):
            text = after and f" after: {after}"
            self._log.error("%s of pod %s failed%s", what, uid or _NO_POD, text, exc_info=error)
        self._trouble("pods", self._failures.line)

    def succeeded(self, uid: str, what: str) -> None:
        """Record that `what` raised nothing this time."""
        if self._failures.ended(uid or _NO_POD, what):
            self._trouble("pods", self._failures.line)

    def forget(self, uid: str) -> None:
        """Drop what is recorded of the pod."""
        self._failures.forget(uid)
        self._trouble("pods", self._failures.line)

    @contextmanager
    def contained(self, uid: str, what: str) -> Iterator[None]:
        """Note an exception that the block raises, and suppress it."""
        try:
            yield
        except Exception as error:
            self.note(uid, what, error)
        else:
            self.succeeded(uid, what)
