"""The order between what is bound for containers and what is unmounted, and volumes that are images."""

from bus.messages.podsync import PodState
from services.volume.core.operations.operations import MountVolume, UnmountVolume
from services.volume.core.operations.outcome import FoundVolume
from tests.unit.volume.reconciling import World

ENDED = PodState.TERMINATED


def mounted(*volumes: str) -> World:
    world = World()
    world.admit(*volumes)
    world.finish_all()
    return world


def test_a_subpath_needs_a_volume_that_is_mounted_for_its_pod() -> None:
    world = World()
    assert world.reconciler.begin_subpath("u", "host") == ""  # of an unknown pod
    world.admit("host")
    assert world.reconciler.begin_subpath("u", "host") == ""  # not mounted yet
    world.finish_all()
    assert world.reconciler.begin_subpath("u", "host") == "/p/host"
    assert world.reconciler.begin_subpath("u", "cache") == ""  # not wanted


def test_a_host_path_without_subpaths_has_nothing_to_unmount() -> None:
    world = mounted("host")
    world.admit(state=ENDED)
    assert (world.started(), world.view()) == ([], None)


def test_a_host_path_with_subpaths_is_unmounted_before_the_pod_is_published_as_unmounted() -> None:
    world = mounted("host")
    world.reconciler.begin_subpath("u", "host")
    world.reconciler.end_subpath("u", "host")
    world.admit(state=PodState.FINISHED)
    (operation,) = world.operations()
    assert (operation, world.view()) == (UnmountVolume("u", "host"), {"host": ("unmounting", "/p/host")})
    world.finish(operation)
    assert (world.view(), world.started()) == (None, ["RemovePodDirectory"])


def test_nothing_is_unmounted_while_a_part_of_it_is_being_bound() -> None:
    world = mounted("cache")
    for _ in range(2):
        world.reconciler.begin_subpath("u", "cache")
    world.admit(state=ENDED)
    for _ in range(2):
        assert world.started() == []
        world.reconciler.end_subpath("u", "cache")
    assert world.started() == ["UnmountVolume cache"]


def test_no_part_is_bound_while_the_volume_is_being_unmounted() -> None:
    world = mounted("cache")
    world.admit(state=ENDED)
    world.operations()
    assert world.reconciler.begin_subpath("u", "cache") == ""
    world.admit("cache")  # and it is wanted again
    assert world.reconciler.begin_subpath("u", "cache") == ""


def test_a_failed_clean_up_is_tried_again_and_keeps_the_pod_directory() -> None:
    world = mounted("host")
    world.reconciler.begin_subpath("u", "host")
    world.reconciler.end_subpath("u", "host")
    world.admit(state=PodState.FINISHED)
    (operation,) = world.operations()
    world.finish(operation, error="busy")
    assert world.started() == []
    world.now += 1
    assert world.started() == ["UnmountVolume host"]


def test_subpaths_found_at_start_are_used_on_and_go_with_the_volume() -> None:
    world = World()
    world.reconciler.add_volumes_on_disk("u", [FoundVolume("host", on_disk=False, subpaths=True)])
    world.admit("host")
    (operation,) = world.operations()
    assert isinstance(operation, MountVolume)
    world.finish(operation)
    world.admit(state=ENDED)
    assert world.started() == ["UnmountVolume host"]


def test_subpaths_of_a_pod_that_is_gone_are_unmounted() -> None:
    world = World()
    world.reconciler.add_volumes_on_disk("u", [FoundVolume("host", on_disk=False, subpaths=True)])
    assert world.started() == []  # its entry may not have arrived yet
    world.now += 3
    (operation,) = world.operations()
    assert operation == UnmountVolume("u", "host")
    world.finish(operation)
    assert world.started() == ["RemovePodDirectory"]


def test_a_refresh_does_not_forget_what_is_bound() -> None:
    world = mounted("cfg")
    world.reconciler.begin_subpath("u", "cfg")
    world.reconciler.end_subpath("u", "cfg")
    world.reconciler.refresh_all()
    world.finish_all()
    volume = world.reconciler.actual.get("u", "cfg")
    assert volume is not None and volume.subpaths


def test_an_image_is_mounted_without_anything_being_done() -> None:
    world = World()
    world.admit("image", spec=[{"name": "image", "image": {"reference": "r"}}])
    (operation,) = world.operations()
    world.reconciler.done(operation, world.now)
    shown = world.reconciler.view("u")
    assert shown is not None
    assert (shown.volumes["image"].state.value, shown.volumes["image"].read_only) == ("mounted", True)
    assert world.reconciler.begin_subpath("u", "image") == ""  # the runtime takes a part of an image by itself
    world.admit(state=ENDED)
    assert (world.started(), world.view()) == ([], None)
