"""Ports of loopback for agents and other listeners of tests.

They are below those that the kernel gives to connections: an agent that restarts finds its port free again. Ports from
28,000 to 32,767 are for tests that name one.
"""

import random
import socket
from contextlib import ExitStack

from tests.support.agents.reservations import Reservations

_FIRST, _END = 11_000, 28_000  # above the kubelet's own ports; ip_local_port_range begins at 32768
_reserved = Reservations("port", most=100)
_chance = random.SystemRandom()  # tests set the seed of the common one


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 without a listener now, all different. No other process of tests gets them: some
    listen only seconds later, and an agent or an API server is away while it restarts."""
    ports: list[int] = []
    with ExitStack() as opened:
        while len(ports) < count:
            port = _chance.randrange(_FIRST, _END)
            try:
                opened.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            if _reserved.reserve(port):
                ports.append(port)
    return ports
