"""What a machine of the tests has out here, and must not leave: processes, mounts, disks, interfaces."""

import socket
from collections.abc import Collection
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


def left_of(directory: Path, interfaces: Collection[int] = ()) -> list[object]:
    """What this machine still has of a machine of that directory: processes, mounts, disks, and those of these
    interfaces (their numbers, which no later interface gets)."""
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(directory) in line]
    files = [path for path in directory.iterdir() if path.is_file()]
    return [*processes_of(directory), *mounts, *files, *(n for i, n in socket.if_nameindex() if i in interfaces)]


def interface_names() -> set[str]:
    """The interfaces of this machine."""
    return {name for _, name in socket.if_nameindex()}
