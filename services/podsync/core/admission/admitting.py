"""Decides when a new pod is admitted or rejected, beside which other pods, and which of them it preempts (pods.md 3).

Waits for the facts that a verdict depends on; `verdict` decides. Puts the pods with their verdicts into `TrackedPods`.
The pods that count are kept up to date from those that have changed, so that a decision takes as long with any
number of pods.
"""

from collections.abc import Mapping

from bus.messages.device_plugins import DeviceResource
from bus.messages.podsync import PodState
from services.podsync.core.admission.active_pods import ActivePods
from services.podsync.core.admission.counted import taken_by_pods
from services.podsync.core.admission.device_needs import (
    MAX_QUESTIONS,
    NO_NEED,
    is_asking,
    refused,
    waits_until,
    with_choice,
    with_need,
    with_preference,
    with_prepared,
    with_wait,
    without_need,
)
from services.podsync.core.admission.device_wait import awaited_plugins, is_choice_void
from services.podsync.core.admission.inherited import InheritedPlacements
from services.podsync.core.admission.node_view import MachineFacts, NodeView, node_view
from services.podsync.core.admission.placed import NONE_PLACED, Placed, placed_of
from services.podsync.core.admission.reopening import is_undecided_after_shutdown, is_undecided_by, reopened
from services.podsync.core.admission.taken import Taken
from services.podsync.core.admission.verdict import NODE_SHUTDOWN, Verdict, admit
from services.podsync.core.placement.device_policy import PluginDevices
from services.podsync.core.placement.known_devices import KnownDevices
from services.podsync.core.placement.pod_placement import (
    NOT_PLACED,
    PodPlacement,
    has_devices_of,
    unprepared_devices,
)
from services.podsync.core.pod import lifecycle
from services.podsync.core.pod.call_results import DevicesAllocated, DevicesPreferred
from services.podsync.core.pod.claim_status import with_claim_status, without_claimed_resources
from services.podsync.core.pod.device_need import DeviceNeed, describe_wait
from services.podsync.core.pod.events import DEVICES_REFUSED, CallDone, CallFailed
from services.podsync.core.pod.instructions import AllocatePodDevices, AskPreferredDevices
from services.podsync.core.pod.listed_by_source import is_replaced
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.pod.tracked_pods import TrackedPods
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.podspec.gated import event_message, unheeded_fields


class Admissions:
    """Admits the pods of one node. `desired`: by UID, the pods that the sources are known to list. `agent_start`:
    identity of the start of the agent that this process belongs to, "" = not known."""

    def __init__(self, pods: TrackedPods, desired: Mapping[str, object], facts: MachineFacts, agent_start: str) -> None:
        self._pods, self._desired, self._agent_start = pods, desired, agent_start
        self._active = ActivePods(pods)
        self.facts = facts  # of the machine
        self.node: Object | None = None  # as the API server has it
        self.node_known = False  # whether `node` is final: read, or known to be missing, or never to be known
        self.runtime_known = False  # whether the runtime has reported its features
        self.sources_complete = False  # and not stale
        self._doubted = False  # whether a verdict waits for the sources to list pods of the checkpoint
        self.devices = KnownDevices()
        self.plugin_wait_seconds = 300.0  # for which a new pod waits for device plugins that are not connected
        self.pressures: tuple[str, ...] = ()
        self.shuts_down = False  # the machine: no further pod is admitted
        self.shutdown_confirmed = True  # False = it may be over: no pod is rejected for it yet
        self.supplemental_groups_policy = False
        self.mount_options = False
        self.inherited = InheritedPlacements(pods, desired, self._active)
        self._errors: dict[str, Exception] = {}  # UID -> exception of the decision, which is a bug

    def on_listed(self, uid: str, now: float, *, first: bool) -> list[str]:
        """Admit or reject a pod that a source lists (`first`: for the first time in this process), and the pods whose
        verdicts waited for it. Return the UIDs of the pods that changed."""
        if first and self._doubted:
            self._doubted = False
            return self.decide_waiting(now)
        tracked = self._pods.by_uid[uid]
        if not self._is_to_decide(tracked):
            return []
        return [*self.decide(uid, now, node=self.node, is_final=False), uid]

    def can_decide(self, tracked: TrackedPod) -> bool:
        """Return whether a source lists the pod, and the runtime's features and the Node are known. A static pod does
        not wait for the Node: it may be the API server itself."""
        return tracked.uid in self._desired and self.runtime_known and (tracked.is_static or self.node_known)

    def decide_waiting(self, now: float) -> list[str]:
        """Admit or reject the pods that waited for a fact, the oldest first. Return the UIDs of changed pods. A pod
        whose decision raises goes on waiting, and delays no other; see `take_errors`."""
        waiting = [tracked for tracked in self._pods.at_work() if tracked.saved.pod and self._is_to_decide(tracked)]
        touched: list[str] = []
        for tracked in sorted(
            waiting, key=lambda r: str((r.saved.pod.get("metadata") or {}).get("creationTimestamp") or "")
        ):
            try:
                touched += self.decide(tracked.uid, now, node=self.node, is_final=False)
            except Exception as error:
                self._errors[tracked.uid] = error
            touched.append(tracked.uid)
        return touched

    def _is_to_decide(self, tracked: TrackedPod) -> bool:
        """Return whether a verdict on the pod is missing, and neither the Node nor a plugin is being asked for it."""
        is_missing = not (tracked.saved.admission_decided or tracked.asks_for_node or is_asking(tracked))
        return is_missing and self.can_decide(tracked)

    def take_errors(self) -> dict[str, Exception]:
        """Return, once, what decisions of `decide_waiting` have raised, by the pod's UID."""
        errors, self._errors = self._errors, {}
        return errors

    def decide(self, uid: str, now: float, *, node: Object | None, is_final: bool) -> list[str]:
        """Decide the verdict on a pod, which is saved with its record; return the UIDs of the pods preempted for it.
        The pod stays without a verdict while that may change with facts that are not known yet. `is_final`: `node` was
        just read from the API server."""
        tracked = self._pods.by_uid[uid]
        if is_final and tracked.asks_for_node:  # the Node was read: a pod that waits for a plugin next reads it no more
            tracked = replace(tracked, asks_for_node=False)
            self._pods.put(tracked)
        pod, phase = with_claim_status(tracked.saved), str(tracked.api_status.get("phase") or "")
        view = self._view_for(tracked, node, now)
        all_listed = self._all_listed()
        none_awaited = all_listed and not self.inherited.by_uid
        others = [] if none_awaited else self._counting(self.active(), is_static=tracked.is_static)
        taken = self.taken() if all_listed else taken_by_pods(others)
        given = self._given_to(tracked)
        placed = self._placed(is_static=tracked.is_static)
        verdict = admit(pod, phase, view, taken, placed, placement=given)
        if verdict.need is not None:
            return self._note_need(tracked, verdict.need, given, now)
        if self._depends_on_unlisted(verdict, pod, phase, view, others, given):
            self._doubted = True
            self._pods.put(without_need(tracked))
            return []  # the verdict depends on pods of the checkpoint that the sources may not list any more
        if verdict.reason and not (self.node_known and (self.shutdown_confirmed or verdict.reason != NODE_SHUTDOWN)):
            self._pods.put(without_need(tracked))
            return []
        asks_for_node = verdict.ask_for_node and not is_final
        if asks_for_node:
            self._pods.put(replace(tracked, asks_for_node=True))
            return []  # the Node's labels may have changed: it is read again before the pod is rejected
        if not verdict.reason and unprepared_devices(verdict.placement):
            self._pods.put(with_choice(tracked, verdict))
            return [uid]
        return self._settle(tracked, verdict, now)

    def _settle(self, tracked: TrackedPod, verdict: Verdict, now: float) -> list[str]:
        """Save the verdict on the pod with its record. Return the UIDs of the pods that are preempted for it."""
        saved = replace(
            tracked.saved,
            admission_decided=True,
            decided_by=self._agent_start,
            plugins_awaited_since=0.0,
            rejected=verdict.reason,
            rejected_message=verdict.message,
            victims=tuple(dict.fromkeys((*tracked.saved.victims, *verdict.victims, *verdict.awaited))),
            allocation=verdict.allocation,
            placement=verdict.placement,
        )
        tracked = replace(tracked, saved=saved, asks_for_node=False, device_need=None)
        if verdict.reason:
            tracked = lifecycle.moved(tracked, PodState.FINISHED)
            tracked = tracked.with_event("Warning", verdict.reason, verdict.explanation, "")
        elif text := event_message(unheeded_fields(saved.pod, self.facts.feature_gates, self.facts.release)):
            tracked = tracked.with_event("Warning", "FeatureGateDisabled", text, "")
        self._pods.put(tracked)
        self.settle_inherited()
        return self.preempt(tracked, verdict.victims, now, verdict.lacking)

    def _note_need(self, tracked: TrackedPod, need: DeviceNeed, given: PodPlacement | None, now: float) -> list[str]:
        """Note what the pod needs of device plugins before its verdict. Return the UIDs of the pods that changed."""
        if given is None and tracked.saved.placement != NOT_PLACED:
            # Devices that were chosen for it are gone.
            tracked = replace(tracked, saved=replace(tracked.saved, placement=NOT_PLACED))
        if need.awaited:
            until = self._waits_until(tracked, now)
            # Only the wait for the list of device plugins has no end: the list decides whether there is one at all.
            need = replace(need, until=until if now < until else 0.0)
            tracked = with_wait(tracked, need, self._agent_start, now)
        else:
            tracked = with_need(tracked, need)
        self._pods.put(tracked)
        return [tracked.uid]

    def on_devices(self, name: str, resource: DeviceResource | None, now: float) -> list[str]:
        """Take in the devices of a resource, None = it is gone. End the retry delay of pods whose devices of it are not
        prepared yet, and decide all verdicts that wait. Return the UIDs of the pods that have some of them, and of
        changed pods."""
        if not self.devices.put(name, resource):
            return []
        placements = self.placements().items()
        holders = [uid for uid, given in placements if uid in self._pods.by_uid and has_devices_of(given, name)]
        for tracked in self._pods.at_work():
            need = tracked.device_need
            if need is not None and any(wanted.resource == name for wanted in need.unprepared):
                self._pods.put(replace(tracked, retry=replace(tracked.retry, at=0.0)))
        return [*holders, *self.decide_waiting(now)]

    def on_devices_complete(self, now: float) -> list[str]:
        """Decide the pods that waited until the resources of all device plugins are known. Return the UIDs of changed
        pods."""
        if self.devices.is_complete:
            return []
        self.devices.is_complete = True
        return self.decide_waiting(now)

    def on_answer(self, tracked: TrackedPod, event: CallDone | CallFailed, now: float) -> list[str]:
        """Put what device plugins have answered into the pod, whose call has ended, and decide the verdict where that
        is possible. Return the UIDs of the pods that changed."""
        self._pods.put(tracked)
        if tracked.saved.admission_decided or (isinstance(event, CallFailed) and event.interrupted):
            return [tracked.uid]
        result = event.result if isinstance(event, CallDone) else None
        if isinstance(event.call, AskPreferredDevices):
            answer = result if isinstance(result, DevicesPreferred) else None
            self._pods.put(with_preference(tracked, event.call, answer))
        elif isinstance(event.call, AllocatePodDevices) and isinstance(result, DevicesAllocated):
            self._pods.put(with_prepared(tracked, event.call, result))
        elif isinstance(event, CallFailed):
            until = self._waits_until(tracked, now)
            if event.reason == DEVICES_REFUSED or until <= now:
                return [*self._settle(tracked, refused(event.description), now), tracked.uid]
            # The plugin may be asked again; from now on the wait is bounded.
            self._pods.put(with_wait(tracked, tracked.device_need or NO_NEED, self._agent_start, now))
        if not self.can_decide(tracked):
            return [tracked.uid]
        return [*self.decide(tracked.uid, now, node=self.node, is_final=False), tracked.uid]

    def _given_to(self, tracked: TrackedPod) -> PodPlacement | None:
        """Return what the pod without a verdict has already: what was chosen for it, or what an earlier agent gave to
        it; None = nothing, or devices that are gone."""
        chosen = tracked.saved.placement
        if chosen == NOT_PLACED:
            return self.inherited.given_to(tracked.saved.pod)
        return None if is_choice_void(chosen, self.devices.resources) else chosen

    def _waits_until(self, tracked: TrackedPod, now: float) -> float:
        return waits_until(tracked, self._agent_start, now, self.plugin_wait_seconds)

    def _view_for(self, tracked: TrackedPod, node: Object | None, now: float) -> NodeView:
        """Return the node as it is now for the verdict on this pod."""
        need = tracked.device_need or NO_NEED
        can_wait = now < self._waits_until(tracked, now)
        may_ask = len(need.answers) < MAX_QUESTIONS
        return replace(
            self.view(node),
            plugins=PluginDevices(resources=self.devices.resources, preferences=need.answers if may_ask else None),
            waits_for_plugins=can_wait and self.facts.placer is not None,
            waited_for_plugins=bool(need.awaited),
        )

    def view(self, node: Object | None) -> NodeView:
        """Return the node as it is now, with this object of the API server."""
        seen = node_view(
            node,
            self.facts,
            pressures=self.pressures,
            supplemental_groups_policy=self.supplemental_groups_policy,
        )
        return replace(
            seen,
            shuts_down=self.shuts_down,
            plugins=PluginDevices(resources=self.devices.resources),
            plugins_known=self.devices.is_complete,
            mount_options=self.mount_options,
        )

    def preview(self, pod: Object, source: str) -> Verdict | None:
        """Return the verdict on a pod that this source would list now in place of its pod of the same name; None =
        admission would wait for a fact. Changes nothing."""
        static = source != "api"
        if not self.runtime_known or not (static or self.node_known):
            return None
        view = replace(self.view(self.node), waits_for_plugins=self.facts.placer is not None)
        others = self._counting(self.others(pod, source), is_static=static)
        verdict = admit(pod, "", view, taken_by_pods(others), self._placed(pod, source, is_static=static))
        if verdict.need is not None or (verdict.reason and not self.node_known):
            return None
        if self._depends_on_unlisted(verdict, pod, "", view, others, self.inherited.given_to(pod)):
            return None
        return verdict

    def awaited_by(self, pod: Object) -> str:
        """Return for which device plugins the verdict on a new pod would wait now, "" = for none."""
        view = replace(self.view(self.node), waits_for_plugins=self.facts.placer is not None)
        return describe_wait(awaited_plugins(without_claimed_resources(pod), view, None))

    def others(self, pod: Object, source: str) -> list[TrackedPod]:
        """Return the active pods beside one that this source would list now: without its pod of the same name."""
        return [other for other in self.active() if not is_replaced(other, pod, source)]

    def _counting(self, others: list[TrackedPod], *, is_static: bool) -> list[TrackedPod]:
        """Return those of the other pods that count for the verdict on one."""
        # A static pod does not wait until the API server has listed its pods.
        return [other for other in others if other.uid in self._desired or other.is_static] if is_static else others

    def _depends_on_unlisted(
        self,
        verdict: Verdict,
        pod: Object,
        phase: str,
        view: NodeView,
        others: list[TrackedPod],
        given: PodPlacement | None,
    ) -> bool:
        """Return whether the verdict would be another one without the pods of the checkpoint, or of an earlier agent,
        that no source lists yet. `given`: what the pod has already."""
        listed = [other for other in others if other.uid in self._desired]
        expected = {uid: given for uid, given in self.inherited.by_uid.items() if uid in self._desired}
        none_awaited = self.sources_complete or len(expected) == len(self.inherited.by_uid)
        if not (verdict.reason or verdict.victims) or (listed == others and none_awaited):
            return False
        placed = NONE_PLACED
        if self.facts.placer is not None:
            placed = placed_of(listed, self._desired).beside(Placed(staying=expected))
        return verdict != admit(pod, phase, view, taken_by_pods(listed), placed, placement=given)

    def placements(self) -> Mapping[str, PodPlacement]:
        """Return the placements that are not free, by UID: the same object until one changes."""
        return self.inherited.with_active()

    def settle_inherited(self) -> bool:
        """Put what an earlier agent gave into the records that it belongs to. Return whether it counts for fewer pods
        now."""
        for tracked in self.inherited.ended_with_placements():
            self._pods.put(tracked)
        return self.inherited.forget_settled(sources_complete=self.sources_complete)

    def _placed(self, pod: Object | None = None, source: str = "", *, is_static: bool) -> Placed:
        """Return the placements of the pods whose containers may run, whether or not a source lists them; of those
        beside `pod`, if this source would list it now. `is_static`: that pod, or the one to decide, is static."""
        if self.facts.placer is None:
            return NONE_PLACED
        every = [self._pods.by_uid[uid] for uid in self._active.placements()]
        if pod is not None:
            every = [other for other in every if not is_replaced(other, pod, source)]
        inherited = self.inherited.placed(is_static=is_static, sources_complete=self.sources_complete)
        return placed_of(every, self._desired).beside(inherited)

    def active(self) -> list[TrackedPod]:
        """Return the pods that count for admission, preemption and QoS cgroups (pods.md 3.1): admitted, not known to
        have ended, and listed by a source. Until the sources are complete the checkpoint's pods count as listed."""
        return [tracked for tracked in self._active.by_uid().values() if self._may_be_listed(tracked)]

    def taken(self) -> Taken:
        """Return what the active pods take of the node; it is valid until a pod changes."""
        return self._active.taken() if self._all_listed() else taken_by_pods(self.active())

    def _all_listed(self) -> bool:
        return self._active.by_uid().keys() <= self._desired.keys()

    def _may_be_listed(self, tracked: TrackedPod) -> bool:
        if tracked.uid in self._desired:
            return True
        return not self.sources_complete and (not tracked.saved.deleted or tracked.deletion_requested)

    def reopen_rejected(self, now: float, skew: float) -> None:
        """Have the static pods that were rejected before this start of the agent admitted or rejected again. `now`:
        steady seconds; `skew`: seconds of the wall clock ahead of them."""
        for tracked in list(self._pods.by_uid.values()):
            if is_undecided_by(tracked, self._agent_start):
                if tracked.saved.placement.containers:
                    self.inherited.add(tracked.uid, tracked.saved.placement)
                self._pods.add(reopened(tracked, now, skew))

    def reopen_after_shutdown(self, now: float, skew: float) -> list[str]:
        """Have the static pods that were rejected because the machine shut down admitted or rejected again. Return
        their UIDs."""
        rejected = [tracked for tracked in self._pods.by_uid.values() if is_undecided_after_shutdown(tracked)]
        for tracked in rejected:
            self._pods.add(reopened(tracked, now, skew))
        return [tracked.uid for tracked in rejected]

    def preempt(self, tracked: TrackedPod, victims: tuple[str, ...], now: float, lacking: str) -> list[str]:
        """End these pods to make room for this one, which lacks the resource. Return their UIDs."""
        for uid in victims:
            self._pods.put(lifecycle.with_preemption(self._pods.by_uid[uid], tracked.description, lacking, now))
        return list(victims)
