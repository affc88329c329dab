"""Decides for the containers of all pods which of them get another cpuset now, and which starts wait until others have
left their CPUs (node.md 4.10). `sync/cpu_sets` decides it for one pod. Without a static CPU policy there are no calls.
"""

from collections.abc import Mapping

from services.podsync.core.admission.admitting import Admissions
from services.podsync.core.admission.placed import running_cpus
from services.podsync.core.placement.pod_placement import PodPlacement, cpus_of
from services.podsync.core.pod.instructions import Instruction, WakeAt
from services.podsync.core.pod.step import WAITS_FOR_CPUS
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.pod.tracked_pods import TrackedPods
from services.podsync.core.sync.cpu_sets import cpus_to_set, occupied_cpus
from shared.model.cpu_list import write_cpus
from shared.model.frozen_copy import replace


class ContainerCpus:
    """Decides the calls that set cpusets, and puts the pods that they change into `TrackedPods`."""

    def __init__(self, pods: TrackedPods, admissions: Admissions) -> None:
        self._pods, self._admissions = pods, admissions
        self._shared = ""  # the shared CPUs for which the cpusets of all pods were decided
        self._pool: tuple[Mapping[str, PodPlacement], str] | None = None  # placements, and the shared CPUs beside them

    @property
    def static(self) -> bool:
        """Whether containers have cpusets."""
        placer = self._admissions.facts.placer
        return placer is not None and placer.static_cpus

    def waiting(self) -> list[str]:
        """Return the UIDs of the pods with a container that waits until others have left its CPUs."""
        pods = self._pods.at_work() if self.static else []
        return [tracked.uid for tracked in pods if tracked.waits_for == WAITS_FOR_CPUS]

    def follow_shared(self, now: float) -> list[Instruction]:
        """Return the calls for the containers of all pods where the shared CPUs have changed since the last time."""
        shared = self.shared()
        if shared == self._shared:
            return []
        self._shared = shared
        pods = self._pods.at_work()
        return [call for tracked in pods for call in self.follow(tracked.uid, "the shared CPUs changed", now)]

    def follow(self, uid: str, cause: str, now: float) -> list[Instruction]:
        """Return the calls for those containers of a pod that have other CPUs than they are to have."""
        tracked = self._pods.by_uid.get(uid)
        if not self.static or tracked is None:
            return []
        changes = cpus_to_set(tracked, self.shared(), now)
        changed, out = changes.tracked, [replace(call, cause=cause) for call in changes.calls]
        wakes = [WakeAt(cause="a cpuset could not be set", when=changes.retry_at)] if changes.retry_at else []
        for wake in wakes:
            changed = replace(changed, wake_at=min(changed.wake_at, wake.when))
        if changed is not tracked:
            self._pods.put(changed)
        return [*out, *wakes]

    def occupied(self, tracked: TrackedPod) -> frozenset[int] | None:
        """Return the CPUs that the pod has for itself, and others beside them, on which containers of other pods may
        run now; None = on any. Looks at all pods at work."""
        occupied = occupied_cpus(tracked, self._pods.at_work, self.shared())
        if occupied is None or not cpus_of(tracked.saved.placement):
            return occupied
        return occupied | self._in_use_by_others(tracked.uid)

    def shared(self) -> str:
        """Return the CPUs of containers without CPUs of their own, such as 0-3,8; "" = all, with policy none."""
        placer = self._admissions.facts.placer
        if placer is None or not placer.static_cpus:
            return ""
        placements = self._admissions.placements()
        if self._pool is None or self._pool[0] is not placements:
            self._pool = placements, write_cpus(placer.cpus_to_share(placements.values()))
        return self._pool[1]

    def _in_use_by_others(self, uid: str) -> frozenset[int]:
        """Return the CPUs that containers of the other pods have for themselves and may run on."""
        used: set[int] = set()
        inherited = self._admissions.inherited
        for other, given in self._admissions.placements().items():
            if other == uid:
                continue
            if inherited.is_decided(other):
                used |= running_cpus(self._pods.by_uid[other])
            elif inherited.may_run(other):
                used |= cpus_of(given)
        return frozenset(used)
