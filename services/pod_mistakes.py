"""The border around what a service does for one pod: an exception is logged once, is a trouble, and ends there."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shared.clock import Clock
from shared.pod_failures import PodFailures

_NO_POD = "-"


class PodMistakes:
    """`log` is the service's; `trouble` sets the named trouble of its beat."""

    def __init__(self, log: logging.Logger, trouble: Callable[[str, str | None], None], clock: Clock) -> None:
        self._log, self._trouble, self._clock = log, trouble, clock
        self._failures = PodFailures()

    def note(self, uid: str, what: str, error: BaseException, after: str = "") -> None:
        """This was raised. The traceback is logged once for each kind of error, and again after ten minutes."""
        if self._failures.failed(uid or _NO_POD, what, error, self._clock.monotonic()):
            text = after and f" after: {after}"
            self._log.error("%s of pod %s failed%s", what, uid or _NO_POD, text, exc_info=error)
        self._trouble("pods", self._failures.line)

    def went_well(self, uid: str, what: str) -> None:
        """The same went well."""
        if self._failures.ended(uid or _NO_POD, what):
            self._trouble("pods", self._failures.line)

    def forget(self, uid: str) -> None:
        """Nothing of the pod is left."""
        self._failures.forget(uid)
        self._trouble("pods", self._failures.line)

    @contextmanager
    def border(self, uid: str, what: str) -> Iterator[None]:
        """An exception in the block is noted and goes no further."""
        try:
            yield
        except Exception as error:
            self.note(uid, what, error)
        else:
            self.went_well(uid, what)
