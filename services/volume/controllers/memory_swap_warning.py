"""Warns once at each start where memory volumes may be swapped to disk (node.md 4.13)."""

from bus.messages.event import KubeEvent
from bus.stream import EventRecorder
from services.volume.adapters.memory_swap import memory_may_be_on_disk

_REASON = "PossibleMemoryBackedVolumesOnDisk"
_MESSAGE = (
    "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be swapped "
    "to disk and should no longer be considered secure."
)


def warn_of_swapped_memory(events: EventRecorder, node_name: str) -> None:
    """Record an event of the node where what is in memory volumes may be swapped to disk."""
    if memory_may_be_on_disk():
        events.record(KubeEvent(type="Warning", reason=_REASON, message=_MESSAGE, kind="Node", name=node_name))
