"""Requests the sizes of a pod's memory-backed volumes from volume, the only process that mounts (pods.md 5.6)."""

from bus.interface import Bus, NoAnswerError, RequestRefusedError
from bus.messages.volume import ResizedMemoryVolumes, ResizeMemoryVolumes
from shared.model.objects import Object
from shared.podspec.memory_volumes import memory_volume_sizes

TIMEOUT_SECONDS = 9.0  # a restarted volume answers within that time, also where a mount or a remount takes long


class MemoryVolumes:
    """Requests the resizes of memory-backed volumes."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def resize(self, uid: str, pod: Object, *, grow: bool) -> None:
        """Let those volumes of the pod that are larger than it says shrink, or let the smaller ones grow. Raises
        OSError with a text for the pod's condition."""
        sizes = memory_volume_sizes(pod)
        if not sizes:
            return
        request = ResizeMemoryVolumes(uid=uid, sizes=sizes, grow=grow)
        try:
            resized = await self._bus.ask("volume", request, ResizedMemoryVolumes, TIMEOUT_SECONDS)
        except (NoAnswerError, RequestRefusedError) as error:
            raise OSError(f"memory-backed volumes could not be resized: {error}") from error
        if resized.error:
            raise OSError(resized.error)
