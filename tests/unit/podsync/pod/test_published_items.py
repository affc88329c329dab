"""What the streams of admitted pods show: volume gets what volumes are made from, pleg the probes, status neither."""

from typing import Any

import pytest

from bus import codec
from bus.messages.podsync import GivenDevices, NumaMemory, PodState
from services.podsync.core.placement.pod_placement import (
    ContainerDevices,
    ContainerPlacement,
    MemoryBlock,
    PodPlacement,
)
from services.podsync.core.pod.published_items import Published, published
from services.podsync.core.pod.saved import Saved
from shared.model.frozen_copy import replace

PROBE = {"exec": {"command": ["test", "$(GIVEN)", "$(READ)"]}, "periodSeconds": 3}
CONTAINER: dict[str, Any] = {
    "name": "c",
    "image": "busybox:1",
    "command": ["sleep", "1000"],
    "env": [
        {"name": "GIVEN", "value": "1"},
        {"name": "READ", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "k"}}},
    ],
    "resources": {"limits": {"memory": "64Mi"}},
    "ports": [{"name": "web", "containerPort": 80}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    "livenessProbe": PROBE,
}
POD: dict[str, Any] = {
    "metadata": {
        "name": "web",
        "namespace": "shop",
        "uid": "u1",
        "labels": {"app": "web"},
        "generation": 1,
        "ownerReferences": [{"kind": "ReplicaSet", "name": "web"}],
    },
    "spec": {
        "serviceAccountName": "default",
        "initContainers": [
            {"name": "setup", "image": "busybox:1", "readinessProbe": PROBE},
            {"name": "side", "restartPolicy": "Always", "readinessProbe": PROBE},
        ],
        "containers": [CONTAINER, {"name": "plain", "image": "busybox:1"}],
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "unused", "emptyDir": {}}],
    },
}
RUNNING = Saved(source="api", pod=POD)


def shown(saved: Saved) -> Published:
    return published("u1", "web", "shop", saved)


def test_volume_gets_the_spec_without_what_no_volume_is_made_from() -> None:
    volumes = shown(RUNNING).volumes
    assert volumes.volumes == ("data",)
    assert volumes.pod["metadata"] == {"labels": {"app": "web"}, "name": "web", "namespace": "shop", "uid": "u1"}
    spec = volumes.pod["spec"]
    assert (spec["serviceAccountName"], spec["volumes"]) == ("default", POD["spec"]["volumes"])
    assert spec["containers"] == [
        {key: CONTAINER[key] for key in ("name", "resources", "volumeMounts")},
        {"name": "plain"},
    ]
    assert spec["initContainers"][1] == {"name": "side", "restartPolicy": "Always"}


def test_pleg_gets_the_containers_with_probes_and_of_their_environment_no_reference() -> None:
    probes = shown(RUNNING).probes
    assert probes is not None
    assert probes.spec == {
        "initContainers": [{"name": "side", "restartPolicy": "Always", "readinessProbe": PROBE}],
        "containers": [
            {
                "name": "c",
                "ports": CONTAINER["ports"],
                "livenessProbe": PROBE,
                "env": [{"name": "GIVEN", "value": "1"}, {"name": "READ"}],
            }
        ],
    }


def test_a_pod_without_probes_is_not_on_the_stream_of_probes() -> None:
    spec = {**POD["spec"], "initContainers": [], "containers": [{"name": "plain", "image": "busybox:1"}]}
    assert shown(replace(RUNNING, pod={**POD, "spec": spec})).probes is None


@pytest.mark.parametrize("state", [PodState.TERMINATED, PodState.FINISHED])
def test_once_the_containers_are_gone_only_the_state_is_left(state: PodState) -> None:
    ended = shown(replace(RUNNING, state=state, grace_seconds=30))
    assert (ended.volumes.pod, ended.volumes.volumes, ended.probes) == ({}, (), None)
    assert (ended.volumes.finished, ended.admitted.finished) == (state is PodState.FINISHED,) * 2


def test_a_rejected_pod_has_no_volumes_and_no_probes() -> None:
    rejected = shown(replace(RUNNING, rejected="OutOfcpu"))
    assert rejected.admitted.rejected == "OutOfcpu"
    assert (rejected.volumes.pod, rejected.volumes.volumes, rejected.probes) == ({}, (), None)


def test_the_probes_of_a_pod_that_is_deleted_show_that_it_terminates() -> None:
    pod = {**POD, "metadata": {**POD["metadata"], "deletionTimestamp": "2030-01-01T00:00:00Z"}}
    ending = shown(replace(RUNNING, pod=pod, state=PodState.TERMINATING, grace_seconds=5))
    assert ending.probes is not None and ending.probes.terminating and ending.probes.deletion_requested
    assert ending.admitted.grace_seconds == 5 and ending.volumes.volumes == ("data",)


def test_a_new_generation_alone_changes_no_stream() -> None:
    pod = {**POD, "metadata": {**POD["metadata"], "generation": 2, "finalizers": ["example.com/wait"]}}
    assert shown(replace(RUNNING, pod=pod)) == shown(RUNNING)


def test_the_state_of_a_pod_takes_a_few_hundred_bytes_whatever_its_spec() -> None:
    containers = [{**CONTAINER, "name": f"c{number}"} for number in range(50)]
    many = replace(RUNNING, pod={**POD, "spec": {**POD["spec"], "containers": containers}})
    assert codec.encode(shown(many).admitted) == codec.encode(shown(RUNNING).admitted)


def test_the_devices_of_each_container_are_shown_until_its_pod_has_stopped() -> None:
    gpus = ContainerDevices(resource="example.com/gpu", ids=frozenset({"b", "a"}))
    placement = PodPlacement(containers={"c": ContainerPlacement(devices=(gpus,)), "plain": ContainerPlacement()})
    running = replace(RUNNING, placement=placement)
    given = {"c": (GivenDevices(resource="example.com/gpu", ids=("a", "b")),)}
    assert shown(running).admitted.devices == given
    assert shown(replace(running, state=PodState.TERMINATING)).admitted.devices == given
    assert shown(replace(running, state=PodState.TERMINATED)).admitted.devices == {}
    assert shown(replace(running, rejected="UnexpectedAdmissionError")).admitted.devices == {}


def test_what_a_pod_has_as_a_whole_is_shown_with_the_cpus_that_its_containers_share() -> None:
    block = MemoryBlock(nodes=frozenset({1}), kind="memory", size=1 << 30)
    containers = {
        "c": ContainerPlacement(cpus=frozenset({2}), memory=(block,)),
        "helper": ContainerPlacement(pool=frozenset({3, 4})),
    }
    placement = PodPlacement(containers=containers, cpus=frozenset({2, 3, 4}), memory=(replace(block, size=1 << 31),))
    running = replace(RUNNING, placement=placement)
    admitted = shown(running).admitted
    assert (admitted.cpus, admitted.pool_cpus, admitted.pod_cpus) == ({"c": "2"}, {"helper": "3-4"}, "2-4")
    assert admitted.memory == {"c": (NumaMemory(nodes=(1,), kind="memory", size=1 << 30),)}
    assert admitted.pod_memory == (NumaMemory(nodes=(1,), kind="memory", size=1 << 31),)
    ended = shown(replace(running, state=PodState.TERMINATED)).admitted
    assert (ended.pod_cpus, ended.pod_memory, ended.pool_cpus) == ("", (), {})
