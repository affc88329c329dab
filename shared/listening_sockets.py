"""Which sockets listen on a TCP port of this network namespace, and which process has them. Only reads /proc."""

from pathlib import Path

_LISTENING = "0A"


def listening(port: int) -> frozenset[str]:
    """The sockets that listen on the TCP port, as links in /proc/<pid>/fd show them."""
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{fields[9]}]")
    return frozenset(sockets)


def owner_of(sockets: frozenset[str]) -> int | None:
    """The process id of one that has one of the sockets (`listening`); None = there is none that this user may see."""
    for process in Path("/proc").iterdir():
        if sockets and process.name.isdecimal():
            try:
                if any(str(fd.readlink()) in sockets for fd in (process / "fd").iterdir()):
                    return int(process.name)
            except OSError:
                continue
    return None
