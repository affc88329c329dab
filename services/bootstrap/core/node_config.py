"""Decides which configuration a node uses, and the next step towards the one that its Node names (config.md 4). Pure.

The records on disk and the source in config.json are the state; each step changes one of them, so a kill between two
steps repeats the second one. A source that makes a service crash is rejected: its record names the service, and the
node returns to the last known good configuration, or to the local one.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from services.bootstrap.core.config_source import SourceReference
from shared.model.config_source import ConfigSource

TRIAL_SECONDS = 600.0
MAX_TRIAL_STARTS = 3  # of one service during the trial, without an end on request; one more counts as crashing


class Rejection(Struct, frozen=True):
    """A source that is not used again, and the text for status.config.error."""

    source: ConfigSource
    error: str


class Checkpoints(Struct, frozen=True):
    """The records on disk. None = the local configuration."""

    assigned: ConfigSource | None = None
    last_known_good: ConfigSource | None = None
    rejection: Rejection | None = None
    is_damaged: bool = False  # the record of the assigned source cannot be read

    @property
    def candidates(self) -> tuple[ConfigSource | None, ...]:
        """Return the sources to try, in this order; the last one is None, the local configuration."""
        if self.assigned is None and not self.is_damaged:
            return (None,)
        rejected = self.rejection.source if self.rejection else None
        named = (self.assigned, self.last_known_good)
        return (*dict.fromkeys(source for source in named if source not in (None, rejected)), None)

    @property
    def rejection_error(self) -> str:
        """Return why the assigned source is not used; "" = it was not rejected."""
        is_rejected = self.rejection is not None and self.rejection.source == self.assigned
        return self.rejection.error if self.rejection and is_rejected else ""


class InForce(Struct, frozen=True):
    """The source of the configuration in force, and the moment since when (CLOCK_MONOTONIC seconds)."""

    source: ConfigSource | None = None
    since: float = 0.0


class Situation(Struct, frozen=True, kw_only=True):
    """The inputs of the next step."""

    now: float  # CLOCK_MONOTONIC seconds
    checkpoints: Checkpoints
    in_force: InForce
    evaluated: Checkpoints | None  # the records at the last evaluation by this process
    is_synced: bool = False  # the Node was read, and its spec can be used
    reference: SourceReference | None = None  # the ConfigMap that the Node names
    version: str = ""  # the resourceVersion that the ConfigMap has at the API server; "" = not known, or it is gone
    retry_at: float = 0.0  # CLOCK_MONOTONIC seconds before which no sync begins, because the last one failed
    starts: Mapping[str, Sequence[float]] = field(default_factory=dict)  # by service, CLOCK_MONOTONIC seconds


class Reject(Struct, frozen=True):
    """Save that the source in force makes this service crash."""

    rejection: Rejection


class Clear(Struct, frozen=True):
    """Save that the local configuration is assigned."""


class Download(Struct, frozen=True):
    """Read the ConfigMap, save it, and save its version as the assigned one."""

    reference: SourceReference


class Evaluate(Struct, frozen=True):
    """Bring the first candidate into force that can be used."""


class Promote(Struct, frozen=True):
    """Save that the source in force is good."""

    source: ConfigSource | None


class Wait(Struct, frozen=True):
    """Do nothing for some seconds, None = until something changes."""

    seconds: float | None = None


Step = Reject | Clear | Download | Evaluate | Promote | Wait


def next_step(given: Situation) -> Step:
    """Return the next step."""
    checkpoints = given.checkpoints
    if (rejection := crash_rejection(checkpoints, given.in_force, given.starts)) is not None:
        return Reject(rejection)
    left = trial_left(checkpoints, given.in_force, given.now)
    is_held = given.now < given.retry_at
    if left is not None and left <= 0 and not is_held:
        return Promote(given.in_force.source)
    if given.is_synced and not is_held:
        if given.reference is None and checkpoints != Checkpoints(rejection=checkpoints.rejection):
            return Clear()
        if given.reference is not None and not _is_current(given):
            return Download(given.reference)
    if given.in_force.source != checkpoints.candidates[0] and given.evaluated != checkpoints:
        return Evaluate()
    waits = [given.retry_at - given.now] if is_held else []
    if left is not None and left > 0:
        waits.append(left)
    return Wait(min(waits, default=None))


def trial_left(checkpoints: Checkpoints, in_force: InForce, now: float) -> float | None:
    """Return the seconds until the assigned source in force counts as good; None = it is not in force, or it is good
    already."""
    assigned = checkpoints.assigned
    if assigned is None or in_force.source != assigned or checkpoints.last_known_good == assigned:
        return None
    return in_force.since + TRIAL_SECONDS - now


def crash_rejection(
    checkpoints: Checkpoints, in_force: InForce, starts: Mapping[str, Sequence[float]]
) -> Rejection | None:
    """Return the rejection of the source in force, if it is on trial and a service has crashed repeatedly since; None =
    it is not rejected."""
    if trial_left(checkpoints, in_force, in_force.since) is None or checkpoints.rejection_error:
        return None
    for service, times in sorted(starts.items()):
        count = sum(at >= in_force.since for at in times)
        if count > MAX_TRIAL_STARTS and in_force.source is not None:
            error = f"failed to run config: {service} crashed {count - 1} times, see Kubelet log for details"
            return Rejection(in_force.source, error)
    return None


def _is_current(given: Situation) -> bool:
    """Return whether the assigned source is the version of the named ConfigMap that the API server has."""
    assigned = given.checkpoints.assigned
    if given.reference is None or assigned is None or not given.reference.is_of(assigned):
        return False
    return given.version == assigned.resource_version
