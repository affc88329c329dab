"""Decides whether the node is Ready, with the kubelet's reasons in the kubelet's order (node.md 1.7), and one more
for each process that the pods need and that has ended or hangs. All times are seconds of CLOCK_MONOTONIC.

A process hangs when its loop in `MAIN_LOOPS` does not turn; that loop turns also when there is nothing to do. Other
loops rest while they have no work, so they are never a reason. For pleg the relists count, with a threshold of their
own. status, which decides, is no reason; nor is bootstrap, which the pods need only for the next certificate or
configuration. A bootstrap without beats is a trouble in the beat of status.

Missing beats count only for the time in which we could receive them: after our own start, or after we were stopped,
others get their complete threshold again. A reported fact (runtime or network are not ready) counts at once.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from bus.messages.pleg import NodeObserved
from shared.time.timestamps import go_duration

RUNTIME_THRESHOLD_SECONDS = 30.0  # since the runtime was last ready
PLEG_THRESHOLD_SECONDS = 180.0  # since the last relist
PROCESS_THRESHOLD_SECONDS = 30.0  # since the last beat of a process, or since its loop last turned
STOPPED_SECONDS = 5.0  # without a beat or an evaluation, which are due every second, after which we were stopped
UNKNOWN_NETWORK = "network state unknown"
MAIN_LOOPS = {
    "bootstrap": "reload",
    "sources": "sources",
    "podsync": "sync",
    "volume": "volume",
    "pleg": "relist",
    "server": "serve",
}
"""Maps a service to the progress entry of its loop that turns regularly."""


class LastBeat(Struct, frozen=True):
    """The newest beat of a process, and the last turn of its main loop that the beat reports."""

    received_at: float
    turned_at: float | None = None


class ReadyInputs(Struct, frozen=True, kw_only=True):
    """The inputs of the Ready condition."""

    now: float
    awake_since: float  # our start, or the end of a time in which we were stopped
    observed: NodeObserved | None  # None = pleg has published none yet
    runtime_good_at: float | None  # when the runtime was last reachable and ready, None = never
    pleg_active_at: float | None  # when pleg last completed a relist, None = never
    last_beats: Mapping[str, LastBeat] = field(default_factory=dict)
    shuts_down: bool = False  # the machine shuts down, and podsync stops the pods
    processes: tuple[str, ...] = ()  # those that must run; pleg has a rule of its own
    max_pods: int = 0


class NotReady(Struct, frozen=True):
    """One reason why the node is not Ready. `presumed`: a report is missing, and we have not run for long enough to
    receive one."""

    text: str
    presumed: bool = False


def not_ready_reasons(given: ReadyInputs) -> list[NotReady]:
    """Return why the node is not Ready, in the kubelet's order; empty = it is Ready."""
    return [
        *_runtime_sync(given),
        *_pleg(given),
        *_runtime_condition(given.observed),
        *_network(given),
        *([NotReady("node is shutting down")] if given.shuts_down else []),
        *_capacity(given.observed, given.max_pods),
        *_processes(given),
    ]


def message(reasons: list[NotReady]) -> str:
    """Return the condition's message: the text of one reason, or several in brackets, without duplicates."""
    texts = list(dict.fromkeys(reason.text for reason in reasons))
    if not texts:
        return "kubelet is posting ready status"
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def reportable(reasons: list[NotReady]) -> list[NotReady] | None:
    """Return the reasons to report now, empty = Ready; None = all are presumed, so that the last reported ones stay."""
    facts = [reason for reason in reasons if not reason.presumed]
    return facts if facts or not reasons else None


def is_silent(given: ReadyInputs, process: str) -> bool:
    """Return whether a process that Ready does not depend on has sent no beat for `PROCESS_THRESHOLD_SECONDS`."""
    return any(not reason.presumed for reason in _process(given, process))


def turned_at(service: str, progress: Mapping[str, float]) -> float | None:
    """Return when (CLOCK_MONOTONIC) the main loop of a service last turned, from the progress in its beat; None = the
    beat does not contain it."""
    return progress.get(MAIN_LOOPS[service]) if service in MAIN_LOOPS else None


def _presumed(given: ReadyInputs, threshold: float = PROCESS_THRESHOLD_SECONDS) -> bool:
    return given.now - given.awake_since <= threshold


def _runtime_sync(given: ReadyInputs) -> list[NotReady]:
    if given.runtime_good_at is None:
        unchecked = "container runtime status check may not have completed yet"
        return [NotReady(unchecked, presumed=_presumed(given))]
    if given.now - given.runtime_good_at > RUNTIME_THRESHOLD_SECONDS:
        return [NotReady("container runtime is down", presumed=_presumed(given, RUNTIME_THRESHOLD_SECONDS))]
    return []


def _pleg(given: ReadyInputs) -> list[NotReady]:
    if given.pleg_active_at is None:
        return [NotReady("PLEG is not healthy: pleg has yet to be successful", presumed=_presumed(given))]
    return _inactive("PLEG", "pleg", given, given.pleg_active_at, PLEG_THRESHOLD_SECONDS)


def _runtime_condition(observed: NodeObserved | None) -> list[NotReady]:
    if observed is None or not observed.runtime_reachable or observed.runtime_ready:
        return []
    return [NotReady(_prefixed("container runtime not ready: RuntimeReady=false ", observed.runtime_message))]


def _network(given: ReadyInputs) -> list[NotReady]:
    observed = given.observed
    if observed is None:
        return [NotReady(UNKNOWN_NETWORK, presumed=_presumed(given))]
    if observed.network_ready:
        return []
    if observed.network_message in ("", UNKNOWN_NETWORK):
        return [NotReady(UNKNOWN_NETWORK, presumed=_presumed(given))]
    return [NotReady(_prefixed("container runtime network not ready: NetworkReady=false ", observed.network_message))]


def _prefixed(prefix: str, text: str) -> str:
    return text if text.startswith(prefix.split(":", 1)[0]) else prefix + text


def _capacity(observed: NodeObserved | None, max_pods: int) -> list[NotReady]:
    if observed is None:
        return []
    known = {
        "cpu": observed.cpus >= 0,
        "memory": observed.memory_capacity >= 0,
        "pods": max_pods > 0,
        "ephemeral-storage": observed.nodefs_capacity >= 0,
    }
    missing = [name for name, is_known in known.items() if not is_known]
    return [NotReady(f"missing node capacity for resources: {', '.join(missing)}")] if missing else []


def _processes(given: ReadyInputs) -> list[NotReady]:
    return [reason for process in given.processes for reason in _process(given, process)]


def _process(given: ReadyInputs, process: str) -> list[NotReady]:
    last = given.last_beats.get(process)
    if last is None:
        unreported = NotReady(f"{process} is not healthy: {process} has yet to report")
        return [] if _presumed(given) else [unreported]
    active_at = last.received_at if last.turned_at is None else min(last.received_at, last.turned_at)
    return _inactive(process, process, given, active_at, PROCESS_THRESHOLD_SECONDS)


def _inactive(title: str, name: str, given: ReadyInputs, active_at: float, threshold: float) -> list[NotReady]:
    silent = given.now - active_at
    if silent <= threshold:
        return []
    ago, limit = go_duration(silent), go_duration(threshold)
    text = f"{title} is not healthy: {name} was last seen active {ago} ago; threshold is {limit}"
    return [NotReady(text, presumed=_presumed(given, threshold))]
