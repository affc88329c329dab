"""Identifies the supervisord that started this process, also after its end: files of an earlier one are outdated.
Once the parent is killed, which may happen right after the fork, getppid() returns another process. So
`services.frame.preloading` puts the generation into the environment of every process that supervisord starts.
"""

import os

from shared.process.identity import identity_of, is_running

_TICKS = os.sysconf("SC_CLK_TCK")  # in a second
SUPERVISORD = "BULKHEAD_SUPERVISORD"  # variable with a generation as `generation_of` returns it


def supervisor_generation() -> str:
    """Return the generation that this process belongs to, "" = no supervisord started it.
    Where supervisord.conf has no section `preloading`, it must be called early: it then reads the parent, and an orphan
    has another parent.
    """
    if os.environ.get("SUPERVISOR_ENABLED") != "1":
        return ""
    return os.environ.get(SUPERVISORD) or generation_of(os.getppid())


def supervisor_process() -> int:
    """Return the process id of the supervisord that started us, also if it has ended, else that of the parent."""
    identity = supervisor_generation().split("/")
    return int(identity[1]) if len(identity) >= 3 and identity[1].isdigit() else os.getppid()


def generation_of(process: int, load: int = 1) -> str:
    """Return the identity of a supervisord process, with how often it has loaded its configuration; "" = it has ended.
    A reload restarts all services, and so begins a new generation.
    """
    identity = identity_of(process)
    return f"{identity}/{load}" if identity and load > 1 else identity


def started_after_boot(generation: str) -> float | None:
    """Return the seconds from the boot to the start of the supervisord of this generation; None = not known."""
    identity = generation.split("/")
    return int(identity[2]) / _TICKS if len(identity) >= 3 and identity[2].isdigit() else None


def same_supervisord(first: str, second: str) -> bool:
    """Return whether two generations are of one supervisord process, before and after a reload."""
    return first != "" and _supervisord(first) == _supervisord(second)


def supervisord_runs(generation: str) -> bool:
    """Return whether the supervisord of this generation runs."""
    return is_running(_supervisord(generation))


def _supervisord(generation: str) -> str:
    return "/".join(generation.split("/")[:3])
