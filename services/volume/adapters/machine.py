"""What this machine has, as long as nobody says what pods may have of it."""

import os


def resources() -> dict[str, str]:
    """Resource -> quantity text: cpu and memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": str(os.cpu_count() or 1), "memory": str(memory)}
