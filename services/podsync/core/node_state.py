"""Has the state of the node: the tracked pods, and what was observed of runtime, volumes and resource claims. Takes
events in and returns which pods they touch. `listed_pods` decides which pods begin and end, `admitting` which are
admitted, and `steps` what a pod needs next.
"""

from typing import Any

from bus.messages.pleg import RuntimeHandler
from bus.messages.podsync import PodState
from bus.messages.resource_claims import PodClaims
from bus.messages.volume import MountedVolumes
from services.podsync.core import outcomes
from services.podsync.core.admission.admitting import Admissions
from services.podsync.core.admission.node_view import MachineFacts, node_addresses
from services.podsync.core.admission.resizes import Resizes
from services.podsync.core.listed_pods import ListedPods
from services.podsync.core.pod import lifecycle
from services.podsync.core.pod.call_results import NodeRead, PodListed
from services.podsync.core.pod.claim_status import has_claims
from services.podsync.core.pod.events import (
    CallDone,
    CallFailed,
    ClaimsChanged,
    ClaimsFreshness,
    DevicesChanged,
    DevicesFreshness,
    Event,
    GarbageFound,
    NodeChanged,
    NodePressureChanged,
    NodeShutdownChanged,
    PodDesired,
    PodEvicted,
    PodLate,
    PodObserved,
    PodStopped,
    PodUndesired,
    PodVanished,
    ProbesChanged,
    RuntimeChanged,
    RuntimeListed,
    SourcesFreshness,
    TimePassed,
    VolumesChanged,
    VolumesFreshness,
)
from services.podsync.core.pod.instructions import AllocatePodDevices, AskPreferredDevices, FetchNode, SetContainerCpus
from services.podsync.core.pod.progress import without_retry_delay
from services.podsync.core.pod.saved_format import restore_all
from services.podsync.core.pod.tracked_pods import TrackedPods
from services.podsync.core.sync.cpu_sets import with_outcome
from shared.model.frozen_copy import replace


class NodeState:
    """Has the pods of the node: what the sources list, what the runtime shows, and what is saved of each.

    `started_at`: CLOCK_MONOTONIC seconds; older observations are of another process. `checkpoint`: uid -> record as
    `saved_format.persisted` wrote it. `agent_start`: identity of the start of the agent that this process belongs to,
    "" = not known.
    """

    def __init__(
        self, started_at: float, facts: MachineFacts, checkpoint: dict[str, dict[str, Any]], agent_start: str = ""
    ) -> None:
        self.pods = TrackedPods()
        self.tracked = self.pods.by_uid
        # UID -> error of a record that cannot be used; its pod is admitted again.
        restored, self.unreadable = restore_all(checkpoint, facts.gates_off)
        for tracked in restored:
            self.pods.add(tracked)
        self.volumes: dict[str, MountedVolumes] = {}
        self.claims: dict[str, PodClaims] = {}  # resource claims by pod UID
        self.desired: dict[str, PodDesired] = {}
        self.admissions = Admissions(self.pods, self.desired, facts, agent_start)
        self.resizes = Resizes(self.pods, self.admissions)
        self.listed = ListedPods(self.pods, self.desired, self.admissions, self.resizes, started_at)
        self.admissions.inherited.may_run = self.listed.may_run
        self._runtime: RuntimeChanged | None = None  # the last one received
        self.machine = ""  # identity of the boot of the machine, "" = its shutdown is not followed
        self.cpu_retry_seconds = 10.0  # after which a cpuset that could not be set is set again
        self.skew = 0.0  # seconds of the wall clock ahead of the steady one
        self.volumes_known = False
        self.claims_known = False  # whether `claims` has those of all pods
        self.network_ready = True
        self.network_message = ""
        self.runtime_reachable = True
        self.runtime_name = "containerd"
        self.runtime_handlers: tuple[RuntimeHandler, ...] | None = None  # None = not reported

    def take_in(self, event: Event, now: float) -> list[str]:
        """Take an event into the state; return the UIDs of the pods to advance, in this order."""
        applied = self._apply(event, now)
        if self.admissions.inherited.by_uid:
            settled = self.admissions.settle_inherited()
            if settled or isinstance(event, RuntimeListed | PodObserved | PodVanished):
                applied = [*applied, *self.admissions.decide_waiting(now)]
        touched = [(uid, *self.listed.resume_or_end(uid, now, self.skew)) for uid in applied]
        return list(dict.fromkeys(uid for uids in touched for uid in uids))

    def _apply(self, event: Event, now: float) -> list[str]:
        match event:
            case PodDesired():
                return self.listed.on_desired(event, now, self.skew)
            case PodUndesired(uid=uid):
                return self.listed.on_undesired(uid, now)
            case SourcesFreshness():
                return self.listed.on_sources(event, now)
            case PodObserved(observation=observation):
                return self.listed.on_observed(observation, now)
            case PodVanished(uid=uid):
                return self.listed.on_vanished(uid)
            case NodeChanged(node=node):
                before = node_addresses(self.admissions.node)
                self.admissions.node, self.admissions.node_known = node, True
                decided = [*self.admissions.decide_waiting(now), *self.resizes.decide(now)]
                return self._at_work() if node_addresses(node) != before else decided
            case NodePressureChanged(conditions=conditions):
                if conditions == self.admissions.pressures:
                    return []
                self.admissions.pressures = conditions
                return self.resizes.decide(now)
            case PodEvicted():
                return self._on_evicted(event, now)
            case NodeShutdownChanged(in_progress=in_progress):
                self.admissions.shuts_down, self.admissions.shutdown_confirmed = in_progress, event.is_confirmed
                resumed = [] if in_progress else self._start_stopped()
                reopened = [] if in_progress else self.admissions.reopen_after_shutdown(now, self.skew)
                return [*resumed, *reopened, *self.admissions.decide_waiting(now)]
            case PodStopped(uid=uid):
                tracked = self.tracked.get(uid)
                if tracked is None:
                    return []
                self.pods.put(lifecycle.with_shutdown(tracked, event, self.machine, now))
                return [uid]
            case PodLate(uid=uid) if uid in self.tracked:
                self.pods.put(lifecycle.late_in_shutdown(self.tracked[uid]))
                return [uid]
            case GarbageFound():
                return self._on_garbage(event)
            case ProbesChanged():
                return self._on_probes(event)
            case VolumesChanged(uid=uid, volumes=volumes):
                if volumes is None:
                    self.volumes.pop(uid, None)
                else:
                    self.volumes[uid] = volumes
                return [uid] if uid in self.tracked else []
            case ClaimsChanged():
                return self._on_claims(event)
            case ClaimsFreshness():
                self.claims_known = event.complete and not event.stale
                return [tracked.uid for tracked in self.pods.at_work() if has_claims(tracked.saved)]
            case RuntimeListed():
                self.listed.runtime_listed = event.complete and not event.stale
                return []
            case DevicesChanged():
                return self.admissions.on_devices(event.name, event.resource, now)
            case DevicesFreshness():
                return self.admissions.on_devices_complete(now) if event.complete else []
            case VolumesFreshness():
                self.volumes_known = event.complete and not event.stale
                return self._at_work()
            case RuntimeChanged():
                return self._on_runtime(event, now)
            case CallDone(uid=uid) | CallFailed(uid=uid):
                return self._on_outcome(event, now)
            case TimePassed():
                # Of a pod with a call, the moment is its deadline.
                due = [r.uid for r in self.pods.at_work() if r.wake_at <= now]
                if any(self.tracked[uid].device_need is not None for uid in due):
                    due += self.admissions.decide_waiting(now)  # a wait for device plugins may be over
                return [*due, *(self.resizes.decide(now) if 0 < self.resizes.retry_at <= now else [])]
            case _:
                return []

    def start_those_of_other_boots(self) -> None:
        """Let the pods start again that an earlier boot of the machine, or an earlier configuration, has stopped."""
        self._start_stopped(self.machine)

    def start_those_cut_off(self) -> None:
        """Let the pods start again that still ran when the machine went off in a shutdown."""
        for tracked in list(self.pods.by_uid.values()):
            self.pods.put(lifecycle.cut_off(tracked))

    def _start_stopped(self, but_of: str = "") -> list[str]:
        """Let the pods start again that were stopped for a shutdown, but those of the boot `but_of`. Return their
        UIDs."""
        stopped = [
            tracked
            for tracked in self.pods.by_uid.values()
            if tracked.saved.shutdown is not None and (not but_of or tracked.saved.shutdown.boot != but_of)
        ]
        for tracked in stopped:
            self.pods.put(lifecycle.without_shutdown(tracked))
        return [tracked.uid for tracked in stopped]

    def _at_work(self) -> list[str]:
        return [tracked.uid for tracked in self.pods.at_work()]

    def _on_evicted(self, event: PodEvicted, now: float) -> list[str]:
        tracked = self.tracked.get(event.uid)
        if tracked is None or tracked.saved.state is not PodState.SYNC or not tracked.saved.admission_decided:
            return []
        if tracked.saved.shutdown is not None:
            return []  # it stops already, and an eviction would end it for good
        self.pods.put(lifecycle.with_eviction(tracked, event, now))
        return [tracked.uid]

    def _on_garbage(self, event: GarbageFound) -> list[str]:
        pods = [self.tracked[uid] for uid in event.containers if uid in self.tracked]
        for tracked in pods:
            retry = replace(tracked.retry, removal_at=0.0)
            self.pods.put(replace(tracked, garbage=event.containers[tracked.uid], retry=retry))
        return [tracked.uid for tracked in pods]

    def _on_probes(self, event: ProbesChanged) -> list[str]:
        tracked = self.tracked.get(event.pod_uid)
        if tracked is None:
            return []
        self.pods.put(tracked.with_probes(event.container_id, event.results))
        return [tracked.uid]

    def _on_claims(self, event: ClaimsChanged) -> list[str]:
        if event.claims is None:
            self.claims.pop(event.uid, None)
        else:
            self.claims[event.uid] = event.claims
        return [event.uid] if event.uid in self.tracked else []

    def _on_runtime(self, event: RuntimeChanged, now: float) -> list[str]:
        runtime = replace(event, cause="")
        if runtime == self._runtime:
            return []
        self._runtime = runtime
        back = event.reachable and not self.runtime_reachable
        self.runtime_reachable = event.reachable
        self.runtime_name = event.runtime_name or self.runtime_name
        self.runtime_handlers = event.handlers
        self.network_ready, self.network_message = event.network_ready, event.network_message
        self.admissions.supplemental_groups_policy = event.supplemental_groups_policy
        self.admissions.mount_options = event.mount_options
        self.admissions.runtime_known = self.admissions.runtime_known or event.reachable
        self.admissions.decide_waiting(now)
        self.resizes.decide(now)
        if back:
            for tracked in self.pods.at_work():
                starts, volume_images = without_retry_delay(tracked.starts), without_retry_delay(tracked.volume_images)
                retry = replace(tracked.retry, at=0.0)
                self.pods.put(replace(tracked, retry=retry, starts=starts, volume_images=volume_images))
        return self._at_work()

    def _on_outcome(self, event: CallDone | CallFailed, now: float) -> list[str]:
        tracked, uid = self.tracked.get(event.uid), event.uid
        if tracked is not None and isinstance(event.call, SetContainerCpus):
            self.pods.put(with_outcome(tracked, event, event.call, now, self.cpu_retry_seconds))
            return [uid]
        if tracked is None or tracked.call != event.call:
            return []
        if isinstance(event, CallFailed):
            tracked = outcomes.failed(tracked, event, now)
        elif isinstance(event.call, FetchNode):
            tracked = replace(tracked, call=None)
        else:
            tracked = outcomes.succeeded(tracked, event, now)
        if isinstance(event.call, AskPreferredDevices | AllocatePodDevices):
            return self.admissions.on_answer(tracked, event, now)
        self.pods.put(tracked)
        if isinstance(event, CallDone) and isinstance(event.result, PodListed) and event.result.namesakes:
            touched = [other for pod in event.result.namesakes for other in self.listed.on_observed(pod, now)]
            return [*touched, uid]
        if isinstance(event, CallDone) and isinstance(event.call, FetchNode) and not tracked.saved.admission_decided:
            read = event.result.node if isinstance(event.result, NodeRead) else None
            node = read or self.admissions.node
            decided = self.admissions.decide(uid, now, node=node, is_final=True)
            return list(dict.fromkeys((*decided, *self.resizes.decide(now), uid)))
        return [*self.resizes.decide(now), uid] if self.resizes.waits_for(event.call) else [uid]
