"""Decides when a new pod is admitted or rejected, beside which other pods, and which of them it preempts (pods.md 3).

Waits for the facts that a verdict depends on; `verdict` decides. Puts the pods with their verdicts into `TrackedPods`.
The pods that count are kept up to date from those that have changed, so that a decision takes as long with any
number of pods.
"""

from collections.abc import Callable, Mapping

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
from services.podsync.core.admission.node_view import MachineFacts, NodeView, node_view
from services.podsync.core.admission.placed import (
    NONE_PLACED,
    Placed,
    Unit,
    cpus_of,
    placed_of,
    running_cpus,
    units_of,
    with_inherited,
)
from services.podsync.core.admission.taken import Taken
from services.podsync.core.admission.verdict import Verdict, admit
from services.podsync.core.placement.device_policy import PluginDevices
from services.podsync.core.placement.pod_placement import NOT_PLACED, PodPlacement, unprepared_devices
from services.podsync.core.pod import lifecycle
from services.podsync.core.pod.call_results import DevicesAllocated, DevicesPreferred
from services.podsync.core.pod.device_need import DeviceNeed, describe_wait
from services.podsync.core.pod.events import DEVICES_REFUSED, CallDone, CallFailed
from services.podsync.core.pod.instructions import AllocatePodDevices, AskPreferredDevices
from services.podsync.core.pod.listed_by_source import from_desired
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.pod.tracked_pods import TrackedPods
from shared.model.cpu_list import write_cpus
from shared.model.frozen_copy import replace
from shared.model.objects import Object, full_name
from shared.model.objects import uid as uid_of
from shared.podspec.resources import main_containers

PREEMPTING = "Preempting"  # why a pod ends, and the reason of its event


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
        self.devices: Mapping[str, DeviceResource] = {}  # of device plugins, by resource; replaced at each change
        self.devices_known = False  # whether `devices` has been complete in this process
        self.plugin_wait_seconds = 300.0  # for which a new pod waits for device plugins that are not connected
        self.pressures: tuple[str, ...] = ()
        self.supplemental_groups_policy = False
        self._all_placements: tuple[Mapping[str, PodPlacement], Mapping[str, PodPlacement]] | None = None
        self._pool: tuple[Mapping[str, PodPlacement], str] | None = None  # placements, and the shared CPUs beside them
        # UID -> what an earlier agent gave to a pod that has no verdict here (yet).
        self.inherited: Mapping[str, PodPlacement] = {}
        # UID of such a pod -> whether a container of it may run, by what the runtime has shown.
        self.may_run: Callable[[str], bool] = lambda _uid: True
        self._errors: dict[str, Exception] = {}  # UID -> exception of the decision, which is a bug

    def on_listed(self, uid: str, now: float, *, first: bool) -> list[str]:
        """Admit or reject a pod that a source lists (`first`: for the first time in this process), and the pods whose
        verdicts waited for it. Return the UIDs of the pods that changed."""
        if first and self._doubted:
            self._doubted = False
            return self.decide_waiting(now)
        tracked = self._pods.by_uid[uid]
        if tracked.saved.admission_decided or tracked.asks_for_node or is_asking(tracked):
            return []
        if not self.can_decide(tracked):
            return []
        return [*self.decide(uid, now, node=self.node, is_final=False), uid]

    def can_decide(self, tracked: TrackedPod) -> bool:
        """Return whether a source lists the pod, and the runtime's features and the Node are known. A static pod does
        not wait for the Node: it may be the API server itself."""
        return tracked.uid in self._desired and self.runtime_known and (tracked.is_static or self.node_known)

    def decide_waiting(self, now: float) -> list[str]:
        """Admit or reject the pods that waited for a fact, the oldest first. Return the UIDs of changed pods. A pod
        whose decision raises goes on waiting, and delays no other; see `take_errors`."""
        waiting = [
            tracked
            for tracked in self._pods.at_work()
            if not tracked.saved.admission_decided
            and not tracked.asks_for_node
            and not is_asking(tracked)
            and tracked.saved.pod
            and self.can_decide(tracked)
        ]
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

    def take_errors(self) -> dict[str, Exception]:
        """Return, once, what decisions of `decide_waiting` have raised, by the pod's UID."""
        errors, self._errors = self._errors, {}
        return errors

    def decide(self, uid: str, now: float, *, node: Object | None, is_final: bool) -> list[str]:
        """Decide the verdict on a pod, which is saved with its record; return the UIDs of the pods preempted for it.
        The pod stays without a verdict while that may change with facts that are not known yet. `is_final`: `node` was
        just read from the API server."""
        tracked = self._pods.by_uid[uid]
        if is_final and tracked.asks_for_node:  # it was read: otherwise a pod that needs a plugin would read it again
            tracked = replace(tracked, asks_for_node=False)
            self._pods.put(tracked)
        pod, phase = tracked.saved.pod, str(tracked.api_status.get("phase") or "")
        view = self._view_for(tracked, node, now)
        all_listed = self._all_listed()
        others = [] if all_listed and not self.inherited else self._counting(self.active(), is_static=tracked.is_static)
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
        if verdict.reason and not self.node_known:
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
        self._pods.put(tracked)
        self.settle_inherited()
        return self.preempt(tracked, verdict.victims, now, verdict.lacking)

    def _note_need(self, tracked: TrackedPod, need: DeviceNeed, given: PodPlacement | None, now: float) -> list[str]:
        """Note what the pod needs of device plugins before its verdict. Return the UIDs of the pods that changed."""
        if given is None and tracked.saved.placement != NOT_PLACED:
            # Devices that were chosen for it are gone.
            tracked = replace(tracked, saved=replace(tracked.saved, placement=NOT_PLACED))
        if need.awaited:
            until = waits_until(tracked, self._agent_start, now, self.plugin_wait_seconds)
            # Without an end only the list of device plugins is waited for: it decides whether there is one at all.
            need = replace(need, until=until if now < until else 0.0)
            tracked = with_wait(tracked, need, self._agent_start, now)
        else:
            tracked = with_need(tracked, need)
        self._pods.put(tracked)
        return [tracked.uid]

    def on_devices(self, name: str, now: float) -> list[str]:
        """Decide the pods that waited for a device plugin, after the devices of this resource have changed. Return the
        UIDs of changed pods."""
        for tracked in self._pods.at_work():
            need = tracked.device_need
            if need is not None and any(wanted.resource == name for wanted in need.unprepared):
                self._pods.put(replace(tracked, retry=replace(tracked.retry, at=0.0)))
        return self.decide_waiting(now)

    def on_answer(self, tracked: TrackedPod, event: CallDone | CallFailed, now: float) -> list[str]:
        """Take in what device plugins have answered for a pod, whose call has ended, and decide it. Return the UIDs of
        the pods that changed."""
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
            until = waits_until(tracked, self._agent_start, now, self.plugin_wait_seconds)
            if event.reason == DEVICES_REFUSED or until <= now:
                return [*self._settle(tracked, refused(event.description), now), tracked.uid]
            # It may be asked again; from now on the wait is bounded.
            self._pods.put(with_wait(tracked, tracked.device_need or NO_NEED, self._agent_start, now))
        if not self.can_decide(tracked):
            return [tracked.uid]
        return [*self.decide(tracked.uid, now, node=self.node, is_final=False), tracked.uid]

    def _given_to(self, tracked: TrackedPod) -> PodPlacement | None:
        """Return what the pod without a verdict has already: what was chosen for it, or what an earlier agent gave to
        it; None = nothing, or devices that are gone."""
        chosen = tracked.saved.placement
        if chosen == NOT_PLACED:
            return self._inherited_by(tracked.saved.pod)
        return None if is_choice_void(chosen, self.devices) else chosen

    def _view_for(self, tracked: TrackedPod, node: Object | None, now: float) -> NodeView:
        """Return the node as it is now for the verdict on this pod."""
        need = tracked.device_need or NO_NEED
        can_wait = now < waits_until(tracked, self._agent_start, now, self.plugin_wait_seconds)
        may_ask = len(need.answers) < MAX_QUESTIONS
        return replace(
            self.view(node),
            plugins=PluginDevices(resources=self.devices, preferences=need.answers if may_ask else None),
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
        return replace(seen, plugins=PluginDevices(resources=self.devices), plugins_known=self.devices_known)

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
        if self._depends_on_unlisted(verdict, pod, "", view, others, self._inherited_by(pod)):
            return None
        return verdict

    def awaited_by(self, pod: Object) -> str:
        """Return for which device plugins the verdict on a pod without one would wait now, "" = for none."""
        view = replace(self.view(self.node), waits_for_plugins=self.facts.placer is not None)
        return describe_wait(awaited_plugins(pod, view, None))

    def others(self, pod: Object, source: str) -> list[TrackedPod]:
        """Return the active pods beside one that this source would list now: without its pod of the same name."""
        own, replaced = uid_of(pod), full_name(pod)
        return [
            other
            for other in self.active()
            if other.uid != own and (other.full_name != replaced or other.saved.source != source)
        ]

    def _counting(self, others: list[TrackedPod], *, is_static: bool) -> list[TrackedPod]:
        """Return those of the other pods that count for the verdict on one."""
        if is_static:  # a static pod does not wait until the API server has listed its pods
            others = [other for other in others if other.uid in self._desired or other.is_static]
        return others

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
        expected = {uid: given for uid, given in self.inherited.items() if uid in self._desired}
        none_awaited = self.sources_complete or len(expected) == len(self.inherited)
        if not (verdict.reason or verdict.victims) or (listed == others and none_awaited):
            return False
        placed = NONE_PLACED
        if self.facts.placer is not None:
            placed = placed_of(listed, self._desired).beside(Placed(staying=expected))
        return verdict != admit(pod, phase, view, taken_by_pods(listed), placed, placement=given)

    def _inherited_by(self, pod: Object) -> PodPlacement | None:
        """Return what an earlier agent gave to those containers of the pod that it still has; None = nothing."""
        given = self.inherited.get(uid_of(pod))
        if given is None:
            return None
        names = {str(container.get("name")) for container in main_containers(pod)}
        containers = {name: placed for name, placed in given.containers.items() if name in names}
        return PodPlacement(containers=containers) if containers else None

    def shared_cpus(self) -> str:
        """Return the CPUs of containers without CPUs of their own, such as 0-3,8; "" = all, with policy none."""
        if self.facts.placer is None or not self.facts.placer.static_cpus:
            return ""
        placements = self.placements()
        if self._pool is None or self._pool[0] is not placements:
            self._pool = placements, write_cpus(self.facts.placer.cpus_to_share(placements.values()))
        return self._pool[1]

    def placements(self) -> Mapping[str, PodPlacement]:
        """Return the placements that are not free, by UID: the same object until one changes."""
        active = self._active.placements()
        if not self.inherited:
            return active
        if self._all_placements is None or self._all_placements[0] is not active:
            self._all_placements = active, {**self.inherited, **active}
        return self._all_placements[1]

    def inherit(self, placements: Mapping[str, PodPlacement]) -> None:
        """Take over what an earlier agent gave to pods without a verdict here, by UID. A placement with CPUs or devices
        of a pod that has one is left out, and that pod is placed anew."""
        taken = {unit for placement in self._active.placements().values() for unit in units_of(placement)}
        self.inherited = {
            uid: placement
            for uid, placement in placements.items()
            if not self._is_decided(uid) and not taken & units_of(placement)
        }

    def settle_inherited(self) -> bool:
        """Put the placements of pods that are to end, or are rejected, into their records; forget those of pods with
        a verdict, and of pods that do not run and that no source lists. Return whether one was forgotten."""
        if not self.inherited:
            return False
        for uid, given in self.inherited.items():
            if self._is_decided(uid):
                tracked = self._pods.by_uid[uid]
                if (keeping := with_inherited(tracked, given)) is not tracked:
                    self._pods.put(keeping)
        taken = {unit for given in self._active.placements().values() for unit in units_of(given)}
        kept = {uid: given for uid, given in self.inherited.items() if self._is_kept(uid, given, taken)}
        if len(kept) == len(self.inherited):
            return False
        self.inherited, self._all_placements = kept, None
        return True

    def _is_kept(self, uid: str, given: PodPlacement, taken: set[Unit]) -> bool:
        """Return whether an earlier agent's placement still counts; `taken`: what pods with a record have."""
        if self._is_decided(uid):
            return False
        if uid in self._desired or self.may_run(uid):
            return True
        return not self.sources_complete and not taken & units_of(given)

    def _is_decided(self, uid: str) -> bool:
        tracked = self._pods.by_uid.get(uid)
        return tracked is not None and tracked.saved.admission_decided

    def _placed(self, pod: Object | None = None, source: str = "", *, is_static: bool) -> Placed:
        """Return the placements of the pods whose containers may run, whether or not a source lists them; of those
        beside `pod`, if this source would list it now. `is_static`: that pod, or the one to decide, is static."""
        if self.facts.placer is None:
            return NONE_PLACED
        every = [self._pods.by_uid[uid] for uid in self._active.placements()]
        if pod is not None:
            replaced, own = full_name(pod), uid_of(pod)
            every = [t for t in every if t.uid != own and (t.full_name != replaced or t.saved.source != source)]
        return placed_of(every, self._desired).beside(self._inherited_placed(is_static=is_static))

    def _inherited_placed(self, *, is_static: bool) -> Placed:
        """Return the placements of pods without a verdict. Those leave that no source will list; and a static pod does
        not wait until the API server has listed the ones that do not run."""
        leaving = {
            uid: given
            for uid, given in self.inherited.items()
            if uid not in self._desired and (self.sources_complete or (is_static and not self.may_run(uid)))
        }
        staying = {uid: given for uid, given in self.inherited.items() if uid not in leaving}
        return Placed(staying=staying, leaving=leaving)

    def cpus_in_use(self, uid: str) -> frozenset[int]:
        """Return the CPUs that containers of the other pods have for themselves and may run on."""
        used: set[int] = set()
        for other, given in self.placements().items():
            if other == uid:
                continue
            if self._is_decided(other):
                used |= running_cpus(self._pods.by_uid[other])
            elif self.may_run(other):
                used |= cpus_of(given)
        return frozenset(used)

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
        """Have the static pods that were rejected before this start of the agent admitted or rejected again. The
        verdict on a pod of the API server is final, as its status there is. `now`: steady seconds; `skew`: seconds of
        the wall clock ahead of them."""
        for tracked in list(self._pods.by_uid.values()):
            if (
                tracked.saved.rejected
                and tracked.is_static
                and not tracked.saved.deleted
                and tracked.saved.decided_by != self._agent_start
            ):
                if tracked.saved.placement.containers:
                    self.inherited = {**self.inherited, tracked.uid: tracked.saved.placement}
                    self._all_placements = None
                again = from_desired(tracked.uid, tracked.saved.source, tracked.saved.pod)
                saved = replace(lifecycle.with_start(again.saved, now, skew), admission_decided=False)
                self._pods.add(replace(again, saved=saved))

    def preempt(self, tracked: TrackedPod, victims: tuple[str, ...], now: float, lacking: str) -> list[str]:
        """End these pods to make room for this one, which lacks the resource. Return their UIDs."""
        for uid in victims:
            text = "Preempted in order to admit critical pod"
            victim = self._pods.by_uid[uid].with_event("Warning", PREEMPTING, text, "")
            disruption = "Pod was preempted by Kubelet to accommodate a critical pod."
            ending = {"reason": PREEMPTING, "message": text, "disruption": disruption, "signal": lacking}
            victim = replace(victim, saved=replace(victim.saved, ending=ending))
            if victim.saved.state is PodState.SYNC:
                victim = lifecycle.with_termination(victim, reason=f"preempted for {tracked.description}", now=now)
            self._pods.put(victim)
        return list(victims)
