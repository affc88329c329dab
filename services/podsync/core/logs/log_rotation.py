"""What is to be done with the log files of containers, from names, sizes and times (pods.md 6.10, 11.4).

`<attempt>.log` is what the runtime writes to; `<attempt>.log.<date>-<time>` was renamed to that at a rotation, and the
next rotation packs it into `….gz`. Touches no file.
"""

import contextlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.model.runtime import Container, ContainerState

PACKED, UNFINISHED = ".gz", ".tmp"
_STAMP = "%Y%m%d-%H%M%S"
_LOG = ".log"
ASIDE = ".removing-"  # a log directory on its way out


@dataclass(frozen=True, kw_only=True)
class LogLimits:
    """From the configuration. `size`: bytes at which a log is rotated, negative = never; `files`: per container."""

    size: int
    files: int


@dataclass(frozen=True)
class RotatedFiles:
    """File names beside one log. Remove these, then pack those, each in this order."""

    remove: tuple[str, ...]
    pack: tuple[str, ...]


def is_due(size: int, limits: LogLimits) -> bool:
    """A log of this many bytes is rotated."""
    return 0 <= limits.size <= size


def rotated_of(log: str, names: Iterable[str]) -> list[str]:
    """Which of the names in the log's directory are of its rotated files, oldest first. `log` is a name, too."""
    return sorted(name for name in names if name.startswith(f"{log}."))


def unfinished_files(rotated: Collection[str]) -> list[str]:
    """What a kill left: files that were not packed to the end, and those whose packed copy is complete."""
    return [name for name in rotated if name.endswith(UNFINISHED) or f"{name}{PACKED}" in rotated]


def before_rotation(rotated: Collection[str], limits: LogLimits) -> RotatedFiles:
    """What makes room for one more rotated file beside the log itself: the oldest go, the rest is packed."""
    gone = unfinished_files(rotated)
    left = sorted(name for name in rotated if name not in gone)
    kept = left[max(0, len(left) - max(0, limits.files - 2)) :]
    too_many = [name for name in left if name not in kept]
    return RotatedFiles((*gone, *too_many), tuple(name for name in kept if not name.endswith(PACKED)))


def rotated_name(log: str, rotated: Iterable[str], now: datetime) -> str:
    """The name the log gets, which sorts behind all others though the clock be set back. `now`: local time."""
    for name in rotated:
        with contextlib.suppress(ValueError, OverflowError):
            stamp = name.removeprefix(f"{log}.").removesuffix(PACKED)
            now = max(now, datetime.strptime(stamp, _STAMP) + timedelta(seconds=1))  # noqa: DTZ007 - local time
    return f"{log}.{now.strftime(_STAMP)}"


def written_logs(containers: Iterable[Container]) -> dict[str, str]:
    """Container id -> path of its log, of those that run: the runtime reopens the logs of no others."""
    return {c.id: c.log_path for c in containers if c.state is ContainerState.RUNNING and c.log_path}


def pod_of_directory(name: str) -> str:
    """The UID in the name of a pod's log directory, `<namespace>_<name>_<uid>`; "" = it is no such directory."""
    parts = name.split("_")
    return parts[2] if len(parts) == 3 and all(parts) and not name.startswith(".") else ""


def removable_directories(names: Iterable[str], known: Collection[str]) -> list[str]:
    """Log directories of pods that are not among the `known` UIDs, and those whose removal was cut short."""
    return sorted(
        name for name in names if name.startswith(ASIDE) or ((uid := pod_of_directory(name)) and uid not in known)
    )


def removable_links(dangling: Iterable[str], existing: Collection[str]) -> list[str]:
    """Which links to logs that are not there may go; `existing`: ids of containers that have not exited, for the log of
    such a one is missing for a moment in each rotation."""
    return sorted(
        name for name in dangling if name.endswith(_LOG) and name[: -len(_LOG)].rpartition("-")[2] not in existing
    )
