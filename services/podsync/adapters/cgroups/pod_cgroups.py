"""Keeps the cgroups of pods and of QoS classes: makes them before the first sandbox, and destroys a pod's at its end.
Asks the runtime once which driver it has, for both must give a cgroup the same name; where the runtime does not report
it, the configuration decides. Decides no value.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from services.podsync.adapters.cgroups import cgroup_reads
from services.podsync.adapters.cgroups.cgroup_drivers import CgroupfsDriver, make_driver
from services.podsync.core.cgroups.class_requests import RequestSums
from services.podsync.core.cgroups.pod_cgroup import (
    CgroupValues,
    pod_cgroup_name,
    pod_cgroup_values,
    pod_uid_of,
    possible_pod_cgroup_names,
    qos_cgroup_name,
    qos_cgroup_names,
    qos_cgroup_values,
)
from services.podsync.core.cgroups.pod_resources import actual_resources
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.placement.pod_placement import NOT_PLACED, PodPlacement
from shared.cri.interface import Runtime
from shared.host import cgroup_layout
from shared.host.cgroup_layout import Hierarchies
from shared.host.cgroup_name import CGROUPFS, SYSTEMD, cgroup_components, cgroup_name
from shared.metrics.family import gauge, histogram
from shared.metrics.registry import Registry
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.podspec.qos import QosClass
from shared.podspec.resources import status_resources
from shared.process.deadlines import in_turn
from shared.time.clock import Clock
from shared.version import is_since

log = logging.getLogger(__name__)

DURATION = histogram(
    "kubelet_cgroup_manager_duration_seconds", "Duration of an operation on a cgroup.", "operation_type"
)
VERSION = gauge("kubelet_cgroup_version", "Version of the cgroup hierarchy on which pods run: 1 or 2.")
LOSING_SUPPORT = gauge(
    "kubelet_cri_losing_support",
    "1 where the runtime does not report its cgroup driver, which a kubelet of this version needs.",
    "version",
)
MEMORY_MIN = gauge(
    "kubelet_memory_qos_node_memory_min_bytes", "memory.min of all pods in bytes, with feature gate MemoryQoS."
)
MEMORY_LOW = gauge(
    "kubelet_memory_qos_node_memory_low_bytes", "memory.low of Burstable pods in bytes, with feature gate MemoryQoS."
)
QOS_SECONDS = 60.0  # the kubelet writes QoS cgroups once a minute, whatever it wrote before
_ORPHAN = CgroupValues(cpu_shares=2)


class PodCgroups:
    """Makes, writes and destroys the cgroups of one node. `facts` has the driver in force once `driver` was awaited."""

    def __init__(
        self, facts: NodeFacts, hierarchies: Hierarchies, runtime: Runtime, clock: Clock, metrics: Registry
    ) -> None:
        self.facts, self.hierarchies = facts, hierarchies
        self._duration = metrics.histogram(DURATION)
        metrics.gauge(VERSION).set(2 if hierarchies.unified is not None else 1)
        self._losing_support = metrics.gauge(LOSING_SUPPORT)
        self._memory_min = metrics.gauge(MEMORY_MIN) if facts.memory_qos else None
        self._memory_low = metrics.gauge(MEMORY_LOW) if facts.memory_qos else None
        self._runtime, self._clock = runtime, clock
        self._driver: CgroupfsDriver | None = None
        self._asking = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._requests = RequestSums()
        self._written: dict[str, tuple[CgroupValues, float]] = {}  # QoS cgroup -> values, monotonic seconds

    async def driver(self) -> CgroupfsDriver:
        """Return the driver in force. Raises RuntimeCallError while the runtime does not answer."""
        async with in_turn(self._asking, "the cgroup driver"):
            if self._driver is None:
                configured = self.facts.cgroup_driver
                reported = await self._runtime.runtime_config()
                if reported is None:
                    self._losing_support.set(1, "1.38.0" if is_since(self.facts.release, "1.37") else "1.37.0")
                name = reported if reported in (SYSTEMD, CGROUPFS) else configured
                if name != configured:
                    log.warning(
                        "the runtime's cgroup driver is %s and wins over cgroupDriver: %s of the configuration",
                        name,
                        configured,
                    )
                self.facts = replace(self.facts, cgroup_driver=name)
                self._driver = make_driver(name, self.hierarchies, self.facts.page_sizes)
            return self._driver

    def is_missing(self, pod: Object) -> bool:
        """Return whether the pod's cgroup is known to be missing; False until `driver` was awaited."""
        if self._driver is None or not self.facts.cgroups_per_qos:
            return False
        return cgroup_layout.is_missing(self.hierarchies, pod_cgroup_name(pod, self.facts))

    async def prepare(
        self,
        pod: Object,
        active_pods: Callable[[], Iterable[Object]],
        *,
        runs: bool = False,
        placement: PodPlacement = NOT_PLACED,
    ) -> bool:
        """Make the pod's cgroup where it is missing, after that of its QoS class; `facts` has the driver from then on.
        Return False where it is missing and was not made, because the pod `runs`. Raises OSError, RuntimeCallError."""
        if not self.facts.cgroups_per_qos:
            return True
        driver = await self.driver()
        if runs and self.is_missing(pod):
            return False
        try:
            await self.write_classes(active_pods)
        except OSError as error:
            log.warning("QoS cgroups keep their values: %s", error)
        with self._timed("create"):
            await driver.ensure(
                pod_cgroup_name(pod, self.facts), pod_cgroup_values(pod, replace(self.facts, placement=placement))
            )
        return True

    async def values_of(self, pod: Object) -> CgroupValues | None:
        """Return CPU and memory of the pod's cgroup from the kernel; None where pods have no cgroup. Raises OSError."""
        if not self.facts.cgroups_per_qos:
            return None
        try:
            name = pod_cgroup_name(pod, self.facts)
            return await asyncio.to_thread(cgroup_reads.read_values, self.hierarchies, name)
        except ValueError as error:
            raise OSError(f"cannot read the values of the pod's cgroup: {error}") from error

    async def resources_of(
        self, pod: Object, shown: Mapping[str, Any], placement: PodPlacement = NOT_PLACED
    ) -> dict[str, Any] | None:
        """Return the resources of the pod as its cgroup has them, see `actual_resources`; None = it cannot be read.
        Raises RuntimeCallError."""
        if not self.facts.cgroups_per_qos:
            return dict(status_resources(pod)["resources"])
        await self.driver()
        try:
            values = await self.values_of(pod)
        except OSError:
            return None
        return (
            actual_resources(pod, values, replace(self.facts, placement=placement), shown)
            if values is not None
            else None
        )

    async def memory_usage(self, pod: Object, container_id: str) -> int | None:
        """Return the bytes in use in the pod's cgroup, or in the container's ("" = the pod's); None = not known."""
        name = pod_cgroup_name(pod, self.facts)
        return await asyncio.to_thread(cgroup_reads.read_memory_usage, self.hierarchies, name, container_id)

    async def memory_high(self, pod: Object, container_id: str) -> set[str]:
        """Return memory.high of the container, see `cgroup_reads.read_memory_high`. Raises RuntimeCallError."""
        await self.driver()  # from which the names of cgroups follow
        name = pod_cgroup_name(pod, self.facts)
        return await asyncio.to_thread(cgroup_reads.read_memory_high, self.hierarchies, name, container_id)

    async def write_pod(self, pod: Object, values: CgroupValues) -> None:
        """Write these values to the pod's cgroup. Raises OSError, RuntimeCallError."""
        driver = await self.driver()
        with self._timed("update"):
            await driver.write(pod_cgroup_name(pod, self.facts), values)

    async def release(self, uid: str, pod: Object | None) -> None:
        """Destroy the pod's cgroup. For a pod without a spec, which only the runtime has, try each QoS class. Raises
        OSError, RuntimeCallError."""
        if not self.facts.cgroups_per_qos:
            return
        driver = await self.driver()
        names = (pod_cgroup_name(pod, self.facts),) if pod else possible_pod_cgroup_names(uid, self.facts)
        for name in names:
            with self._timed("destroy"):
                await driver.destroy(name)

    async def write_classes(self, active_pods: Callable[[], Iterable[Object]], *, complete: bool = False) -> None:
        """Write the values of the QoS cgroups that follow from the active pods, but not those written within the last
        minute. `complete`: write kubepods as well, and every value. Raises OSError after every one was tried."""
        driver = await self.driver()
        failures: list[OSError] = []
        async with in_turn(
            self._writing, "the QoS cgroups"
        ):  # so that an older sum of the requests is not written last
            requested = self._requests.total(active_pods())
            with_kubepods = complete or self.facts.memory_qos
            for qos in (QosClass.BEST_EFFORT, QosClass.BURSTABLE, *([QosClass.GUARANTEED] if with_kubepods else [])):
                name = qos_cgroup_name(qos, self.facts)
                values = qos_cgroup_values(qos, requested, self.facts)
                if not complete and self._has(name, values):
                    continue
                try:
                    with self._timed("update"):
                        await self._write_class(driver, name, values)
                    self._written[name] = (values, self._clock.monotonic())
                except OSError as error:
                    failures.append(error)
        if failures:
            raise failures[0]

    async def _write_class(self, driver: CgroupfsDriver, name: str, values: CgroupValues) -> None:
        """Write the values of a class, with a memory limit of at least what it uses: v1 refuses a smaller one after it
        has reclaimed what it can, and v2 would kill processes. Raises OSError, RuntimeCallError."""
        self._show_protection(values)
        if values.memory_limit is None:
            await driver.write(name, values)
            return
        on_v2 = self.hierarchies.unified is not None
        try:
            await driver.write(name, await self._not_below_usage(name, values) if on_v2 else values)
        except OSError:
            raised = await self._not_below_usage(name, values)
            if on_v2 or raised == values:
                raise
            await driver.write(name, raised)

    async def _not_below_usage(self, name: str, values: CgroupValues) -> CgroupValues:
        usage = await asyncio.to_thread(cgroup_reads.read_memory_usage, self.hierarchies, name)
        return replace(values, memory_limit=max(values.memory_limit or 0, usage or 0))

    def _show_protection(self, values: CgroupValues) -> None:
        if values.memory_min is not None and self._memory_min is not None:
            self._memory_min.set(values.memory_min)
        if values.memory_low is not None and self._memory_low is not None:
            self._memory_low.set(values.memory_low)

    @contextmanager
    def _timed(self, operation: str) -> Iterator[None]:
        began = self._clock.monotonic()
        try:
            yield
        finally:
            self._duration.observe(self._clock.monotonic() - began, operation)

    def _has(self, name: str, values: CgroupValues) -> bool:
        written, at = self._written.get(name, (None, 0.0))
        fresh = values == written and self._clock.monotonic() - at <= QOS_SECONDS
        return fresh and cgroup_layout.exists(self.hierarchies, name)

    @property
    def node_cgroup(self) -> str:
        """The name of the cgroup kubepods."""
        return qos_cgroup_name(QosClass.GUARANTEED, self.facts)

    async def write_node(self, values: CgroupValues) -> None:
        """Write these values to kubepods. Raises OSError, RuntimeCallError."""
        driver = await self.driver()
        await driver.write(self.node_cgroup, values)

    async def write_existing(self, path: str, values: CgroupValues) -> None:
        """Write these values to a cgroup that others made. `path` is below the controllers' mount points, such as
        /system.slice. Raises OSError where the cgroup does not exist in every controller, RuntimeCallError."""
        driver = await self.driver()
        name = cgroup_name(cgroup_components(path, driver.name), driver.name)
        if not await asyncio.to_thread(cgroup_layout.exists, self.hierarchies, name):
            raise OSError(f"the cgroup {name} does not exist in every controller: make it before the agent starts")
        await driver.write(name, values)

    async def find(self) -> dict[str, list[str]]:
        """Return the names of the existing cgroups of pods, by UID. Raises RuntimeCallError."""
        driver = await self.driver()
        parents = qos_cgroup_names(self.facts)
        return await asyncio.to_thread(
            cgroup_layout.find_pods, self.hierarchies, parents, lambda directory: pod_uid_of(directory, driver.name)
        )

    async def slow_down(self, name: str) -> None:
        """Reduce the CPU time of an orphan cgroup to nearly none. Raises OSError."""
        await (await self.driver()).write(name, _ORPHAN)

    async def destroy(self, name: str) -> None:
        """Kill what is in the cgroup and remove it. Raises OSError."""
        await (await self.driver()).destroy(name)
