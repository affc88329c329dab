"""What one pod or one object costs the reconciler does not grow with the number of the other pods."""

from collections.abc import Iterator
from typing import Any

import pytest

from bus.messages.podsync import PodState, PodVolumes
from services.volume.core.operations.operations import MountVolume
from services.volume.core.operations.outcome import Outcome
from services.volume.core.specs.volume_spec import VolumeSpec
from services.volume.core.world import desired_state_of_world
from services.volume.core.world.desired_state_of_world import DesiredVolumes
from tests.unit.volume.reconciling import World

PODS = 100


class Uid(str):
    """A UID that counts how often it is compared with another one."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Uid.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def admit(world: World, uid: str, *, state: PodState = PodState.SYNC) -> None:
    """A pod with a ConfigMap of its own, one that all pods show, and an emptyDir."""
    spec: list[dict[str, Any]] = [
        {"name": "own", "configMap": {"name": uid}},
        {"name": "all", "configMap": {"name": "all"}},
        {"name": "cache", "emptyDir": {}},
    ]
    pod = {"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": {"volumes": spec}}
    volumes = () if state is PodState.FINISHED else ("own", "all", "cache")
    world.reconciler.desired.admit(
        PodVolumes(uid=uid, name=uid, namespace="default", state=state, pod=pod, volumes=volumes)
    )


def mounted_world() -> World:
    """Every pod has its volumes."""
    world = World()
    for number in range(PODS):
        admit(world, Uid(f"u{number:03}"))
    world.finish_all()
    assert world.started() == []
    return world


def test_a_changed_object_looks_only_at_the_volumes_that_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world, looked_at = mounted_world(), 0
    shown = desired_state_of_world._shown

    def counted(pod: DesiredVolumes) -> Iterator[tuple[str, tuple[str, str]]]:
        nonlocal looked_at
        looked_at += 1
        return shown(pod)

    monkeypatch.setattr(desired_state_of_world, "_shown", counted)
    monkeypatch.setattr(world.reconciler.desired, "pods", {})
    for number in range(PODS):
        world.reconciler.object_changed(f"ConfigMap/default/u{number:03}", "1")
    world.reconciler.object_changed("ConfigMap/default/none", "1")
    assert looked_at == 0
    monkeypatch.undo()
    assert world.started() == ["MountVolume own"] * PODS


def test_a_common_object_refreshes_every_pod_that_shows_it_now() -> None:
    world = mounted_world()
    world.reconciler.desired.withdraw("u000")
    admit(world, "u001", state=PodState.FINISHED)
    world.reconciler.object_changed("ConfigMap/default/all", "1")
    refreshed = [operation.uid for operation in world.operations() if isinstance(operation, MountVolume)]
    assert refreshed == [f"u{number:03}" for number in range(2, PODS)]
    admit(world, "u000")
    assert ("u000", "all") in world.reconciler.desired.showing("ConfigMap/default/all")


def test_objects_that_no_pod_shows_any_more_are_forgotten() -> None:
    world = mounted_world()
    for number in range(PODS):
        world.reconciler.desired.withdraw(f"u{number:03}")
    assert world.reconciler.desired._showing == {}


def test_the_volumes_and_operations_of_one_pod_are_found_without_a_look_at_the_others() -> None:
    world = mounted_world()
    world.reconciler.refresh_all()
    under_way = world.operations()  # of all pods
    Uid.compared = 0
    uid = Uid("u042")
    assert [name for name, _ in world.reconciler.actual.volumes_of(uid)] == ["own", "all", "cache"]
    again = MountVolume(uid, "cache", VolumeSpec(plugin="kubernetes.io/empty-dir", source=None))
    assert world.reconciler._backoff.may_start(again, world.now)
    assert Uid.compared < 10
    for operation in under_way:
        world.reconciler.done(operation, world.now, Outcome(host_path="/p"))
    assert world.reconciler._backoff._running == {}
