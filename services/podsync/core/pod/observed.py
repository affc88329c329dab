"""What was observed of a pod in the runtime: a frozen value that is not saved, but observed again after a start.

Decides which observation counts, and which instance is the rest of an interrupted start.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from services.podsync.core.pod.saved import Attempts, Saved
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState, RuntimePod


@dataclass(frozen=True, kw_only=True)
class Observed:
    """`runtime_pod`: without the instances of `interrupted` and `left_behind`; None = the runtime has nothing of the
    pod."""

    runtime_pod: RuntimePod | None = None
    interrupted: tuple[Container, ...] = ()  # instances whose start the end of podsync or of the runtime interrupted
    left_behind: tuple[Container, ...] = ()  # interrupted ones that the runtime does not remove
    at: float = float("-inf")  # CLOCK_MONOTONIC seconds; older observations are ignored
    is_current: bool = False  # by this process, and no failed call since may have changed the pod
    since_start: bool = False  # by this process, at any time

    @property
    def instances(self) -> tuple[Container, ...]:
        """What the runtime has, newest first."""
        return self.runtime_pod.containers if self.runtime_pod else ()

    @cached_property
    def by_name(self) -> Mapping[str, list[Container]]:
        """The instances of each container, newest first: by attempt, for the clock that dates them may be set."""
        named: dict[str, list[Container]] = {}
        for instance in sorted(self.instances, key=lambda c: -c.attempt):
            named.setdefault(instance.name, []).append(instance)
        return named

    @property
    def alive(self) -> list[Container]:
        """Instances that may be running a process."""
        return [c for c in self.instances if c.state in (ContainerState.RUNNING, ContainerState.UNKNOWN)]


def observe(
    observed: Observed, attempts: Attempts, saved: Saved, runtime_pod: RuntimePod | None, at: float
) -> tuple[Observed, Attempts]:
    """Both after an observation of this moment. One that was begun before the newest is older than what is known."""
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


def outdated(observed: Observed) -> Observed:
    """The same, to be observed again before anything is done to the pod."""
    return replace(observed, is_current=False)


def start_mark(attempt: int) -> str:
    """What `SavedContainer.starting` has for the instance of this attempt, whose id the runtime has yet to give."""
    return f"#{attempt}"


def _was_interrupted(instance: Container, starting: str) -> bool:
    """The start was requested and its outcome never received, and the container has ended without having run: the
    runtime undoes what it was doing when its caller is gone. That never was an attempt."""
    never_ran = instance.state is ContainerState.EXITED and instance.started_at == 0
    return never_ran and starting in (instance.id, start_mark(instance.restart_count))


def _raised(attempts: Attempts, runtime_pod: RuntimePod) -> Attempts:
    """The attempts, raised to those that the runtime has."""
    newest = dict(attempts.containers)
    for instance in runtime_pod.containers:
        newest[instance.name] = max(newest.get(instance.name, 0), instance.restart_count)
    sandbox = max((sandbox.attempt for sandbox in runtime_pod.sandboxes), default=-1)
    if newest == attempts.containers and sandbox <= attempts.sandbox:
        return attempts
    return replace(attempts, containers=newest, sandbox=max(attempts.sandbox, sandbox))


def _without(attempts: Attempts, interrupted: tuple[Container, ...]) -> Attempts:
    """The attempts without those of interrupted starts: their numbers are used again."""
    newest = dict(attempts.containers)
    for lost in interrupted:
        if newest.get(lost.name) == lost.restart_count:
            del newest[lost.name]
            if lost.restart_count:
                newest[lost.name] = lost.restart_count - 1
    return replace(attempts, containers=newest)
