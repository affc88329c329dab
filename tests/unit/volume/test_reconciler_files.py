"""Volumes whose content changes while they are mounted: refreshed, kept through failures, found at a start."""

import pytest

from bus.messages.event import KubeEvent
from bus.messages.podsync import PodState
from services.volume.core.files.payload import FailureKind
from services.volume.core.operations.operations import RemoveOldFiles, UnmountVolume
from services.volume.core.operations.outcome import FoundVolume, Outcome
from services.volume.core.reconciler import QUIET_SECONDS
from tests.unit.volume.reconciling import CFG, World


def shown(version: str = "1", refresh_at: float | None = None, old_files_at: float | None = None) -> Outcome:
    return Outcome(host_path="/p/cfg", versions={CFG: version}, refresh_at=refresh_at, old_files_at=old_files_at)


def with_files(world: World) -> None:
    """A mounted configMap."""
    world.admit("cfg")
    (operation,) = world.operations()
    world.reconciler.done(operation, world.now, shown())


def test_a_changed_object_refreshes_once_and_a_version_that_is_shown_does_not(world: World) -> None:
    with_files(world)
    world.reconciler.object_changed(CFG, "1")
    world.reconciler.object_changed("ConfigMap/default/other", "2")
    assert world.started() == []
    world.reconciler.object_changed(CFG, "2")
    (operation,) = world.operations()
    assert world.view() == {"cfg": ("mounted", "/p/cfg")}
    assert not world.reconciler.settling("u")
    world.reconciler.done(operation, world.now, shown("2"))
    assert world.started() == []


def test_a_change_during_a_refresh_leads_to_another_one(world: World) -> None:
    with_files(world)
    world.reconciler.object_changed(CFG, "2")
    (operation,) = world.operations()
    world.reconciler.object_changed(CFG, "3")
    world.reconciler.done(operation, world.now, shown("2"))
    assert world.started() == ["MountVolume cfg"]


def test_a_refresh_falls_due_by_age_and_by_the_safety_net(world: World) -> None:
    with_files(world)
    world.reconciler.refresh_all()
    (operation,) = world.operations()
    world.reconciler.done(operation, world.now, shown(refresh_at=world.now + 50))
    assert world.reconciler.next_attempt(world.now) == world.now + 50
    assert world.started() == []
    world.now += 50
    assert world.started() == ["MountVolume cfg"]


def test_a_refresh_that_fails_keeps_the_volume_and_is_tried_again(world: World) -> None:
    with_files(world)
    world.reconciler.object_changed(CFG, "2")
    (operation,) = world.operations()
    assert world.finish(operation, "gone") == ['MountVolume.SetUp failed for volume "cfg" : gone']
    assert world.view() == {"cfg": ("mounted", "/p/cfg")}
    assert world.started() == []
    world.now += 0.5
    assert world.started() == ["MountVolume cfg"]


def test_a_change_of_an_object_ends_the_wait_of_a_volume_that_lacks_it(world: World) -> None:
    world.admit("cfg")
    for _ in range(8):
        (operation,) = world.operations()
        world.finish(operation, "not found")
        world.reconciler.object_changed(CFG, "1")
    assert world.started() == ["MountVolume cfg"]


def test_a_pod_that_ends_keeps_the_files_it_has(world: World) -> None:
    with_files(world)
    world.admit("cfg", state=PodState.TERMINATING)
    world.reconciler.object_changed(CFG, "2")
    assert world.started() == []
    assert world.view() == {"cfg": ("mounted", "/p/cfg")}


@pytest.mark.parametrize("kind", [FailureKind.LAGGING, FailureKind.UNANSWERED])
def test_a_failure_that_is_expected_to_end_soon_is_reported_only_after_a_while(world: World, kind: FailureKind) -> None:
    world.admit("cfg")
    began = world.now
    recorded: list[KubeEvent] = []
    while not recorded:
        (operation,) = world.operations()
        done = world.reconciler.done(operation, world.now, Outcome(error="away", kind=kind))
        assert (not done.events) is done.quiet
        assert (world.view() or {})["cfg"][0] == ("pending" if done.quiet else "error")
        recorded = list(done.events)
        if kind is FailureKind.UNANSWERED:
            assert done.retry_in == 0.5
        world.now += done.retry_in
    assert world.now - began >= QUIET_SECONDS


@pytest.mark.parametrize("complete", [True, False])
def test_files_found_at_start_are_mounted_if_they_are_complete_and_updated(world: World, complete: bool) -> None:
    world.reconciler.add_volumes_on_disk(
        "u", [FoundVolume("cfg", "kubernetes.io/configmap", "/p/cfg", complete=complete)]
    )
    world.admit("cfg")
    assert world.view() == {"cfg": ("mounted", "/p/cfg") if complete else ("pending", "")}
    assert world.started() == ["MountVolume cfg"]


def test_files_that_no_pod_needs_any_more_are_torn_down_once(world: World) -> None:
    with_files(world)
    world.admit(state=PodState.FINISHED)
    assert world.started() == ["UnmountVolume cfg"]
    world.finish(UnmountVolume("u", "cfg"))
    world.reconciler.refresh_all()
    assert world.started() == ["RemovePodDirectory"]


def test_old_files_are_removed_when_their_time_has_come(world: World) -> None:
    with_files(world)
    world.reconciler.object_changed(CFG, "2")
    (operation,) = world.operations()
    world.reconciler.done(operation, world.now, shown("2", old_files_at=world.now + 1))
    assert world.reconciler.next_attempt(world.now) == world.now + 1
    assert world.started() == []
    world.now += 1
    (removal,) = world.operations()
    assert removal == RemoveOldFiles("u", "cfg", "kubernetes.io/configmap")
    world.reconciler.done(removal, world.now, Outcome(error="busy"))
    assert world.view() == {"cfg": ("mounted", "/p/cfg")}
    world.now += 0.5
    (removal,) = world.operations()
    world.reconciler.done(removal, world.now, Outcome(old_files_at=world.now + 1))
    assert world.started() == []
    world.now += 1
    (removal,) = world.operations()
    world.reconciler.done(removal, world.now, Outcome())
    world.now += 100
    assert world.started() == []


def test_a_change_goes_before_the_removal_of_old_files(world: World) -> None:
    with_files(world)
    world.reconciler.object_changed(CFG, "2")
    (operation,) = world.operations()
    world.reconciler.done(operation, world.now, shown("2", old_files_at=world.now + 1))
    world.now += 1
    (removal,) = world.operations()
    world.reconciler.object_changed(CFG, "3")
    assert not world.reconciler.still_due(removal, world.now)
    world.reconciler.abandoned(removal)
    assert world.started() == ["MountVolume cfg"]


def test_a_volume_is_not_torn_down_while_its_old_files_are_removed(world: World) -> None:
    with_files(world)
    world.reconciler.refreshes.keeps_old_files(("u", "cfg"), world.now)
    (removal,) = world.operations()
    world.admit(state=PodState.FINISHED)
    assert world.started() == []
    world.reconciler.done(removal, world.now, Outcome())
    assert world.started() == ["UnmountVolume cfg"]
