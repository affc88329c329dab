"""Serves the Pods API on `pods-api/pods-api.sock` below the root directory, with the gate PodsAPI (server.md 16.1).

A watch has no queue of events: it has the pods that have changed since it sent them, and sends each as it is then. So
a slow client misses states between, never the newest one, and costs no more than one entry for each pod.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from bus.interface import Bus, Change, Deleted, Put
from bus.messages.streams import PODS_API_STATUS, PODS_DESIRED, PODS_STATUS
from services.server.controllers.pod_streams import PodStreams
from services.server.core.pods.local_pods import local_pod
from shared.kube.rate_limit import TokenBucket
from shared.metrics.family import counter
from shared.metrics.registry import Registry
from shared.model.objects import name, namespace
from shared.plugin_grpc import pods_v1alpha1_pb2 as v1alpha1
from shared.plugin_grpc.pod_encoding import encode_pod
from shared.plugin_grpc.serving import CallRefusedError, Method, SocketServer, StreamMethod
from shared.time.clock import Clock

log = logging.getLogger(__name__)

SOCKET = "pods-api/pods-api.sock"  # a path below the root directory
QPS, BURST = 100, 10  # of ListPods and GetPod together
MAX_WATCHES = 32  # at the same time
# Calls at the same time, with the watches: an answer that its client does not read stays in memory.
MAX_CALLS = MAX_WATCHES + 8
_PODS_AT_ONCE = 16  # that ListPods encodes before other work of the process has a turn
_TROUBLE = "pods-api"
_VERSION = "v1alpha1"

_LABELS = ("server_api_version", "status_code")
REQUESTS = counter("kubelet_pod_requests_total", "Calls of the Pods API.", *_LABELS)
REQUESTS_LIST = counter("kubelet_pod_requests_list_total", "Calls of ListPods.", *_LABELS)
REQUESTS_GET = counter("kubelet_pod_requests_get_total", "Calls of GetPod.", *_LABELS)
REQUESTS_WATCH = counter("kubelet_pod_requests_watch_total", "Calls of WatchPods, when they have ended.", *_LABELS)


class _Watch:
    """One watch: the pods that its client knows, with namespace and name, and those to look at."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[str, str]] = {}
        self.changed: dict[str, None] = {}  # UIDs, the one that changed first at the front
        self.wake = asyncio.Event()

    def note(self, uid: str) -> None:
        """Have the pod looked at."""
        self.changed[uid] = None
        self.wake.set()


class PodsApi:
    """Serves the API from `streams`; `root` is the root directory."""

    def __init__(self, bus: Bus, streams: PodStreams, clock: Clock, metrics: Registry, root: str) -> None:
        self._bus, self._streams, self._clock = bus, streams, clock
        self._bucket = TokenBucket(QPS, BURST, clock.monotonic())
        self._requests = metrics.counter(REQUESTS)
        self._watch_requests = metrics.counter(REQUESTS_WATCH)
        self._watches: set[_Watch] = set()
        self._ready = False
        bus.follow(PODS_DESIRED, self._changed)
        bus.follow(PODS_STATUS, self._changed)
        bus.follow(PODS_API_STATUS, self._changed)
        self._opening: asyncio.Task[None] | None = None
        lists, gets = metrics.counter(REQUESTS_LIST), metrics.counter(REQUESTS_GET)
        methods: dict[str, Method | StreamMethod] = {
            "ListPods": Method(v1alpha1.ListPodsRequest, partial(self._counted, lists, self._list)),
            "GetPod": Method(v1alpha1.GetPodRequest, partial(self._counted, gets, self._get)),
            "WatchPods": StreamMethod(v1alpha1.WatchPodsRequest, self._watch),
        }
        self._server = SocketServer(Path(root) / SOCKET, {f"{_VERSION}.Pods": methods}, max_calls=MAX_CALLS)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Add a task to `tasks` that opens the socket."""
        self._opening = tasks.create_task(self._server.open(partial(self._bus.trouble, _TROUBLE)), name="pods-api")

    async def close(self) -> None:
        """Release the socket. Watches end, and their clients begin others at the successor."""
        if self._opening is not None:
            self._opening.cancel()
        await self._server.stop()

    def _changed(self, change: Change[Any]) -> None:
        if isinstance(change, Put | Deleted):
            for watch in self._watches:
                watch.note(change.key)

    def _check_ready(self) -> None:
        """Refuse the call until sources and podsync have listed all pods once, for an answer is never a part."""
        needed = self._streams.desired, self._streams.status
        self._ready = self._ready or all(stream.complete and not stream.stale for stream in needed)
        if not self._ready:
            raise CallRefusedError("FailedPrecondition", "Kubelet is initializing")

    async def _counted(self, counted: Any, handle: Callable[[Any], Awaitable[Any]], request: Any) -> Any:
        now = self._clock.monotonic()
        if self._bucket.ready_in(now):
            raise CallRefusedError("ResourceExhausted", "rejected by rate limit")
        self._bucket.take(now)
        code = "Internal"
        try:
            self._check_ready()
            answer = await handle(request)
            code = "OK"
            return answer
        except CallRefusedError as refused:
            code = refused.code
            raise
        except asyncio.CancelledError:
            code = "Canceled"
            raise
        finally:
            for each in (self._requests, counted):
                each.inc(_VERSION, code)

    def _encoded(self, uid: str) -> bytes | None:
        """Return the pod in protobuf, None when there is none of this UID."""
        entry = self._streams.desired.state.get(uid)
        if entry is None:
            return None
        computed = self._streams.status.state.get(uid)
        known = self._streams.api_statuses.state.get(uid)
        return encode_pod(local_pod(entry, None if computed is None else computed.status, known))

    async def _list(self, _request: Any) -> Any:
        pods = []
        for number, uid in enumerate(sorted(self._streams.desired.state)):
            if number % _PODS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if (pod := self._encoded(uid)) is not None:
                pods.append(pod)
        return v1alpha1.ListPodsResponse(pods=pods)

    async def _get(self, request: Any) -> Any:
        if (pod := self._encoded(request.podUID)) is None:
            raise CallRefusedError("NotFound", f"pod with UID {request.podUID} not found")
        return v1alpha1.GetPodResponse(pod=pod)

    async def _watch(self, _request: Any) -> AsyncIterator[Any]:
        code, watch = "Canceled", _Watch()
        try:
            self._check_ready()
            if len(self._watches) >= MAX_WATCHES:
                raise CallRefusedError("ResourceExhausted", f"{MAX_WATCHES} watches are open: no more at the same time")
            self._watches.add(watch)
            async for event in self._events(watch):
                yield event
        except CallRefusedError as refused:
            code = refused.code
            raise
        except Exception:
            code = "Internal"
            raise
        finally:
            self._watches.discard(watch)
            for each in (self._requests, self._watch_requests):
                each.inc(_VERSION, code)

    async def _events(self, watch: _Watch) -> AsyncIterator[Any]:
        """Return the pods, the mark after them, and then every change."""
        first = deque(sorted(self._streams.desired.state))
        while first:
            watch.changed.pop(first[0], None)  # it is sent as it is now
            if (event := self._event(watch, first.popleft())) is not None:
                yield event
        yield v1alpha1.WatchPodsEvent(type=v1alpha1.INITIAL_SYNC_COMPLETE)
        while True:
            await watch.wake.wait()
            watch.wake.clear()
            while watch.changed:
                uid = next(iter(watch.changed))
                del watch.changed[uid]
                if (event := self._event(watch, uid)) is not None:
                    yield event

    def _event(self, watch: _Watch, uid: str) -> Any:
        """Return what the client has to learn about the pod, None = nothing."""
        if (pod := self._encoded(uid)) is not None:
            kind = v1alpha1.MODIFIED if uid in watch.known else v1alpha1.ADDED
            metadata = self._streams.desired.state[uid].pod
            watch.known[uid] = (namespace(metadata), name(metadata))
            return v1alpha1.WatchPodsEvent(type=kind, pod=pod)
        if (gone := watch.known.pop(uid, None)) is None:
            return None
        pod = encode_pod({"metadata": {"namespace": gone[0], "name": gone[1], "uid": uid}})
        return v1alpha1.WatchPodsEvent(type=v1alpha1.DELETED, pod=pod)
