"""Whether the API server can be reached, by what the requests of status met; pure."""

from dataclasses import dataclass, field


@dataclass
class Outage:
    """`error`: what is wrong while there is an outage, "" = there is none.

    A heartbeat that fails begins it. Other requests do not: a server that restarts behind a load balancer fails a few
    of them, and reviews of clients would be refused until the next heartbeat.
    """

    error: str = field(default="", init=False)

    def heartbeat_failed(self, error: str) -> None:
        """The network failed a request about the Lease or the Node's status."""
        self.error = error

    def reached(self) -> None:
        """A request came to the API server, whatever it answered."""
        self.error = ""
