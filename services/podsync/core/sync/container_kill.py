"""Decides why a running container is killed, and how it is stopped (pods.md 5.3, 8.2, 8.3)."""

from itertools import pairwise
from typing import Any

from msgspec import Struct

from services.podsync.core.pod.instructions import ContainerStop
from services.podsync.core.pod.lifecycle import MIN_STOP_SECONDS
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.probes import ProbeResult
from shared.model.runtime import Container
from shared.podspec.containers import ContainerKind
from shared.podspec.resources import is_sidecar


class ContainerKill(Struct, frozen=True, kw_only=True):
    """Has a running container to kill."""

    instance: Container
    message: str  # of the Killing event
    restart: bool = True  # whether another instance is to replace it
    grace: int | None = None  # seconds, where the probe has a grace period of its own


def failed_probe(tracked: TrackedPod, instance: Container, kinds: tuple[str, ...] = ("liveness", "startup")) -> str:
    """Return the first of these probes whose result requires a kill of the instance, else ""."""
    results = tracked.probes_of(instance.id)
    return next((kind for kind in kinds if results is not None and getattr(results, kind) == ProbeResult.FAILURE), "")


def probe_grace(spec: dict[str, Any], kind: str) -> int | None:
    """Return the seconds of grace that the probe of this kind sets for its own kills; None = it sets none."""
    grace = (spec.get(f"{kind}Probe") or {}).get("terminationGracePeriodSeconds")
    return int(grace) if grace is not None else None


def spec_grace(tracked: TrackedPod) -> int:
    """Return spec.terminationGracePeriodSeconds."""
    return int(tracked.spec.get("terminationGracePeriodSeconds") or 0)


def container_stop(tracked: TrackedPod, instance: Container, grace: int, after: tuple[str, ...] = ()) -> ContainerStop:
    """Return how to stop this instance within `grace` seconds. Its preStop hook runs where there is time for it, and
    the spec has the container."""
    entry = tracked.container(instance.name)
    hook = entry is not None and (entry[1].get("lifecycle") or {}).get("preStop")
    return ContainerStop(
        container=instance.name,
        container_id=instance.id,
        grace_seconds=max(grace, MIN_STOP_SECONDS),
        pre_stop=bool(hook) and grace > 0,
        after=after,
    )


def stops_of_pod(tracked: TrackedPod, grace: int) -> tuple[ContainerStop, ...]:
    """Return the stops of everything alive, in parallel, with `grace` seconds; but a sidecar is stopped after the
    regular containers and the sidecar that follows it in the spec."""
    alive = tracked.alive
    kinds = {c.name: entry[0] for c in alive if (entry := tracked.container(c.name)) is not None}
    regular = tuple(c.id for c in alive if kinds.get(c.name) is ContainerKind.REGULAR)
    sidecars = [str(s["name"]) for s in tracked.init_containers if is_sidecar(s)]
    following = dict(pairwise(sidecars))
    stops = []
    for instance in alive:
        after: tuple[str, ...] = ()
        if kinds.get(instance.name) is ContainerKind.SIDECAR:
            after = regular + tuple(c.id for c in alive if c.name == following.get(instance.name))
        stops.append(container_stop(tracked, instance, grace, after))
    return tuple(stops)
