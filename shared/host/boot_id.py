"""Identifies which start of the machine this is."""

from pathlib import Path

_FILE = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return the kernel's identity of this boot, "" where it cannot be read."""
    try:
        return _FILE.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
