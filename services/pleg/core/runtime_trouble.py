"""Decides which one line says what is wrong with the runtime, when several calls fail for the same reason."""

from shared.cri.interface import PartialObservationError, RuntimeCallError
from shared.errors import OperatorError


class RuntimeTrouble:
    """The newest error of each kind of call; the line is the oldest trouble's, so that it does not flip to and fro."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._lines: dict[str, str] = {}

    @property
    def line(self) -> str | None:
        """One line for the operator; None = no trouble."""
        return next(iter(self._lines.values()), None)

    def note(self, source: str, error: RuntimeCallError | None) -> bool:
        """This kind of call failed, or with None went well; whether the line is another one now.

        A kind that goes well again clears the others too: where those still fail, they say so within seconds.
        """
        before = self.line
        if error is None:
            if source in self._lines:
                self._lines.clear()
        else:
            self._lines[source] = self._say(error)
        return self.line != before

    def _say(self, error: RuntimeCallError) -> str:
        if isinstance(error, PartialObservationError):
            what = f"the container runtime cannot show pods {', '.join(sorted(error.unseen))}: {error}"
            remedy = "the other pods are not affected; see the runtime's log"
        else:
            what = f"the container runtime does not answer {error.method}: {error}"
            remedy = "start it, or set containerRuntimeEndpoint to the socket of a CRI v1 runtime; retrying"
        return str(OperatorError(what, where=self._endpoint, remedy=remedy))
