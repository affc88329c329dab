"""Decides which pods the node has: a pod begins when a source lists it. It ends when its source lists it no more or
lists another one of its name, or when the runtime has it and no source lists it. `admitting` decides which pods are
admitted.
"""

from bus.messages.podsync import PodState
from services.podsync.core.admission.admitting import Admissions
from services.podsync.core.admission.placed import may_run
from services.podsync.core.admission.resizes import Resizes
from services.podsync.core.pod import lifecycle
from services.podsync.core.pod.events import PodDesired, SourcesFreshness
from services.podsync.core.pod.gated_fields import without_gated_fields
from services.podsync.core.pod.listed_by_source import as_listed, from_desired, from_runtime, is_listed_otherwise
from services.podsync.core.pod.observed_in_runtime import outdated, shows_the_same
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.pod.tracked_pods import TrackedPods
from shared.model.frozen_copy import replace
from shared.model.runtime import RuntimePod

MAX_FORGOTTEN = 500  # pods; late observations of pods that were forgotten earlier do not occur


class ListedPods:
    """Has the pods that the sources list, and those that only the runtime has. Each method that takes something in
    returns the UIDs of the pods that it touches, in the order in which to advance them.

    `desired`: by UID, what the sources list. `started_at`: CLOCK_MONOTONIC seconds; older observations are of another
    process.
    """

    def __init__(
        self,
        pods: TrackedPods,
        desired: dict[str, PodDesired],
        admissions: Admissions,
        resizes: Resizes,
        started_at: float,
    ) -> None:
        self._pods, self._desired, self._admissions, self._resizes = pods, desired, admissions, resizes
        self._started_at = started_at
        self._forgotten: dict[str, float] = {}  # UID -> monotonic time of the last list of a pod that is gone
        self.untracked: dict[str, RuntimePod] = {}  # in the runtime, without a record, listed by no source (yet)
        self.runtime_listed = False  # whether pleg's list of the runtime's pods is complete and fresh

    def on_desired(self, event: PodDesired, now: float, skew: float) -> list[str]:
        """Take in a pod that a source lists, new or changed. `skew`: seconds of the wall clock ahead of `now`."""
        uid = event.uid
        event = replace(event, pod=without_gated_fields(event.pod, self._admissions.facts.gates_off))
        first = uid not in self._desired
        self._desired[uid] = event
        before = self._pods.by_uid.get(uid)
        is_changed = True
        is_deleted = bool((event.pod.get("metadata") or {}).get("deletionTimestamp"))
        if before is not None and not first and is_deleted and before.is_gone_but_listed:
            return []  # such as our own last status, or the grace period that ends with our deletion of the object
        if before is None:
            tracked = self._new_pod(event, now, skew)
            self._pods.add(tracked)
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
        self._pods.put(tracked)
        touched = self._end_replaced(tracked, now) if first else []
        touched += self._admissions.on_listed(uid, now, first=first)
        self._resizes.on_listed(self._pods.by_uid[uid])
        if is_changed or tracked.runs_after_end:
            touched += [*self._resizes.decide(now), uid]
        return list(dict.fromkeys(touched))

    def _new_pod(self, event: PodDesired, now: float, skew: float) -> TrackedPod:
        tracked = from_desired(event.uid, event.source, event.pod)
        saved = lifecycle.with_start(tracked.saved, now, skew)
        if saved.state is PodState.SYNC and not tracked.deletion_requested and not lifecycle.has_ended(tracked):
            saved = replace(saved, admission_decided=False)
        seen = self.untracked.pop(event.uid, None)
        new_to_node = seen is None and self.runtime_listed and event.uid not in self._forgotten
        tracked = replace(tracked, saved=saved, new_to_node=new_to_node)
        if seen is not None and seen.observed_at > self._started_at:
            tracked = tracked.with_observation(seen, seen.observed_at)
        return tracked

    def _end_replaced(self, tracked: TrackedPod, now: float) -> list[str]:
        """End the pods of the same name and source with other UIDs, and return their UIDs: a source lists one pod of a
        name at a time. This does not wait until the source is complete, so that an edit made while the API server is
        away takes effect."""
        touched: list[str] = []
        for other in self._pods.namesakes(tracked):
            if other.saved.source == tracked.saved.source:
                self._desired.pop(other.uid, None)
                touched += [] if other.saved.deleted else self._end(other.uid, now)
            touched += [other.uid] if other.runs_after_end else []
        for seen in [
            pod for pod in self.untracked.values() if (pod.name, pod.namespace) == (tracked.name, tracked.namespace)
        ]:
            touched += self._end_replaced_in_runtime(seen, now)
        return touched

    def resume_or_end(self, uid: str, now: float, skew: float) -> list[str]:
        """Take a finished pod that runs, because another agent of the node started it, as a new pod with its containers
        if a source lists it again (pods.md 4.7); end it again if none does. Return the UIDs of other pods that this
        touches."""
        tracked, desired = self._pods.by_uid.get(uid), self._desired.get(uid)
        if tracked is None or not tracked.runs_after_end or not tracked.observed.is_current or tracked.call is not None:
            return []
        listed_again = tracked.saved.restart_requested or (tracked.is_static and not tracked.saved.deleted)
        if desired is not None and listed_again and not tracked.saved.rejected:
            resumed = replace(
                self._new_pod(desired, now, skew),
                attempts=tracked.attempts,
                observed=tracked.observed,
                last_written=tracked.last_written,
                instance_facts=tracked.instance_facts,
                new_to_node=False,
            )
            self._pods.add(resumed)
            return self._admissions.on_listed(uid, now, first=True)
        if self._is_never_listed_again(tracked):
            self._pods.put(lifecycle.with_second_termination(tracked, now))
        return []

    def _is_never_listed_again(self, tracked: TrackedPod) -> bool:
        """Return whether no source can list this pod any more, or only as one that does not run: a finished pod of the
        API server never runs again, a rejected one does not run, and a source lists one pod of a name at a time."""
        if tracked.saved.rejected or tracked.saved.source == "api" or self._admissions.sources_complete:
            return True
        sources = {other.saved.source for other in self._pods.namesakes(tracked) if other.uid in self._desired}
        return bool(sources - {"api"}) if not tracked.saved.source else tracked.saved.source in sources

    def on_undesired(self, uid: str, now: float) -> list[str]:
        """End a pod that its source does not list any more."""
        self._desired.pop(uid, None)
        return [*self._end(uid, now), *self._resizes.decide(now)]

    def _end(self, uid: str, now: float) -> list[str]:
        tracked = self._pods.by_uid.get(uid)
        if tracked is None:
            return []
        tracked = replace(tracked, saved=replace(tracked.saved, restart_requested=False, deleted=True))
        if tracked.saved.state is PodState.SYNC:
            tracked = lifecycle.with_termination(tracked, reason="no source lists the pod", now=now)
        self._pods.put(tracked)
        return [uid]

    def on_sources(self, event: SourcesFreshness, now: float) -> list[str]:
        """Take in whether the sources list every pod. Where they do, end all other pods."""
        self._admissions.sources_complete = event.complete and not event.stale
        touched: list[str] = []
        if self._admissions.sources_complete:
            for uid in [u for u in self._pods.by_uid if u not in event.listed]:
                if not self._pods.by_uid[uid].saved.deleted:
                    touched += self._end(uid, now)
                elif self._pods.by_uid[uid].runs_after_end:
                    touched.append(uid)
            self._admissions.settle_inherited()
            touched += [*self._end_orphans(now), *self._admissions.decide_waiting(now), *self._resizes.decide(now)]
        return touched

    def _end_orphans(self, now: float) -> list[str]:
        """End the pods that the runtime has and no source lists; called only once every source is complete."""
        reason = "in the runtime and listed by no source"
        return [self._end_untracked(observation, reason, now) for observation in list(self.untracked.values())]

    def _end_replaced_in_runtime(self, observation: RuntimePod, now: float) -> list[str]:
        """End a static pod that another agent started, where its source lists one of that name with another UID. This
        does not wait for the other sources, so that both never run beside each other (pods.md 4.5)."""
        sources = {sandbox.static_source for sandbox in observation.sandboxes} - {""}
        others = self._pods.namesakes(from_runtime(observation))
        if not any(other.uid in self._desired and other.saved.source in sources for other in others):
            return []
        return [self._end_untracked(observation, "its source lists another pod of this name", now)]

    def _end_untracked(self, observation: RuntimePod, reason: str, now: float) -> str:
        del self.untracked[observation.uid]
        tracked = from_runtime(observation)
        tracked = replace(tracked, saved=replace(tracked.saved, deleted=True))
        self._pods.add(lifecycle.with_termination(tracked, reason=reason, now=now))
        return tracked.uid

    def on_observed(self, observation: RuntimePod, now: float) -> list[str]:
        """Take in what the runtime shows of a pod; end the pod where no source lists it."""
        tracked = self._pods.by_uid.get(observation.uid)
        if tracked is None:
            if observation.observed_at <= self._forgotten.get(observation.uid, float("-inf")):
                return []  # the observation was begun before everything of the pod was removed
            self.untracked[observation.uid] = observation
            if self._admissions.sources_complete:
                return self._end_orphans(now)
            return self._end_replaced_in_runtime(observation, now)
        fresh = observation.observed_at > max(tracked.observed.at, self._started_at)
        if not fresh:
            return []  # it was begun before our last call ended, and does not show the effect of that call
        seen = tracked.with_observation(observation, observation.observed_at)
        self._pods.put(seen)
        return [] if shows_the_same(tracked.observed, seen.observed) else [tracked.uid]

    def on_vanished(self, uid: str) -> list[str]:
        """Take in that the runtime has nothing of the pod any more."""
        self.untracked.pop(uid, None)
        self._forgotten.pop(uid, None)
        tracked = self._pods.by_uid.get(uid)
        if tracked is None:
            return []
        if tracked.instances or tracked.sandboxes:
            # The event has no time of its own.
            self._pods.put(replace(tracked, observed=outdated(tracked.observed)))
        return [uid]

    def may_run(self, uid: str) -> bool:
        """Return whether a container of a pod without a verdict may run, by what the runtime has shown."""
        seen = self.untracked.get(uid) or self._pods.by_uid.get(uid)
        return may_run(seen) if seen is not None else not self.runtime_listed

    def forget(self, tracked: TrackedPod) -> None:
        """Forget a pod of which nothing is left."""
        self._pods.remove(tracked.uid)
        self._forgotten[tracked.uid] = tracked.observed.at
        for oldest in list(self._forgotten)[:-MAX_FORGOTTEN]:
            del self._forgotten[oldest]
