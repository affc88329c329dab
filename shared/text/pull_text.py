"""Says how far the pull of an image is, in words: for `bulkhead status`, the node page, stories and Events. Pure."""

from collections.abc import Mapping
from typing import Any

from shared.text.byte_size import byte_size

STALLED_SECONDS = 10.0  # after which a pull that receives nothing is shown as stalled


def pull_text(pull: Mapping[str, Any]) -> str:
    """Return `43 MiB of 120 MiB, 3 layers, 12 MiB/s` from the fields of an item of `pods.pulls`."""
    arrived, total, layers, idle = (pull.get(name) or 0 for name in ("arrived", "total", "layers", "idle"))
    parts = []
    if not total:
        parts.append(f"for {_duration(pull.get('seconds') or 0)}")
    elif arrived < total:
        parts.append(f"{byte_size(arrived)} of {byte_size(total)}")
    else:
        parts.append(f"all {byte_size(total)} are there, unpacking")
    if layers:
        parts.append(f"{layers} layers" if layers != 1 else "1 layer")
    if (not total or arrived < total) and idle >= STALLED_SECONDS:
        parts.append(f"no bytes for {_duration(idle)}")
    elif total and arrived < total:
        parts.append(f"{byte_size(int(pull.get('rate') or 0))}/s")
    if shared := pull.get("shared_with"):
        parts.append(f"together with {', '.join(map(str, shared))}")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds < 120 else f"{int(seconds) // 60}m{int(seconds) % 60:02}s"
