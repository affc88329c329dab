"""The message of an evicted pod, and which limits of local storage evict it (node.md 5.6, 5.8)."""

from typing import Any

import pytest

from bus.messages.usage import CgroupUsage, ContainerUsage, FilesystemUsage, PodUsage, VolumeUsage
from services.podsync.core.eviction.local_storage import limit_exceeded
from services.podsync.core.eviction.message import eviction_text, node_event
from services.podsync.core.eviction.ranking import Candidate
from services.podsync.core.eviction.signals import Layout, SignalObservation
from services.podsync.core.eviction.thresholds import Threshold

MIB = 1 << 20
MEMORY = Threshold(signal="memory.available", amount="100Mi")
DISK = Threshold(signal="nodefs.available", amount="10%")
ALWAYS = {"restartPolicy": "Always"}
INODES = Threshold(signal="nodefs.inodesFree", amount="5%")


def files(mib: int) -> FilesystemUsage:
    return FilesystemUsage(time=0.0, used=mib * MIB, inodes_used=1)


def candidate(
    spec: dict[str, Any], memory: dict[str, int] | None = None, disk: int = 0, volume: int = 0, log: int = 0
) -> Candidate:
    """A pod of this spec; its containers' memory in MiB, their writable layers and logs, and an emptyDir `scratch`."""
    containers = tuple(
        ContainerUsage(
            id=name,
            name=name,
            created_at=0,
            cgroup=CgroupUsage(time=0.0, memory_working_set=used * MIB),
            rootfs=files(disk),
            logs=files(log),
        )
        for name, used in (memory or {"web": 0}).items()
    )
    usage = PodUsage(
        uid="u",
        name="shop",
        namespace="default",
        created_at=0,
        read_at=0.0,
        cgroup=CgroupUsage(time=0.0, memory_working_set=sum((memory or {}).values()) * MIB),
        containers=containers,
        volumes=(VolumeUsage(name="scratch", filesystem=files(volume), ephemeral=True),),
        ephemeral_storage=files((disk + log) * len(containers) + volume),
    )
    return Candidate(uid="u", pod={"metadata": {"name": "shop"}, "spec": spec}, usage=usage)


def container(name: str, **resources: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "resources": resources}


def test_the_message_names_threshold_and_reading_and_each_container_above_its_request() -> None:
    spec = {
        "initContainers": [container("proxy")],
        "containers": [container("web", requests={"memory": "64Mi"}), container("db", requests={"memory": "1Gi"})],
    }
    one = candidate(spec, {"web": 100, "db": 900, "proxy": 3})
    text, annotations = eviction_text(
        one, MEMORY, [MEMORY], {MEMORY.signal: SignalObservation(90 * MIB, 1000 * MIB, 0.0)}
    )
    assert text == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. "
        "Container web was using 100Mi, request is 64Mi, has larger consumption of memory. "
        "Container proxy was using 3Mi, request is 0, has larger consumption of memory. "
    )
    assert annotations == {
        "offending_containers": "web,proxy",
        "offending_containers_usage": "100Mi,3Mi",
        "starved_resource": "memory",
    }


def test_a_pod_with_a_request_for_itself_is_named_with_its_own_usage() -> None:
    spec = {"resources": {"requests": {"memory": "1Gi"}}, "containers": [container("web")]}
    text, annotations = eviction_text(candidate(spec, {"web": 2}), MEMORY, [], {})
    assert text == (
        "The node was low on resource: memory. "
        "Pod shop was using 2Mi, request is 1Gi, has larger consumption of memory. "
        "Container web was using 2Mi, request is 0, has larger consumption of memory. "
    )
    assert (annotations["offending_pod"], annotations["offending_pod_usage"]) == ("shop", "2Mi")


def test_a_full_disk_counts_writable_layers_and_logs_and_a_percentage_is_shown_as_an_amount() -> None:
    one = candidate({"containers": [container("web")]}, disk=5, log=1)
    text, annotations = eviction_text(one, DISK, [DISK], {DISK.signal: SignalObservation(90 * MIB, 1000 * MIB, 0.0)})
    assert text == (
        "The node was low on resource: ephemeral-storage. Threshold quantity: 104857601, available: 90Mi. "
        "Container web was using 6Mi, request is 0, has larger consumption of ephemeral-storage. "
    )
    assert annotations["starved_resource"] == "ephemeral-storage"


def test_no_container_is_named_for_inodes() -> None:
    one = candidate({"containers": [container("web")]}, disk=5)
    text, _ = eviction_text(one, INODES, [MEMORY, INODES], {INODES.signal: SignalObservation(4, 1000, 0.0)})
    assert text == "The node was low on resource: inodes. Threshold quantity: 50, available: 4. "
    assert node_event(INODES) == "Attempting to reclaim inodes"


@pytest.mark.parametrize(
    ("spec", "usage", "message"),
    [
        (
            {"volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}], "containers": [container("web")]},
            {"volume": 2},
            'Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". ',
        ),
        ({"volumes": [{"name": "scratch", "emptyDir": {}}], "containers": [container("web")]}, {"volume": 2}, ""),
        (
            {"volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "2Mi"}}], "containers": [container("web")]},
            {"volume": 2},
            "",
        ),
        (
            {"containers": [container("web", limits={"ephemeral-storage": "5Mi"})]},
            {"disk": 4, "volume": 2},
            "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. ",
        ),
        (
            {"containers": [container("web", limits={"ephemeral-storage": "5Mi"}), container("db")]},
            {"disk": 4, "log": 1},
            "",
        ),
        ({"priority": 2_000_000_000, "containers": [container("web", limits={"ephemeral-storage": "1Mi"})]},
         {"disk": 4}, ""),
    ],
)  # fmt: skip
def test_limits_of_local_storage(spec: dict[str, Any], usage: dict[str, Any], message: str) -> None:
    found = limit_exceeded(candidate(spec, **usage), Layout.SINGLE)
    assert (found[0] if found else "") == message


@pytest.mark.parametrize(("layout", "exceeds"), [(Layout.SINGLE, True), (Layout.DEDICATED_IMAGES, False)])
def test_the_writable_layer_counts_for_a_container_where_it_is_on_the_root_filesystem(
    layout: Layout, exceeds: bool
) -> None:
    spec = {
        "containers": [
            container("web", limits={"ephemeral-storage": "5Mi"}),
            container("db", limits={"ephemeral-storage": "1Gi"}),
        ]
    }
    found = limit_exceeded(candidate(spec, {"web": 0, "db": 0}, disk=5, log=1), layout)
    text = 'Container web exceeded its local ephemeral storage limit "5Mi". '
    assert found == ((text, "ephemeralcontainerfs.limit") if exceeds else None)


def test_a_sidecar_has_a_limit_of_its_own_as_a_container_has() -> None:
    proxy = container("proxy", limits={"ephemeral-storage": "5Mi"})
    web = container("web", limits={"ephemeral-storage": "1Gi"})
    used = {"web": 0, "proxy": 0}
    sidecar, init = ({"initContainers": [proxy | policy], "containers": [web]} for policy in (ALWAYS, {}))
    text = 'Container proxy exceeded its local ephemeral storage limit "5Mi". '
    assert limit_exceeded(candidate(sidecar, used, disk=6), Layout.SINGLE) == (text, "ephemeralcontainerfs.limit")
    assert limit_exceeded(candidate(init, used, disk=6), Layout.SINGLE) is None, "as in the kubelet: sidecars alone"
