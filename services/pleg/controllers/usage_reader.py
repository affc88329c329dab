"""Publishes `node.usage` every 10 s; answers requests for a newer reading, and for pods.
Pods are read every 10 s, which a rate of CPU use needs, but only for some minutes after a request.
"""

import asyncio
import logging
from collections.abc import Callable
from math import inf

from bus.interface import OwnedStream
from bus.messages.streams import NODE_USAGE
from bus.messages.usage import FoundUsage, GetUsage, NodeUsage, PodUsage
from services.frame.launch import Context
from services.frame.pod_errors import PodErrors
from services.pleg.adapters.usage_source import UsageSource
from services.pleg.adapters.waiting import wait_for
from services.pleg.controllers.file_usage import FileUsage
from services.pleg.core.cpu_rates import CpuRates
from services.pleg.core.mountpoints import Mountpoints
from shared.model.runtime import RuntimePod

log = logging.getLogger(__name__)

READ_SECONDS = 10.0  # between two readings, as in the kubelet (node.md 7.2)
INTEREST_SECONDS = 300.0  # for which pods are read after a request
LOOP, LOOP_OF_PODS = "usage", "usage of pods"


class UsageReader:
    """Owns `node.usage`. `pods`: those that the runtime has; `mountpoints`: of its images and writable layers, None =
    not known yet."""

    def __init__(
        self,
        context: Context,
        source: UsageSource,
        files: FileUsage,
        pods: OwnedStream[RuntimePod],
        *,
        mountpoints: Callable[[], Mountpoints | None],
    ) -> None:
        self._bus = context.bus
        self._clock = context.clock
        self._source = source
        self._files = files
        self._runtime_pods = pods
        self._mountpoints = mountpoints
        self._node = self._bus.own(NODE_USAGE)
        self._pods: list[PodUsage] = []  # without files
        self._pods_read_at = -inf
        self._requested_at = -inf
        self._all_listed = False
        self._complete = False
        self._read_now = asyncio.Event()
        self._rates = CpuRates()
        self._pods_due = asyncio.Event()
        self._reading_node, self._reading_pods = asyncio.Lock(), asyncio.Lock()  # the runtime may be slow with pods
        self._errors = PodErrors(log, context.bus.trouble, context.clock)
        self._bus.answer(GetUsage, self.answer)

    async def run(self) -> None:
        """Read until cancelled."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._keep_node())
            loops.create_task(self._keep_pods())

    def listed(self) -> None:
        """Note that all pods of the runtime are known now."""
        self._all_listed = True

    async def answer(self, request: GetUsage) -> FoundUsage:
        """Answer GetUsage, after a new reading where the last one is too old."""
        async with self._reading_node:
            node = self._node.get("node")
            if node is None or node.read_at < self._clock.monotonic() - request.max_age_seconds:
                node = await self._read_node()
        if not request.pods:
            return FoundUsage(node=node)
        self._requested_at = self._clock.monotonic()
        oldest = self._requested_at - request.max_age_seconds  # as of now: one reading is for all that wait for it
        async with self._reading_pods:
            if self._pods_read_at < oldest or not self._complete:
                await self._read_pods()
        if request.max_age_files_seconds is None:
            self._files.begin(self._pods)
        else:
            await self._files.refresh(self._pods, request.max_age_files_seconds)
        node, mountpoints = self._files.add_to_node(node), self._mountpoints()
        pods = tuple(self._files.add_to_pod(pod, node, mountpoints) for pod in self._pods)
        return FoundUsage(node=node, pods=pods, complete=self._complete)

    def close(self) -> None:
        """Begin no more readings."""
        self._files.close()
        self._source.close()

    async def _keep_node(self) -> None:
        while True:
            with self._errors.contained("", "the reading of usage"):
                async with self._reading_node:
                    node = await self._read_node()
                    await self._source.watch_memory(node, self._read_now.set)
            self._pods_due.set()
            self._bus.progress(LOOP)
            await wait_for(self._read_now, READ_SECONDS)

    async def _keep_pods(self) -> None:
        while True:
            await self._pods_due.wait()
            self._pods_due.clear()
            if self._clock.monotonic() - self._requested_at < INTEREST_SECONDS:
                with self._errors.contained("", "the reading of the usage of pods"):
                    async with self._reading_pods:
                        await self._read_pods()
                    self._files.begin(self._pods)
            self._bus.progress(LOOP_OF_PODS)

    async def _read_node(self) -> NodeUsage:
        read = await self._source.read_node(self._mountpoints())
        node = self._files.add_to_node(self._rates.add_to_node(read))
        self._node.put("node", node, "read")
        self._node.mark_complete()
        return node

    async def _read_pods(self) -> None:
        read_at, complete = self._clock.monotonic(), self._all_listed
        present = map(self._runtime_pods.get, self._runtime_pods.keys())
        read = await self._source.read_pods([pod for pod in present if pod is not None])
        self._pods = self._rates.add_to_pods(read)
        self._pods_read_at, self._complete = read_at, complete
