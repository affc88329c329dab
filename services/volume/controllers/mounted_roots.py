"""Waits for a volume that a request of podsync needs, and keeps it mounted until the request is done."""

import asyncio

from services.volume.core.reconciler import Reconciler


class MountedRoots:
    """Where volumes are mounted that requests need. Each is kept with `hold`, and released by `end_subpath` of the
    reconciler."""

    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler = reconciler
        self._turned = asyncio.Event()

    def turned(self) -> None:
        """Check the waiting requests again: what is mounted may have changed."""
        self._turned.set()

    def is_wanted(self, uid: str, volume: str) -> bool:
        """Return whether a pod needs the volume, as far as it is known: this process may have just started."""
        pod = self._reconciler.desired.pods.get(uid)
        return pod is None or (not pod.finished and volume in pod.volumes)

    async def hold(self, uid: str, volume: str, timeout: float) -> str:
        """Return where the volume is mounted, "" when it is not mounted in time (seconds). The reconciler does not
        unmount it from now on."""
        try:
            async with asyncio.timeout(timeout):
                while not (root := self._reconciler.begin_subpath(uid, volume)):
                    self._turned.clear()
                    await self._turned.wait()
        except TimeoutError:
            return ""
        return root
