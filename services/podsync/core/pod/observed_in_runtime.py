"""Has what comes from the runtime: what was observed of a pod there, in memory only, and observed again after a start.
Decides which observation counts, and which instance is what an interrupted start left.
"""

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct

from services.podsync.core.pod.saved import Attempts, Saved
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState, RuntimePod


class Observed(Struct, frozen=True, kw_only=True, dict=True):
    """Has what the runtime has of a pod. `runtime_pod` is without the instances of `interrupted` and `left_behind`;
    None = the runtime has nothing of the pod."""

    runtime_pod: RuntimePod | None = None
    interrupted: tuple[Container, ...] = ()  # instances whose start the end of podsync or of the runtime interrupted
    left_behind: tuple[Container, ...] = ()  # interrupted ones that the runtime does not remove
    at: float = float("-inf")  # CLOCK_MONOTONIC seconds; older observations are ignored
    is_current: bool = False  # whether this process observed it, and no failed call since may have changed the pod
    since_start: bool = False  # whether this process observed it, at any time

    @property
    def instances(self) -> tuple[Container, ...]:
        """The instances that the runtime has, newest first."""
        return self.runtime_pod.containers if self.runtime_pod else ()

    @cached_property
    def by_name(self) -> Mapping[str, list[Container]]:
        """The instances of each container, newest first: by attempt, because the clock of their times may be set."""
        named: dict[str, list[Container]] = {}
        for instance in sorted(self.instances, key=lambda c: -c.attempt):
            named.setdefault(instance.name, []).append(instance)
        return named

    @property
    def alive(self) -> list[Container]:
        """The instances that may have a running process."""
        return [c for c in self.instances if c.state in (ContainerState.RUNNING, ContainerState.UNKNOWN)]


def observe(
    observed: Observed, attempts: Attempts, saved: Saved, runtime_pod: RuntimePod | None, at: float
) -> tuple[Observed, Attempts]:
    """Return both values after an observation at this moment. An observation older than the newest one is ignored."""
    if at < observed.at:
        return replace(observed, is_current=True, since_start=True), attempts
    if runtime_pod is None:
        return Observed(at=at, is_current=True, since_start=True), attempts
    left_behind = tuple(c for c in runtime_pod.containers if c.id in saved.left_behind)
    interrupted = tuple(
        c
        for c in runtime_pod.containers
        if c not in left_behind and _was_interrupted(c, saved.container(c.name).starting)
    )
    attempts = _raised(attempts, replace(runtime_pod, containers=left_behind)) if left_behind else attempts
    if interrupted:
        attempts = _without(attempts, interrupted)
    if hidden := (*interrupted, *left_behind):
        runtime_pod = replace(runtime_pod, containers=tuple(c for c in runtime_pod.containers if c not in hidden))
    now = Observed(
        runtime_pod=runtime_pod,
        interrupted=interrupted,
        left_behind=left_behind,
        at=at,
        is_current=True,
        since_start=True,
    )
    return now, _raised(attempts, runtime_pod)


def shows_the_same(before: Observed, after: Observed) -> bool:
    """Return whether the later value shows what the earlier one did, so that nothing follows from it. Our own calls do
    not read the pids, on which nothing depends."""
    return _timeless(before) == _timeless(after)


def _timeless(observed: Observed) -> Observed:
    seen = observed.runtime_pod
    if seen is not None:
        sandboxes = tuple(replace(sandbox, pid=0) for sandbox in seen.sandboxes)
        containers = tuple(replace(container, pid=0) for container in seen.containers)
        seen = replace(seen, observed_at=0.0, sandboxes=sandboxes, containers=containers)
    return replace(observed, at=0.0, runtime_pod=seen)


def outdated(observed: Observed) -> Observed:
    """Return the value marked so that the pod is observed again before the next call."""
    return replace(observed, is_current=False)


def start_mark(attempt: int) -> str:
    """Return the value of `SavedContainer.starting` for the instance of this attempt, which has no id yet."""
    return f"#{attempt}"


def start_was_requested(instance: Container, starting: str) -> bool:
    """Return whether `SavedContainer.starting` names this instance: its start was requested, or is about to be."""
    return starting in (instance.id, start_mark(instance.restart_count))


def _was_interrupted(instance: Container, starting: str) -> bool:
    """Return whether the start was requested, its outcome was never received, and the container has ended without
    having run: the runtime undoes a start whose caller is gone. It does not count as an attempt."""
    never_ran = instance.state is ContainerState.EXITED and instance.started_at == 0
    return never_ran and start_was_requested(instance, starting)


def _raised(attempts: Attempts, runtime_pod: RuntimePod) -> Attempts:
    """Return the attempts, raised to those that the runtime has."""
    newest = dict(attempts.containers)
    for instance in runtime_pod.containers:
        newest[instance.name] = max(newest.get(instance.name, 0), instance.restart_count)
    sandbox = max((sandbox.attempt for sandbox in runtime_pod.sandboxes), default=-1)
    if newest == attempts.containers and sandbox <= attempts.sandbox:
        return attempts
    return replace(attempts, containers=newest, sandbox=max(attempts.sandbox, sandbox))


def _without(attempts: Attempts, interrupted: tuple[Container, ...]) -> Attempts:
    """Return the attempts without those of interrupted starts, whose numbers are used again."""
    newest = dict(attempts.containers)
    for lost in interrupted:
        if newest.get(lost.name) == lost.restart_count:
            del newest[lost.name]
            if lost.restart_count:
                newest[lost.name] = lost.restart_count - 1
    return replace(attempts, containers=newest)
