"""What a machine of the tests has out here, and must not leave: processes, mounts, disks, interfaces."""

from contextlib import suppress
from pathlib import Path


def processes_of(directory: Path) -> list[int]:
    """The ids of the processes of a machine of that directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if f"hostfs={directory}/".encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def left_of(directory: Path, devices: set[str]) -> list[object]:
    """What this machine still has of a machine of that directory: processes, mounts, disks, and interfaces beside
    those devices."""
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(directory) in line]
    files = [path for path in directory.iterdir() if path.is_file()]
    return [*processes_of(directory), *mounts, *files, *(network_devices() - devices)]


def network_devices() -> set[str]:
    """The interfaces of this machine that a test of machines could have made."""
    return {path.name for path in Path("/sys/class/net").iterdir() if path.name.startswith(("tap", "mach"))}
