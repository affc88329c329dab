"""What a kill cost, and whether it was allowed to: figures in, complaints out. Pure; measures nothing."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from shared.model.runtime import ContainerState, RuntimePod, SandboxState
from tests.chaos.cells import API_SERVER, CONTAINERD, SUPERVISORD, Cell, Hit, Moment

NEW_POD_SECONDS = 3.0  # from the kill of any one process to the Ready of a pod created then
LENIENT_AT_MOST = 4.0  # times that, on a machine that is busy with other tests
# From the API server's return until everything is in sync: the longest pause between the first two requests of an
# outage is 12 s, and the sync follows.
AFTER_API_SERVER_SECONDS = 16.0
LEASE_INTERVALS = 2.0
BYSTANDERS = (SUPERVISORD, "bootstrap", "server")  # no new pod waits for them
DIRECT, PROXIED = "server port", "API server"  # the two ways an exec session is held open


class Again(StrEnum):
    """What of pods that were being made at the hit may have been made a second time."""

    NOTHING = "nothing"
    SANDBOXES = "sandboxes"  # podsync ended in the middle: the runtime gives up a sandbox whose caller is gone
    EVERYTHING = "everything"  # the runtime itself died in the middle


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What one cell cost. Times in seconds; `None` = never seen."""

    new_pod: float | None = None  # hit -> Ready of the pod created then
    back: float | None = None  # hit -> the first beat of the last killed service's next process
    in_sync: float | None = None  # hit -> every desired pod is Ready, all others are gone, all processes work
    away: float = 0.0  # of these, how long we kept the victim from coming back (stopped, not started again)
    restarted: tuple[str, ...] = ()  # containers replaced or restarted though nothing was wrong with them
    pod_flaps: tuple[str, ...] = ()
    node_flaps: tuple[str, ...] = ()
    lease_gap: float | None = None
    sessions_lost: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()  # what the end state has more or less than the undisturbed run's
    trouble: str = ""  # what was waited for in vain; the figures after it are missing


@dataclass(frozen=True)
class Limits:
    """What the cells of a run are held to. `undisturbed`: create -> Ready in seconds without a kill, by moment.

    `slowness`: how many times as slow as an idle machine one is that others keep busy; None on a machine that does
    nothing else. The goal for the new pod is that many times as long; where processes are slow to come back, the pod
    has a second more than they took, and twice the undisturbed time; the lease is given what they took.
    """

    renew_interval: float
    undisturbed: Mapping[Moment, float]
    slowness: float | None = None

    def new_pod(self, cell: Cell, costs: Costs) -> float | None:
        """Seconds; None where no goal was set (pairs, everything at once).

        A pod created into the middle of others waits for its turn first: there the undisturbed time is added once.
        """
        if not cell.is_one_process or cell.hit is Hit.NOTHING:
            return None
        away = 0.0 if cell.victims[0] in BYSTANDERS else costs.away
        undisturbed = self.undisturbed.get(cell.moment, self.undisturbed[Moment.IDLE])
        goal = AFTER_API_SERVER_SECONDS if cell.hits(API_SERVER) else NEW_POD_SECONDS
        limit = goal * (self.slowness or 1.0) + away + (undisturbed if cell.moment is Moment.MID_FLIGHT else 0.0)
        lenient = min((costs.back or 0.0) + 1.0 + 2 * undisturbed, LENIENT_AT_MOST * NEW_POD_SECONDS)
        return limit if self.slowness is None else max(limit, lenient)

    def lease_gap(self, cell: Cell, costs: Costs) -> float:
        """Seconds between two renewals; only who renews the lease and who keeps it may hold it up."""
        held_up = costs.away if cell.hits("status") or cell.hits(API_SERVER) else 0.0
        return LEASE_INTERVALS * self.renew_interval + held_up + (0.0 if self.slowness is None else costs.back or 0.0)


def may_lose(cell: Cell) -> Collection[str]:
    """The ways of exec sessions that end with a victim, for it carries the bytes: containerd's streaming server."""
    if cell.hits("server") or cell.hits(CONTAINERD):
        return (DIRECT, PROXIED)
    return (PROXIED,) if cell.hits(API_SERVER) else ()


def complaints(cell: Cell, costs: Costs, limits: Limits) -> list[str]:
    """What this cell cost and must not have; empty = it passes."""
    if costs.trouble:
        return [costs.trouble]
    found = [f"restarted {what}" for what in costs.restarted]
    found += [*costs.pod_flaps, *costs.node_flaps, *costs.differences]
    found += [f"exec session through the {way} lost" for way in costs.sessions_lost if way not in may_lose(cell)]
    return found + late(cell, costs, limits)


def late(cell: Cell, costs: Costs, limits: Limits) -> list[str]:
    """Of the complaints those about a time, which other work on the machine can spoil."""
    found = []
    limit = limits.new_pod(cell, costs)
    if limit is not None and (costs.new_pod is None or costs.new_pod > limit):
        found.append(f"new pod Ready after {seconds(costs.new_pod)} s, limit {limit:.2f} s")
    longest = limits.lease_gap(cell, costs)
    if costs.lease_gap is not None and costs.lease_gap > longest:
        found.append(f"lease {costs.lease_gap:.1f} s old, limit {longest:.1f} s")
    return found


def made_again(cell: Cell) -> Again:
    """What the cell excuses. Pods that were there before are held to their very containers by `replaced`."""
    if cell.moment is Moment.IDLE:
        return Again.NOTHING
    if cell.hits(CONTAINERD):
        return Again.EVERYTHING
    return Again.SANDBOXES if cell.hits("podsync") or cell.hits(SUPERVISORD) else Again.NOTHING


def seconds(value: float | None) -> str:
    """A figure in a table."""
    return "–" if value is None else f"{value:.2f}"


# The end state in the runtime


def replaced(before: Mapping[str, RuntimePod], after: Mapping[str, RuntimePod]) -> tuple[str, ...]:
    """Containers and sandboxes of pods that should have stayed and are others now, as `pod/name`."""
    found = []
    for uid, pod in before.items():
        now = after.get(uid)
        ids = {box.id for box in now.sandboxes} | {c.id for c in now.containers} if now is not None else set()
        found += [f"{pod.name}/sandbox" for box in pod.sandboxes if box.id not in ids]
        found += [f"{pod.name}/{container.name}" for container in pod.containers if container.id not in ids]
    return tuple(sorted(found))


def differences(
    wanted: Mapping[str, Collection[str]], seen: Mapping[str, RuntimePod], again: Again = Again.NOTHING
) -> tuple[str, ...]:
    """How the runtime differs from `wanted` (uid -> names of its containers): one live sandbox and one live container
    per name, first attempts all but for what may have been made `again`, and of other pods nothing but ended sandboxes
    that await garbage collection."""
    sandboxes_again, containers_again = again is not Again.NOTHING, again is Again.EVERYTHING
    found = [f"left over: {pod.name}" for uid, pod in seen.items() if uid not in wanted and not _awaits_collection(pod)]
    for uid, names in wanted.items():
        pod = seen.get(uid)
        if pod is None:
            found.append(f"not in the runtime: {uid}")
            continue
        boxes = [(box.attempt, box.state) for box in pod.sandboxes]
        up = [attempt for attempt, state in boxes if state is SandboxState.READY]
        if len(up) != 1 or (not sandboxes_again and (len(boxes) > 1 or up != [0])):
            found.append(f"{pod.name}: sandboxes {_listed(boxes)}")
        live = [(c.name, c.attempt) for c in pod.containers if c.state is ContainerState.RUNNING]
        dead = [(c.name, c.attempt) for c in pod.containers if c.state is not ContainerState.RUNNING]
        if sorted(name for name, _ in live) != sorted(names):
            found.append(f"{pod.name}: containers {_listed(live)}")
        elif not containers_again and any(attempt for _, attempt in live):
            found.append(f"{pod.name}: attempts {_listed(live)}")
        if dead and not containers_again:
            found.append(f"{pod.name}: ended containers {_listed(dead)}")
    return tuple(sorted(found))


def _awaits_collection(pod: RuntimePod) -> bool:
    """Nothing but ended sandboxes: as with any kubelet, they go with the next round of garbage collection."""
    return not pod.containers and all(box.state is SandboxState.NOTREADY for box in pod.sandboxes)


def _listed(parts: Sequence[tuple[object, object]]) -> str:
    return ", ".join(f"{first} {second}" for first, second in parts) or "none"
