"""Puts into a pod without a verdict what it needs of device plugins, and what they answer (node.md 4.15). Pure.

The devices are chosen and saved first, so that no other pod gets them; then the plugins prepare them; then the verdict
is saved with their answers. After a restart in between, the plugins prepare the same devices again.
"""

from services.podsync.core.admission.device_wait import unprepared
from services.podsync.core.admission.verdict import Verdict
from services.podsync.core.placement.pod_placement import with_setups
from services.podsync.core.pod.call_results import DevicesAllocated, DevicesPreferred
from services.podsync.core.pod.device_need import PLUGIN_NOT_READY, DeviceNeed, describe_wait
from services.podsync.core.pod.instructions import AllocatePodDevices, AskPreferredDevices
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.frozen_copy import replace

MAX_QUESTIONS = 16  # to plugins for one pod; then none is asked, because other pods may always take what it prefers
NO_NEED = DeviceNeed()


def is_asking(tracked: TrackedPod) -> bool:
    """Return whether a call is under way that a device plugin answers before the verdict on the pod."""
    return isinstance(tracked.call, AskPreferredDevices | AllocatePodDevices)


def waits_until(tracked: TrackedPod, agent_start: str, now: float, seconds: float) -> float:
    """Return until when the verdict may wait for device plugins, which is `seconds` after the wait began. A new start
    of the agent, such as after a reboot, begins the wait again. Moments are steady seconds."""
    since = tracked.saved.plugins_awaited_since
    is_known = since and tracked.saved.decided_by == agent_start
    return (since if is_known else now) + seconds


def with_wait(tracked: TrackedPod, need: DeviceNeed, agent_start: str, now: float) -> TrackedPod:
    """Return the pod waiting for the plugins that `need` names."""
    saved = tracked.saved
    if not saved.plugins_awaited_since or saved.decided_by != agent_start:
        saved = replace(saved, plugins_awaited_since=now, decided_by=agent_start)
    before = tracked.device_need.awaited if tracked.device_need is not None else ()
    if need.awaited != before and any(each.since for each in need.awaited):  # the list of plugins comes by itself
        tracked = tracked.with_event("Warning", PLUGIN_NOT_READY, f"waits for {describe_wait(need.awaited)}", "")
    return with_need(replace(tracked, saved=saved), need)


def with_choice(tracked: TrackedPod, verdict: Verdict) -> TrackedPod:
    """Return the pod, still without a verdict, with the placement that was chosen for it. Plugins prepare its devices
    once the pods that still have parts of the placement have stopped."""
    saved = replace(tracked.saved, placement=verdict.placement, victims=verdict.awaited or tracked.saved.victims)
    if saved == tracked.saved:
        saved = tracked.saved
    return with_need(replace(tracked, saved=saved), DeviceNeed(unprepared=unprepared(verdict.placement)))


def with_need(tracked: TrackedPod, need: DeviceNeed) -> TrackedPod:
    """Return the pod with this need, and what plugins have answered before."""
    answers = tracked.device_need.answers if tracked.device_need is not None else {}
    need = replace(need, answers=answers)
    return tracked if need == tracked.device_need else replace(tracked, device_need=need)


def without_need(tracked: TrackedPod) -> TrackedPod:
    """Return the pod, whose verdict waits for something else now, without a wait or a call for device plugins."""
    return tracked if tracked.device_need is None else with_need(tracked, NO_NEED)


def with_preference(tracked: TrackedPod, call: AskPreferredDevices, answer: DevicesPreferred | None) -> TrackedPod:
    """Return the pod with the answer of a plugin; None = it has not answered, and prefers no devices."""
    need = tracked.device_need or NO_NEED
    ids = answer.ids if answer is not None else frozenset()
    return replace(tracked, device_need=replace(need, question=None, answers={**need.answers, call.question: ids}))


def with_prepared(tracked: TrackedPod, call: AllocatePodDevices, answer: DevicesAllocated) -> TrackedPod:
    """Return the pod with what its containers need for their devices."""
    setups = {
        (wanted.container, wanted.resource): setup for wanted, setup in zip(call.wanted, answer.setups, strict=True)
    }
    placement = with_setups(tracked.saved.placement, setups)
    return replace(tracked, saved=replace(tracked.saved, placement=placement))


def refused(text: str) -> Verdict:
    """Return the rejection of a pod whose devices a plugin has not prepared, for the reason `text`."""
    message = f"Allocate failed due to {text}, which is unexpected"
    return Verdict(reason="UnexpectedAdmissionError", message=message)
