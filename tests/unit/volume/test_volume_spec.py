"""What an entry of spec.volumes asks for."""

from typing import Any

import pytest

from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_spec import Node, Refused, Unprocessed, VolumeSpec
from services.volume.plugins.empty_dir import EmptyDir
from services.volume.plugins.host_path import HostPath
from services.volume.plugins.registry import persistent_volume_spec, volume_spec

GIB = 2**30


NODE = Node(memory=8 * GIB)
OF_DRIVER = "a PersistentVolume of the CSI driver"


def source(volume: dict[str, Any], node: Node = NODE, **spec: Any) -> object:
    """The plugin's own value, or why there is none."""
    read = volume_spec({"spec": {"volumes": [{"name": "v", **volume}], **spec}}, "v", node)
    return read.source if isinstance(read, VolumeSpec) else read


def containers(*limits: str | None) -> list[dict[str, Any]]:
    return [{"resources": {"limits": {"memory": limit} if limit else {}}} for limit in limits]


def test_an_empty_dir_is_a_plain_directory_whatever_its_size_limit() -> None:
    assert source({"emptyDir": {}}) == EmptyDir()
    assert source({"emptyDir": None}) == EmptyDir()
    assert source({}) == EmptyDir()
    assert source({"emptyDir": {"sizeLimit": "1Gi"}}) == EmptyDir()


def test_an_empty_dir_knows_the_fs_group_of_its_pod() -> None:
    assert source({"emptyDir": {}}, securityContext={"fsGroup": 2000}) == EmptyDir(fs_group=2000)


@pytest.mark.parametrize(("gates", "mode"), [((), None), (("EmptyDirVolumeMode",), 0o1770)])
def test_the_mode_of_an_empty_dir_counts_with_its_feature_gate(gates: tuple[str, ...], mode: int | None) -> None:
    node = Node(memory=8 * GIB, gates=frozenset(gates))
    for medium in ("", "Memory"):
        asked = source({"emptyDir": {"medium": medium, "mode": 0o1770}}, node)
        assert isinstance(asked, EmptyDir)
        assert asked.mode == mode


@pytest.mark.parametrize("mode", [-1, 0o2000, True, "0750"])
def test_a_mode_that_no_directory_can_have_is_refused(mode: object) -> None:
    node = Node(gates=frozenset({"EmptyDirVolumeMode"}))
    assert source({"emptyDir": {"mode": mode}}, node) == Refused(f"emptyDir mode {mode} is not from 0 to 1023")


@pytest.mark.parametrize(
    ("empty_dir", "limits", "size"),
    [
        ({}, (None,), 8 * GIB),
        ({"sizeLimit": "1Gi"}, (None,), GIB),
        ({"sizeLimit": "0"}, (None,), 8 * GIB),
        ({"sizeLimit": "100Gi"}, (None,), 8 * GIB),
        ({}, ("1Gi", "1Gi"), 2 * GIB),
        ({}, ("1Gi", None), 8 * GIB),  # one container without a limit: the pod's cgroup has none
        ({"sizeLimit": "1Gi"}, ("2Gi",), GIB),
        ({"sizeLimit": "3Gi"}, ("2Gi",), 2 * GIB),
    ],
)
def test_a_memory_empty_dir_is_as_large_as_the_smallest_bound(
    empty_dir: dict[str, str], limits: tuple[str | None, ...], size: int
) -> None:
    asked = source({"emptyDir": {"medium": "Memory", **empty_dir}}, containers=containers(*limits))
    assert isinstance(asked, EmptyDir)
    assert (asked.medium, asked.size) == ("Memory", size)


def test_a_pod_level_memory_limit_bounds_a_memory_empty_dir() -> None:
    limits = {"limits": {"memory": "1Gi"}}
    asked = source({"emptyDir": {"medium": "Memory"}}, containers=containers(None), resources=limits)
    assert isinstance(asked, EmptyDir)
    assert asked.size == GIB


def test_what_a_node_can_give_may_change_without_a_new_mount() -> None:
    assert EmptyDir("Memory", size=GIB) == EmptyDir("Memory", size=2 * GIB)


def test_a_host_path_is_a_path_and_a_type() -> None:
    assert source({"hostPath": {"path": "/data"}}) == HostPath("/data")
    assert source({"hostPath": {"path": "/data", "type": "Directory"}}) == HostPath("/data", "Directory")


@pytest.mark.parametrize(
    ("volume", "reason"),
    [
        ({"emptyDir": {"medium": "HugePagesX"}}, 'unknown storage medium "HugePagesX"'),
        ({"emptyDir": {"medium": "Floppy"}}, 'unknown storage medium "Floppy"'),
    ],
)
def test_what_cannot_be_mounted_is_refused_by_name(volume: dict[str, Any], reason: str) -> None:
    assert source(volume) == Refused(reason)


NO_PAGES = "hugePages storage requested, but there is no resource request for huge pages"


@pytest.mark.parametrize(
    ("medium", "requests", "pages"),
    [
        ("HugePages", [{"hugepages-2Mi": "4Mi"}], 2 << 20),
        ("HugePages", [{"hugepages-2Mi": "4Mi", "cpu": "1"}, {"hugepages-2048Ki": "2Mi"}], 2 << 20),
        ("HugePages-1Gi", [{"hugepages-2Mi": "4Mi"}, {"hugepages-1Gi": "1Gi"}], GIB),
        (
            "HugePages",
            [{"hugepages-2Mi": "4Mi"}, {"hugepages-1Gi": "1Gi"}],
            "medium: HugePages can't be used if container requests multiple huge page sizes",
        ),
        ("HugePages", [{"cpu": "1"}], f"medium HugePages: {NO_PAGES}"),
        ("HugePages-1Gi", [{"hugepages-2Mi": "4Mi"}], f"medium HugePages-1Gi: {NO_PAGES}"),
        ("HugePages", [{"hugepages-x": "4Mi"}], f"medium HugePages: {NO_PAGES}"),
    ],
)
def test_huge_pages_have_the_size_that_the_medium_and_the_requests_name(
    medium: str, requests: list[dict[str, str]], pages: int | str
) -> None:
    volume = {"emptyDir": {"medium": medium}}
    found = source(volume, containers=[{"resources": {"requests": request}} for request in requests])
    assert found == (Refused(pages) if isinstance(pages, str) else EmptyDir(medium, page_size=pages))
    inits = source(volume, initContainers=[{"resources": {"requests": request}} for request in requests])
    assert inits == found


def test_huge_pages_may_be_requested_for_the_whole_pod() -> None:
    found = source({"emptyDir": {"medium": "HugePages"}}, resources={"requests": {"hugepages-2Mi": "4Mi"}})
    assert found == EmptyDir("HugePages", page_size=2 << 20)


@pytest.mark.parametrize("medium", ["HugePages-many", "HugePages-"])
def test_a_medium_with_a_size_that_is_none_is_refused(medium: str) -> None:
    refused = source({"emptyDir": {"medium": medium}}, resources={"requests": {"hugepages-2Mi": "4Mi"}})
    assert isinstance(refused, Refused) and refused.reason.startswith(f"medium {medium}: ")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("rbd", f"the volume plugin rbd was removed in Kubernetes 1.31: use {OF_DRIVER} rbd.csi.ceph.com"),
        ("ofALaterRelease", "the volume plugin ofALaterRelease is not known"),
    ],
)
def test_a_type_that_is_not_mounted_names_its_plugin_and_what_to_use_instead(kind: str, reason: str) -> None:
    assert source({kind: {}}) == Refused(reason, unsupported=True)


@pytest.mark.parametrize(
    ("kind", "release"),
    [
        ("photonPersistentDisk", "1.16"),
        ("scaleIO", "1.22"),
        ("flocker", "1.25"),
        ("quobyte", "1.25"),
        ("storageos", "1.25"),
        ("glusterfs", "1.26"),
        ("cephfs", "1.31"),
        ("rbd", "1.31"),
    ],
)
def test_a_removed_plugin_names_the_release_that_removed_it_inline_and_as_a_persistent_volume(
    kind: str, release: str
) -> None:
    inline = source({kind: {}})
    persistent = persistent_volume_spec(
        {}, PersistentVolume(name="pv", spec={kind: {}}, annotations={}, claim={}), Node()
    )
    for refused in (inline, persistent):
        assert isinstance(refused, Refused) and refused.unsupported
        assert f"the volume plugin {kind} was removed in Kubernetes {release}: use " in refused.reason
    assert isinstance(persistent, Unprocessed) and "no volume plugin matched" in persistent.reason


def test_a_volume_the_pod_does_not_have_is_refused() -> None:
    assert isinstance(volume_spec({}, "v", Node()), Refused)
