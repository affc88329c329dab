"""What pods and the node use, as followers and requests see it."""

import asyncio

import pytest

from bus.messages.cgroup_details import FoundCgroups, GetCgroups
from bus.messages.usage import (
    CgroupUsage,
    ContainerUsage,
    FilesystemUsage,
    FoundUsage,
    GetUsage,
    PodUsage,
    VolumeUsage,
)
from bus.messages.volume import FoundVolumeUsage, GetVolumeUsage
from services.pleg.adapters.usage_source import FILES_PLACES
from services.pleg.controllers.file_usage import VOLUME_REQUESTS
from services.pleg.controllers.usage_reader import INTEREST_SECONDS, READ_SECONDS
from shared.cri.interface import FilesystemFiles
from tests.fakes.virtual_time import on_virtual_time
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


async def with_pod(**runtime: object) -> tuple[PlegWorld, str]:
    """A world, not started yet, with the running pod `a` and its usage; and the id of its container."""
    world = PlegWorld(**runtime)
    _, container = await world.run_pod("a")
    world.usage.pods["a"] = usage_of("a", container, SECOND)
    return world, container


@on_virtual_time
async def test_followers_get_the_node_every_ten_seconds() -> None:
    async with PlegWorld() as world:
        assert await world.until(lambda: world.node_usage.complete) < 1.0
        first = world.node_usage.state["node"].read_at
        await world.pass_time(READ_SECONDS)
        assert world.node_usage.state["node"].read_at == pytest.approx(first + READ_SECONDS)


@on_virtual_time
async def test_a_second_reading_has_the_cpu_use_between_the_two() -> None:
    world, container = await with_pod()
    async with world:
        await world.until(lambda: "a" in world.pods.state)
        first = (await ask(world)).pods[0]
        assert first.cgroup is not None and first.cgroup.cpu_nanocores is None
        world.usage.pods["a"] = usage_of("a", container, 3 * SECOND)
        await world.pass_time(READ_SECONDS)
        pod = (await ask(world)).pods[0]
        assert pod.cgroup is not None and pod.containers[0].cgroup is not None
        assert pod.cgroup.cpu_nanocores == pod.containers[0].cgroup.cpu_nanocores
        assert (pod.cgroup.cpu_nanocores or 0) * (pod.read_at - first.read_at) == pytest.approx(2 * SECOND)


@on_virtual_time
async def test_an_answer_is_complete_once_the_runtime_was_listed() -> None:
    world, _ = await with_pod()
    hang = world.runtime.hang("Observe")
    async with world:
        found = await ask(world)
        assert not found.complete and not found.pods
        hang.release.set()
        await world.until(lambda: "a" in world.pods.state)
        found = await ask(world)
        assert found.complete and [pod.uid for pod in found.pods] == ["a"]
        del world.usage.pods["a"]
        await world.pass_time(1.0)
        found = await ask(world, GetUsage(max_age_seconds=0.0))
        assert found.complete and not found.pods


@on_virtual_time
async def test_a_request_is_answered_by_the_last_reading_unless_that_is_too_old() -> None:
    world, container = await with_pod()
    async with world:
        await world.until(lambda: "a" in world.pods.state)
        await ask(world)
        await world.pass_time(2.0)
        readings = world.usage.readings
        found = await ask(world, GetUsage(max_age_seconds=READ_SECONDS))
        assert world.usage.readings == readings
        assert [pod.uid for pod in found.pods] == ["a"]
        world.usage.pods["a"] = usage_of("a", container, 2 * SECOND)
        found = await ask(world, GetUsage(max_age_seconds=1.0))
        assert world.usage.readings == readings + 1
        assert found.pods[0].cgroup is not None and found.pods[0].cgroup.cpu_nanoseconds == 2 * SECOND
        assert found.node.read_at == world.clock.monotonic()


@on_virtual_time
async def test_a_request_for_the_node_alone_reads_no_pod() -> None:
    async with PlegWorld() as world:
        await world.pass_time(5.0)
        found = await ask(world, GetUsage(max_age_seconds=0.0, pods=False))
        assert world.usage.readings == 0 and not found.pods
        assert found.node.read_at == world.clock.monotonic()


@on_virtual_time
async def test_pods_are_read_for_five_minutes_after_a_request() -> None:
    world, _ = await with_pod()
    async with world:
        await world.pass_time(10 * READ_SECONDS)
        assert world.usage.readings == 0
        await ask(world)
        await world.pass_time(INTEREST_SECONDS - READ_SECONDS)
        assert world.usage.readings >= INTEREST_SECONDS / READ_SECONDS - 2
        await world.pass_time(3 * READ_SECONDS)
        readings = world.usage.readings
        await world.pass_time(10 * READ_SECONDS)
        assert world.usage.readings == readings


@on_virtual_time
async def test_the_files_of_a_pod_are_measured_once_in_a_period() -> None:
    world, container = await with_pod()
    world.runtime.layers[container] = FilesystemFiles(mountpoint="/", used=4096)
    async with world:
        await world.until(lambda: "a" in world.pods.state)
        await ask(world)
        await world.until(lambda: world.usage.measured == ["a"])
        pod = (await ask(world)).pods[0]
        assert [volume.name for volume in pod.volumes] == ["v"]
        assert pod.containers[0].rootfs is not None and pod.containers[0].rootfs.used == 4096
        await world.pass_time(40.0)
        assert world.usage.measured == ["a"]
        await world.until(lambda: len(world.usage.measured) == 2, within=60.0)


@on_virtual_time
async def test_volumes_that_only_plugins_can_measure_have_the_figures_of_volume() -> None:
    world, _ = await with_pod()
    world.usage.by_plugins = True
    claimed = VolumeUsage(name="data", filesystem=FilesystemUsage(time=1.0, used=7), claim="shop")
    requests: list[str] = []

    async def answer(request: GetVolumeUsage) -> FoundVolumeUsage:
        requests.append(request.uid)
        return FoundVolumeUsage(volumes=(claimed,))

    async with world:
        await world.until(lambda: "a" in world.pods.state)
        asking = asyncio.create_task(ask(world, GetUsage(max_age_files_seconds=10.0)))
        await world.pass_time(4.0)  # in which volume does not answer
        assert [volume.name for volume in asking.result().pods[0].volumes] == ["v"]
        bus = world.network.bus("volume")
        bus.answer(GetVolumeUsage, answer)
        await bus.start()
        found = await ask(world, GetUsage(max_age_files_seconds=1.0))
        assert found.pods[0].volumes[1:] == (claimed,)
        assert set(requests) == {"a"}


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


@on_virtual_time
async def test_a_pod_whose_files_cannot_be_measured_costs_only_its_own_figures() -> None:
    world = await with_pods("a", "b", "c")
    answers = world.usage.hung["a"] = asyncio.Event()
    async with world:
        await world.until(lambda: len(world.pods.state) == 3)
        assert set(used(await answer_to(world, GetUsage(max_age_files_seconds=0.0)))) == {"b", "c"}
        rounds = len(world.runtime.requests("ListContainerStats"))
        for _ in range(3):
            await world.pass_time(1.0)
            assert set(used(await ask(world, GetUsage(max_age_files_seconds=0.5)))) == {"b", "c"}
        assert world.usage.measured.count("a") == 1 and world.usage.measured.count("b") == 4
        assert len(world.runtime.requests("ListContainerStats")) <= rounds + 3
        answers.set()
        await world.pass_time(1.0)
        assert set(used(await ask(world))) == {"a", "b", "c"}
        await ask(world, GetUsage(max_age_files_seconds=0.0))
        assert world.usage.measured.count("a") == 2


@on_virtual_time
async def test_volumes_that_do_not_answer_are_waited_for_together_and_keep_no_files_from_being_measured() -> None:
    uids = [f"a{number:02}" for number in range(30)]
    world = await with_pods(*uids)
    world.usage.by_plugins = True  # and there is no process volume
    async with world:
        await world.until(lambda: len(world.pods.state) == len(uids))
        assert set(used(await answer_to(world, GetUsage(max_age_files_seconds=0.0)))) == set(uids)
        second = await answer_to(world, GetUsage(max_age_files_seconds=0.5))
        assert min(number or 0 for number in used(second).values()) > len(uids)
        await world.pass_time(10.0)
        measured = len(world.usage.measured)
        await world.pass_time(55.0)
        await ask(world)
        await world.until(lambda: len(world.usage.measured) > measured)


@on_virtual_time
async def test_volume_gets_few_requests_at_once_and_a_slow_answer_makes_no_pod_be_measured_less_often() -> None:
    uids = [f"a{number:02}" for number in range(3 * VOLUME_REQUESTS)]
    world = await with_pods(*uids)
    world.usage.by_plugins = True
    under_way, most = 0, 0

    async def answer(request: GetVolumeUsage) -> FoundVolumeUsage:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(2.4)
        under_way -= 1
        usage = FilesystemUsage(time=1.0, used=int(request.uid[1:]))
        return FoundVolumeUsage(volumes=(VolumeUsage(name="data", filesystem=usage),))

    def by_plugins(found: FoundUsage) -> dict[str, int | None]:
        return {pod.uid: pod.volumes[1].filesystem.used for pod in found.pods if len(pod.volumes) > 1}

    async with world:
        bus = world.network.bus("volume")
        bus.answer(GetVolumeUsage, answer)
        await bus.start()
        await world.until(lambda: len(world.pods.state) == len(uids))
        await answer_to(world, GetUsage(max_age_files_seconds=0.0))
        await world.pass_time(3 * 2.4)
        assert by_plugins(await ask(world)) == {uid: int(uid[1:]) for uid in uids}
        assert most == VOLUME_REQUESTS
        measured = len(world.usage.measured)
        for _ in range(7):  # the last pods waited for 7 s: counted as their measurement, that would be a pause of 144 s
            await world.pass_time(READ_SECONDS)
            await ask(world)
        await world.until(lambda: len(world.usage.measured) >= measured + len(uids), within=10.0)


@on_virtual_time
async def test_as_many_hung_pods_as_there_are_places_begin_no_round_for_the_others() -> None:
    hung = [f"a{number:02}" for number in range(FILES_PLACES)]
    world = await with_pods(*hung, "b")
    world.usage.hung = {uid: asyncio.Event() for uid in hung}
    async with world:
        await world.until(lambda: len(world.pods.state) == len(hung) + 1)
        await ask(world)
        await world.until(lambda: len(world.usage.measured) >= len(hung), within=60.0)
        for uid in hung:
            world.usage.hung[uid].set()
        await world.until(lambda: "b" in world.usage.measured, within=60.0)
        assert "b" in used(await ask(world))


@on_virtual_time
async def test_a_pod_that_ends_while_its_files_are_measured_leaves_nothing() -> None:
    world = await with_pods("a", "b")
    answers = world.usage.hung["a"] = asyncio.Event()
    async with world:
        await world.until(lambda: len(world.pods.state) == 2)
        await answer_to(world, GetUsage(max_age_files_seconds=0.0))
        usage = world.usage.pods.pop("a")
        await ask(world, GetUsage(max_age_seconds=0.0))
        answers.set()
        await world.pass_time(1.0)
        world.usage.pods["a"] = usage
        assert "a" not in used(await ask(world, GetUsage(max_age_seconds=0.0)))


@on_virtual_time
async def test_a_pod_that_ends_during_a_request_for_newer_figures_is_not_measured_again() -> None:
    world = await with_pods("a", "b")
    answers = world.usage.hung["a"] = asyncio.Event()
    async with world:
        await world.until(lambda: len(world.pods.state) == 2)
        asking = asyncio.create_task(ask(world, GetUsage(max_age_files_seconds=0.0)))
        await world.pass_time(0.1)
        assert world.usage.measured == ["a"]
        del world.usage.pods["a"]
        await ask(world, GetUsage(max_age_seconds=0.0))
        answers.set()
        assert "b" in used(await asking)
        assert world.usage.measured.count("a") == 1
        assert world.usage.measured.count("a") == 1


@on_virtual_time
async def test_a_request_can_have_the_files_measured_again() -> None:
    world, _ = await with_pod()
    async with world:
        await world.until(lambda: "a" in world.pods.state)
        await ask(world)
        await world.until(lambda: world.usage.measured == ["a"])
        await world.pass_time(5.0)
        await ask(world, GetUsage(max_age_files_seconds=60.0))
        assert world.usage.measured == ["a"]
        found = await ask(world, GetUsage(max_age_files_seconds=1.0))
        assert world.usage.measured == ["a", "a"]
        assert found.pods[0].volumes[0].filesystem.used == 2


@on_virtual_time
async def test_a_runtime_without_figures_of_layers_costs_those_alone() -> None:
    world, _ = await with_pod()
    world.runtime.fail("ListContainerStats", "Unimplemented", times=1000)
    async with world:
        await world.until(lambda: "a" in world.pods.state)
        pod = (await ask(world, GetUsage(max_age_files_seconds=0.0))).pods[0]
        assert pod.volumes and pod.containers[0].rootfs is None


@on_virtual_time
async def test_requests_for_all_cgroups_share_a_reading_that_is_new_enough() -> None:
    async with PlegWorld() as world:
        await world.run_pod("a")
        await world.until(lambda: "a" in world.pods.state)
        request = GetCgroups(max_age_seconds=2.0)
        for _ in range(2):
            assert (await world.podsync.ask("pleg", request, FoundCgroups)).machine.cores == 2
        assert world.usage.cgroup_readings == [["a"]]
        await world.pass_time(3.0)
        await world.podsync.ask("pleg", request, FoundCgroups)
        assert world.usage.cgroup_readings == [["a"], ["a"]]


@on_virtual_time
async def test_a_notification_of_the_kernel_causes_a_reading_at_once() -> None:
    async with PlegWorld() as world:
        await world.until(lambda: "node" in world.node_usage.state)
        await world.pass_time(1)
        before = world.node_usage.state["node"].read_at
        world.usage.notify()
        assert await world.until(lambda: world.node_usage.state["node"].read_at > before) < 1.0
