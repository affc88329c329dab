"""Which node condition each eviction signal sets, and the amount that a threshold stands for (node.md 5.1,
5.2). The default thresholds are those of evictionHard in `shared/config/field_table.py`.
"""

import struct

from shared.model.quantity import parse_quantity

SIGNAL_CONDITIONS = {
    "memory.available": "MemoryPressure",
    "nodefs.available": "DiskPressure",
    "nodefs.inodesFree": "DiskPressure",
    "imagefs.available": "DiskPressure",
    "pid.available": "PIDPressure",
}


def threshold_amount(text: str, capacity: int) -> int:
    """The bytes or count below which the signal is met; 0 = never, as for 0% and 100%. `text`: a quantity or a
    percentage of `capacity`. Raises ValueError (QuantityError is one) for anything else."""
    if not text.endswith("%"):
        return parse_quantity(text).base()
    percentage = float(text[:-1])
    if not 0 < percentage < 100:
        return 0
    fraction: float = struct.unpack("f", struct.pack("f", percentage / 100))[0]  # float32, as in the kubelet
    return int(capacity * fraction)
