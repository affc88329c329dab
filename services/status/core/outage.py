"""Decides from the results of the requests of status whether the API server can be reached; pure."""

from dataclasses import dataclass, field


@dataclass
class Outage:
    """An outage of the API server. `error`: its cause, "" = there is no outage.

    Only a heartbeat that fails begins an outage. If other requests did, a server that restarts behind a load balancer,
    where a few requests fail, would refuse reviews of clients until the next heartbeat.
    """

    error: str = field(default="", init=False)

    def heartbeat_failed(self, error: str) -> None:
        """Note that a request about the Lease or the Node's status failed because of the network."""
        self.error = error

    def reached(self) -> None:
        """Note that a request reached the API server, whatever it answered."""
        self.error = ""
