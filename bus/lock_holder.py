"""Which process holds a service's lock, by its record; the last release wrote a process id and nothing else."""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shared.process_identity import identity_of, is_running

_SUPERVISORD = b"BULKHEAD_SUPERVISORD="  # as services.frame.generation has it
_ENDED = "ended"  # a generation whose supervisord does not run; which one it was is not known


@dataclass(frozen=True)
class Holder:
    """A running process that holds a lock: its id, its identity (`shared.process_identity`), and the generation of the
    supervisord that started it ("" = none)."""

    pid: int
    process: str
    supervisord: str


def read_holder(path: Path) -> Holder | None:
    """The process that took the lock of this file last, if it runs and did not release it."""
    try:
        record = json.loads(path.read_bytes())
        pid = int(record["pid"])
        if "process" not in record:
            return _of_the_last_release(pid, path)
        holder = Holder(pid, str(record["process"]), str(record["supervisord"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return holder if is_running(holder.process) else None


def _of_the_last_release(pid: int, path: Path) -> Holder | None:
    """Another process may have the id by now: the holder has the file open."""
    process = identity_of(pid)
    if not process or not any(_is(fd, path) for fd in Path(f"/proc/{pid}/fd").iterdir()):
        return None
    holder = Holder(pid, process, _supervisord_of(Path(f"/proc/{pid}")))
    return holder if is_running(process) else None


def _supervisord_of(process: Path) -> str:
    """What was executed has the generation in its environment. A fork of supervisord has the name of its service, and
    the environment that supervisord was started with; only its parent's id shows which supervisord, while that runs.
    """
    environment = (process / "environ").read_bytes()
    given = [entry for entry in environment.split(b"\0") if entry.startswith(_SUPERVISORD)]
    if given:
        return given[0].removeprefix(_SUPERVISORD).decode()
    if (process / "comm").read_text().startswith("python"):
        return ""
    parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
    with suppress(OSError):
        above = Path(f"/proc/{parent}")
        same = (above / "exe").readlink() == (process / "exe").readlink()
        if same and (above / "environ").read_bytes() == environment:
            return identity_of(parent) or _ENDED
    return _ENDED


def _is(fd: Path, path: Path) -> bool:
    try:
        return fd.samefile(path)
    except OSError:  # closed meanwhile, as any but the one that is looked for may be
        return False
