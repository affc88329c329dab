"""Decides which line reports the trouble with the runtime, when several calls fail for the same reason."""

from shared.cri.interface import PartialObservationError, RuntimeCallError
from shared.errors import OperatorError


class RuntimeTrouble:
    """Has the newest error of each kind of call. The line is that of the oldest trouble, so that it does not
    alternate."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._lines: dict[str, str] = {}

    @property
    def line(self) -> str | None:
        """The line for the operator; None = no trouble."""
        return next(iter(self._lines.values()), None)

    def note(self, source: str, error: RuntimeCallError | None) -> bool:
        """Note that a call of this kind failed, or with None succeeded. Return whether the line has changed.
        A kind that succeeds again clears the others, too: those that still fail are noted again within seconds.
        """
        before = self.line
        if error is None:
            if source in self._lines:
                self._lines.clear()
        else:
            self._lines[source] = self._line_of(error)
        return self.line != before

    def _line_of(self, error: RuntimeCallError) -> str:
        if isinstance(error, PartialObservationError):
            what = f"the container runtime cannot show pods {', '.join(sorted(error.unseen))}: {error}"
            remedy = "the other pods are not affected; see the runtime's log"
        else:
            what = f"the container runtime does not answer {error.method}: {error}"
            remedy = "start it, or set containerRuntimeEndpoint to the socket of a CRI v1 runtime; retrying"
        return str(OperatorError(what, where=self._endpoint, remedy=remedy))
