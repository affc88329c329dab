"""The difference between what pods need and what is mounted, and what is published about it."""

import pytest

from bus.messages.podsync import PodState
from bus.messages.volume import VolumeState
from services.volume.core.operations.operations import (
    MakePodDirectories,
    MountVolume,
    RemovePodDirectory,
    UnmountVolume,
)
from services.volume.core.operations.outcome import Outcome
from shared.podspec.support import why_unmounted
from tests.unit.volume.reconciling import World


def test_the_volumes_of_a_pod_are_mounted(world: World) -> None:
    world.admit("cache", "host")
    assert world.started() == ["MountVolume cache", "MountVolume host"]
    assert world.started() == []  # they are under way
    assert world.reconciler.settling("u")


def test_a_pod_is_published_once_all_first_attempts_have_ended(world: World) -> None:
    world.admit("cache", "shm")
    first, second = world.operations()
    world.finish(first)
    assert world.reconciler.settling("u")
    world.finish(second)
    assert not world.reconciler.settling("u")
    assert world.view() == {"cache": ("mounted", "/p/cache"), "shm": ("mounted", "/p/shm")}


def test_a_pod_without_volumes_gets_its_directories_and_nothing_is_published(world: World) -> None:
    world.admit()
    assert world.operations() == [MakePodDirectories("u")]
    world.finish(MakePodDirectories("u"))
    assert (world.started(), world.view()) == ([], None)


def test_a_failed_mount_is_published_recorded_and_tried_again_with_doubling_waits(world: World) -> None:
    world.admit("host")
    waits = []
    for _ in range(10):
        (operation,) = world.operations()
        message = 'MountVolume.SetUp failed for volume "host" : no such thing'
        assert world.finish(operation, "no such thing") == [message]
        assert world.view() == {"host": ("error", message)}
        assert world.started() == []
        moment = world.reconciler.next_attempt(world.now)
        assert moment is not None
        waits.append(moment - world.now)
        world.now = moment
    assert waits == pytest.approx([0.5, 1, 2, 4, 8, 16, 32, 64, 122, 122])
    (operation,) = world.operations()
    world.finish(operation)
    assert world.view() == {"host": ("mounted", "/p/host")}


def test_an_error_is_published_at_once_while_other_volumes_are_being_mounted(world: World) -> None:
    world.admit("cache", "host")
    cache, _host = world.operations()
    world.finish(cache, "disk full")
    assert not world.reconciler.settling("u")


def test_an_unsupported_type_is_an_error_and_one_event_and_no_operation(world: World) -> None:
    world.admit("key", "cache")
    assert world.started() == ["MountVolume cache"]
    message = f'MountVolume.SetUp failed for volume "key" : {why_unmounted("rbd")}'
    assert [event.message for event in world.reconciler.events("u", world.now)] == [message]
    assert world.reconciler.events("u", world.now) == []
    assert (world.view() or {})["key"] == ("error", message)


def test_a_volume_that_is_not_wanted_any_more_is_unmounted_and_then_forgotten(world: World) -> None:
    world.admit("cache", "host")
    world.finish_all()
    world.admit(state=PodState.TERMINATED)
    assert world.operations() == [UnmountVolume("u", "cache")]
    assert world.view() == {"cache": (VolumeState.UNMOUNTING.value, "/p/cache")}
    world.finish(UnmountVolume("u", "cache"))
    assert world.view() is None
    assert world.started() == []  # the directory stays until podsync is finished


def test_a_failed_unmount_is_published_and_tried_again(world: World) -> None:
    world.admit("cache")
    world.finish_all()
    world.admit(state=PodState.TERMINATED)
    (operation,) = world.operations()
    assert world.finish(operation, "busy") == []  # the kubelet records no event
    view = world.reconciler.view("u")
    assert view is not None
    assert view.volumes["cache"].error == 'UnmountVolume.TearDown failed for volume "cache" : busy'
    world.now += 0.5
    assert world.started() == ["UnmountVolume cache"]


def test_a_volume_is_not_mounted_while_the_unmount_that_hung_is_under_way(world: World) -> None:
    world.admit("cache")
    world.finish_all()
    world.admit(state=PodState.TERMINATED)
    (unmount,) = world.operations()
    world.reconciler.done(unmount, world.now, Outcome(error="it does not answer", under_way=True))
    world.admit("cache")
    world.now += 1000
    assert world.started() == []
    assert world.view() == {"cache": ("pending", "")}
    world.reconciler.returned(unmount)
    assert world.started() == ["MountVolume cache"]
    world.reconciler.returned(unmount)
    assert world.started() == [], "the mount runs"


def test_an_unmount_that_has_returned_ends_no_wait_of_another_volume(world: World) -> None:
    world.admit("cache", "shm")
    (cache, shm) = world.operations()
    world.finish(cache)
    world.finish(shm, "no space left on device")
    world.reconciler.returned(UnmountVolume("v", "cache"))
    assert world.started() == []


def test_the_directory_of_a_finished_pod_is_removed_after_its_volumes(world: World) -> None:
    world.admit("cache")
    world.finish_all()
    world.admit(state=PodState.FINISHED)
    assert world.started() == ["UnmountVolume cache"]
    world.finish(UnmountVolume("u", "cache"))
    assert world.started() == ["RemovePodDirectory"]
    world.finish(RemovePodDirectory("u"))
    assert world.started() == []
    world.reconciler.desired.withdraw("u")
    assert world.started() == []


def test_a_mount_under_way_is_awaited_before_anything_is_taken_away(world: World) -> None:
    world.admit("cache")
    (mount,) = world.operations()
    world.admit(state=PodState.FINISHED)
    assert world.started() == []
    world.finish(mount)
    assert world.started() == ["UnmountVolume cache"]


def test_a_pod_that_comes_back_while_its_directory_is_removed_waits_for_that(world: World) -> None:
    world.admit("cache")
    world.finish_all()
    world.admit(state=PodState.FINISHED)
    (unmount,) = world.operations()
    world.finish(unmount)
    (removal,) = world.operations()
    world.admit("cache")
    assert world.started() == []
    assert world.view() == {"cache": ("pending", "")}
    world.finish(removal)
    assert world.started() == ["MountVolume cache"]


def test_a_removal_that_waited_for_its_turn_is_not_due_once_the_pod_is_back(world: World) -> None:
    world.admit("cache")
    world.finish_all()
    world.admit(state=PodState.FINISHED)
    (unmount,) = world.operations()
    assert world.reconciler.still_due(unmount, world.now)
    world.finish(unmount)
    (removal,) = world.operations()
    assert world.reconciler.still_due(removal, world.now)
    world.admit("cache")
    assert not world.reconciler.still_due(removal, world.now)
    world.reconciler.abandoned(removal)
    assert world.started() == ["MountVolume cache"]


def test_a_teardown_that_waited_for_its_turn_is_not_due_once_the_volume_is_wanted_again(world: World) -> None:
    world.admit("cache")
    world.finish_all()
    world.admit(state=PodState.TERMINATED)
    (unmount,) = world.operations()
    world.admit("cache")
    assert world.view() == {"cache": ("pending", "")}  # no container may use what is about to be removed
    assert not world.reconciler.still_due(unmount, world.now)
    world.reconciler.abandoned(unmount)
    assert world.view() == {"cache": ("mounted", "/p/cache")}
    assert world.started() == []


def test_a_volume_wanted_again_during_its_teardown_is_mounted_again(world: World) -> None:
    world.admit("cache")
    world.finish_all()
    world.admit(state=PodState.TERMINATED)
    (unmount,) = world.operations()
    world.admit("cache")
    world.finish(unmount)
    assert world.view() == {"cache": ("pending", "")}
    assert world.started() == ["MountVolume cache"]


def test_a_withdrawn_pod_is_cleaned_up_at_once(world: World) -> None:
    world.admit("cache")
    world.finish_all()
    world.reconciler.desired.withdraw("u")
    assert world.started() == ["UnmountVolume cache"]
    world.finish(UnmountVolume("u", "cache"))
    assert world.started() == ["RemovePodDirectory"]


def test_a_host_path_whose_spec_changed_is_checked_again(world: World) -> None:
    world.admit("host")
    world.finish_all()
    world.admit("host", spec=[{"name": "host", "hostPath": {"path": "/other"}}])
    (operation,) = world.operations()
    assert isinstance(operation, MountVolume)
    assert world.reconciler.settling("u")


def test_a_directory_that_cannot_be_removed_is_tried_again(world: World) -> None:
    world.admit()
    world.finish_all()
    world.admit(state=PodState.FINISHED)
    (removal,) = world.operations()
    world.finish(removal, "not empty")
    assert world.started() == []
    world.now += 0.5
    assert world.started() == ["RemovePodDirectory"]


def test_all_that_belongs_to_the_pod_may_be_relabelled(world: World) -> None:
    world.admit("cache", "shm", "host", "cfg")
    world.finish_all()
    view = world.reconciler.view("u")
    assert view is not None
    assert {name: volume.selinux_relabel for name, volume in view.volumes.items()} == {
        "cache": True,
        "shm": True,
        "host": False,
        "cfg": True,
    }
