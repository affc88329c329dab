"""A pleg with running pods that use something, and how tests ask for it."""

import asyncio
from typing import Any

from bus.messages.usage import CgroupUsage, ContainerUsage, FoundUsage, GetUsage, PodUsage
from tests.service.pleg.world import PlegWorld

SECOND = 1_000_000_000


def usage_of(uid: str, container_id: str, cpu_nanoseconds: int) -> PodUsage:
    cgroup = CgroupUsage(time=1.0, cpu_nanoseconds=cpu_nanoseconds)
    return PodUsage(
        uid=uid,
        name="web",
        namespace="default",
        created_at=1,
        read_at=0.0,
        cgroup=cgroup,
        containers=(ContainerUsage(id=container_id, name="main", created_at=1, cgroup=cgroup),),
    )


async def ask(world: PlegWorld, request: GetUsage | None = None) -> FoundUsage:
    return await world.podsync.ask("pleg", request or GetUsage(), FoundUsage)


async def with_pod(**runtime: Any) -> tuple[PlegWorld, str]:
    """A world, not started yet, with the running pod `a` and its usage; and the id of its container."""
    world = PlegWorld(**runtime)
    _, container = await world.run_pod("a")
    world.usage.pods["a"] = usage_of("a", container, SECOND)
    return world, container


async def with_pods(*uids: str) -> PlegWorld:
    """A world, not started yet, with these running pods and their usage."""
    world = PlegWorld()
    for uid in uids:
        _, container = await world.run_pod(uid)
        world.usage.pods[uid] = usage_of(uid, container, SECOND)
    return world


async def answer_to(world: PlegWorld, request: GetUsage) -> FoundUsage:
    """The answer, which takes time: some pod or service does not answer."""
    asking = asyncio.create_task(ask(world, request))
    await world.pass_time(4.0)
    return asking.result()


def used(found: FoundUsage) -> dict[str, int | None]:
    """What the volume of each pod uses that has figures: the number of its measurement."""
    return {pod.uid: pod.volumes[0].filesystem.used for pod in found.pods if pod.volumes}
