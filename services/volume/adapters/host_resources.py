"""The resources of this host, a guess at the allocatable ones until podsync publishes them."""

import os

from shared.host import meminfo


def read() -> dict[str, str]:
    """Return cpu and memory of the host: resource -> quantity text."""
    return {"cpu": str(os.cpu_count() or 1), "memory": str(meminfo().get("MemTotal", 0))}
