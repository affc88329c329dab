"""Decides for the containers of all pods which of them get another cpuset now, and which starts wait until others have
left their CPUs (node.md 4.10). `sync/cpu_sets` decides it for one pod. Without a static CPU policy there are no calls.
"""

from services.podsync.core.admission.admitting import Admissions
from services.podsync.core.placement.pod_placement import cpus_of
from services.podsync.core.pod.instructions import Instruction, WakeAt
from services.podsync.core.pod.step import WAITS_FOR_CPUS
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.pod.tracked_pods import TrackedPods
from services.podsync.core.sync.cpu_sets import cpus_to_set, occupied_cpus
from shared.model.frozen_copy import replace


class ContainerCpus:
    """Decides the calls that set cpusets, and puts the pods that they change into `TrackedPods`."""

    def __init__(self, pods: TrackedPods, admissions: Admissions) -> None:
        self._pods, self._admissions = pods, admissions
        self._shared = ""  # the shared CPUs for which the cpusets of all pods were decided

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
        shared = self._admissions.shared_cpus()
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
        changes = cpus_to_set(tracked, self._admissions.shared_cpus(), now)
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
        occupied = occupied_cpus(tracked, self._pods.at_work, self._admissions.shared_cpus())
        if occupied is None or not cpus_of(tracked.saved.placement):
            return occupied
        return occupied | self._admissions.cpus_in_use(tracked.uid)
