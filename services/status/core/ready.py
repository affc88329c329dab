"""Is the node Ready, and if not, why: the kubelet's texts in the kubelet's order (reference node.md 1.7), and one more
for each process of this agent that is gone or stands still. All times are seconds of CLOCK_MONOTONIC.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bus.messages.pleg import NodeObserved
from shared.timestamps import go_duration

RUNTIME_THRESHOLD = 30.0  # seconds since the runtime was last well
PLEG_THRESHOLD = 180.0  # seconds since the last relist
PROCESS_THRESHOLD = 30.0  # seconds since a process was last heard of, or its loop last turned
UNKNOWN_NETWORK = "network state unknown"


@dataclass(frozen=True)
class Sign:
    """The last sign of life of a process: its newest beat, and the newest turn of a loop that the beat told of."""

    heard_at: float
    turned_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class ReadyInputs:
    """All that Ready depends on."""

    now: float
    started_at: float  # of this process: what was not heard since is not absent before its threshold
    observed: NodeObserved | None  # None = pleg has not spoken yet
    runtime_good_at: float | None  # when the runtime was last reachable and ready, None = never
    pleg_active_at: float | None  # last relist, None = never
    signs: Mapping[str, Sign] = field(default_factory=dict)
    processes: tuple[str, ...] = ()  # those that must live; pleg has a rule of its own
    max_pods: int = 0


@dataclass(frozen=True)
class NotReady:
    """One reason. `presumed`: it rests on not knowing, so that a process that has just started must not say it."""

    text: str
    presumed: bool = False


def not_ready_reasons(given: ReadyInputs) -> list[NotReady]:
    """Why the node is not Ready, in the kubelet's order; empty = Ready."""
    return [
        *_runtime_sync(given),
        *_pleg(given),
        *_runtime_condition(given.observed),
        *_network(given.observed),
        *_capacity(given.observed, given.max_pods),
        *_processes(given),
    ]


def message(reasons: list[NotReady]) -> str:
    """The condition's message: the text of one reason, or several in brackets, without duplicates."""
    texts = list(dict.fromkeys(reason.text for reason in reasons))
    if not texts:
        return "kubelet is posting ready status"
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def may_be_said(reasons: list[NotReady], given: ReadyInputs) -> bool:
    """Whether the verdict rests on facts, or enough time has passed for their absence to be one."""
    return not any(reason.presumed for reason in reasons) or given.now - given.started_at > PROCESS_THRESHOLD


def _runtime_sync(given: ReadyInputs) -> list[NotReady]:
    if given.runtime_good_at is None:
        return [NotReady("container runtime status check may not have completed yet", presumed=True)]
    if given.now - given.runtime_good_at > RUNTIME_THRESHOLD:
        return [NotReady("container runtime is down")]
    return []


def _pleg(given: ReadyInputs) -> list[NotReady]:
    if given.pleg_active_at is None:
        return [NotReady("PLEG is not healthy: pleg has yet to be successful", presumed=True)]
    return [NotReady(text) for text in _inactive("PLEG", "pleg", given.now - given.pleg_active_at, PLEG_THRESHOLD)]


def _runtime_condition(observed: NodeObserved | None) -> list[NotReady]:
    if observed is None or not observed.runtime_reachable or observed.runtime_ready:
        return []
    return [NotReady(_prefixed("container runtime not ready: RuntimeReady=false ", observed.runtime_message))]


def _network(observed: NodeObserved | None) -> list[NotReady]:
    if observed is None:
        return [NotReady(UNKNOWN_NETWORK, presumed=True)]
    if observed.network_ready:
        return []
    if observed.network_message in ("", UNKNOWN_NETWORK):
        return [NotReady(UNKNOWN_NETWORK, presumed=True)]
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
    reasons = []
    for process in given.processes:
        sign = given.signs.get(process)
        if sign is None:
            if given.now - given.started_at > PROCESS_THRESHOLD:
                reasons.append(NotReady(f"{process} is not healthy: {process} has yet to be heard of"))
            continue
        active_at = sign.heard_at if sign.turned_at is None else min(sign.heard_at, sign.turned_at)
        reasons += [NotReady(t) for t in _inactive(process, process, given.now - active_at, PROCESS_THRESHOLD)]
    return reasons


def _inactive(title: str, name: str, silent: float, threshold: float) -> list[str]:
    if silent <= threshold:
        return []
    ago, limit = go_duration(silent), go_duration(threshold)
    return [f"{title} is not healthy: {name} was last seen active {ago} ago; threshold is {limit}"]
