"""What the files of pods use, as requests see it."""

import asyncio

import pytest

from bus.messages.usage import FilesystemUsage, FoundUsage, GetUsage, VolumeUsage
from bus.messages.volume import FoundVolumeUsage, GetVolumeUsage
from services.pleg.adapters.usage_source import MAX_COUNTS
from services.pleg.controllers import file_usage
from services.pleg.controllers.file_usage import LONG_PODS, MAX_VOLUME_REQUESTS, PAUSE_FACTOR
from services.pleg.controllers.usage_reader import READ_SECONDS
from shared.cri.interface import FilesystemFiles
from tests.service.pleg.usage_world import answer_to, ask, used, with_pod, with_pods

pytestmark = pytest.mark.virtual_time


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


async def test_volume_gets_few_requests_at_once_and_a_slow_answer_makes_no_pod_be_measured_less_often() -> None:
    uids = [f"a{number:02}" for number in range(3 * MAX_VOLUME_REQUESTS)]
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
        assert most == MAX_VOLUME_REQUESTS
        measured = len(world.usage.measured)
        for _ in range(7):  # the last pods waited for 7 s: counted as their measurement, that would be a pause of 144 s
            await world.pass_time(READ_SECONDS)
            await ask(world)
        await world.until(lambda: len(world.usage.measured) >= measured + len(uids), within=10.0)


async def test_as_many_hung_pods_as_there_are_places_begin_no_round_for_the_others() -> None:
    hung = [f"a{number:02}" for number in range(MAX_COUNTS)]
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


@pytest.mark.long
async def test_pods_with_files_without_end_show_what_was_counted_and_leave_places_and_time_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_usage, "LONG_SECONDS", seconds := 30.0)
    monkeypatch.setattr(file_usage, "MAX_COUNT_SECONDS", seconds)
    endless = [f"a{number:02}" for number in range(MAX_COUNTS)]
    world = await with_pods(*endless, "b")
    world.usage.endless = set(endless)
    async with world:
        await world.until(lambda: len(world.pods.state) == len(endless) + 1)
        seen: list[dict[str, int | None]] = []
        for _ in range(18):
            seen.append(used(await ask(world)))
            await world.pass_time(READ_SECONDS)
        assert world.usage.measured.count("b") >= 3 and "b" in used(await ask(world))
        for uid in endless:
            figures = [figure for found in seen if (figure := found.get(uid)) is not None]
            assert figures and figures == sorted(figures) and figures[-1] >= seconds
        before = world.usage.counted_seconds
        for _ in range(480):
            await world.pass_time(READ_SECONDS)
            await ask(world)
        assert 0 < world.usage.counted_seconds - before <= 1.1 * 4800.0 * LONG_PODS / PAUSE_FACTOR


async def test_a_count_that_lasts_too_long_begins_again_and_the_figure_is_that_of_the_last_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_usage, "LONG_SECONDS", 30.0)
    monkeypatch.setattr(file_usage, "MAX_COUNT_SECONDS", 30.0)
    world = await with_pods("a")
    world.usage.endless = {"a"}
    async with world:
        await world.until(lambda: "a" in world.pods.state)
        figures: list[int | None] = []
        while 0 not in figures and len(figures) < 150:
            figures.append(used(await ask(world)).get("a"))
            await world.pass_time(READ_SECONDS)
            if figures[-1] == 31:
                world.usage.growth = 0  # what was counted is gone, and the pod makes empty files
                await answer_to(world, GetUsage(max_age_files_seconds=0.0))  # as before an eviction: shortens no rest
        assert figures[-2:] == [31, 0]
        assert world.usage.measured == ["a"] * 3
        assert world.network.clock.monotonic() >= 2 * PAUSE_FACTOR * 31


@pytest.mark.long
async def test_files_that_take_long_to_count_are_counted_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_usage, "LONG_SECONDS", 30.0)
    world = await with_pods("a")
    world.usage.endless, world.usage.ends_after = {"a"}, {"a": 100}
    async with world:
        await world.until(lambda: "a" in world.pods.state)
        figures: list[int | None] = []
        for _ in range(300):
            figures.append(used(await ask(world)).get("a"))
            await world.pass_time(READ_SECONDS)
        assert figures[-1] == 100
        assert world.usage.measured == ["a"] * 3  # given up after 31 and 63 seconds


async def test_a_count_that_fails_keeps_nothing_open() -> None:
    world = await with_pods("a")
    world.usage.failing = {"a"}
    async with world:
        await world.until(lambda: "a" in world.pods.state)
        await ask(world)
        await world.until(lambda: world.usage.closed == ["a"])
        assert world.usage.measured == ["a"]


async def test_a_new_measurement_without_end_never_lowers_a_figure() -> None:
    world = await with_pods("a")
    async with world:
        await world.until(lambda: "a" in world.pods.state)
        world.usage.measured += ["x"] * 5  # the next figure is 6
        await ask(world)
        await world.until(lambda: len(world.usage.measured) == 6)
        world.usage.endless = {"a"}
        seen = []
        for _ in range(100):
            seen.append(used(await ask(world)).get("a"))
            await world.pass_time(1.0)
        figures = [figure for figure in seen if figure is not None]
        assert figures[0] == 6 and figures == sorted(figures)
        assert len(world.usage.measured) == 7 and figures[-1] > 6


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


async def test_a_runtime_without_figures_of_layers_costs_those_alone() -> None:
    world, _ = await with_pod()
    world.runtime.fail("ListContainerStats", "Unimplemented", times=1000)
    async with world:
        await world.until(lambda: "a" in world.pods.state)
        pod = (await ask(world, GetUsage(max_age_files_seconds=0.0))).pods[0]
        assert pod.volumes and pod.containers[0].rootfs is None
