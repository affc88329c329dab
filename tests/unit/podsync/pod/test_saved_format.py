"""Every field of a pod's record comes back; of a record with fields of a newer version the known ones count."""

import copy
import json
from typing import Any

import pytest
from msgspec.structs import fields

from bus.messages.device_plugins import AllocatedDevices, DeviceMount, DeviceNode
from bus.messages.podsync import PodState
from services.podsync.core.placement.pod_placement import (
    NOT_PLACED,
    ContainerDevices,
    ContainerPlacement,
    MemoryBlock,
    PodPlacement,
)
from services.podsync.core.pod.allocation import Allocation, PendingResize, ResizeInProgress
from services.podsync.core.pod.placement_format import plain_placement, read_placement
from services.podsync.core.pod.saved import (
    Attempts,
    CrashBackoff,
    ImageBackoff,
    Saved,
    SavedContainer,
    ShutdownStop,
)
from services.podsync.core.pod.saved_format import persisted, restore
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.frozen_copy import replace

POD = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
    "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "busybox:1"}]},
}
SETUP = AllocatedDevices(
    envs={"VISIBLE": "0"},
    mounts=(DeviceMount(container_path="/driver", host_path="/opt/driver", read_only=True),),
    devices=(DeviceNode(container_path="/dev/gpu", host_path="/dev/gpu0", permissions="rw"),),
    annotations={"example.com/devices": "0"},
    cdi_devices=("example.com/gpu=0",),
)
PLACED = PodPlacement(
    containers={
        "c": ContainerPlacement(
            cpus=frozenset({2, 3, 8}),
            memory=(MemoryBlock(nodes=frozenset({0, 1}), kind="memory", size=1 << 40),),
            affinity=frozenset({0, 1}),
        ),
        "helper": ContainerPlacement(cpus=frozenset({4})),
        "user": ContainerPlacement(
            devices=(
                ContainerDevices(resource="example.com/gpu", ids=frozenset({"gpu-1", "gpu-0"}), setup=SETUP),
                ContainerDevices(resource="example.com/nic", ids=frozenset({"a"}), setup=AllocatedDevices()),
                ContainerDevices(resource="example.com/tpu", ids=frozenset({"b"})),
            )
        ),
    }
)


DEVICES = [
    {
        "resource": "example.com/gpu",
        "ids": ["gpu-0", "gpu-1"],
        "setup": {
            "envs": {"VISIBLE": "0"},
            "mounts": [{"container_path": "/driver", "host_path": "/opt/driver", "read_only": True}],
            "devices": [{"container_path": "/dev/gpu", "host_path": "/dev/gpu0", "permissions": "rw"}],
            "annotations": {"example.com/devices": "0"},
            "cdi_devices": ["example.com/gpu=0"],
        },
    },
    {"resource": "example.com/nic", "ids": ["a"], "setup": {}},
    {"resource": "example.com/tpu", "ids": ["b"]},
]


CLAIM_STATUS = {
    "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "web-gpu"}, {"name": "nic"}],
    "extendedResourceClaimStatus": {
        "resourceClaimName": "web-ext",
        "requestMappings": [{"containerName": "c", "resourceName": "example.com/tpu", "requestName": "r"}],
    },
}


def full_record() -> TrackedPod:
    """A record in which no saved field has its default."""
    backoff = CrashBackoff(key="k", seconds=20.0, updated=11.0, instance="i1")
    pull = ImageBackoff(seconds=10.0, updated=9.0, message="ErrImagePull: no")
    wanted = Allocation(
        containers={"c": {"limits": {"cpu": "2"}}}, pod={"limits": {"cpu": "3"}}, volumes={"fast": "8Mi"}
    )
    saved = replace(
        Saved(**samples(Saved())),
        allocation=Allocation(containers={"c": {"limits": {"cpu": "1"}}}, pod={}, volumes={"fast": "4Mi"}),
        actuated={"c": {"requests": {"cpu": "1"}}},
        placement=PLACED,
        claim_status=CLAIM_STATUS,
        pending_resize=PendingResize(
            generation=3, wanted=wanted, decided=True, reason="Deferred", message="no room", since=8.0
        ),
        resize=ResizeInProgress(generation=2, cgroup_written=True, error="no"),
        shutdown=ShutdownStop(boot="b1", since=7.0, grace_seconds=20, stopped=True),
        state=PodState.TERMINATING,
        admission_decided=False,
        pod=POD,
        pre_stops={"i1": 12.5},
        containers={"c": replace(SavedContainer(**samples(SavedContainer())), crash_backoff=backoff)},
        image_backoff={"busybox:1": pull},
    )
    attempts = Attempts(sandbox=3, containers={"c": 3})
    return TrackedPod(uid="u1", name="web", namespace="shop", saved=saved, attempts=attempts, status={"c": "i1"})


def samples(part: Saved | SavedContainer) -> dict[str, Any]:
    """A value of its type for each field."""
    of: dict[type, Any] = {str: "text", bool: True, int: 3, float: 1.5, tuple: ("u2",), dict: {"c": "i1"}}
    return {field.name: of.get(type(getattr(part, field.name))) for field in fields(part)}


def test_every_saved_field_comes_back_from_disk() -> None:
    tracked = full_record()
    again = restore(json.loads(json.dumps(persisted(tracked))))
    assert (again.saved, again.attempts, again.status) == (tracked.saved, tracked.attempts, tracked.status)


@pytest.mark.parametrize("place", [(), ("crash_backoff", "c"), ("image_backoff", "busybox:1")])
def test_a_field_that_is_not_known_drops_nothing(place: tuple[str, ...]) -> None:
    data = persisted(full_record())
    ours = copy.deepcopy(data)
    spot = ours
    for name in place:
        spot = spot[name]
    spot["of_a_newer_version"] = {"a": 1}
    assert persisted(restore(ours)) == data


def test_an_unknown_backoff_begins_again_and_the_pod_is_kept() -> None:
    data = persisted(full_record())
    odd: list[Any] = [None, {}, {"key": "k"}, {"key": "k", "seconds": "soon", "updated": 1.0, "instance": "i"}]
    data["crash_backoff"] |= {f"odd{number}": entry for number, entry in enumerate(odd)}
    assert list(restore(data).saved.containers) == ["c"]


def test_the_placement_of_each_container_is_on_disk_in_the_forms_of_the_kernel() -> None:
    assert persisted(full_record())["placement"] == {
        "c": {"cpus": "2-3,8", "memory": [{"nodes": [0, 1], "kind": "memory", "size": 1 << 40}], "affinity": [0, 1]},
        "helper": {"cpus": "4", "memory": [], "affinity": None},
        "user": {"cpus": "", "memory": [], "affinity": None, "devices": DEVICES},
    }


def test_what_a_pod_has_as_a_whole_is_on_disk_under_a_name_that_no_container_has() -> None:
    block = MemoryBlock(nodes=frozenset({1}), kind="memory", size=1 << 30)
    containers = {"c": ContainerPlacement(cpus=frozenset({2})), "helper": ContainerPlacement(pool=frozenset({3, 4}))}
    whole = PodPlacement(containers=containers, cpus=frozenset({2, 3, 4}), memory=(block,))
    plain = plain_placement(whole)
    assert plain == {
        "c": {"cpus": "2", "memory": [], "affinity": None},
        "helper": {"cpus": "", "memory": [], "affinity": None, "pool": "3-4"},
        "": {"cpus": "2-4", "memory": [{"nodes": [1], "kind": "memory", "size": 1 << 30}], "affinity": None},
    }
    assert read_placement(plain) == whole


def test_a_record_of_an_earlier_version_has_no_placement() -> None:
    data = persisted(full_record())
    del data["placement"]
    assert restore(data).saved.placement == NOT_PLACED


@pytest.mark.parametrize(
    "placement",
    [
        {"c": {"cpus": "0-", "memory": [], "affinity": None}},
        {"c": {"cpus": "0-99999," * 9 + "1", "memory": [], "affinity": None}},
        {"c": {"cpus": "1", "memory": [{"nodes": list(range(5000)), "kind": "memory", "size": 1}], "affinity": None}},
        {"c": {"cpus": "1", "memory": [{}] * 65, "affinity": None}},
        {"c": {"cpus": "1"}},
        {"c": None},
        {str(number): {"cpus": "", "memory": [], "affinity": None} for number in range(501)},
        *(
            {"c": {"cpus": "", "memory": [], "affinity": None, "devices": devices}}
            for devices in (
                [{"resource": "example.com/gpu"}],
                [{"resource": "example.com/gpu", "ids": [1]}],
                [{"resource": "example.com/gpu", "ids": [str(number) for number in range(10_001)]}],
                [{"resource": "example.com/gpu", "ids": ["a"], "setup": {"envs": {"A": 1}}}],
                [{"resource": "example.com/gpu", "ids": ["a"], "setup": {"devices": [{"host_path": "/dev/a"}]}}],
                [{"resource": f"example.com/{number}", "ids": ["a"]} for number in range(65)],
            )
        ),
        [],
    ],
)
def test_a_placement_that_is_not_understood_makes_the_record_unusable(placement: Any) -> None:
    """The pod is admitted again; with the record in use, another pod could be given what this one has."""
    with pytest.raises((KeyError, TypeError, ValueError)):
        restore(persisted(full_record()) | {"placement": placement})
