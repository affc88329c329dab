"""Agents broken on purpose: each must be caught within some seeds, or the oracle cannot see.

A mutant changes one service object right after it was made, as a bug in it would.
"""

from collections.abc import Callable
from typing import Any

from bus.messages.snapshot import Snapshot
from services.podsync.core.admission.placed import NONE_PLACED
from shared.model.frozen_copy import replace
from shared.model.runtime import ContainerState

Mutant = Callable[[str, Any], None]


def misreports_exits(service: str, made: Any) -> None:
    """pleg that takes every running container for an ended one."""
    if service != "pleg":
        return
    put = made._pods_stream.put

    def wrong(uid: str, pod: Any, cause: str = "") -> None:
        ended = tuple(
            replace(c, state=ContainerState.EXITED, exit_code=1) if c.state is ContainerState.RUNNING else c
            for c in pod.containers
        )
        put(uid, replace(pod, containers=ended), cause)

    made._pods_stream.put = wrong


def unmounts_early(service: str, made: Any) -> None:
    """volume that takes a pod's volumes away as soon as the pod begins to end."""
    if service != "volume":
        return
    desired = made.reconciler.desired
    admit = desired.admit

    def early(admitted: Any) -> None:
        if admitted.state == "terminating":
            admitted = replace(admitted, volumes=())
        admit(admitted)

    desired.admit = early


def loses_snapshots(service: str, made: Any) -> None:
    """A bus whose snapshots are empty and marked as complete."""
    ledgers = made.__dict__.get("bus", made.__dict__.get("_bus"))._ledgers
    for ledger in ledgers.values():
        snapshot = ledger.snapshot

        def empty(snapshot: Callable[[], Snapshot] = snapshot) -> Snapshot:
            return replace(snapshot(), entries=type(snapshot().entries)())

        ledger.snapshot = empty


def kills_at_once(service: str, made: Any) -> None:
    """podsync that gives no container its grace."""
    if service != "podsync":
        return
    runtime = made.calls.runtime
    stop = runtime.stop_container

    async def at_once(container_id: str, _: int) -> None:
        await stop(container_id, 0)

    runtime.stop_container = at_once


def gives_twice(service: str, made: Any) -> None:
    """podsync that takes what other pods have for free."""
    if service == "podsync":
        made.core.node_state.admissions._placed = lambda *_, **__: NONE_PLACED


def crowds_cpus(service: str, made: Any) -> None:
    """podsync that does not wait until the other containers have left the CPUs of a new one."""
    if service == "podsync":
        made.core._cpus.occupied = lambda _: frozenset()


MUTANTS: dict[str, Mutant] = {
    "misreports-exits": misreports_exits,
    "unmounts-early": unmounts_early,
    "loses-snapshots": loses_snapshots,
    "kills-at-once": kills_at_once,
    "gives-twice": gives_twice,
    "crowds-cpus": crowds_cpus,
}
