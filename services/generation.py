"""Which supervisord this process was started by, whether or not it lives; what an earlier one left is not today's.

A parent's id alone does not tell: it is another one's as soon as the parent has been killed, be it a moment after the
fork. So `services.preloading` puts the identity into the environment of whatever supervisord starts.
"""

import os
from pathlib import Path

from shared.boot_id import boot_id

SUPERVISORD = "BULKHEAD_SUPERVISORD"  # in the environment: an identity as `generation_of` gives it


def supervisor_generation() -> str:
    """An identity of the supervisord that started us, "" when none did.

    Ask early where supervisord.conf has no section `preloading`: the parent is asked then, and orphans have another.
    """
    if os.environ.get("SUPERVISOR_ENABLED") != "1":
        return ""
    return os.environ.get(SUPERVISORD) or generation_of(os.getppid())


def supervisor_process() -> int:
    """The process id of whoever started us: the supervisord, also if that has ended, else the parent."""
    identity = supervisor_generation().split("/")
    return int(identity[1]) if len(identity) >= 3 and identity[1].isdigit() else os.getppid()


def same_supervisord(one: str, other: str) -> bool:
    """Whether two generations are of one supervisord process, before and after a reload."""
    return one != "" and one.split("/")[:3] == other.split("/")[:3]


def generation_of(process: int, load: int = 1) -> str:
    """The identity of a process, which no other has or will have: boot, process id, start; "" when it is gone.

    `load`: how often it has loaded its configuration; a reload restarts all services, and so begins a generation.
    """
    try:
        started = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return f"{boot_id()}/{process}/{started}" + (f"/{load}" if load > 1 else "")
