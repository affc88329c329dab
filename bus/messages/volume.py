"""Messages of which volume is the owner."""

from dataclasses import dataclass
from enum import StrEnum


class VolumeState(StrEnum):
    """How far one volume of one pod is."""

    PENDING = "pending"
    MOUNTED = "mounted"
    ERROR = "error"
    UNMOUNTING = "unmounting"


@dataclass(frozen=True, kw_only=True)
class MountedVolume:
    """One volume of one pod in the actual state of the world."""

    state: VolumeState
    host_path: str = ""  # absolute; what a container's mount names as host_path
    read_only: bool = False
    error: str = ""  # as in the FailedMount message


@dataclass(frozen=True, kw_only=True)
class MountedVolumes:
    """Stream `volumes.mounted`, key: pod UID. Deleted once nothing of the pod is mounted and nothing is wanted."""

    uid: str
    volumes: dict[str, MountedVolume]  # by spec volume name
