"""Reads what this process may do beyond its user's rights (capabilities(7))."""

from pathlib import Path

CAP_SYS_RESOURCE = 24


def has_capability(number: int) -> bool:
    """Return whether this process may use the capability of this number."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False
