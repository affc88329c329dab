"""Has the state of the node: the tracked pods, those that sources list, what was observed of runtime, volumes, claims.
Takes events in and returns which pods they touch. Decides which pods end or are orphans; `admitting` decides which are
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
from services.podsync.core.admission.placed import may_run
from services.podsync.core.admission.resizes import Resizes
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
from services.podsync.core.pod.gated_fields import without_gated_fields
from services.podsync.core.pod.instructions import AllocatePodDevices, AskPreferredDevices, FetchNode, SetContainerCpus
from services.podsync.core.pod.listed_by_source import as_listed, from_desired, from_runtime, is_listed_otherwise
from services.podsync.core.pod.observed_in_runtime import outdated, shows_the_same
from services.podsync.core.pod.progress import without_retry_delay
from services.podsync.core.pod.saved_format import restore_all
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.pod.tracked_pods import TrackedPods
from services.podsync.core.sync.cpu_sets import with_outcome
from shared.model.frozen_copy import replace
from shared.model.runtime import RuntimePod

MAX_FORGOTTEN = 500  # pods; late observations of pods that were forgotten earlier do not occur


class NodeState:
    """Has the pods of the node: what the sources list, what the runtime shows, and what is saved of each.

    `started_at`: CLOCK_MONOTONIC seconds; older observations are of another process. `checkpoint`: uid -> record as
    `saved_format.persisted` wrote it. `agent_start`: identity of the start of the agent that this process belongs to,
    "" = not known.
    """

    def __init__(
        self, started_at: float, facts: MachineFacts, checkpoint: dict[str, dict[str, Any]], agent_start: str = ""
    ) -> None:
        self._started_at = started_at
        self.pods = TrackedPods()
        self.tracked = self.pods.by_uid
        # UID -> error of a record that cannot be used; its pod is admitted again.
        restored, self.unreadable = restore_all(checkpoint, facts.gates_off)
        for tracked in restored:
            self.pods.add(tracked)
        self.volumes: dict[str, MountedVolumes] = {}
        self.claims: dict[str, PodClaims] = {}  # resource claims by pod UID
        self.forgotten: dict[str, float] = {}  # uid -> monotonic time of the last list of a pod that is gone
        self.desired: dict[str, PodDesired] = {}
        self.unclaimed: dict[str, RuntimePod] = {}  # in the runtime, without a record, listed by no source (yet)
        self.admissions = Admissions(self.pods, self.desired, facts, agent_start)
        self.admissions.inherited.may_run = self._may_run
        self.resizes = Resizes(self.pods, self.admissions)
        self._runtime: RuntimeChanged | None = None  # the last one received
        self.machine = ""  # identity of the boot of the machine, "" = its shutdown is not followed
        self.cpu_retry_seconds = 10.0  # after which a cpuset that could not be set is set again
        self.skew = 0.0  # seconds of the wall clock ahead of the steady one
        self.runtime_listed = False
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
        touched = [(uid, *self._resume_or_end(uid, now)) for uid in applied]
        return list(dict.fromkeys(uid for uids in touched for uid in uids))

    def _apply(self, event: Event, now: float) -> list[str]:
        match event:
            case PodDesired():
                return self._on_desired(event, now)
            case PodUndesired(uid=uid):
                self.desired.pop(uid, None)
                return [*self._on_unwanted(uid, now), *self.resizes.decide(now)]
            case SourcesFreshness():
                return self._on_sources(event, now)
            case PodObserved(observation=observation):
                return self._on_observed(observation, now)
            case PodVanished(uid=uid):
                self.unclaimed.pop(uid, None)
                self.forgotten.pop(uid, None)
                tracked = self.tracked.get(uid)
                if tracked is None:
                    return []
                if tracked.instances or tracked.sandboxes:
                    # The event has no time of its own.
                    self.pods.put(replace(tracked, observed=outdated(tracked.observed)))
                return [uid]
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
                self.runtime_listed = event.complete and not event.stale
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

    def _may_run(self, uid: str) -> bool:
        """Return whether a container of a pod without a verdict may run, by what the runtime has shown."""
        seen = self.unclaimed.get(uid) or self.tracked.get(uid)
        return may_run(seen) if seen is not None else not self.runtime_listed

    def _at_work(self) -> list[str]:
        return [tracked.uid for tracked in self.pods.at_work()]

    def _on_desired(self, event: PodDesired, now: float) -> list[str]:
        uid = event.uid
        event = replace(event, pod=without_gated_fields(event.pod, self.admissions.facts.gates_off))
        first = uid not in self.desired
        self.desired[uid] = event
        before = self.tracked.get(uid)
        is_changed = True
        is_deleted = bool((event.pod.get("metadata") or {}).get("deletionTimestamp"))
        if before is not None and not first and is_deleted and before.is_gone_but_listed:
            return []  # such as our own last status, or the grace period that ends with our deletion of the object
        if before is None:
            tracked = self._new_record(event, now)
            self.pods.add(tracked)
        elif before.saved.deleted and not is_deleted:
            tracked = replace(before, saved=replace(before.saved, restart_requested=True))
        else:
            tracked = as_listed(before, event.source, event.pod)
            is_changed = is_listed_otherwise(before, tracked)  # our own status, which comes back, is no change
            if is_changed and tracked.saved.state is PodState.TERMINATING:
                grace_seconds = lifecycle.effective_grace(tracked)
                tracked = replace(tracked, saved=replace(tracked.saved, grace_seconds=grace_seconds))
        if tracked.deletion_requested and tracked.saved.state is PodState.SYNC:
            tracked = replace(tracked, saved=replace(tracked.saved, deleted=True))
            tracked = lifecycle.with_termination(tracked, reason=event.cause or "deleted", now=now)
        elif tracked.deletion_requested and not tracked.saved.deleted:
            tracked = replace(tracked, saved=replace(tracked.saved, deleted=True))
        self.pods.put(tracked)
        touched = self._end_replaced(tracked, now) if first else []
        touched += self.admissions.on_listed(uid, now, first=first)
        self.resizes.on_listed(self.tracked[uid])
        if is_changed or tracked.runs_after_end:
            touched += [*self.resizes.decide(now), uid]
        return list(dict.fromkeys(touched))

    def _new_record(self, event: PodDesired, now: float) -> TrackedPod:
        tracked = from_desired(event.uid, event.source, event.pod)
        saved = lifecycle.with_start(tracked.saved, now, self.skew)
        if saved.state is PodState.SYNC and not tracked.deletion_requested and not lifecycle.has_ended(tracked):
            saved = replace(saved, admission_decided=False)
        seen = self.unclaimed.pop(event.uid, None)
        new_to_node = seen is None and self.runtime_listed and event.uid not in self.forgotten
        tracked = replace(tracked, saved=saved, new_to_node=new_to_node)
        if seen is not None and seen.observed_at > self._started_at:
            tracked = tracked.with_observation(seen, seen.observed_at)
        return tracked

    def _end_replaced(self, tracked: TrackedPod, now: float) -> list[str]:
        """End the pods of the same name and source with other UIDs, and return their UIDs: a source lists one pod of a
        name at a time. This does not wait until the source is complete, so that an edit made while the API server is
        away takes effect."""
        touched: list[str] = []
        for other in self.pods.namesakes(tracked):
            if other.saved.source == tracked.saved.source:
                self.desired.pop(other.uid, None)
                touched += [] if other.saved.deleted else self._on_unwanted(other.uid, now)
            touched += [other.uid] if other.runs_after_end else []
        for seen in [
            pod for pod in self.unclaimed.values() if (pod.name, pod.namespace) == (tracked.name, tracked.namespace)
        ]:
            touched += self._claim_replaced(seen, now)
        return touched

    def _resume_or_end(self, uid: str, now: float) -> list[str]:
        """Take a finished pod that runs, because another agent of the node started it, as a new pod with its containers
        if a source lists it again (pods.md 4.7); end it again if none does. Return the UIDs of other pods that this
        touches."""
        tracked, desired = self.tracked.get(uid), self.desired.get(uid)
        if tracked is None or not tracked.runs_after_end or not tracked.observed.is_current or tracked.call is not None:
            return []
        listed_again = tracked.saved.restart_requested or (tracked.is_static and not tracked.saved.deleted)
        if desired is not None and listed_again and not tracked.saved.rejected:
            resumed = replace(
                self._new_record(desired, now),
                attempts=tracked.attempts,
                observed=tracked.observed,
                last_written=tracked.last_written,
                instance_facts=tracked.instance_facts,
                new_to_node=False,
            )
            self.pods.add(resumed)
            return self.admissions.on_listed(uid, now, first=True)
        if self._is_unwanted(tracked):
            self.pods.put(lifecycle.with_second_termination(tracked, now))
        return []

    def _is_unwanted(self, tracked: TrackedPod) -> bool:
        """Return whether no source can list this pod any more, or only as one that does not run: a finished pod of the
        API server never runs again, a rejected one does not run, and a source lists one pod of a name at a time."""
        if tracked.saved.rejected or tracked.saved.source == "api" or self.admissions.sources_complete:
            return True
        sources = {other.saved.source for other in self.pods.namesakes(tracked) if other.uid in self.desired}
        return bool(sources - {"api"}) if not tracked.saved.source else tracked.saved.source in sources

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

    def _on_unwanted(self, uid: str, now: float) -> list[str]:
        tracked = self.tracked.get(uid)
        if tracked is None:
            return []
        tracked = replace(tracked, saved=replace(tracked.saved, restart_requested=False, deleted=True))
        if tracked.saved.state is PodState.SYNC:
            tracked = lifecycle.with_termination(tracked, reason="no source lists the pod", now=now)
        self.pods.put(tracked)
        return [uid]

    def _on_sources(self, event: SourcesFreshness, now: float) -> list[str]:
        self.admissions.sources_complete = event.complete and not event.stale
        touched: list[str] = []
        if self.admissions.sources_complete:
            for uid in [u for u in self.tracked if u not in event.listed]:
                if not self.tracked[uid].saved.deleted:
                    touched += self._on_unwanted(uid, now)
                elif self.tracked[uid].runs_after_end:
                    touched.append(uid)
            self.admissions.settle_inherited()
            touched += [*self._claim_orphans(now), *self.admissions.decide_waiting(now), *self.resizes.decide(now)]
        return touched

    def _claim_orphans(self, now: float) -> list[str]:
        """End the pods that the runtime has and no source lists; called only once every source is complete."""
        reason = "in the runtime and listed by no source"
        return [self._claim(observation, reason, now) for observation in list(self.unclaimed.values())]

    def _claim_replaced(self, observation: RuntimePod, now: float) -> list[str]:
        """End a static pod that another agent started, where its source lists one of that name with another UID. This
        does not wait for the other sources, so that both never run beside each other (pods.md 4.5)."""
        sources = {sandbox.static_source for sandbox in observation.sandboxes} - {""}
        others = self.pods.namesakes(from_runtime(observation))
        if not any(other.uid in self.desired and other.saved.source in sources for other in others):
            return []
        return [self._claim(observation, "its source lists another pod of this name", now)]

    def _claim(self, observation: RuntimePod, reason: str, now: float) -> str:
        del self.unclaimed[observation.uid]
        tracked = from_runtime(observation)
        tracked = replace(tracked, saved=replace(tracked.saved, deleted=True))
        self.pods.add(lifecycle.with_termination(tracked, reason=reason, now=now))
        return tracked.uid

    def _on_observed(self, observation: RuntimePod, now: float) -> list[str]:
        tracked = self.tracked.get(observation.uid)
        if tracked is None:
            if observation.observed_at <= self.forgotten.get(observation.uid, float("-inf")):
                return []  # the observation was begun before everything of the pod was removed
            self.unclaimed[observation.uid] = observation
            if self.admissions.sources_complete:
                return self._claim_orphans(now)
            return self._claim_replaced(observation, now)
        fresh = observation.observed_at > max(tracked.observed.at, self._started_at)
        if not fresh:
            return []  # it was begun before our last call ended, and does not show the effect of that call
        seen = tracked.with_observation(observation, observation.observed_at)
        self.pods.put(seen)
        return [] if shows_the_same(tracked.observed, seen.observed) else [tracked.uid]

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
            touched = [other for pod in event.result.namesakes for other in self._on_observed(pod, now)]
            return [*touched, uid]
        if isinstance(event, CallDone) and isinstance(event.call, FetchNode) and not tracked.saved.admission_decided:
            read = event.result.node if isinstance(event.result, NodeRead) else None
            node = read or self.admissions.node
            decided = self.admissions.decide(uid, now, node=node, is_final=True)
            return list(dict.fromkeys((*decided, *self.resizes.decide(now), uid)))
        return [*self.resizes.decide(now), uid] if self.resizes.waits_for(event.call) else [uid]

    def forget(self, tracked: TrackedPod) -> None:
        """Forget a pod of which nothing is left."""
        self.pods.remove(tracked.uid)
        self.forgotten[tracked.uid] = tracked.observed.at
        for oldest in list(self.forgotten)[:-MAX_FORGOTTEN]:
            del self.forgotten[oldest]
