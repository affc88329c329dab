"""Decides when a new pod is admitted or rejected, beside which other pods, and which of them it preempts (pods.md 3).

Waits for the facts that a verdict depends on; `verdict` decides. Puts the pods with their verdicts into `TrackedPods`.
The pods that count are kept up to date from those that have changed, so that a decision takes as long with any
number of pods.
"""

from collections.abc import Callable, Mapping

from bus.messages.device_plugins import DeviceResource
from bus.messages.podsync import PodState
from services.podsync.core.admission.counted import counted_requests, taken_by_pods
from services.podsync.core.admission.node_view import MachineFacts, NodeView, node_view
from services.podsync.core.admission.placed import (
    NONE_PLACED,
    Placed,
    cpus_of,
    holds_placement,
    is_active,
    placed_of,
    running_cpus,
    with_inherited,
)
from services.podsync.core.admission.taken import Taken, TakenSums
from services.podsync.core.admission.verdict import Verdict, admit
from services.podsync.core.placement.pod_placement import NOT_PLACED, PodPlacement
from services.podsync.core.pod import lifecycle
from services.podsync.core.pod.listed_by_source import from_desired
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.pod.tracked_pods import TrackedPods
from shared.model.cpu_list import write_cpus
from shared.model.frozen_copy import replace
from shared.model.objects import Object, full_name
from shared.model.objects import uid as uid_of
from shared.podspec.resources import main_containers

PREEMPTING = "Preempting"  # why a pod ends, and the reason of its event


class ActivePods:
    """Has the active pods of one node, whether or not a source lists them."""

    def __init__(self, pods: TrackedPods) -> None:
        self._pods = pods
        self._active: dict[str, TrackedPod] = {}
        self._sums = TakenSums()
        self._placements: Mapping[str, PodPlacement] = {}

    def by_uid(self) -> dict[str, TrackedPod]:
        """Return these pods as they are now, by UID; the caller must not change them."""
        self._follow()
        return self._active

    def taken(self) -> Taken:
        """Return what all of them take now; it is valid until a pod changes."""
        self._follow()
        return self._sums.taken()

    def placements(self) -> Mapping[str, PodPlacement]:
        """Return the placements that are not free, by UID, also of pods that are not active but may still run: the same
        object until one changes."""
        self._follow()
        return self._placements

    def _follow(self) -> None:
        for uid in self._pods.take_changed():
            tracked = self._pods.by_uid.get(uid)
            if tracked is not None and is_active(tracked):
                self._active[uid] = tracked
                self._sums.put(tracked.saved.pod, counted_requests(tracked))
            elif uid in self._active:
                del self._active[uid]
                self._sums.remove(uid)
            held = tracked is not None and holds_placement(tracked)
            self._note_placement(uid, tracked.saved.placement if tracked is not None and held else NOT_PLACED)

    def _note_placement(self, uid: str, placement: PodPlacement) -> None:
        if self._placements.get(uid, NOT_PLACED) != placement:
            others = {other: given for other, given in self._placements.items() if other != uid}
            self._placements = others if placement == NOT_PLACED else {**others, uid: placement}


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
        if tracked.saved.admission_decided or tracked.asks_for_node or not self.can_decide(tracked):
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
        pod, phase, view = tracked.saved.pod, str(tracked.api_status.get("phase") or ""), self.view(node)
        all_listed = self._all_listed()
        others = [] if all_listed and not self.inherited else self._counting(self.active(), is_static=tracked.is_static)
        taken = self.taken() if all_listed else taken_by_pods(others)
        inherited = self._inherited_by(pod)
        placed = self._placed(is_static=tracked.is_static)
        verdict = admit(pod, phase, view, taken, placed, placement=inherited)
        if self._depends_on_unlisted(verdict, pod, phase, view, others):
            self._doubted = True
            return []  # the verdict depends on pods of the checkpoint that the sources may not list any more
        if verdict.reason and not self.node_known:
            return []
        asks_for_node = verdict.ask_for_node and not is_final
        if asks_for_node:
            self._pods.put(replace(tracked, asks_for_node=True))
            return []  # the Node's labels may have changed: it is read again before the pod is rejected
        saved = replace(
            tracked.saved,
            admission_decided=True,
            decided_by=self._agent_start,
            rejected=verdict.reason,
            rejected_message=verdict.message,
            victims=(*verdict.victims, *verdict.awaited),
            allocation=verdict.allocation,
            placement=verdict.placement,
        )
        tracked = replace(tracked, saved=saved, asks_for_node=False)
        if verdict.reason:
            tracked = lifecycle.moved(tracked, PodState.FINISHED)
            tracked = tracked.with_event("Warning", verdict.reason, verdict.explanation, "")
        self._pods.put(tracked)
        self.settle_inherited()
        return self.preempt(tracked, verdict.victims, now, verdict.lacking)

    def view(self, node: Object | None) -> NodeView:
        """Return the node as it is now, with this object of the API server."""
        return node_view(
            node,
            self.facts,
            pressures=self.pressures,
            supplemental_groups_policy=self.supplemental_groups_policy,
        )

    def preview(self, pod: Object, source: str) -> Verdict | None:
        """Return the verdict on a pod that this source would list now in place of its pod of the same name; None =
        admission would wait for a fact. Changes nothing."""
        static = source != "api"
        if not self.runtime_known or not (static or self.node_known):
            return None
        view, others = self.view(self.node), self._counting(self.others(pod, source), is_static=static)
        verdict = admit(pod, "", view, taken_by_pods(others), self._placed(pod, source, is_static=static))
        if self._depends_on_unlisted(verdict, pod, "", view, others) or (verdict.reason and not self.node_known):
            return None
        return verdict

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
        self, verdict: Verdict, pod: Object, phase: str, view: NodeView, others: list[TrackedPod]
    ) -> bool:
        """Return whether the verdict would be another one without the pods of the checkpoint, or of an earlier agent,
        that no source lists yet."""
        listed = [other for other in others if other.uid in self._desired]
        expected = {uid: given for uid, given in self.inherited.items() if uid in self._desired}
        none_awaited = self.sources_complete or len(expected) == len(self.inherited)
        if not (verdict.reason or verdict.victims) or (listed == others and none_awaited):
            return False
        placed = NONE_PLACED
        if self.facts.placer is not None:
            placed = placed_of(listed, self._desired).beside(Placed(staying=expected))
        inherited = self._inherited_by(pod)
        return verdict != admit(pod, phase, view, taken_by_pods(listed), placed, placement=inherited)

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
        """Take over what an earlier agent gave to pods without a verdict here, by UID. A placement with CPUs of a pod
        that has one is left out, and that pod is placed anew."""
        taken = {cpu for placement in self._active.placements().values() for cpu in cpus_of(placement)}
        self.inherited = {
            uid: placement
            for uid, placement in placements.items()
            if not self._is_decided(uid) and not taken & cpus_of(placement)
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
        taken = {cpu for given in self._active.placements().values() for cpu in cpus_of(given)}
        kept = {uid: given for uid, given in self.inherited.items() if self._is_kept(uid, given, taken)}
        if len(kept) == len(self.inherited):
            return False
        self.inherited, self._all_placements = kept, None
        return True

    def _is_kept(self, uid: str, given: PodPlacement, taken: set[int]) -> bool:
        """Return whether an earlier agent's placement still counts; `taken`: CPUs of pods with a verdict."""
        if self._is_decided(uid):
            return False
        if uid in self._desired or self.may_run(uid):
            return True
        return not self.sources_complete and not taken & cpus_of(given)

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
