"""From a pod's volume to its PersistentVolume: the kubelet's texts for what is wrong, and what plugins read."""

from typing import Any

import pytest

from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import FailureKind, FoundObject, Problem
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_claims import resolve
from services.volume.core.specs.volume_spec import Node, Refused, Unprocessed, VolumeSpec
from services.volume.plugins.host_path import HostPath
from services.volume.plugins.local import Local
from services.volume.plugins.nfs import Nfs
from services.volume.plugins.registry import persistent_volume_spec, volume_spec
from tests.unit.volume.claims import CLAIM, PV, claim, found, key, pod, volume

EPHEMERAL: dict[str, Any] = {"ephemeral": {"volumeClaimTemplate": {}}}
OWNER: dict[str, Any] = {"ownerReferences": [{"uid": "u", "controller": True}]}
WRAPPED = "error processing PVC shop/data: "


def resolved(in_pod: dict[str, Any], read: dict[ObjectKey, FoundObject]) -> PersistentVolume | Unprocessed:
    return resolve(in_pod, in_pod["spec"]["volumes"][0], read.get)


def reason(in_pod: dict[str, Any], read: dict[ObjectKey, FoundObject]) -> str:
    result = resolved(in_pod, read)
    assert isinstance(result, Unprocessed)
    return result.reason


def test_a_claim_is_read_first_and_then_its_volume() -> None:
    asked: list[str] = []
    read: dict[ObjectKey, FoundObject] = {}

    def get(wanted: ObjectKey) -> FoundObject | None:
        asked.append(str(wanted))
        return read.get(wanted)

    entry = pod()["spec"]["volumes"][0]
    assert resolve(pod(), entry, get) == Unprocessed("")
    assert asked == [CLAIM]
    read |= found(claim=claim())
    assert resolve(pod(), entry, get) == Unprocessed("")
    assert asked == [CLAIM, CLAIM, PV]


def test_a_bound_claim_gives_its_volume() -> None:
    result = resolved(pod(), found(claim=claim(), volume=volume()))
    assert isinstance(result, PersistentVolume)
    assert (result.name, result.read_only, result.capacity) == ("pv-1", False, 1 << 30)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (found(claim=claim(deletionTimestamp="t")), "PVC is being deleted"),
        (found(claim=claim(phase="Pending")), "PVC is not bound"),
        (found(claim=claim(phase="Lost")), "PVC is not bound"),
        (found(claim=claim(volume="")), "PVC has empty pvc.Spec.VolumeName"),
        (
            found(claim=claim(), volume=volume(claim_uid=None)),
            "found PV object pv-1 but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim",
        ),
        (
            found(claim=claim(), volume=volume(claim_uid="other")),
            "found PV object pv-1 but its pv.Spec.ClaimRef.UID other does not point to claim.UID c1",
        ),
        (
            {key(CLAIM): FoundObject(problem=Problem('persistentvolumeclaims "data" not found'))},
            'failed to fetch PVC from API server: persistentvolumeclaims "data" not found',
        ),
        (
            {**found(claim=claim()), key(PV): FoundObject(problem=Problem("gone"))},
            "failed to fetch PV pv-1 from API server: gone",
        ),
        ({key(CLAIM): FoundObject({"metadata": 1})}, "PVC is not bound"),
    ],
)
def test_a_claim_that_cannot_be_used_has_the_kubelets_text(read: dict[ObjectKey, FoundObject], text: str) -> None:
    assert reason(pod(), read) == WRAPPED + text


def test_a_claim_that_is_protected_while_it_is_being_deleted_is_used() -> None:
    ending = claim(deletionTimestamp="t", finalizers=["kubernetes.io/pvc-protection"])
    assert isinstance(resolved(pod(), found(claim=ending, volume=volume())), PersistentVolume)


def test_the_volume_mode_must_be_the_one_that_containers_use() -> None:
    block, files = found(claim=claim(), volume=volume(volumeMode="Block")), found(claim=claim(), volume=volume())
    assert reason(pod(), block) == "volume v has volumeMode Block, but is specified in volumeMounts"
    assert reason(pod(devices=True), files) == "volume v has volumeMode Filesystem, but is specified in volumeDevices"
    assert isinstance(resolved(pod(devices=True), block), PersistentVolume)


def test_the_claim_of_an_ephemeral_volume_belongs_to_its_pod() -> None:
    own = ObjectKey("PersistentVolumeClaim", "shop", "web-v")
    read = {own: FoundObject(claim(**OWNER)), **found(volume=volume())}
    assert isinstance(resolved(pod(EPHEMERAL), read), PersistentVolume)
    foreign = {own: FoundObject(claim()), **found(volume=volume())}
    text = "PVC shop/web-v was not created for pod shop/web (pod is not owner)"
    assert reason(pod(EPHEMERAL), foreign) == text


def test_a_refusal_that_is_expected_to_end_soon_is_quiet() -> None:
    lagging = FoundObject(problem=Problem("is forbidden: ", FailureKind.LAGGING))
    result = resolved(pod(), {key(CLAIM): lagging})
    assert isinstance(result, Unprocessed)
    assert result.quiet


LABELLED = Node(labels={})


def spec_of(node: Node = LABELLED, **spec: Any) -> VolumeSpec | Refused:
    result = resolved(pod(), found(claim=claim(), volume=volume(**spec)))
    assert isinstance(result, PersistentVolume)
    return persistent_volume_spec(pod(), result, node)


def test_a_volume_is_read_by_the_plugin_of_its_source() -> None:
    spec = spec_of()
    assert isinstance(spec, VolumeSpec)
    assert (spec.plugin, spec.key, spec.source) == (
        "kubernetes.io/host-path",
        "kubernetes.io/host-path/pv-1",
        HostPath("/srv"),
    )
    assert (spec.claim, spec.capacity, spec.one_pod, spec.elsewhere) == ("shop/data", 1 << 30, False, False)


def test_no_plugin_no_mount_options_and_the_access_mode_of_one_pod() -> None:
    unknown = resolved(pod(), found(claim=claim(), volume=volume()))
    assert isinstance(unknown, PersistentVolume)
    text = 'failed to get Plugin from volumeSpec for volume "pv-1" err=no volume plugin matched'
    assert persistent_volume_spec(pod(), unknown, Node(labels={}), {}) == Unprocessed(text)
    refused = spec_of(mountOptions=["ro"])
    assert isinstance(refused, Refused)
    assert refused.step == "MountVolume.MountOptionSupport check"
    assert refused.reason == "mount options are not supported for this volume type"
    one = spec_of(accessModes=["ReadWriteOncePod"])
    assert isinstance(one, VolumeSpec)
    assert one.one_pod


def test_the_node_affinity_of_a_volume_is_compared_with_the_labels_of_the_node() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    affinity = {"required": {"nodeSelectorTerms": terms}}
    for labels, elsewhere in (({"zone": "a"}, False), ({"zone": "b"}, True), ({}, True)):
        spec = spec_of(Node(labels=labels), nodeAffinity=affinity)
        assert isinstance(spec, VolumeSpec)
        assert spec.elsewhere is elsewhere
    assert spec_of(Node(), nodeAffinity=affinity) == Unprocessed("")


def test_mount_options_of_the_annotation_take_precedence() -> None:
    made = PersistentVolume(name="p", spec={"mountOptions": ["a", "b"]}, annotations={}, claim={})
    assert made.mount_options == ("a", "b")
    annotated = {"volume.beta.kubernetes.io/mount-options": "x,y", "pv.beta.kubernetes.io/gid": "1234"}
    made = PersistentVolume(name="p", spec={"mountOptions": ["a"]}, annotations=annotated, claim={})
    assert (made.mount_options, made.group) == (("x", "y"), 1234)


@pytest.mark.parametrize("odd", [None, 1, "x", [], {"accessModes": 1, "capacity": {"storage": []}, "nodeAffinity": 2}])
def test_odd_objects_are_read_without_an_exception(odd: Any) -> None:
    broken = {"metadata": {"name": "pv-1"}, "spec": odd}
    assert isinstance(resolved(pod(), found(claim=claim(), volume=broken)), Unprocessed)
    made = PersistentVolume(name="p", spec=odd if isinstance(odd, dict) else {}, annotations={}, claim={"status": odd})
    facts = (made.access_modes, made.capacity, made.claim_capacity, made.mount_options, made.group, made.one_pod)
    assert facts == ((), 0, 0, (), None, False)
    assert made.is_for(Node(labels={}))


@pytest.mark.parametrize("source", [{}, {"path": 1, "fsType": []}, {"path": "/data", "fsType": "xfs"}])
def test_a_local_volume_has_a_device_layer_and_the_options_of_its_volume(source: dict[str, Any]) -> None:
    spec = spec_of(local=source, mountOptions=["b", "a", "a"], volumeMode="Filesystem")
    assert isinstance(spec, VolumeSpec)
    assert isinstance(spec.source, Local)
    assert (spec.unique_name, spec.source.options) == ("kubernetes.io/local-volume/pv-1", ("a", "b"))
    assert spec.source.path in ("", "/data")


def test_an_nfs_volume_has_the_same_key_inline_and_as_a_persistent_volume() -> None:
    source = {"server": "fd00::1", "path": "/export", "readOnly": True}
    inline = volume_spec(pod({"nfs": source}), "v", Node())
    assert isinstance(inline, VolumeSpec)
    assert (inline.key, inline.read_only, inline.node_path) == ("kubernetes.io/nfs/v", True, "[fd00::1]:/export")
    assert inline.source == Nfs("[fd00::1]:/export", ("ro",))
    persistent = spec_of(nfs={"server": "s", "path": "/e"}, mountOptions=["vers=4.2", "hard"])
    assert isinstance(persistent, VolumeSpec)
    assert isinstance(persistent.source, Nfs)
    assert (persistent.key, persistent.source.options) == ("kubernetes.io/nfs/pv-1", ("hard", "vers=4.2"))
    assert isinstance(spec_of(nfs={"server": 1}), Refused)
    assert isinstance(spec_of(nfs={"server": "s", "path": "/e"}, volumeMode="Filesystem"), VolumeSpec)


@pytest.mark.parametrize(("annotation", "group"), [("5005", 5005), ("-1", None), ("staff", None), ("9" * 20, None)])
def test_the_group_of_an_annotation_is_for_the_processes_of_the_pod(annotation: str, group: int | None) -> None:
    annotated = volume()
    annotated["metadata"]["annotations"] = {"pv.beta.kubernetes.io/gid": annotation}
    persistent = resolved(pod(), found(claim=claim(), volume=annotated))
    assert isinstance(persistent, PersistentVolume)
    spec = persistent_volume_spec(pod(), persistent, Node())
    assert isinstance(spec, VolumeSpec)
    assert spec.group == group
