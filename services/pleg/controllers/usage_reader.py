"""Publishes `node.usage` and `pods.usage` every 10 s; answers requests for a newer reading."""

import asyncio
from collections.abc import Callable
from math import inf
from typing import TypeVar

from bus.interface import OwnedStream
from bus.messages.streams import NODE_USAGE, PODS_USAGE
from bus.messages.usage import FoundUsage, GetUsage, NodeUsage
from services.frame.launch import Context
from services.pleg.adapters.usage_source import UsageSource
from services.pleg.adapters.waiting import wait_for
from services.pleg.core.cpu_rates import CpuRates
from shared.model.runtime import RuntimePod

READ_SECONDS = 10.0  # between two readings, as in the kubelet (node.md 7.2)
LOOP = "usage"

Value = TypeVar("Value")


class UsageReader:
    """The owner of both streams. `pods`: what the runtime has; `imagefs`: the mount
    point of the images, "" = on the filesystem of the root directory."""

    def __init__(
        self,
        context: Context,
        source: UsageSource,
        pods: OwnedStream[RuntimePod],
        *,
        imagefs: Callable[[], str],
    ) -> None:
        self._bus, self._clock, self._source = context.bus, context.clock, source
        self._runtime_pods, self._imagefs = pods, imagefs
        self._node, self._pods = self._bus.own(NODE_USAGE), self._bus.own(PODS_USAGE)
        self._pods_read_at = -inf
        self._all_listed = self._complete = False
        self._read_now = asyncio.Event()
        self._rates = CpuRates()
        self._reading = asyncio.Lock()
        self._bus.answer(GetUsage, self.answer)

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            async with self._reading:
                await self._read_node()
                await self._read_pods()
            self._bus.progress(LOOP)
            await wait_for(self._read_now, READ_SECONDS)

    def listed(self) -> None:
        """All pods of the runtime are known now."""
        self._all_listed = True
        self._read_now.set()

    async def answer(self, request: GetUsage) -> FoundUsage:
        """Answer GetUsage; read first where the last reading is too old."""
        async with self._reading:
            oldest = self._clock.monotonic() - request.max_age_seconds
            node = self._node.get("node")
            if node is None or node.read_at < oldest:
                node = await self._read_node()
            if not request.pods:
                return FoundUsage(node=node)
            if self._pods_read_at < oldest:
                await self._read_pods()
            return FoundUsage(node=node, pods=tuple(_values(self._pods)), complete=self._complete)

    def close(self) -> None:
        """Begin no more readings."""
        self._source.close()

    async def _read_node(self) -> NodeUsage:
        node = self._rates.of_node(await self._source.read_node(self._imagefs()))
        self._node.put("node", node, "read")
        self._node.mark_complete()
        return node

    async def _read_pods(self) -> None:
        read_at, complete = self._clock.monotonic(), self._all_listed
        pods = self._rates.of_pods(await self._source.read_pods(_values(self._runtime_pods)))
        for pod in pods:
            self._pods.put(pod.uid, pod, "read")
        for uid in set(self._pods.keys()) - {pod.uid for pod in pods}:
            self._pods.delete(uid, "no container runs")
        if complete:
            self._pods.mark_complete()
        self._pods_read_at, self._complete = read_at, complete


def _values(stream: OwnedStream[Value]) -> list[Value]:
    values = map(stream.get, stream.keys())
    return [value for value in values if value is not None]
