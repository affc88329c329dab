"""Decides which containers get another cpuset, and which starts wait for that (node.md 4.10): no container starts on
CPUs that another one has for itself, nor on its own ones before the others have left them.
What a container has is known in memory only: a new process sets every cpuset once more.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from bus.messages.podsync import PodState
from services.podsync.core.placement.pod_placement import ContainerPlacement, container_cpus, cpus_of
from services.podsync.core.pod.events import CallDone, CallFailed
from services.podsync.core.pod.instructions import SetContainerCpus
from services.podsync.core.pod.progress import InstanceFacts
from services.podsync.core.pod.step import StepInputs
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.cpu_list import parse_cpus, write_cpus
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState

_RUNS = (PodState.SYNC, PodState.TERMINATING)
_MAY_RUN = (ContainerState.CREATED, ContainerState.RUNNING)
_NO_REFUSALS = ("NotFound", "Unavailable")  # the container is gone, or the runtime is away
MIN_CPU_RETRY_SECONDS = 1.0  # whatever is configured: each repetition is a call of the runtime


class CpuChanges(Struct, frozen=True, kw_only=True):
    """Has the pod with the calls that give its containers their cpusets, and when a failed one is repeated, in steady
    seconds, 0 = none has failed."""

    tracked: TrackedPod
    calls: tuple[SetContainerCpus, ...] = ()
    retry_at: float = 0.0


def cpus_to_set(tracked: TrackedPod, shared: str, now: float) -> CpuChanges:
    """Return the calls for the containers that have other CPUs than they are to have. `shared`: the cpuset of those
    without CPUs of their own. Until the verdict, the containers of an earlier agent keep what that gave them."""
    if not tracked.saved.admission_decided:
        return CpuChanges(tracked=tracked)
    calls, facts_of, retries = [], dict(tracked.instance_facts), []
    for instance in tracked.instances:
        wanted = container_cpus(tracked.saved.placement, instance.name, shared)
        facts = facts_of.get(instance.id, InstanceFacts())
        if instance.state not in _MAY_RUN or wanted in ("", facts.cpus) or facts.cpus_requested:
            continue
        if facts.cpus_retry_at > now:
            retries.append(facts.cpus_retry_at)
            continue
        facts_of[instance.id] = replace(facts, cpus_requested=wanted)
        calls.append(SetContainerCpus(uid=tracked.uid, container=instance.name, container_id=instance.id, cpus=wanted))
    if calls:
        tracked = replace(tracked, instance_facts=facts_of)
    return CpuChanges(tracked=tracked, calls=tuple(calls), retry_at=min(retries, default=0.0))


def with_outcome(
    tracked: TrackedPod, event: CallDone | CallFailed, call: SetContainerCpus, now: float, retry_seconds: float
) -> TrackedPod:
    """Return the pod after a container got a cpuset, or after that failed; its other call goes on. Of several failures
    one after the other only the first is an event. `retry_seconds`: as configured, after which it is tried again."""
    facts = replace(tracked.instance_facts.get(call.container_id, InstanceFacts()), cpus_requested="")
    if isinstance(event, CallDone):
        facts = replace(facts, cpus=call.cpus, cpus_retry_at=0.0)
    else:
        if not facts.cpus_retry_at and event.code not in _NO_REFUSALS:
            text = _cpus_not_set(facts.cpus, call.cpus, event.text)
            tracked = tracked.with_event("Warning", "FailedCPUSet", text, call.container)
        facts = replace(facts, cpus_retry_at=now + max(retry_seconds, MIN_CPU_RETRY_SECONDS))
    return replace(tracked, instance_facts={**tracked.instance_facts, call.container_id: facts})


def _cpus_not_set(before: str, wanted: str, error: str) -> str:
    """Return the event's text. `before`: the cpuset that the container has, "" = not known."""
    left = (parse_cpus(before) or frozenset()) - (parse_cpus(wanted) or frozenset())
    where = f"CPUs {write_cpus(left)}" if left else "other CPUs"
    return f"The container may still run on {where}, because it cannot be moved to {wanted}: {error}"


def occupied_cpus(starting: TrackedPod, pods: Callable[[], Iterable[TrackedPod]], shared: str) -> frozenset[int] | None:
    """Return the CPUs on which containers of these pods may run until their new cpuset is set; None = it may be any.
    One whose cpuset could not be set does not count, so that it delays no other container for long. None counts where
    the pod that starts has no CPUs of its own."""
    if not cpus_of(starting.saved.placement):
        return frozenset()
    occupied: set[int] = set()
    for tracked in pods():
        if tracked.restored and not tracked.observed.since_start and tracked.saved.state in _RUNS:
            return None
        for instance in tracked.instances:
            facts = tracked.instance_facts.get(instance.id, InstanceFacts())
            if instance.state in _MAY_RUN and _is_to_change(tracked, instance, facts, shared):
                if not facts.cpus:
                    return None
                for cpus in (facts.cpus, facts.cpus_requested):
                    occupied |= parse_cpus(cpus) or frozenset()
    return frozenset(occupied)


def waits_for_cpus(tracked: TrackedPod, created: Container, inputs: StepInputs) -> bool:
    """Return whether this container is not started yet: its cpuset is not set, or others may run on its own CPUs."""
    if not inputs.static_cpus:
        return False
    facts = tracked.instance_facts.get(created.id, InstanceFacts())
    if _is_to_change(tracked, created, facts, inputs.shared_cpus):
        return True
    given = tracked.saved.placement.containers.get(created.name, ContainerPlacement())
    if not (own := given.cpus or given.pool):
        return False
    occupied = inputs.occupied_cpus()
    return occupied is None or bool(own & occupied)


def _is_to_change(tracked: TrackedPod, instance: Container, facts: InstanceFacts, shared: str) -> bool:
    """Return whether the container has other CPUs than it is to have, or may have when the call under way has taken
    effect, because the placements have changed since it began."""
    wanted = container_cpus(tracked.saved.placement, instance.name, shared)
    if not wanted or facts.cpus_retry_at:
        return False
    return wanted != facts.cpus or facts.cpus_requested not in ("", wanted)
