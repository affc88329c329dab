"""Ports of loopback for agents and other listeners of tests.

They are below those that the kernel gives to connections: an agent that restarts finds its port free again. Ports from
28,000 to 32,767 are for tests that name one.
"""

import random
import socket
from contextlib import ExitStack

_FIRST, _END = 11_000, 28_000  # above the kubelet's own ports; ip_local_port_range begins at 32768
_chance = random.SystemRandom()  # tests set the seed of the common one


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 without a listener now, all different."""
    ports: list[int] = []
    with ExitStack() as opened:
        while len(ports) < count:
            port = _chance.randrange(_FIRST, _END)
            try:
                opened.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            ports.append(port)
    return ports
