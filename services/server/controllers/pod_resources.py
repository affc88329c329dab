"""Serves the PodResources API on `pod-resources/kubelet.sock` below the root directory (server.md 16, node.md 8.3).

Access is controlled by the socket, whose directory belongs to root. A socket that cannot be opened is reported as a
trouble, and is tried again."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from bus.interface import Bus, Change, Deleted, Put
from bus.messages.device_plugins import DeviceResource
from bus.messages.streams import CLAIMS_PREPARED, DEVICES_RESOURCES
from services.server.adapters import pod_resources_messages as messages
from services.server.adapters.pod_resources_messages import V1, V1ALPHA1
from services.server.controllers.pod_streams import PodStreams
from services.server.core.pods.pod_lists import find_pod
from services.server.core.pods.pod_resources import PodEntry, allocatable_devices, is_active, nodes_of, pod_entry
from shared.kube.rate_limit import TokenBucket
from shared.metrics.family import counter
from shared.metrics.registry import Registry
from shared.model.objects import Object, uid
from shared.plugin_grpc.serving import CallRefusedError, Method, SocketServer
from shared.time.clock import Clock

log = logging.getLogger(__name__)

SOCKET = "pod-resources/kubelet.sock"  # a path below the root directory
QPS, BURST = 100, 10  # of all methods together
MAX_DEVICES_WAIT_SECONDS = 10.0  # for which a call waits for volume; then the answer has what is known of devices
_TROUBLE = "pod-resources"

_REQUESTS = "kubelet_pod_resources_endpoint_requests"
_ERRORS = "kubelet_pod_resources_endpoint_errors"
_LABEL = "server_api_version"
REQUESTS = counter(f"{_REQUESTS}_total", "Calls of the PodResources API.", _LABEL)
REQUESTS_LIST = counter(f"{_REQUESTS}_list", "Calls of List.", _LABEL)
REQUESTS_GET = counter(f"{_REQUESTS}_get", "Calls of Get.", _LABEL)
REQUESTS_ALLOCATABLE = counter(f"{_REQUESTS}_get_allocatable", "Calls of GetAllocatableResources.", _LABEL)
ERRORS_LIST = counter(f"{_ERRORS}_list", "Calls of List that failed.", _LABEL)
ERRORS_GET = counter(f"{_ERRORS}_get", "Calls of Get that failed.", _LABEL)
ERRORS_ALLOCATABLE = counter(f"{_ERRORS}_get_allocatable", "Calls of GetAllocatableResources that failed.", _LABEL)


class PodResources:
    """Serves the API from `streams`; `root` is the root directory."""

    def __init__(self, bus: Bus, streams: PodStreams, clock: Clock, metrics: Registry, root: str) -> None:
        self._bus, self._streams, self._clock = bus, streams, clock
        self._bucket = TokenBucket(QPS, BURST, clock.monotonic())
        self._requests = metrics.counter(REQUESTS)
        self._devices = bus.follow(DEVICES_RESOURCES, self._devices_changed)
        self._claims = bus.follow(CLAIMS_PREPARED, lambda _: self._note_known())
        self._devices_known = asyncio.Event()  # those of device plugins, and those of resource claims
        # As `DeviceNodes`. It follows from the stream, and is kept because a resource may have 10 000 devices.
        self._nodes: dict[str, dict[str, tuple[int, ...]]] = {}
        self._opening: asyncio.Task[None] | None = None
        self._path = Path(root) / SOCKET
        listing = metrics.counter(REQUESTS_LIST), metrics.counter(ERRORS_LIST)
        getting = metrics.counter(REQUESTS_GET), metrics.counter(ERRORS_GET)
        allocatable = metrics.counter(REQUESTS_ALLOCATABLE), metrics.counter(ERRORS_ALLOCATABLE)

        def method(request: Any, version: str, counters: Any, handle: Callable[[Any], Awaitable[Any]]) -> Method:
            return Method(request, partial(self._counted, version, counters, handle))

        self._server = SocketServer(
            self._path,
            {
                "v1.PodResourcesLister": {
                    "List": method(messages.LIST[V1], V1, listing, partial(self._list, V1)),
                    "Get": method(messages.GET, V1, getting, self._get),
                    "GetAllocatableResources": method(messages.GET_ALLOCATABLE, V1, allocatable, self._allocatable),
                },
                "v1alpha1.PodResourcesLister": {
                    "List": method(messages.LIST[V1ALPHA1], V1ALPHA1, listing, partial(self._list, V1ALPHA1)),
                },
            },
        )

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Add a task to `tasks` that opens the socket."""
        self._opening = tasks.create_task(self._server.open(partial(self._bus.trouble, _TROUBLE)), name="pod-resources")

    async def close(self) -> None:
        """Release the socket."""
        if self._opening is not None:
            self._opening.cancel()
        await self._server.stop()

    def _devices_changed(self, change: Change[DeviceResource]) -> None:
        match change:
            case Put(key=name, value=resource):
                self._nodes[name] = nodes_of(resource)
            case Deleted(key=name):
                self._nodes.pop(name, None)
            case _:
                self._note_known()

    def _note_known(self) -> None:
        if all(stream.complete and not stream.stale for stream in (self._devices, self._claims)):
            self._devices_known.set()

    async def _counted(self, version: str, counters: Any, handle: Callable[[Any], Awaitable[Any]], request: Any) -> Any:
        now = self._clock.monotonic()
        if self._bucket.ready_in(now):
            raise CallRefusedError("ResourceExhausted", "rejected by rate limit")
        self._bucket.take(now)
        requests, errors = counters
        self._requests.inc(version)
        requests.inc(version)
        try:
            await self._streams.known.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MAX_DEVICES_WAIT_SECONDS):
                    await self._devices_known.wait()
            return await handle(request)
        except BaseException:
            errors.inc(version)
            raise

    async def _list(self, version: str, _request: Any) -> Any:
        desired = self._streams.desired.state.values()
        active = (entry.pod for entry in desired if is_active(self._streams.status_of(entry)))
        return messages.list_answer(version, map(self._entry, active))

    def _entry(self, pod: Object) -> PodEntry:
        key = uid(pod)
        return pod_entry(pod, self._streams.admitted.state.get(key), self._nodes, self._claims.state.get(key))

    async def _get(self, request: Any) -> Any:
        desired = find_pod(self._streams.desired.state.values(), request.pod_namespace, request.pod_name)
        if desired is None:
            raise CallRefusedError("Unknown", f"pod {request.pod_name} in namespace {request.pod_namespace} not found")
        return messages.get_answer(self._entry(desired.pod))

    async def _allocatable(self, _request: Any) -> Any:
        devices = allocatable_devices(resource for _, resource in sorted(self._devices.state.items()))
        return messages.allocatable_answer(self._streams.resources.state.get("node"), devices)
