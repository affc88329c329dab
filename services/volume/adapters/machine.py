"""The resources of this machine, a guess at the allocatable ones until podsync publishes them."""

import os


def resources() -> dict[str, str]:
    """Return cpu and memory of the machine: resource -> quantity text."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": str(os.cpu_count() or 1), "memory": str(memory)}
