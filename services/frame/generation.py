"""Which supervisord this process was started by, whether or not that one runs; what an earlier one left is not today's.

A parent's id is another one's as soon as the parent has been killed, be it a moment after the fork. So
`services.frame.preloading` puts the generation into the environment of whatever supervisord starts.
"""

import os

from shared.process.identity import identity_of, is_running

_TICKS = os.sysconf("SC_CLK_TCK")  # in a second
SUPERVISORD = "BULKHEAD_SUPERVISORD"  # in the environment: a generation as `generation_of` gives it


def supervisor_generation() -> str:
    """The generation this process belongs to, "" when no supervisord started it.

    Ask early where supervisord.conf has no section `preloading`: the parent is asked then, and orphans have another.
    """
    if os.environ.get("SUPERVISOR_ENABLED") != "1":
        return ""
    return os.environ.get(SUPERVISORD) or generation_of(os.getppid())


def supervisor_process() -> int:
    """Return the process id of the supervisord that started us, also if it has ended, else that of the parent."""
    identity = supervisor_generation().split("/")
    return int(identity[1]) if len(identity) >= 3 and identity[1].isdigit() else os.getppid()


def generation_of(process: int, load: int = 1) -> str:
    """The identity of a supervisord process, and how often it has loaded its configuration; "" when it has ended.

    A reload restarts all services, and so begins a generation.
    """
    identity = identity_of(process)
    return f"{identity}/{load}" if identity and load > 1 else identity


def started_after_boot(generation: str) -> float | None:
    """Seconds after the machine's boot at which the supervisord of this generation was started; None = not known."""
    identity = generation.split("/")
    return int(identity[2]) / _TICKS if len(identity) >= 3 and identity[2].isdigit() else None


def same_supervisord(one: str, other: str) -> bool:
    """Whether two generations are of one supervisord process, before and after a reload."""
    return one != "" and _supervisord(one) == _supervisord(other)


def supervisord_runs(generation: str) -> bool:
    """Whether the supervisord of this generation has not ended."""
    return is_running(_supervisord(generation))


def _supervisord(generation: str) -> str:
    return "/".join(generation.split("/")[:3])
