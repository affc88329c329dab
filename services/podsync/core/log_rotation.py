"""Decides from names, sizes and times what is done with the log files of containers (pods.md 6.10, 11.4).
The runtime writes to `<attempt>.log`; a rotation renames it to `<attempt>.log.<date>-<time>`, and the next rotation
packs that into `….gz`. Reads and writes no file.
"""

import contextlib
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from msgspec import Struct

from shared.model.runtime import Container, ContainerState

PACKED, UNFINISHED = ".gz", ".tmp"
_STAMP = "%Y%m%d-%H%M%S"
_LOG = ".log"
_OF_EVERY_KUBELET = "/var/log/pods"
ASIDE = ".removing-"  # begins the name of a log directory that is being removed


class LogLimits(Struct, frozen=True, kw_only=True):
    """Has the configured limits. `size`: bytes at which a log is rotated, negative = never; `files`: per container."""

    size: int
    files: int


class RotatedFiles(Struct, frozen=True):
    """Has names of files beside one log: those to remove first, then those to pack, in this order."""

    remove: tuple[str, ...]
    pack: tuple[str, ...]


def is_due(size: int, limits: LogLimits) -> bool:
    """Return whether a log of this many bytes is rotated."""
    return 0 <= limits.size <= size


def rotated_of(log: str, names: Iterable[str]) -> list[str]:
    """Return those of the names in the log's directory that are of its rotated files, oldest first. `log`: the log's
    name."""
    return sorted(name for name in names if name.startswith(f"{log}."))


def unfinished_files(rotated: Collection[str]) -> list[str]:
    """Return what a kill left: files that were not packed to the end, and those whose packed copy is complete."""
    return [name for name in rotated if name.endswith(UNFINISHED) or f"{name}{PACKED}" in rotated]


def before_rotation(rotated: Collection[str], limits: LogLimits) -> RotatedFiles:
    """Decide what makes room for one more rotated file: the oldest are removed, the rest is packed."""
    gone = unfinished_files(rotated)
    left = sorted(name for name in rotated if name not in gone)
    kept = left[max(0, len(left) - max(0, limits.files - 2)) :]
    too_many = [name for name in left if name not in kept]
    return RotatedFiles((*gone, *too_many), tuple(name for name in kept if not name.endswith(PACKED)))


def rotated_name(log: str, rotated: Iterable[str], now: datetime) -> str:
    """Return the name that the log gets, which sorts behind all others even where the clock was set back. `now`: local
    time."""
    for name in rotated:
        with contextlib.suppress(ValueError, OverflowError):
            stamp = name.removeprefix(f"{log}.").removesuffix(PACKED)
            now = max(now, datetime.strptime(stamp, _STAMP) + timedelta(seconds=1))  # noqa: DTZ007 - local time
    return f"{log}.{now.strftime(_STAMP)}"


def written_logs(containers: Iterable[Container]) -> dict[str, str]:
    """Return the paths of the logs of running containers by id: the runtime reopens no other logs."""
    return {c.id: c.log_path for c in containers if c.state is ContainerState.RUNNING and c.log_path}


def pod_of_directory(name: str) -> str:
    """Return the UID in the name of a pod's log directory, `<namespace>_<name>_<uid>`; "" for another name."""
    parts = name.split("_")
    return parts[2] if len(parts) == 3 and all(parts) and not name.startswith(".") else ""


def is_ours_alone(pod_logs_dir: str, *, embedded: bool) -> bool:
    """Return whether no other kubelet has logs in the directory of pod logs. An agent with an embedded containerd may
    run beside a kubelet, whose logs are in the default directory."""
    return not embedded or pod_logs_dir.rstrip("/") != _OF_EVERY_KUBELET


def removable_directories(names: Iterable[str], known: Collection[str]) -> list[str]:
    """Return the log directories of pods that are not among the `known` UIDs, and those whose removal was
    interrupted."""
    return sorted(
        name for name in names if name.startswith(ASIDE) or ((uid := pod_of_directory(name)) and uid not in known)
    )


def removable_links(dangling: Iterable[str], existing: Collection[str]) -> list[str]:
    """Return those of the dangling links that may be removed. `existing`: ids of containers that have not exited, whose
    log is missing for a moment in each rotation."""
    return sorted(
        name for name in dangling if name.endswith(_LOG) and name[: -len(_LOG)].rpartition("-")[2] not in existing
    )
