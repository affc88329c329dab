"""Writes the cgroups above the pods, and removes cgroups of pods that are gone (node.md 4.5-4.9).
Writes node allocatable to kubepods each minute until it works once, and the QoS cgroups each minute. Searches every two
seconds for pod cgroups without a pod, once all pods are known. Decides no value.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Set
from pathlib import Path

from bus.messages.event import KubeEvent
from services.podsync.adapters.cgroups.pod_cgroups import PodCgroups
from services.podsync.adapters.node_facts_reader import kernel_version, read_node_capacity
from services.podsync.adapters.pod.pod_directories import has_volumes
from services.podsync.controllers.runtime_answers import RuntimeAnswers
from services.podsync.core.cgroups.memory_qos import compatibility_warning
from services.podsync.core.cgroups.node_cgroup import (
    Reservation,
    enforced_reservations,
    kubepods_values,
    reservation_values,
)
from services.podsync.core.cgroups.pod_cgroup import CgroupValues
from shared.config.effective import EffectiveConfig
from shared.config.gate_releases import enabled
from shared.host.cgroup_name import SYSTEMD
from shared.model.objects import Object
from shared.pods.directory import pod_directory

log = logging.getLogger(__name__)

LOOP_SECONDS = 60.0
ORPHAN_SECONDS = 2.0


class NodeCgroups:
    """Keeps the cgroups of one node. `active_pods` returns the pods that have not ended. `known` returns the UIDs of
    pods whose cgroups stay, or None while not all pods are known. `record` records an Event; `trouble` reports a
    trouble by name."""

    def __init__(
        self,
        pod_cgroups: PodCgroups,
        config: EffectiveConfig,
        active_pods: Callable[[], Iterable[Object]],
        known: Callable[[], Set[str] | None],
        record: Callable[[KubeEvent], object],
        trouble: Callable[[str, str | None], None],
        answers: RuntimeAnswers,
    ) -> None:
        self._cgroups, self._config, self._root_dir = pod_cgroups, config, Path(config.root_dir)
        self._active_pods, self._known, self._record, self._trouble = active_pods, known, record, trouble
        self._answers = answers
        # An agent with an embedded containerd may run beside a kubelet, whose pods are in the same kubepods then.
        self.removes_orphans = config.embedded_containerd is None or bool(config.cgroup_root.strip("/"))
        self._enforced = False
        self._reservations = enforced_reservations(
            config.enforce_node_allocatable,
            (config.system_reserved_cgroup, config.system_reserved),
            (config.kube_reserved_cgroup, config.kube_reserved),
        )
        self._slowed: set[str] = set()
        self._under_way: dict[str, asyncio.Task[None]] = {}  # cgroup -> its removal

    async def run(self) -> None:
        """Run until cancelled."""
        if not self._cgroups.facts.cgroups_per_qos:
            return
        if enabled(self._config.feature_gates, "MemoryQoS"):
            warning = compatibility_warning(on_v2=self._cgroups.facts.cgroup_v2, kernel=kernel_version())
            if warning is not None:
                log.warning("%s", warning)
        try:
            await self._answers.repeat(self._cgroups.driver)  # from which the names of cgroups follow
            async with asyncio.TaskGroup() as loops:
                loops.create_task(self._repeat(LOOP_SECONDS, self.write_all))
                if self.removes_orphans:
                    loops.create_task(self._repeat(ORPHAN_SECONDS, self.look_for_orphans))
                else:
                    log.info("cgroups of unknown pods are left alone: set cgroupRoot, and they are removed")
        finally:
            for task in self._under_way.values():
                task.cancel()

    async def _repeat(self, seconds: float, turn: Callable[[], Awaitable[None]]) -> None:
        """Run the turn every `seconds`; a bug in one turn must not end the next ones."""
        while True:
            try:
                await turn()
            except Exception:
                log.exception("cgroups above the pods: a turn failed")
                self._trouble("cgroups", "a look at the cgroups failed, see the log")
            await asyncio.sleep(seconds)

    async def write_all(self) -> None:
        """Write kubepods and the reserved cgroups, until each worked once, and the QoS cgroups. Never raises."""
        if not self._enforced:
            await self._enforce()
        for reservation in list(self._reservations):
            await self._reserve(reservation)
        try:
            await self._cgroups.write_classes(self._active_pods, complete=True)
        except OSError as error:
            log.warning("cannot update QoS cgroups, trying again in a minute: %s", error)
            self._trouble("cgroups", f"QoS cgroups cannot be written: {error}")
            return
        self._trouble("cgroups", None)

    async def _enforce(self) -> None:
        name = self._cgroups.node_cgroup
        with_cpus = self._cgroups.facts.cgroup_driver == SYSTEMD
        try:
            capacity = await asyncio.to_thread(read_node_capacity, self._config)
            enforced = self._config.enforce_node_allocatable
            await self._cgroups.write_node(kubepods_values(capacity, enforced, with_cpus=with_cpus))
        except OSError as error:
            message = f'Failed to update Node Allocatable Limits "{name}": {error}'
            log.warning("%s", message)
            self._record_event("Warning", "FailedNodeAllocatableEnforcement", message)
            return
        self._enforced = True
        self._record_event("Normal", "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")

    async def _reserve(self, reservation: Reservation) -> None:
        """Write the values of a reserved cgroup; what failed is tried again each minute."""
        try:
            await self._cgroups.write_existing(reservation.cgroup, self._values_of(reservation))
        except OSError as error:
            message = f'Failed to enforce the {reservation.kind} reservation on cgroup "{reservation.cgroup}": {error}'
            log.warning("%s", message)
            self._record_event("Warning", "FailedNodeAllocatableEnforcement", message)
            return
        self._reservations.remove(reservation)
        message = f"Updated limits on {reservation.kind} reserved cgroup {reservation.cgroup}"
        self._record_event("Normal", "NodeAllocatableEnforced", message)

    def _values_of(self, reservation: Reservation) -> CgroupValues:
        return reservation_values(reservation, protect_memory=self._cgroups.facts.memory_qos)

    def _record_event(self, kind: str, reason: str, message: str) -> None:
        node = self._cgroups.facts.node_name
        self._record(KubeEvent(type=kind, reason=reason, message=message, kind="Node", name=node))

    async def look_for_orphans(self) -> None:
        """Begin to remove orphan pod cgroups; one whose pod has volumes left only gets less CPU time. Never raises."""
        if self._known() is None:
            return
        cgroups = await self._cgroups.find()
        known = self._known()  # read after the search: a new pod may have made its cgroup meanwhile
        if known is None:
            return
        self._slowed &= {name for names in cgroups.values() for name in names}
        for uid, names in cgroups.items():
            for name in names if uid not in known else ():
                if name not in self._under_way:
                    self._under_way[name] = asyncio.create_task(self._remove_orphan(uid, name))

    async def _remove_orphan(self, uid: str, name: str) -> None:
        try:
            if await asyncio.to_thread(has_volumes, pod_directory(self._root_dir, uid)):
                if name not in self._slowed:
                    log.info("cgroup %s is of no pod that is known, and its volumes are still there", name)
                    await self._cgroups.slow_down(name)
                    self._slowed.add(name)
                return
            known = self._known()  # a pod of this UID may have appeared during the search for volumes
            if known is None or uid in known:
                return
            log.info("removing cgroup %s, of no pod that is known", name)
            await self._cgroups.destroy(name)
        except OSError as error:
            log.warning("cgroup %s of no known pod stays for now: %s", name, error)
        finally:
            self._under_way.pop(name, None)
