"""Decides the next step of a takeover, a roll-back or a give-back, from the intent and what systemd and the node show.
Pure."""

from enum import StrEnum

from msgspec import Struct


class Intent(StrEnum):
    """What a command wants to reach, as the record says."""

    TAKEOVER = "takeover"
    ROLL_BACK = "roll-back"  # return from a takeover that failed
    GIVE_BACK = "give-back"


class Kubelet(StrEnum):
    """A program that the unit runs or would start."""

    BULKHEAD = "bulkhead"
    OWN = "own"  # the one that the unit's own files name
    NONE = "none"  # neither of the two, such as a Bulkhead of another directory


class Step(StrEnum):
    """What is to be done next."""

    WRITE = "write the drop-in"
    REMOVE = "remove the drop-in"
    RELOAD = "systemctl daemon-reload"
    RESTART = "systemctl restart"
    WAIT = "wait"
    DONE = "done"
    OVERRIDDEN = "overridden"  # a later drop-in of the unit names another program
    LATE = "late"  # the deadline has passed


class Observed(Struct, frozen=True, kw_only=True):
    """The state of the node at one moment.

    `drop_in`: it exists; `current`: it has the text that it should have. `reload_needed`: systemd has noticed that its
    files differ from what it has loaded. It does not notice the first drop-in of a directory that did not exist when it
    loaded the unit. `restarted`: this command has requested a restart after the newest reload. `missing`: what the node
    still lacks under the wanted kubelet, one line each. `ending`: systemd still waits for the end of the kubelet that
    ran before."""

    drop_in: bool
    current: bool
    loaded: Kubelet
    reload_needed: bool
    running: Kubelet
    restarted: bool
    missing: tuple[str, ...]
    ending: bool = False


def next_step(
    intent: Intent, seen: Observed, *, late: bool, starts_again: bool = False, reload_due: bool = False
) -> Step:
    """Return the step that leads from the observed state towards the intent. `late`: the deadline of the wait has
    passed. `starts_again`: a wanted kubelet that an earlier command started is restarted instead of waited for.
    `reload_due`: the drop-in may have been written or removed after the newest daemon-reload (`may_precede_reload`)."""
    forward = intent is Intent.TAKEOVER
    wanted = Kubelet.BULKHEAD if forward else Kubelet.OWN
    if forward and not seen.current:
        return Step.WRITE
    if not forward and seen.drop_in:
        return Step.REMOVE
    if reload_due or seen.reload_needed:
        return Step.RELOAD
    if seen.loaded is not wanted:
        return Step.OVERRIDDEN
    if not seen.restarted and (seen.running is not wanted or (starts_again and seen.missing)):
        return Step.RESTART  # systemd then replaces a start that is in progress
    if seen.running is wanted and not seen.missing:
        return Step.DONE
    return Step.LATE if late else Step.WAIT


def may_precede_reload(step: Step) -> bool:
    """Return whether systemd may not have read the newest change of the drop-in, when `step` is the last one that a
    killed command saved."""
    return step in (Step.WRITE, Step.REMOVE, Step.RELOAD)


def intent_after(saved: Intent | None, command: Intent) -> Intent:
    """Return what a command has to reach, given the intent of an unfinished record: a takeover completes a roll-back
    that was begun."""
    return Intent.ROLL_BACK if (saved, command) == (Intent.ROLL_BACK, Intent.TAKEOVER) else command


def steps_of(intent: Intent) -> tuple[Step, ...]:
    """Return the steps of an intent in order, when nothing fails."""
    return (Step.WRITE if intent is Intent.TAKEOVER else Step.REMOVE, Step.RELOAD, Step.RESTART, Step.WAIT)
