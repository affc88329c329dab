"""Finds which sockets of this network namespace receive, on which ports, and which process has them. Only reads
/proc."""

from collections.abc import Iterator
from pathlib import Path

_PROC_NET = Path("/proc/net")
_LISTENS = "0A"  # the state of a TCP socket
_TABLES = {"tcp": ("TCP", _LISTENS), "tcp6": ("TCP", _LISTENS), "udp": ("UDP", "07"), "udp6": ("UDP", "07")}
_MAX_BYTES = 64 << 20  # of one table, a line has 150


def listening(port: int) -> frozenset[str]:
    """Return the sockets that listen on the TCP port, as links in /proc/<pid>/fd show them."""
    tables = (_receiving(_PROC_NET / table, _LISTENS) for table in ("tcp", "tcp6"))
    return frozenset(f"socket:[{inode}]" for rows in tables for number, inode in rows if number == port)


def listening_ports(directory: Path = _PROC_NET) -> frozenset[tuple[str, int]]:
    """Protocol and port of each socket that listens (TCP) or has a port without a peer (UDP); SCTP is not looked at."""
    return frozenset(
        (protocol, port)
        for table, (protocol, state) in _TABLES.items()
        for port, _ in _receiving(directory / table, state)
    )


def owner_of(sockets: frozenset[str]) -> int | None:
    """Return the process id of one that has one of the sockets (`listening`); None = there is none that this user may
    see.
    """
    for process in Path("/proc").iterdir():
        if sockets and process.name.isdecimal():
            try:
                if any(str(fd.readlink()) in sockets for fd in (process / "fd").iterdir()):
                    return int(process.name)
            except OSError:
                continue
    return None


def _receiving(table: Path, state: str) -> Iterator[tuple[int, str]]:
    """Port and inode of each socket of the table in this state."""
    try:
        with table.open(encoding="ascii") as file:
            lines = file.read(_MAX_BYTES).splitlines()[1:]
    except OSError:
        return  # without IPv6 there is no such table
    for fields in map(str.split, lines):
        if len(fields) > 9 and fields[3] == state:
            yield int(fields[1].rpartition(":")[2], 16), fields[9]
