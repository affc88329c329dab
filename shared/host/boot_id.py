"""Identifies which start of the machine this is."""

import subprocess
from pathlib import Path

_FILE = Path("/proc/sys/kernel/random/boot_id")
_SYSTEMCTL = ("systemctl", "show", "--property=UserspaceTimestampMonotonic", "--value")
MAX_SYSTEMCTL_SECONDS = 5.0


def boot_id() -> str:
    """Return the kernel's identity of this boot, "" where it cannot be read."""
    try:
        return _FILE.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def start_of_programs(earlier: str = "") -> str:
    """Return the identity of the last moment at which all programs were started: the boot, and when systemd began,
    which `systemctl soft-reboot` does again without another boot. Without systemd it is the boot alone. Where systemd
    does not answer, it is the `earlier` identity, if that is of this boot. Blocks."""
    try:
        shown = subprocess.run(_SYSTEMCTL, capture_output=True, text=True, check=True, timeout=MAX_SYSTEMCTL_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return earlier if earlier.split()[:1] == [boot_id()] else boot_id()
    return f"{boot_id()} {shown.stdout.strip()}".strip()
