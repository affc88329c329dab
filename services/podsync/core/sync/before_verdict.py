"""Decides the next step of a pod that has no verdict yet: a call whose answer admission needs, or a wait."""

from services.podsync.core.pod.device_need import DeviceNeed, describe_wait
from services.podsync.core.pod.instructions import AllocatePodDevices, AskPreferredDevices, FetchNode, LookAtPod
from services.podsync.core.pod.step import Step, StepInputs
from services.podsync.core.pod.tracked_pod import TrackedPod

_OTHER_FACTS = "what admission depends on: node, runtime, list of pods"


def step_before_verdict(tracked: TrackedPod, inputs: StepInputs) -> Step:
    """Return the step of a pod whose admission is not decided."""
    if tracked.asks_for_node:
        return Step(tracked=tracked, call=FetchNode(uid=tracked.uid))
    if (need := tracked.device_need) is None:
        return Step(tracked=tracked, waits_for=_OTHER_FACTS)
    if not tracked.observed.is_current and (tracked.observed.since_start or not tracked.new_to_node):
        # Its status is shown while it waits, and a container of it may run: another agent may have started it.
        return Step(tracked=tracked, call=LookAtPod(uid=tracked.uid, namesakes=tracked.is_static))
    return _for_devices(tracked, need, inputs)


def _for_devices(tracked: TrackedPod, need: DeviceNeed, inputs: StepInputs) -> Step:
    if need.awaited:
        text = describe_wait(need.awaited)
        return Step(tracked=tracked, wake_at=need.until, waits_for=text)
    if need.question is not None:
        return Step(tracked=tracked, call=AskPreferredDevices(uid=tracked.uid, question=need.question))
    if need.unprepared and inputs.victims_until > inputs.now:
        text = "the pods that have some of its devices or CPUs to stop"
        return Step(tracked=tracked, wake_at=inputs.victims_until, waits_for=text)
    if need.unprepared:
        return Step(tracked=tracked, call=AllocatePodDevices(uid=tracked.uid, wanted=need.unprepared))
    return Step(tracked=tracked, waits_for=_OTHER_FACTS)
