"""The eviction signals: the node condition that each sets, the resource that is short, and the amount that a threshold
stands for (node.md 5.1, 5.2). The default thresholds are those of evictionHard in `shared/config/field_table.py`.
"""

import struct
from enum import StrEnum

from msgspec import Struct

from shared.model.quantity import parse_quantity


class Resource(StrEnum):
    """What is short when a signal is met, by the names in events and messages."""

    MEMORY = "memory"
    EPHEMERAL_STORAGE = "ephemeral-storage"
    INODES = "inodes"
    PIDS = "pids"


class SignalMeaning(Struct, frozen=True):
    """The condition that a signal sets, and the resource that is short."""

    condition: str
    resource: Resource

    @property
    def in_bytes(self) -> bool:
        """Whether amounts are bytes; else they are counts."""
        return self.resource in (Resource.MEMORY, Resource.EPHEMERAL_STORAGE)


SIGNALS: dict[str, SignalMeaning] = {
    "memory.available": SignalMeaning("MemoryPressure", Resource.MEMORY),
    "allocatableMemory.available": SignalMeaning("MemoryPressure", Resource.MEMORY),
    "nodefs.available": SignalMeaning("DiskPressure", Resource.EPHEMERAL_STORAGE),
    "nodefs.inodesFree": SignalMeaning("DiskPressure", Resource.INODES),
    "imagefs.available": SignalMeaning("DiskPressure", Resource.EPHEMERAL_STORAGE),
    "imagefs.inodesFree": SignalMeaning("DiskPressure", Resource.INODES),
    "containerfs.available": SignalMeaning("DiskPressure", Resource.EPHEMERAL_STORAGE),
    "containerfs.inodesFree": SignalMeaning("DiskPressure", Resource.INODES),
    "pid.available": SignalMeaning("PIDPressure", Resource.PIDS),
}


def threshold_amount(text: str, capacity: int) -> int:
    """Return the bytes or count below which the signal is met; 0 = never, as for 0% and 100%. `text`: a quantity or a
    percentage of `capacity`. Raises ValueError (QuantityError is one) for anything else.
    """
    if not text.endswith("%"):
        return parse_quantity(text).base()
    percentage = float(text[:-1])
    if not 0 < percentage < 100:
        return 0
    return _share(percentage, capacity)


def reclaim_amount(text: str, capacity: int) -> int:
    """Return the bytes or count that an eviction frees beyond its threshold; otherwise as `threshold_amount`."""
    return _share(float(text[:-1]), capacity) if text.endswith("%") else parse_quantity(text).base()


def _share(percentage: float, capacity: int) -> int:
    fraction: float = struct.unpack("f", struct.pack("f", percentage / 100))[0]  # float32, as in the kubelet
    return int(capacity * fraction)
