"""Answers podsync's requests to resize memory-backed emptyDir volumes: remounts them in a thread (pods.md 5.6)."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from bus.messages.volume import ResizedMemoryVolumes, ResizeMemoryVolumes
from services.volume.adapters.mounts import resize_tmpfs
from services.volume.adapters.threads import HungError, Threads
from services.volume.controllers.mounted_roots import MountedRoots
from services.volume.core.reconciler import Reconciler
from shared.process.crash import crash_point
from shared.time.clock import Clock

log = logging.getLogger(__name__)

MAX_RESIZES = 4
TIMEOUT_SECONDS = 4.0  # of one remount
# That a request waits for a volume that is not mounted, because this process may have just started; less than podsync
# waits for the answer.
MAX_WAIT_SECONDS = 4.0


class MemoryVolumeRequests:
    """Answers the requests. `node_memory` returns the bytes that pods may have, 0 = not known. `on_end` is called after
    each with the UID of its pod: an unmount may have waited for it."""

    def __init__(
        self,
        reconciler: Reconciler,
        roots: MountedRoots,
        clock: Clock,
        node_memory: Callable[[], int],
        on_end: Callable[[Iterable[str]], None],
    ) -> None:
        self._reconciler, self._roots, self._node_memory, self._on_end = reconciler, roots, node_memory, on_end
        self._threads = Threads("resize of a tmpfs", MAX_RESIZES, clock, TIMEOUT_SECONDS)
        self._tasks: set[asyncio.Task[ResizedMemoryVolumes]] = set()

    async def resize(self, request: ResizeMemoryVolumes) -> ResizedMemoryVolumes:
        """Answer ResizeMemoryVolumes. The caller's deadline does not cancel the work: its thread would continue."""
        task = asyncio.create_task(self._resize(request), name="resize of memory-backed volumes")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    def close(self) -> None:
        """End the threads that have nothing to do."""
        self._threads.close()

    async def _resize(self, request: ResizeMemoryVolumes) -> ResizedMemoryVolumes:
        for volume, wanted in sorted(request.sizes.items()):
            if not self._roots.is_wanted(request.uid, volume):
                continue
            root = await self._roots.hold(request.uid, volume, MAX_WAIT_SECONDS)
            if not root:
                return ResizedMemoryVolumes(error=f'cannot resize volume "{volume}": it is not mounted')
            size = min(wanted, self._node_memory() or wanted)
            what = f"resize of the volume {volume} of pod {request.uid}"
            try:
                async with self._threads.turn(root) as turn:
                    await turn.call(what, _resize_tmpfs, Path(root), size, request.grow)
            except OSError as error:
                log.warning("pod %s: volume %s is not resized: %s", request.uid, volume, error)
                reason = "it does not answer" if isinstance(error, HungError) else error.strerror
                return ResizedMemoryVolumes(error=f'cannot resize volume "{volume}": {reason}')
            finally:
                self._reconciler.end_subpath(request.uid, volume)
                self._on_end((request.uid,))
        return ResizedMemoryVolumes()


def _resize_tmpfs(path: Path, size: int, grow: bool) -> None:
    if resize_tmpfs(path, size, grow=grow):
        crash_point("volume.tmpfs.resized")
