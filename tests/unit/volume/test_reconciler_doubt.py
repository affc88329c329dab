"""What is found at a start, or known from a stale or incomplete list only, is not unmounted too early."""

import pytest

from bus.messages.podsync import PodState
from services.volume.core.mounting.orphans import ORPHAN_GRACE_SECONDS
from services.volume.core.operations.operations import MakePodDirectories, RemovePodDirectory, UnmountVolume
from services.volume.core.operations.outcome import FoundVolume
from tests.unit.volume.reconciling import World


@pytest.mark.parametrize("doubt", [(False, False), (True, True)])
def test_what_waited_for_its_turn_is_not_due_when_podsync_is_in_doubt(world: World, doubt: tuple[bool, bool]) -> None:
    world.admit("cache")
    world.finish_all()
    world.reconciler.desired.withdraw("u")
    (unmount,) = world.operations()
    complete, stale = doubt
    world.set_freshness(complete=complete, stale=stale)
    assert not world.reconciler.still_due(unmount, world.now)


def test_what_a_new_podsync_does_not_list_has_a_grace_in_which_it_may_be_found_again(world: World) -> None:
    world.admit("cache")
    world.finish_all()
    world.set_freshness(complete=False, stale=False)  # another incarnation
    world.reconciler.desired.withdraw("u")  # whose list lacks the pod
    world.set_freshness()
    assert world.started() == []
    world.admit("cache")
    world.now += ORPHAN_GRACE_SECONDS
    assert world.started() == []
    assert world.view() == {"cache": ("mounted", "/p/cache")}


def test_what_a_new_podsync_does_not_list_is_unmounted_after_the_grace(world: World) -> None:
    world.admit("cache")
    world.finish_all()
    world.set_freshness(complete=False, stale=False)
    world.reconciler.desired.withdraw("u")
    world.set_freshness()
    assert world.started() == []
    world.now += ORPHAN_GRACE_SECONDS
    assert world.started() == ["UnmountVolume cache"]


@pytest.mark.parametrize("state", [PodState.TERMINATED, PodState.FINISHED])
def test_nothing_is_unmounted_on_a_stale_or_incomplete_list(world: World, state: PodState) -> None:
    world.admit("cache")
    world.finish_all()
    world.admit(state=state)
    world.set_freshness(complete=True, stale=True)
    assert world.started() == []
    world.set_freshness(complete=False, stale=False)
    assert world.started() == []
    world.set_freshness()
    assert world.started() == ["UnmountVolume cache"]


def test_new_pods_are_mounted_even_on_a_stale_list(world: World) -> None:
    world.set_freshness(complete=False, stale=True)
    world.admit("cache")
    assert world.started() == ["MountVolume cache"]


def test_what_was_found_at_start_is_published_and_kept_until_the_list_is_complete(world: World) -> None:
    world.set_freshness(complete=False, stale=False)
    world.reconciler.add_volumes_on_disk("u", [FoundVolume("cache")])
    world.now += 1000
    assert world.started() == []
    assert world.view() == {"cache": ("pending", "")}


def test_what_was_found_and_is_wanted_is_set_up_again(world: World) -> None:
    world.set_freshness(complete=False, stale=False)
    world.reconciler.add_volumes_on_disk("u", [FoundVolume("cache")])
    world.admit("cache")
    assert world.started() == ["MountVolume cache"]


def test_what_was_found_of_a_terminating_pod_is_set_up_again_but_nothing_new_is_mounted(world: World) -> None:
    world.reconciler.add_volumes_on_disk("u", [FoundVolume("cache")])
    world.admit("cache", "host", state=PodState.TERMINATING)
    assert world.started() == ["MountVolume cache"]


def test_an_orphan_is_torn_down_only_after_a_complete_list_and_a_grace(world: World) -> None:
    world.set_freshness(complete=False, stale=False)
    world.reconciler.add_volumes_on_disk("u", [FoundVolume("cache")])
    world.operations()
    world.set_freshness()
    assert world.started() == []
    assert world.reconciler.next_attempt(world.now) == world.now + ORPHAN_GRACE_SECONDS
    world.now += ORPHAN_GRACE_SECONDS
    assert world.started() == ["UnmountVolume cache"]
    world.finish(UnmountVolume("u", "cache"))
    assert world.started() == ["RemovePodDirectory"]
    world.finish(RemovePodDirectory("u"))
    assert world.view() is None


def test_the_grace_of_an_orphan_starts_over_when_the_list_was_in_doubt(world: World) -> None:
    world.reconciler.actual.directories.add("u")
    world.operations()
    world.set_freshness(complete=True, stale=True)
    world.now += ORPHAN_GRACE_SECONDS
    world.operations()
    world.set_freshness()
    assert world.started() == []
    world.now += ORPHAN_GRACE_SECONDS
    assert world.started() == ["RemovePodDirectory"]


def test_a_directory_that_appears_before_its_pod_is_left_alone(world: World) -> None:
    world.reconciler.actual.directories.add("u")
    assert world.started() == []
    world.now += ORPHAN_GRACE_SECONDS / 2
    world.admit()
    assert world.started() == ["MakePodDirectories"]
    world.now += ORPHAN_GRACE_SECONDS
    world.finish(MakePodDirectories("u"))
    assert world.started() == []
