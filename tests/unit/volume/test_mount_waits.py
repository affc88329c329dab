"""The Event about a pod whose volumes are missing, and the waits after unexpected errors."""

from bus.messages.podsync import PodState
from services.volume.core.operations.operations import (
    Kind,
    MakePodDirectories,
    MountVolume,
    Operation,
    RemovePodDirectory,
    UnmountVolume,
    kind_of,
)
from services.volume.core.specs.volume_spec import Node, VolumeSpec
from services.volume.plugins.registry import volume_spec
from shared.model.objects import Object
from shared.pods.failures import RETRIES, PodFailures
from shared.podspec.support import why_unmounted
from tests.unit.volume.reconciling import World

MISSING = "Unable to attach or mount volumes: unmounted volumes=[{}], unattached volumes=[], "


def messages(world: World) -> list[str]:
    return [event.message for event in world.reconciler.events("u", world.now)]


def test_volumes_that_are_not_mounted_after_two_minutes_and_three_seconds_are_an_event() -> None:
    world = World()
    world.admit("shm", "cache")
    text = MISSING.format("cache shm") + "failed to process volumes=[]: context deadline exceeded"
    world.operations()
    assert messages(world) == []
    assert world.reconciler.next_attempt(world.now) == world.now + 123.0
    world.now += 122.9
    assert messages(world) == []
    world.now += 0.1
    (event,) = world.reconciler.events("u", world.now)
    assert (event.type, event.reason, event.message) == ("Warning", "FailedMount", text)
    assert (event.namespace, event.name, event.uid) == ("default", "web", "u")
    assert messages(world) == []
    world.now += 123.0
    assert messages(world) == [text]


def test_the_event_names_only_what_is_missing_and_comes_no_more_once_all_is_mounted() -> None:
    world = World()
    world.admit("cache", "host")
    operations = world.operations()
    assert messages(world) == []
    world.finish(operations[0])
    world.now += 123.0
    assert messages(world) == [MISSING.format("host") + "failed to process volumes=[]: context deadline exceeded"]
    world.finish(operations[1])
    world.now += 123.0
    assert messages(world) == []


def test_a_volume_that_cannot_be_mounted_at_all_is_one_that_failed_to_be_processed() -> None:
    world = World()
    world.admit("key")
    assert len(messages(world)) == 1
    world.now += 123.0
    why = why_unmounted("rbd")
    assert messages(world) == [MISSING.format("key") + f"failed to process volumes=[key]: {why}"]


def test_a_pod_that_ends_or_is_gone_waits_for_nothing() -> None:
    world = World()
    world.admit("cache")
    world.operations()
    assert messages(world) == []
    world.now += 200.0
    world.admit("cache", state=PodState.TERMINATING)
    assert messages(world) == []
    world.admit("cache")
    world.now += 122.0
    assert messages(world) == []
    world.reconciler.desired.withdraw("u")
    world.reconciler.pods()
    assert world.reconciler.next_attempt(world.now) is None


def spec(volume: Object) -> VolumeSpec:
    read = volume_spec({"spec": {"volumes": [{"name": "v", **volume}]}}, "v", Node())
    assert isinstance(read, VolumeSpec)
    return read


def test_what_may_hang_or_take_long_has_places_of_its_own() -> None:
    kinds: dict[Operation, Kind] = {
        MountVolume("u", "v", spec({"hostPath": {"path": "/srv", "type": "Directory"}})): Kind.HOST_PATH,
        MountVolume("u", "v", spec({"hostPath": {"path": "/srv"}})): Kind.LOCAL,
        MountVolume("u", "v", spec({"emptyDir": {}})): Kind.LOCAL,
        MakePodDirectories("u"): Kind.LOCAL,
        UnmountVolume("u", "v"): Kind.REMOVAL,
        RemovePodDirectory("u"): Kind.REMOVAL,
    }
    assert {operation: kind_of(operation) for operation in kinds} == kinds


def test_an_unexpected_error_waits_twice_as_long_each_time_and_is_logged_once_in_ten_minutes() -> None:
    failures, now, logged = PodFailures(), 0.0, []
    for _ in range(12):
        logged.append(failures.failed("u", "reconciliation", KeyError("x"), now))
        assert not failures.may_try("u", "reconciliation", now)
        due = failures.next_attempt(now)
        assert due is not None and due - now <= RETRIES.cap
        now = due
        assert failures.may_try("u", "reconciliation", now)
    assert logged == [True] + [False] * 10 + [True]
    assert failures.failed("u", "reconciliation", TypeError("x"), now)


def test_the_line_about_errors_is_short_and_ends_with_its_pods() -> None:
    failures = PodFailures()
    for number in range(100):
        failures.failed(f"u{number:02}", "reconciliation", KeyError("x"), 0.0)
    line = failures.line
    assert line is not None and line.startswith("reconciliation of pod u00 failed: KeyError; ")
    assert "95 more" in line and len(line) < 400
    failures.keep({"u01", "u02"})
    failures.ended("u01", "reconciliation")
    line = failures.line
    assert line is not None and line.startswith("reconciliation of pod u02 failed: KeyError; it is")
