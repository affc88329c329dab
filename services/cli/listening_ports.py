"""The ports of this machine on which some process receives: from the kernel's tables of sockets."""

from collections.abc import Iterator
from pathlib import Path

_TABLES = {"tcp": ("TCP", "0A"), "tcp6": ("TCP", "0A"), "udp": ("UDP", "07"), "udp6": ("UDP", "07")}  # with the state
_MOST_BYTES = 64 << 20  # of one table, a line has 150


def listening_ports(directory: Path = Path("/proc/net")) -> frozenset[tuple[str, int]]:
    """Protocol and port of each socket that listens (TCP) or has a port without a peer (UDP); SCTP is not looked at."""
    return frozenset(port for table in _TABLES for port in _of_table(directory / table, *_TABLES[table]))


def _of_table(path: Path, protocol: str, state: str) -> Iterator[tuple[str, int]]:
    try:
        with path.open(encoding="ascii") as table:
            lines = table.read(_MOST_BYTES).splitlines()[1:]
    except OSError:
        return  # without IPv6 there is no such table
    for fields in map(str.split, lines):
        if len(fields) > 3 and fields[3] == state:
            yield protocol, int(fields[1].rpartition(":")[2], 16)
