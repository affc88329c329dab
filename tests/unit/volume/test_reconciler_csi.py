"""What is mounted by a CSI driver, while its CSIDriver or its record is missing, edited or broken."""

from typing import Any

import pytest

from bus.messages.podsync import PodState
from services.volume.controllers.volume_metrics import OPERATIONS, VolumeMetrics
from services.volume.core.operations.operations import MountVolume, UnmountVolume
from services.volume.core.operations.outcome import FoundDevice, FoundVolume, Outcome
from services.volume.core.specs.csi_translation import translated_inline
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_spec import Node, Refused, VolumeSpec
from services.volume.plugins.registry import persistent_volume_spec, volume_spec
from shared.metrics.registry import Registry
from shared.model.objects import Object
from tests.unit.volume.reconciling import World

DRIVER, KEY = "hostpath.csi.k8s.io", "kubernetes.io/csi/v"
SPEC = [{"name": "v", "csi": {"driver": DRIVER}}]


@pytest.fixture
def world() -> World:
    world = World()
    csi_driver(world, volumeLifecycleModes=["Ephemeral"])
    return world


def csi_driver(world: World, **spec: Any) -> None:
    """The CSIDriver is this from now on; without a spec it is deleted."""
    node = Node(name="n", csi_driver={"spec": spec} if spec else None)
    world.reconciler.desired.spec_of = lambda pod, name: volume_spec(pod, name, node)
    world.reconciler.desired.read_again()


def test_a_mounted_volume_stays_while_its_csi_driver_is_deleted(world: World) -> None:
    world.admit("v", spec=SPEC)
    world.finish_all()
    csi_driver(world)
    assert world.started() == []
    assert world.view() == {"v": ("mounted", f"/p/{KEY}")}
    world.admit(spec=SPEC, state=PodState.FINISHED)
    assert world.started() == [f"UnmountVolume {KEY}"]


def test_a_volume_found_on_disk_stays_while_its_csi_driver_is_deleted(world: World) -> None:
    csi_driver(world)
    world.reconciler.add_volumes_on_disk("u", [FoundVolume("v", "kubernetes.io/csi", key=KEY)])
    world.admit("v", spec=SPEC)
    assert world.started() == []
    view = world.view()
    assert view is not None and view[KEY] == ("pending", "") and view["v"][0] == "error"
    csi_driver(world, volumeLifecycleModes=["Ephemeral"])
    assert world.started() == [f"MountVolume {KEY}"]


def test_a_mounted_volume_is_not_published_again_when_its_csi_driver_is_edited(world: World) -> None:
    world.admit("v", spec=SPEC)
    world.finish_all()
    csi_driver(world, volumeLifecycleModes=["Ephemeral"], podInfoOnMount=True)
    assert world.started() == []
    assert world.view() == {"v": ("mounted", f"/p/{KEY}")}


def test_a_driver_that_requires_repeated_calls_gets_what_is_new(world: World) -> None:
    world.admit("v", spec=SPEC)
    world.finish_all()
    csi_driver(world, volumeLifecycleModes=["Ephemeral"], requiresRepublish=True)
    assert world.view() == {"v": ("mounted", f"/p/{KEY}")}
    assert world.started() == [f"MountVolume {KEY}"]


def test_a_volume_that_is_not_mounted_takes_what_is_edited(world: World) -> None:
    world.admit("v", spec=SPEC)
    csi_driver(world)
    assert world.started() == []
    view = world.view()
    assert view is not None and view["v"][0] == "error"


def test_no_device_is_unmounted_or_leaves_volumes_in_use_while_a_record_is_unreadable(world: World) -> None:
    world.reconciler.add_devices_on_disk([FoundDevice("kubernetes.io/csi", f"{DRIVER}^data", attachable=True)])
    world.reconciler.add_volumes_on_disk("u", [FoundVolume("v", "kubernetes.io/csi", key=KEY, device_unknown=True)])
    world.admit(spec=SPEC, state=PodState.FINISHED)
    (unmount,) = world.operations()
    world.finish(unmount, "the record cannot be read")
    assert world.reconciler.device_operations(world.now) == []
    assert world.reconciler.volumes_in_use() is None, "the Node is not read"
    earlier = ["kubernetes.io/csi/other^volume", 1]
    world.reconciler.attachments.on_node({"status": {"volumesInUse": earlier}})
    in_use = world.reconciler.volumes_in_use()
    assert in_use is not None and in_use.volumes == (f"kubernetes.io/csi/{DRIVER}^data", earlier[0])
    world.finish(UnmountVolume("u", KEY))
    assert [operation.volume for operation in world.reconciler.device_operations(world.now)] == [
        f"kubernetes.io/csi/{DRIVER}^data"
    ]
    in_use = world.reconciler.volumes_in_use()
    assert in_use is not None and in_use.volumes == (f"kubernetes.io/csi/{DRIVER}^data",)


def test_a_volume_of_a_driver_that_stages_none_is_in_use_until_it_is_unmounted(world: World) -> None:
    name = f"kubernetes.io/csi/{DRIVER}^data"
    world.reconciler.add_volumes_on_disk(
        "u", [FoundVolume("v", "kubernetes.io/csi", key=KEY, unique_name=name, attachable=True)]
    )
    world.admit(spec=SPEC, state=PodState.TERMINATED)
    (unmount,) = world.operations()
    in_use = world.reconciler.volumes_in_use()
    assert in_use is not None and in_use.volumes == (name,)
    world.finish(unmount, "the driver is not registered")
    assert world.reconciler.volumes_in_use() is None, "nothing changes"
    world.finish(UnmountVolume("u", KEY))
    in_use = world.reconciler.volumes_in_use()
    assert in_use is not None and in_use.volumes == ()


def translating(world: World) -> None:
    """Let the pod have its first volume as that of a driver that attaches volumes."""

    def spec_of(pod: Object, name: str) -> VolumeSpec | Refused:
        persistent = translated_inline(pod, pod["spec"]["volumes"][0])
        assert isinstance(persistent, PersistentVolume)
        return persistent_volume_spec(pod, persistent, Node(name="n"))

    world.reconciler.desired.spec_of = spec_of
    world.admit("v", spec=[{"name": "v", "awsElasticBlockStore": {"volumeID": "vol-1"}}])


def test_a_pod_that_waits_for_a_translated_volume_is_told_which_driver_it_needs() -> None:
    world = World()
    translating(world)
    assert world.started() == []
    assert world.reconciler.events("u", world.now) == []
    world.now += 123.0
    (event,) = world.reconciler.events("u", world.now)
    assert event.message.startswith("Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[v]")
    needed = "volumes of in-tree plugins need their CSI drivers in the cluster and on this node: ebs.csi.aws.com"
    assert event.message.endswith(f"context deadline exceeded ({needed})")


@pytest.mark.parametrize("migrated", [True, False])
def test_the_metric_of_a_mount_says_whether_the_volume_was_translated(world: World, migrated: bool) -> None:
    registry = Registry()
    metrics = VolumeMetrics(registry, world.reconciler)
    translating(world) if migrated else world.admit("v", spec=SPEC)
    key, spec = next(iter(world.reconciler.desired.pods["u"].mounts.items()))
    assert isinstance(spec, VolumeSpec)
    metrics.ended(MountVolume("u", key, spec), Outcome(), 0.2)
    (series,) = [series for family, series in registry.collect() if family.name == OPERATIONS.name]
    assert list(series) == [("kubernetes.io/csi", "volume_mount", "success", "true" if migrated else "false")]
