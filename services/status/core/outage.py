"""Whether the API server can be reached, by what the requests of status met; pure."""

from dataclasses import dataclass, field

MAX_FAILURES = 2  # requests in a row, not of the heartbeat, that begin an outage: one may be a lost connection alone


@dataclass
class Outage:
    """`error`: what is wrong while there is an outage, "" = there is none."""

    error: str = field(default="", init=False)
    _failures: int = field(default=0, init=False)  # in a row

    def failed(self, error: str, *, by_heartbeat: bool) -> None:
        """The network failed a request."""
        self._failures += 1
        if by_heartbeat or self._failures >= MAX_FAILURES:
            self.error = error

    def reached(self) -> None:
        """A request came to the API server, whatever it answered."""
        self.error, self._failures = "", 0
