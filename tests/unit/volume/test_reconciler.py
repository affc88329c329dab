"""The difference between what is wanted and what is mounted, and what followers are told of it."""

from typing import Any

import pytest

from bus.messages.event import KubeEvent
from bus.messages.podsync import AdmittedPod, PodState
from bus.messages.volume import VolumeState
from services.volume.core.actual_state_of_world import ActualStateOfWorld
from services.volume.core.desired_state_of_world import DesiredStateOfWorld
from services.volume.core.operations import (
    MakePodDirectories,
    MountVolume,
    Operation,
    RemovePodDirectory,
    UnmountVolume,
)
from services.volume.core.outcome import FoundVolume, Outcome
from services.volume.core.payload import Patience
from services.volume.core.reconciler import ORPHAN_GRACE, QUIET, Reconciler
from services.volume.core.volume_source import Node, volume_source

VOLUMES = [
    {"name": "cache", "emptyDir": {}},
    {"name": "shm", "emptyDir": {"medium": "Memory"}},
    {"name": "host", "hostPath": {"path": "/srv"}},
    {"name": "key", "nfs": {"server": "s"}},
    {"name": "cfg", "configMap": {"name": "x", "defaultMode": 0o644}},
]
CFG = "ConfigMap/default/x"


class World:
    """A reconciler, the time, and the pods it hears of."""

    def __init__(self) -> None:
        desired = DesiredStateOfWorld(lambda pod, name: volume_source(pod, name, Node()))
        self.reconciler = Reconciler(desired, ActualStateOfWorld())
        self.now = 100.0
        self.heard()

    def heard(self, *, complete: bool = True, stale: bool = False) -> None:
        self.reconciler.desired.heard(complete=complete, stale=stale)

    def admit(self, *volumes: str, state: PodState = PodState.SYNC, spec: list[dict[str, Any]] | None = None) -> None:
        metadata = {"name": "web", "namespace": "default", "uid": "u"}
        pod = {"metadata": metadata, "spec": {"volumes": VOLUMES if spec is None else spec}}
        self.reconciler.desired.admit(
            AdmittedPod(uid="u", name="web", namespace="default", state=state, pod=pod, volumes=volumes)
        )

    def operations(self) -> list[Operation]:
        return self.reconciler.operations(self.now)

    def started(self) -> list[str]:
        """The operations started now, as text."""
        return [f"{type(operation).__name__} {operation.volume}".strip() for operation in self.operations()]

    def finish(self, operation: Operation, error: str = "") -> list[str]:
        outcome = Outcome(host_path="" if error else f"/p/{operation.volume}", error=error)
        done = self.reconciler.done(operation, self.now, outcome)
        return [] if done.event is None else [done.event.message]

    def finish_all(self) -> None:
        """Perform everything there is to do, successfully."""
        for _ in range(10):
            for operation in self.operations():
                self.finish(operation)

    def view(self) -> dict[str, tuple[str, str]] | None:
        view = self.reconciler.view("u")
        if view is None:
            return None
        return {name: (volume.state.value, volume.host_path or volume.error) for name, volume in view.volumes.items()}


@pytest.fixture
def world() -> World:
    return World()


def test_wanted_volumes_are_mounted_and_told(world: World) -> None:
    world.admit("cache", "host")
    assert world.started() == ["MountVolume cache", "MountVolume host"]
    assert world.started() == []  # they are under way
    assert world.reconciler.settling("u")


def test_followers_are_told_once_all_first_attempts_are_through(world: World) -> None:
    world.admit("cache", "shm")
    first, second = world.operations()
    world.finish(first)
    assert world.reconciler.settling("u")
    world.finish(second)
    assert not world.reconciler.settling("u")
    assert world.view() == {"cache": ("mounted", "/p/cache"), "shm": ("mounted", "/p/shm")}


def test_a_pod_without_volumes_gets_its_directories_and_nothing_is_told(world: World) -> None:
    world.admit()
    assert world.operations() == [MakePodDirectories("u")]
    world.finish(MakePodDirectories("u"))
    assert (world.started(), world.view()) == ([], None)


def test_a_failed_mount_is_told_recorded_and_tried_again_with_doubling_waits(world: World) -> None:
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


def test_an_error_is_told_at_once_though_other_volumes_are_still_under_way(world: World) -> None:
    world.admit("cache", "host")
    cache, _host = world.operations()
    world.finish(cache, "disk full")
    assert not world.reconciler.settling("u")


def test_an_unsupported_type_is_an_error_and_one_event_and_no_operation(world: World) -> None:
    world.admit("key", "cache")
    assert world.started() == ["MountVolume cache"]
    message = 'MountVolume.SetUp failed for volume "key" : volume type nfs is not supported yet'
    assert [event.message for event in world.reconciler.refusals()] == [message]
    assert world.reconciler.refusals() == []
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


def test_a_failed_unmount_is_told_and_tried_again(world: World) -> None:
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


def test_the_directory_of_a_finished_pod_goes_after_its_volumes(world: World) -> None:
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
    assert world.view() == {"cache": ("pending", "")}  # nobody may use what is about to go
    assert not world.reconciler.still_due(unmount, world.now)
    world.reconciler.abandoned(unmount)
    assert world.view() == {"cache": ("mounted", "/p/cache")}
    assert world.started() == []


def test_a_volume_wanted_again_during_its_teardown_is_mounted_anew(world: World) -> None:
    world.admit("cache")
    world.finish_all()
    world.admit(state=PodState.TERMINATED)
    (unmount,) = world.operations()
    world.admit("cache")
    world.finish(unmount)
    assert world.view() == {"cache": ("pending", "")}
    assert world.started() == ["MountVolume cache"]


@pytest.mark.parametrize("doubt", [(False, False), (True, True)])
def test_what_waited_for_its_turn_is_not_due_when_podsync_is_in_doubt(world: World, doubt: tuple[bool, bool]) -> None:
    world.admit("cache")
    world.finish_all()
    world.reconciler.desired.withdraw("u")
    (unmount,) = world.operations()
    complete, stale = doubt
    world.heard(complete=complete, stale=stale)
    assert not world.reconciler.still_due(unmount, world.now)


def test_what_a_new_podsync_does_not_list_has_a_grace_in_which_it_may_be_found_again(world: World) -> None:
    world.admit("cache")
    world.finish_all()
    world.heard(complete=False, stale=False)  # another incarnation
    world.reconciler.desired.withdraw("u")  # whose list lacks the pod
    world.heard()
    assert world.started() == []
    world.admit("cache")
    world.now += ORPHAN_GRACE
    assert world.started() == []
    assert world.view() == {"cache": ("mounted", "/p/cache")}


def test_what_a_new_podsync_does_not_list_goes_after_the_grace(world: World) -> None:
    world.admit("cache")
    world.finish_all()
    world.heard(complete=False, stale=False)
    world.reconciler.desired.withdraw("u")
    world.heard()
    assert world.started() == []
    world.now += ORPHAN_GRACE
    assert world.started() == ["UnmountVolume cache"]


@pytest.mark.parametrize("state", [PodState.TERMINATED, PodState.FINISHED])
def test_nothing_is_taken_away_on_stale_or_incomplete_word(world: World, state: PodState) -> None:
    world.admit("cache")
    world.finish_all()
    world.admit(state=state)
    world.heard(complete=True, stale=True)
    assert world.started() == []
    world.heard(complete=False, stale=False)
    assert world.started() == []
    world.heard()
    assert world.started() == ["UnmountVolume cache"]


def test_new_pods_are_mounted_even_on_stale_word(world: World) -> None:
    world.heard(complete=False, stale=True)
    world.admit("cache")
    assert world.started() == ["MountVolume cache"]


def test_a_withdrawn_pod_is_cleaned_up_at_once(world: World) -> None:
    world.admit("cache")
    world.finish_all()
    world.reconciler.desired.withdraw("u")
    assert world.started() == ["UnmountVolume cache"]
    world.finish(UnmountVolume("u", "cache"))
    assert world.started() == ["RemovePodDirectory"]


def test_what_was_found_at_start_is_told_and_kept_until_podsync_has_spoken(world: World) -> None:
    world.heard(complete=False, stale=False)
    world.reconciler.found("u", [FoundVolume("cache")])
    world.now += 1000
    assert world.started() == []
    assert world.view() == {"cache": ("pending", "")}


def test_what_was_found_and_is_wanted_is_set_up_again(world: World) -> None:
    world.heard(complete=False, stale=False)
    world.reconciler.found("u", [FoundVolume("cache")])
    world.admit("cache")
    assert world.started() == ["MountVolume cache"]


def test_what_was_found_of_a_terminating_pod_is_set_up_again_but_nothing_new_is_mounted(world: World) -> None:
    world.reconciler.found("u", [FoundVolume("cache")])
    world.admit("cache", "host", state=PodState.TERMINATING)
    assert world.started() == ["MountVolume cache"]


def test_an_orphan_is_torn_down_only_after_a_complete_list_and_a_grace(world: World) -> None:
    world.heard(complete=False, stale=False)
    world.reconciler.found("u", [FoundVolume("cache")])
    world.operations()
    world.heard()
    assert world.started() == []
    assert world.reconciler.next_attempt(world.now) == world.now + ORPHAN_GRACE
    world.now += ORPHAN_GRACE
    assert world.started() == ["UnmountVolume cache"]
    world.finish(UnmountVolume("u", "cache"))
    assert world.started() == ["RemovePodDirectory"]
    world.finish(RemovePodDirectory("u"))
    assert world.view() is None


def test_the_grace_of_an_orphan_starts_over_when_the_list_was_in_doubt(world: World) -> None:
    world.reconciler.found_directory("u")
    world.operations()
    world.heard(complete=True, stale=True)
    world.now += ORPHAN_GRACE
    world.operations()
    world.heard()
    assert world.started() == []
    world.now += ORPHAN_GRACE
    assert world.started() == ["RemovePodDirectory"]


def test_a_directory_that_appears_before_its_pod_is_left_alone(world: World) -> None:
    world.reconciler.found_directory("u")
    assert world.started() == []
    world.now += ORPHAN_GRACE / 2
    world.admit()
    assert world.started() == ["MakePodDirectories"]
    world.now += ORPHAN_GRACE
    world.finish(MakePodDirectories("u"))
    assert world.started() == []


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


def shown(version: str = "1", refresh_at: float | None = None) -> Outcome:
    return Outcome(host_path="/p/cfg", versions={CFG: version}, refresh_at=refresh_at)


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


def test_news_of_an_object_ends_the_wait_of_a_volume_that_lacks_it(world: World) -> None:
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


@pytest.mark.parametrize("patience", [Patience.LAGGING, Patience.UNANSWERED])
def test_a_failure_that_is_expected_to_pass_is_told_only_after_a_while(world: World, patience: Patience) -> None:
    world.admit("cfg")
    began = world.now
    told: list[KubeEvent] = []
    while not told:
        (operation,) = world.operations()
        done = world.reconciler.done(operation, world.now, Outcome(error="away", patience=patience))
        assert (done.event is None) is (done.quiet)
        assert (world.view() or {})["cfg"][0] == ("pending" if done.quiet else "error")
        told = [done.event] if done.event else []
        if patience is Patience.UNANSWERED:
            assert done.retry_in == 0.5
        world.now += done.retry_in
    assert world.now - began >= QUIET


@pytest.mark.parametrize("whole", [True, False])
def test_files_found_at_start_are_mounted_if_they_are_whole_and_brought_up_to_date(world: World, whole: bool) -> None:
    world.reconciler.found("u", [FoundVolume("cfg", "kubernetes.io/configmap", "/p/cfg", whole=whole)])
    world.admit("cfg")
    assert world.view() == {"cfg": ("mounted", "/p/cfg") if whole else ("pending", "")}
    assert world.started() == ["MountVolume cfg"]


def test_files_that_nobody_wants_any_more_are_torn_down_once(world: World) -> None:
    with_files(world)
    world.admit(state=PodState.FINISHED)
    assert world.started() == ["UnmountVolume cfg"]
    world.finish(UnmountVolume("u", "cfg"))
    world.reconciler.refresh_all()
    assert world.started() == ["RemovePodDirectory"]
