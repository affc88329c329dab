"""What would become of a pod: its cgroup, images and mounts, and what keeps it from starting."""

from typing import Any

import pytest

from bus.messages.pod_preview import PodPreview, PreemptedPod
from bus.messages.podsync import GivenDevices, NumaMemory
from services.podsync.core.admission.node_view import MachineFacts, node_view
from services.podsync.core.admission.verdict import Verdict
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.placement.pod_placement import (
    ContainerDevices,
    ContainerPlacement,
    MemoryBlock,
    PodPlacement,
)
from services.podsync.core.preview import DIRECTORIES, PodPaths, PreviewInputs, image_names, preview
from services.volume.plugins.registry import PLUGINS
from shared.config.effective import CredentialProvider
from shared.cri.interface import ImageStatus
from shared.model.frozen_copy import replace
from shared.podspec.defaults import apply_defaults
from tests.unit.podsync.pods import a_container, a_pod

FACTS = NodeFacts(node_name="n1", memory_capacity=1 << 30, cgroup_v2=False)
VIEW = node_view(None, MachineFacts(), pressures=(), supplemental_groups_policy=False)
PATHS = PodPaths(
    volumes="/k/pods/u1/volumes",
    devices="/k/pods/u1/volumeDevices",
    containers="/k/pods/u1/containers",
    etc_hosts="/k/pods/u1/etc-hosts",
)
BUSYBOX = ImageStatus(id="sha256:1", size=1)


def shown(pod: dict[str, Any], facts: NodeFacts = FACTS, **inputs: Any) -> PodPreview:
    """The preview of this pod, admitted where nothing else is given."""
    apply_defaults(pod)
    given = {"verdict": Verdict(), "view": VIEW, "others": {}, "paths": PATHS, **inputs}
    return preview(PreviewInputs(pod=pod, facts=facts, **given))


def limited() -> dict[str, Any]:
    """A pod with requests and limits."""
    resources = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "200m", "memory": "512Mi"}}
    return a_pod(containers=[a_container("c", resources=resources)])


def test_the_cgroup_is_that_of_the_driver_with_the_files_of_the_hierarchy() -> None:
    found = shown(limited())
    assert (found.qos_class, found.cgroup) == ("Burstable", "/kubepods/burstable/podu1")
    assert found.cgroup_files == {
        "memory.limit_in_bytes": str(512 << 20),
        "cpu.shares": "102",
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "20000",
    }
    found = shown(limited(), replace(FACTS, cgroup_v2=True, cgroup_driver="systemd"))
    assert found.cgroup == "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu1.slice"
    assert found.cgroup_files == {"memory.max": str(512 << 20), "cpu.weight": "4", "cpu.max": "20000 100000"}
    alone = shown(limited(), replace(FACTS, cgroups_per_qos=False))
    assert (alone.cgroup, alone.cgroup_files) == ("", {})


def test_a_container_has_its_oom_score_and_resources() -> None:
    (container,) = shown(limited()).containers
    assert (container.name, container.kind, container.oom_score_adj) == ("c", "regular", 750)
    assert container.resources == {
        "cpu_shares": 102,
        "cpu_period": 100_000,
        "cpu_quota": 20_000,
        "memory_limit_in_bytes": 512 << 20,
    }


def test_a_container_has_what_admission_would_give_it_alone() -> None:
    gpus = ContainerDevices(resource="example.com/gpu", ids=frozenset({"b", "a"}))
    memory = MemoryBlock(nodes=frozenset({1, 0}), kind="memory", size=1 << 20)
    given = ContainerPlacement(cpus=frozenset({3, 2}), memory=(memory,), devices=(gpus,))
    placement = PodPlacement(containers={"c": given})
    pod = a_pod(containers=[a_container("c"), a_container("d")])
    first, second = shown(pod, verdict=Verdict(placement=placement)).containers
    assert (first.cpus, first.memory) == ("2-3", (NumaMemory(nodes=(0, 1), kind="memory", size=1 << 20),))
    assert first.devices == (GivenDevices(resource="example.com/gpu", ids=("a", "b")),)
    assert (second.cpus, second.memory, second.devices) == ("", (), ())


def test_a_pod_with_resources_of_its_own_has_what_admission_would_give_it_as_a_whole() -> None:
    memory = MemoryBlock(nodes=frozenset({1}), kind="memory", size=1 << 20)
    containers = {"c": ContainerPlacement(cpus=frozenset({2})), "d": ContainerPlacement(pool=frozenset({3}))}
    placement = PodPlacement(containers=containers, cpus=frozenset({2, 3}), memory=(memory,))
    pod = a_pod(containers=[a_container("c"), a_container("d")])
    found = shown(pod, verdict=Verdict(placement=placement))
    assert (found.pod_cpus, found.pod_memory) == ("2-3", (NumaMemory(nodes=(1,), kind="memory", size=1 << 20),))
    assert [(each.cpus, each.pool_cpus) for each in found.containers] == [("2", ""), ("", "3")]


def test_the_directories_are_those_of_the_volume_plugins() -> None:
    plugins = {field: plugin.name.replace("/", "~") for field, plugin in PLUGINS.items()}
    assert {field: plugins[field] for field in DIRECTORIES} == DIRECTORIES
    # Without a directory, by claim, or with one that names the driver.
    assert PLUGINS.keys() - DIRECTORIES.keys() == {"hostPath", "image", "local", "flexVolume"}


@pytest.mark.parametrize(
    ("volume", "mount", "host", "read_only"),
    [
        ({"emptyDir": {}}, {}, "/k/pods/u1/volumes/kubernetes.io~empty-dir/v", False),
        ({"hostPath": {"path": "/usr"}}, {"readOnly": True}, "/usr", True),
        ({"configMap": {"name": "x"}}, {}, "/k/pods/u1/volumes/kubernetes.io~configmap/v", True),
        ({"secret": {"secretName": "x"}}, {"subPath": "a"}, "/k/pods/u1/volumes/kubernetes.io~secret/v/a", True),
        ({"csi": {"driver": "d"}}, {}, "/k/pods/u1/volumes/kubernetes.io~csi/v/mount", False),
        ({"persistentVolumeClaim": {"claimName": "x"}}, {}, "", False),
        ({"image": {"reference": "r:1"}}, {}, "", True),
        ({"emptyDir": {}}, {"subPathExpr": "$(X)"}, "/k/pods/u1/volumes/kubernetes.io~empty-dir/v/$(X)", False),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
def test_each_mount_has_its_path_on_the_node(
    volume: dict[str, Any], mount: dict[str, Any], host: str, read_only: bool
) -> None:
    mounts = [{"name": "v", "mountPath": "/v", **mount}]
    found = shown(a_pod(containers=[a_container("c", volumeMounts=mounts)], volumes=[{"name": "v", **volume}]))
    (container,) = found.containers
    assert container.problem == ""
    first, hosts, termination = container.mounts
    assert (first.container_path, first.host_path, first.read_only) == ("/v", host, read_only)
    assert (first.volume, first.kind) == ("v", next(iter(volume)))
    assert (hosts.container_path, hosts.host_path, hosts.volume) == ("/etc/hosts", "/k/pods/u1/etc-hosts", "")
    assert termination.container_path == "/dev/termination-log"


def test_a_mount_without_a_volume_keeps_the_container_from_starting() -> None:
    found = shown(a_pod(containers=[a_container("c", volumeMounts=[{"name": "v", "mountPath": "/v"}])]))
    assert found.containers[0].problem.startswith("CreateContainerConfigError: cannot find volume")


def test_images_are_named_once_and_a_pull_runs_the_providers_that_match() -> None:
    pod = a_pod(
        containers=[a_container("a"), a_container("b", image="registry.example/team/web"), a_container("c")],
        volumes=[{"name": "v", "image": {"reference": "registry.example/data:1"}}],
    )
    apply_defaults(pod)
    names = image_names(pod)
    assert names == ("busybox:1", "registry.example/team/web:latest", "registry.example/data:1")
    providers = [
        CredentialProvider(name=name, match_images=(pattern,), default_cache_seconds=0.0, api_version="v1")
        for name, pattern in (("team", "registry.example/team"), ("other", "other.example"))
    ]
    images = {"busybox:1": BUSYBOX, "registry.example/team/web:latest": None}
    found = shown(pod, images=images, providers=providers).images
    assert [(one.container, one.volume, one.present, one.providers) for one in found] == [
        ("a", "", True, ()),
        ("b", "", False, ("team",)),
        ("c", "", True, ()),
        ("", "v", None, ()),
    ]


def test_run_as_non_root_is_checked_against_the_image_that_is_present() -> None:
    pod = a_pod(securityContext={"runAsNonRoot": True})
    assert (
        shown(pod, images={"busybox:1": replace(BUSYBOX, uid=0)})
        .containers[0]
        .problem.startswith("CreateContainerConfigError: container has runAsNonRoot and image will run as root")
    )
    assert shown(pod, images={"busybox:1": replace(BUSYBOX, uid=7)}).containers[0].problem == ""
    assert shown(pod).containers[0].problem == ""  # the image is not known


def test_what_the_sandbox_lacks_is_a_problem() -> None:
    found = shown(a_pod(hostUsers=False))
    assert found.problems == (
        "Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user namespaces",
    )
    broken = shown(a_pod(), replace(FACTS, resolv_conf_error="open /etc/none: no such file or directory"))
    assert "no such file" in broken.problems[0]


def test_the_verdict_is_passed_on_with_the_names_of_the_pods_that_go() -> None:
    batch = a_pod("b1", "batch")
    found = shown(a_pod(), verdict=Verdict(victims=("b1",)), others={"b1": batch})
    assert found.preempted == (PreemptedPod(uid="b1", namespace="default", name="batch"),)
    refused = shown(a_pod(), verdict=Verdict(reason="OutOfcpu", message="no room"))
    assert (refused.waits_for, refused.reason, refused.message) == ("", "OutOfcpu", "no room")
    waiting = shown(a_pod(), verdict=None, waits_for="the runtime")
    assert (waiting.waits_for, waiting.reason) == ("the runtime", "")


def test_ports_and_taints_that_matter_are_named() -> None:
    ports: list[dict[str, Any]] = [
        {"containerPort": 80, "hostPort": 80},
        {"containerPort": 81, "hostPort": 81, "hostIP": "127.0.0.1"},
    ]
    elsewhere = [ports[0], {**ports[1], "hostIP": "192.0.2.7"}]
    pod = a_pod(containers=[a_container("c", ports=ports)], tolerations=[{"key": "a", "operator": "Exists"}])
    other = a_pod("o1", "other", containers=[a_container("c", ports=elsewhere)])
    apply_defaults(other)
    taints = ({"key": "a", "effect": "NoSchedule"}, {"key": "b", "value": "x", "effect": "NoExecute"})
    found = shown(pod, others={"o1": other}, view=replace(VIEW, taints=taints, pressures=("DiskPressure",)))
    assert [(one.ip, one.port, one.pods) for one in found.host_ports] == [
        ("", 80, ("default/other",)),
        ("127.0.0.1", 81, ()),
    ]
    assert (found.taints, found.pressures) == (("b=x:NoExecute",), ("DiskPressure",))
