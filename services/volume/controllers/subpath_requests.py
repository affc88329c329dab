"""Answers podsync's requests for subpaths: waits for the volume, and binds the subpath in a thread.

An error, which clients of the API can read, names only the mount. The log has the reason, and neither has the path.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

from bus.messages.volume import PreparedSubpath, PrepareSubpath, ReleaseSubpaths
from services.volume.adapters.subpaths import SubpathError
from services.volume.adapters.threads import HungError, ReservedThread
from services.volume.controllers.mounted_roots import MountedRoots
from services.volume.controllers.operation_executor import OperationExecutor
from services.volume.core.reconciler import Reconciler
from services.volume.core.specs.volume_spec import VolumeSpec

log = logging.getLogger(__name__)

# Seconds that a request waits for a volume that is not mounted, because this process may have just started; less than
# podsync waits for the answer.
TIMEOUT_SECONDS = 4.0


class SubpathRequests:
    """Answers requests for subpaths. `on_end` is called after each with the UID of its pod: operations of the
    reconciler may have waited for it."""

    def __init__(
        self,
        reconciler: Reconciler,
        executor: OperationExecutor,
        roots: MountedRoots,
        on_end: Callable[[Iterable[str]], None],
    ) -> None:
        self._reconciler, self._executor, self._roots, self._on_end = reconciler, executor, roots, on_end
        self._tasks: set[asyncio.Task[PreparedSubpath]] = set()

    async def prepare(self, request: PrepareSubpath) -> PreparedSubpath:
        """Answer PrepareSubpath. The caller's deadline does not cancel the work, because its thread would continue with
        a volume that may be unmounted."""
        return await self._uncancelled(self._prepare(request))

    async def _prepare(self, request: PrepareSubpath) -> PreparedSubpath:
        root = await self._roots.hold(request.uid, request.volume, TIMEOUT_SECONDS)
        if not root:
            text = f'cannot find volume "{request.volume}" to mount into container "{request.container}"'
            return PreparedSubpath(error=text)
        where = (request.uid, self._reconciler.spec_name(request.uid, request.volume), request.container, request.index)
        try:
            async with self._turn(request, root) as turn:
                what = f"subPath of volume {request.volume} of pod {request.uid}"
                path = await turn.call(what, self._executor.calls.subpaths.prepare, *where, root, request.path)
        except (SubpathError, HungError) as error:
            step = error.step if isinstance(error, SubpathError) else "prepare subPath"
            mount = f"mount {request.index} (volume {request.volume}) of container {request.container}"
            log.error("pod %s: subPath of %s: %s", request.uid, mount, error)
            text = f'failed to {step} for volumeMount "{request.volume}" of container "{request.container}"'
            return PreparedSubpath(error=text)
        finally:
            self._reconciler.end_subpath(request.uid, request.volume)
            self._on_end((request.uid,))
        return PreparedSubpath(host_path=path)

    def _turn(self, request: PrepareSubpath, root: str) -> AbstractAsyncContextManager[ReservedThread]:
        """Return a turn for the request. Calls on a path of the node may hang, and have threads of their own, one for
        each path; for other volumes there is one thread for each pod."""
        pod = self._reconciler.desired.pods.get(request.uid)
        spec = pod.volumes.get(request.volume) if pod is not None else None
        if isinstance(spec, VolumeSpec) and spec.node_path:
            return self._executor.host_subpath_turn(root)
        return self._executor.subpaths.turn(self._executor.calls.directory(request.uid))

    async def release(self, request: ReleaseSubpaths) -> PreparedSubpath:
        """Answer ReleaseSubpaths. A subpath that cannot be unmounted now is unmounted before its volume."""
        return await self._uncancelled(self._release(request))

    async def _release(self, request: ReleaseSubpaths) -> PreparedSubpath:
        try:
            async with self._executor.releases.turn(f"volume-subpaths of pod {request.uid}") as turn:
                what = f"release of the subPaths of container {request.container}"
                await turn.call(what, self._executor.calls.subpaths.release, request.uid, request.container)
        except OSError as error:
            log.warning("pod %s: subpaths of container %s stay for now: %s", request.uid, request.container, error)
        return PreparedSubpath()

    async def _uncancelled(self, answering: Coroutine[Any, Any, PreparedSubpath]) -> PreparedSubpath:
        task = asyncio.create_task(answering, name="subpath")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)
