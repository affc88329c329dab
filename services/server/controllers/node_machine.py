"""Gathers what the node page shows of the machine: conditions, resources, filesystems, network, and the usage of each
pod.

The streams have the figures of the node. Those of the pods are requested from pleg, only while a page is open: once for
each of pleg's readings, for all pods together."""

from collections.abc import Iterable
from typing import Any

from bus.interface import NoAnswerError, RequestRefusedError
from bus.messages.streams import NODE_OBJECT, NODE_PRESSURE, NODE_RESOURCES, NODE_USAGE
from bus.messages.usage import FoundUsage, GetUsage, NodeUsage
from services.frame.launch import Context
from services.report.machine import (
    NetworkRates,
    Requests,
    conditions,
    filesystems,
    pod_usage,
    resources,
)

USAGE_SECONDS = 10.0  # between two requests for the usage of pods; pleg reads it as often
TIMEOUT_SECONDS = 5.0  # that pleg has to answer

_NODE = "node"


class NodeMachine:
    """Has what pages show of the machine. `usage`, `pressure` and `resources` are the followed streams."""

    def __init__(self, context: Context) -> None:
        self._bus = context.bus
        self.usage = self._bus.follow(NODE_USAGE)
        self.pressure = self._bus.follow(NODE_PRESSURE)
        self.resources = self._bus.follow(NODE_RESOURCES)
        self._object = self._bus.follow(NODE_OBJECT)
        self._network = NetworkRates()
        self._pods: dict[str, list[float | None]] = {}

    def sample(self) -> dict[str, float | None]:
        """Return the values of a sample, by series; {} while they are stale."""
        usage = self._fresh()
        self._network.take(usage.network if usage else None)
        if usage is None:
            return {}
        nanocores = usage.cgroup.cpu_nanocores
        return {
            "node.cpu": None if nanocores is None else nanocores / 1e9,
            "node.memory": usage.cgroup.memory_working_set,
            "nodefs.used": usage.nodefs.used if usage.nodefs else None,
            "imagefs.used": usage.imagefs.used if usage.imagefs else None,
            **self._network.busiest(),
        }

    async def read_pods(self) -> None:
        """Request the usage of the pods. When pleg does not answer, the usage becomes unknown."""
        try:
            found = await self._bus.ask("pleg", GetUsage(), FoundUsage, TIMEOUT_SECONDS)
        except (NoAnswerError, RequestRefusedError):
            self._pods = {}
        else:
            self._pods = pod_usage(found.pods)

    def forget_pods(self) -> None:
        """Forget the usage of the pods, because no page is open and the figures become old."""
        self._pods = {}

    def sections(self, requested: Iterable[Requests]) -> dict[str, Any]:
        """Return the sections of the page's document. `requested`: what each pod requests."""
        node, own = self._object.state.get(_NODE), self.resources.state.get(_NODE)
        status = (node.node.get("status") or {}) if node else {}
        capacity, allocatable = status.get("capacity") or {}, status.get("allocatable") or {}
        # They are newer than those of the API server, which also has the resources of other writers.
        if own is not None:
            capacity, allocatable = capacity | own.capacity, allocatable | own.allocatable
        usage, pressure = self._fresh(), self.pressure.state.get(_NODE)
        return {
            "conditions": conditions(status, pressure.conditions if pressure else ()),
            "machine": {
                "resources": resources(capacity, allocatable, requested, usage),
                "filesystems": filesystems(usage),
                "network": self._network.rows(),
            },
            "usage": self._pods,
        }

    def _fresh(self) -> NodeUsage | None:
        return None if self.usage.stale else self.usage.state.get(_NODE)
