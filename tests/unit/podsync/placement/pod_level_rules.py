"""What must hold for a pod with resources of its own that is placed as a whole, at each moment of its life: while an
init container runs beside the sidecars before it, and while all regular containers and sidecars run."""

from typing import Any

from services.podsync.core.placement.pod_placement import ContainerPlacement, PodPlacement
from shared.model.quantity import NANO, parse_quantity

Json = dict[str, Any]


def moments(pod: Json) -> list[list[Json]]:
    """Return the containers that run at one time, for each moment."""
    sidecars: list[Json] = []
    found = []
    for container in pod["spec"].get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars.append(container)
        else:
            found.append([*sidecars, container])
    return [*found, [*sidecars, *pod["spec"]["containers"]]]


def amount(holder: Json, kind: str) -> int:
    """Return the whole CPUs or the bytes that a container or a pod's spec requests; 0 for a fraction of a CPU, and for
    a container whose requests are not its limits."""
    resources = holder.get("resources") or {}
    requests = resources.get("requests") or {}
    if requests != resources.get("limits") or not {"cpu", "memory"} <= requests.keys():
        return 0
    nanos = parse_quantity(requests[kind]).nanos
    return 0 if nanos % NANO else nanos // NANO


def leaves_none(pod: Json, kind: str) -> bool:
    """Return whether containers leave nothing of the pod's CPUs or memory at a moment at which another one needs it."""
    total = amount(pod["spec"], kind)
    owned = [[amount(container, kind) for container in running] for running in moments(pod)]
    return total > 0 and any(0 in own and sum(own) >= total for own in owned)


def check_division(pod: Json, placement: PodPlacement) -> None:
    """Assert that containers have their CPUs and memory alone, that others share what these leave, and that nobody is
    without."""
    whole, size = amount(pod["spec"], "cpu"), amount(pod["spec"], "memory")
    assert len(placement.cpus) == whole
    assert not placement.memory or sum(block.size for block in placement.memory) == size
    for running in moments(pod):
        given = [placement.containers.get(container["name"], ContainerPlacement()) for container in running]
        alone = [one.cpus for one in given]
        assert [len(cpus) for cpus in alone] == [amount(container, "cpu") if whole else 0 for container in running]
        taken = frozenset[int]().union(*alone)
        assert len(taken) == sum(map(len, alone)), "a CPU belongs to two containers that run at one time"
        for one in given:
            assert bool(one.cpus) + bool(one.pool) == (1 if whole else 0)
            assert one.cpus | one.pool <= placement.cpus
            assert not one.pool & taken, "a container shares CPUs that another one has alone"
        if not placement.memory:
            continue
        blocks = [block for one in given for block in one.memory]
        assert sum(block.size for block in blocks) == sum(amount(container, "memory") for container in running) <= size
        assert {block.nodes for block in blocks} <= {block.nodes for block in placement.memory}
