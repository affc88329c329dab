"""Image garbage collection on a fake runtime: what is removed when the filesystem fills up, and what is reported."""

from pathlib import Path

from shared.cri.interface import ImageStatus
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.test_eviction import MIB, PressedStage, pressed_stage

YOUNG = 120.0  # seconds; images that are not older stay


def runtime_with(*sizes: int) -> FakeRuntime:
    """A runtime with the image of the pods and others of these sizes in MiB."""
    runtime = FakeRuntime(images=["busybox:1"])
    for number, size in enumerate(sizes):
        name = f"old{number}:1"
        runtime.images[name] = ImageStatus(id=f"id{number}", size=size * MIB, repo_tags=(name,))
    return runtime


async def collected(stage: PressedStage) -> set[str]:
    """Collect once; the names of the images that are left."""
    await stage.podsync.housekeeping.image_collection.collect()
    await stage.network.settle()
    return {name for name in stage.runtime.images if name.endswith(":1")}


def reasons(stage: PressedStage) -> list[str]:
    return [event.reason for event in stage.events.state.values() if event.kind == "Node"]


async def test_unused_images_are_removed_until_the_use_is_at_the_low_threshold(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, runtime_with(60, 60, 60)) as stage:
        await stage.pods_that_run("one")
        assert await collected(stage) == {"busybox:1", "old0:1", "old1:1", "old2:1"}
        stage.network.clock.advance(YOUNG)
        stage.disk = 100 * MIB  # of 1000: 90 % used, 100 MiB too many
        assert await collected(stage) == {"busybox:1", "old2:1"}
        assert stage.counted("kubelet_image_garbage_collected_total") == {("space",): [2.0]}
        assert reasons(stage) == []


async def test_the_images_are_listed_at_the_start_from_which_their_age_counts(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, runtime_with(60), image_minimum_gc_age=2.0) as stage:
        await stage.pods_that_run("one")
        stage.network.clock.advance(2.0)
        await stage.podsync.housekeeping.image_collection.remove_unused()
        assert "old0:1" not in stage.runtime.images


async def test_a_young_image_stays_and_the_second_failure_is_an_event(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, runtime_with(60)) as stage:
        stage.disk = 100 * MIB
        assert await collected(stage) == {"busybox:1", "old0:1"}
        assert reasons(stage) == ["FreeDiskSpaceFailed"]
        await collected(stage)
        assert reasons(stage) == ["FreeDiskSpaceFailed", "FreeDiskSpaceFailed", "ImageGCFailed"]


async def test_nothing_is_removed_before_all_pods_are_known(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, runtime_with(60)) as stage:
        stage.podsync.housekeeping.all_known.clear()
        stage.network.clock.advance(YOUNG)
        stage.disk = 100 * MIB
        await collected(stage)
        stage.network.clock.advance(YOUNG)
        assert await collected(stage) == {"busybox:1", "old0:1"}


async def test_the_image_of_an_exited_container_and_one_that_cannot_be_removed_stay(tmp_path: Path) -> None:
    async with pressed_stage(tmp_path, runtime_with(60, 60)) as stage:
        await stage.pods_that_run("one")
        await collected(stage)
        stage.network.clock.advance(YOUNG)
        stage.disk = 150 * MIB
        stage.runtime.fail("RemoveImage", "Internal", "no")
        assert await collected(stage) == {"busybox:1", "old0:1"}
        assert await collected(stage) == {"busybox:1"}
        assert reasons(stage) == []


async def test_an_image_that_was_not_used_for_longer_than_the_maximum_age_goes_from_a_filesystem_with_room(
    tmp_path: Path,
) -> None:
    async with pressed_stage(tmp_path, runtime_with(60), image_maximum_gc_age=1000.0) as stage:
        await stage.pods_that_run("one")
        assert "old0:1" in await collected(stage)
        stage.network.clock.advance(1001.0)
        assert await collected(stage) == {"busybox:1"}
        assert stage.counted("kubelet_image_garbage_collected_total") == {("age",): [1.0]}
