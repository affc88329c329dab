"""Volumes of in-tree plugins as those of their CSI drivers: the table of volumes.md 15, and what it does not list from
the translation of Kubernetes."""

from typing import Any

import pytest

from services.volume.core.specs.csi_translation import translated_inline, translated_volume
from services.volume.core.specs.in_tree_sources import SOURCES, TranslationError
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_spec import Refused
from shared.podspec.volume_types import TYPES

DISK = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/data"
POD = {"metadata": {"name": "web", "namespace": "shop", "uid": "u"}}
ZONE, BETA_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
EBS_ZONE = "topology.ebs.csi.aws.com/zone"
Json = dict[str, Any]

# source -> spec.csi of a PersistentVolume `pv-1` whose claim is in the namespace `shop`
PERSISTENT: list[tuple[Json, Json]] = [
    (
        {"awsElasticBlockStore": {"volumeID": "aws://a/vol-0a1", "fsType": "xfs", "partition": 2, "readOnly": True}},
        {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-0a1", "fsType": "xfs", "readOnly": True,
         "volumeAttributes": {"partition": "2"}},
    ),
    (
        {"awsElasticBlockStore": {"volumeID": "vol-0a1"}},
        {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-0a1", "fsType": "", "readOnly": False,
         "volumeAttributes": {}},
    ),
    (
        {"gcePersistentDisk": {"pdName": "data", "fsType": "ext4", "partition": 1}},
        {"driver": "pd.csi.storage.gke.io", "volumeHandle": "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/data",
         "fsType": "ext4", "readOnly": False, "volumeAttributes": {"partition": "1"}},
    ),
    (
        {"azureDisk": {"diskName": "data", "diskURI": DISK, "cachingMode": "ReadOnly", "fsType": "ext4"}},
        {"driver": "disk.csi.azure.com", "volumeHandle": DISK, "fsType": "ext4", "readOnly": False,
         "volumeAttributes": {"kind": "Managed", "cachingMode": "ReadOnly", "fsType": "ext4"}},
    ),
    (
        {"azureFile": {"secretName": "azure-storage-account-acct-secret", "shareName": "s", "secretNamespace": "keys"}},
        {"driver": "file.csi.azure.com", "volumeHandle": "#acct#s#pv-1#keys", "readOnly": False,
         "volumeAttributes": {"shareName": "s"},
         "nodeStageSecretRef": {"name": "azure-storage-account-acct-secret", "namespace": "keys"}},
    ),
    (
        {"azureFile": {"secretName": "own", "shareName": "s", "readOnly": True}},
        {"driver": "file.csi.azure.com", "volumeHandle": "#own#s#pv-1#shop", "readOnly": True,
         "volumeAttributes": {"shareName": "s"}, "nodeStageSecretRef": {"name": "own", "namespace": "shop"}},
    ),
    (
        {"cinder": {"volumeID": "c-1", "fsType": "ext4"}},
        {"driver": "cinder.csi.openstack.org", "volumeHandle": "c-1", "fsType": "ext4", "readOnly": False,
         "volumeAttributes": {}},
    ),
    (
        {"portworxVolume": {"volumeID": "p-1", "fsType": "xfs"}},
        {"driver": "pxd.portworx.com", "volumeHandle": "p-1", "fsType": "xfs", "volumeAttributes": {}},
    ),
    (
        {"vsphereVolume": {"volumePath": "[ds] kubevols/x.vmdk", "fsType": "ext4", "storagePolicyName": "gold"}},
        {"driver": "csi.vsphere.vmware.com", "volumeHandle": "[ds] kubevols/x.vmdk", "fsType": "ext4",
         "volumeAttributes": {"storagepolicyname": "gold"}},
    ),
]  # fmt: skip

# source -> name, volumeHandle and access mode of a volume `v` of a pod in the namespace `shop`
INLINE: list[tuple[Json, tuple[str, str, str]]] = [
    (
        {"awsElasticBlockStore": {"volumeID": "aws:///vol-1"}},
        ("ebs.csi.aws.com-vol-1", "vol-1", "ReadWriteOnce"),
    ),
    (
        {"gcePersistentDisk": {"pdName": "data"}},
        ("pd.csi.storage.gke.io-data", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/data", "ReadWriteOnce"),
    ),
    (
        {"gcePersistentDisk": {"pdName": "data", "readOnly": True}},
        ("pd.csi.storage.gke.io-data", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/data", "ReadOnlyMany"),
    ),
    ({"azureDisk": {"diskName": "data", "diskURI": DISK}}, (DISK.replace("/", "~"), DISK, "ReadWriteOnce")),
    (
        {"azureFile": {"secretName": "own", "shareName": "s", "secretNamespace": "ignored"}},
        ("#own#s#v#shop", "#own#s#v#shop", "ReadWriteMany"),
    ),
    ({"cinder": {"volumeID": "c-1"}}, ("cinder.csi.openstack.org-c-1", "c-1", "ReadWriteOnce")),
    ({"portworxVolume": {"volumeID": "p-1"}}, ("pxd.portworx.com-p-1", "p-1", "ReadWriteOnce")),
    (
        {"vsphereVolume": {"volumePath": "[ds] k/x.vmdk"}},
        ("csi.vsphere.vmware.com-[ds] k~x.vmdk", "[ds] k/x.vmdk", "ReadWriteOnce"),
    ),
]


def persistent(spec: Json, **metadata: Any) -> Json:
    """The PersistentVolume `pv-1` after its translation."""
    reference = {"claimRef": {"namespace": "shop", "name": "data", "uid": "c1"}}
    found = translated_volume({"metadata": {"name": "pv-1", **metadata}, "spec": {**reference, **spec}})
    assert found is not None and found["metadata"]["name"] == "pv-1" and found["spec"]["claimRef"]
    return dict(found["spec"])


def inline(source: Json) -> PersistentVolume | Refused | None:
    return translated_inline(POD, {"name": "v", **source})


def term(key: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def affinity(*terms: Json) -> Json:
    return {"required": {"nodeSelectorTerms": list(terms)}}


@pytest.mark.parametrize(("source", "csi"), PERSISTENT, ids=lambda value: next(iter(value)))
def test_a_persistent_volume_keeps_its_name_and_gets_the_source_of_its_driver(source: Json, csi: Json) -> None:
    spec = persistent({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **source})
    assert spec["csi"] == csi
    assert (spec["capacity"], spec["accessModes"]) == ({"storage": "1Gi"}, ["ReadWriteOnce"])
    assert not source.keys() & spec.keys()


@pytest.mark.parametrize(("source", "shown"), INLINE, ids=lambda value: next(iter(value)))
def test_a_volume_of_a_pod_is_named_after_its_storage(source: Json, shown: tuple[str, str, str]) -> None:
    found = inline(source)
    assert isinstance(found, PersistentVolume)
    assert (found.name, found.spec["csi"]["volumeHandle"], *found.spec["accessModes"]) == shown
    assert (found.spec["volumeMode"], found.volume, found.claim, found.migrated) == ("Filesystem", "v", {}, True)


def test_every_plugin_of_the_annotation_is_translated_to_the_driver_of_the_table_of_types() -> None:
    assert sorted(row.plugin for row in SOURCES) == [
        "kubernetes.io/aws-ebs", "kubernetes.io/azure-disk", "kubernetes.io/azure-file", "kubernetes.io/cinder",
        "kubernetes.io/gce-pd", "kubernetes.io/portworx-volume", "kubernetes.io/vsphere-volume",
    ]  # fmt: skip
    assert {row.field: row.driver for row in SOURCES} == {
        name: kind.driver for name, kind in TYPES.items() if kind.driver
    }


@pytest.mark.parametrize("kind", ["rbd", "cephfs", "glusterfs", "csi", "nfs", "emptyDir"])
def test_what_no_driver_serves_stays_as_it_is(kind: str) -> None:
    assert translated_volume({"metadata": {"name": "pv-1"}, "spec": {kind: {}}}) is None
    assert inline({kind: {}}) is None


@pytest.mark.parametrize(
    ("labels", "handle"),
    [
        ({ZONE: "us-east1-a"}, "zones/us-east1-a"),
        ({BETA_ZONE: "us-east1-b", ZONE: "us-east1-a"}, "zones/us-east1-b"),
        ({ZONE: "us-east1-a__us-east1-b"}, "regions/us-east1"),
    ],
)
def test_a_disk_of_gce_is_one_of_its_zone_or_of_the_region_of_its_zones(labels: Json, handle: str) -> None:
    spec = persistent({"gcePersistentDisk": {"pdName": "data"}}, labels=labels)
    assert spec["csi"]["volumeHandle"] == f"projects/UNSPECIFIED/{handle}/disks/data"


@pytest.mark.parametrize(
    ("source", "labels", "why"),
    [
        ({"gcePersistentDisk": {"pdName": "d"}}, {ZONE: "a-b-c__a-z-c"}, "multiple or no regions gotten from zones"),
        ({"gcePersistentDisk": {"pdName": "d"}}, {ZONE: "here__there"}, "zone in unexpected format"),
        ({"awsElasticBlockStore": {"volumeID": "aws://a/disk"}}, {}, "Invalid format for AWS volume (aws://a/disk)"),
    ],
)
def test_a_volume_that_no_driver_can_have_is_refused_with_the_kubelets_text(
    source: Json, labels: Json, why: str
) -> None:
    with pytest.raises(TranslationError) as caught:
        persistent(source, labels=labels)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["ReadWriteMany"], ["ReadWriteOnce"]),
        (["ReadWriteOnce", "ReadOnlyMany"], ["ReadWriteOnce"]),
        (["ReadOnlyMany"], ["ReadOnlyMany"]),
        (["ReadOnlyMany", "ReadWriteMany"], ["ReadWriteOnce"]),
    ],
)
def test_a_disk_of_gce_has_an_access_mode_that_its_driver_takes(before: list[str], after: list[str]) -> None:
    assert persistent({"gcePersistentDisk": {}, "accessModes": before})["accessModes"] == after
    assert "accessModes" not in persistent({"gcePersistentDisk": {}})


@pytest.mark.parametrize(
    ("given", "labels", "expected"),
    [
        (affinity(term(ZONE, "a", "b")), {}, affinity(term(EBS_ZONE, "a", "b"))),
        (affinity(term(BETA_ZONE, "a")), {ZONE: "b"}, affinity(term(EBS_ZONE, "a"))),
        (None, {ZONE: "a"}, affinity(term(EBS_ZONE, "a"))),
        (None, {BETA_ZONE: "b__ a"}, affinity(term(EBS_ZONE, "a", "b"))),
        (None, {ZONE: "__"}, None),
        (affinity(term("other", "x")), {}, affinity(term("other", "x"))),
        (
            affinity(term("other", "x"), term("more", "y")),
            {ZONE: "a"},
            affinity(
                {
                    "matchExpressions": [
                        *term("other", "x")["matchExpressions"],
                        *term(EBS_ZONE, "a")["matchExpressions"],
                    ]
                },
                {
                    "matchExpressions": [
                        *term("more", "y")["matchExpressions"],
                        *term(EBS_ZONE, "a")["matchExpressions"],
                    ]
                },
            ),
        ),
        (
            affinity(term("failure-domain.beta.kubernetes.io/region", "r"), term(BETA_ZONE, "a")),
            {},
            affinity(term("topology.kubernetes.io/region", "r"), term(EBS_ZONE, "a")),
        ),
    ],
)
def test_the_zones_of_a_volume_are_named_as_its_driver_names_them(given: Any, labels: Json, expected: Any) -> None:
    fields = {} if given is None else {"nodeAffinity": given}
    spec = persistent({"awsElasticBlockStore": {"volumeID": "vol-1"}, **fields}, labels=labels)
    assert spec.get("nodeAffinity") == expected


def test_a_plugin_without_topology_keeps_the_affinity() -> None:
    spec = persistent({"azureDisk": {"diskURI": DISK}, "nodeAffinity": affinity(term(ZONE, "a"))}, labels={ZONE: "b"})
    assert spec["nodeAffinity"] == affinity(term(ZONE, "a"))


def test_annotations_name_the_resource_group_of_azure_and_the_secret_of_portworx() -> None:
    share = persistent(
        {"azureFile": {"secretName": "k", "shareName": "s"}},
        annotations={"kubernetes.io/azure-file-resource-group": "group"},
    )
    assert share["csi"]["volumeHandle"] == "group#k#s#pv-1#shop"
    secret = {"openstorage.io/auth-secret-name": "px", "openstorage.io/auth-secret-namespace": "kube-system"}
    csi = persistent({"portworxVolume": {"volumeID": "p"}}, annotations=secret)["csi"]
    for field in ("nodeStageSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"):
        assert csi[field] == {"name": "px", "namespace": "kube-system"}


@pytest.mark.parametrize("uri", ["", ".", "..", "a\0b", "a\nb", "é" * 128])
def test_storage_after_which_no_directory_can_be_named_is_refused(uri: str) -> None:
    refused = inline({"azureDisk": {"diskURI": uri}})
    assert isinstance(refused, Refused) and "cannot be the name of a directory" in refused.reason


def test_a_node_without_a_cluster_names_the_driver() -> None:
    refused = translated_inline(POD, {"name": "v", "cinder": {"volumeID": "c"}}, alone=True)
    driver = "the CSI driver cinder.csi.openstack.org, which needs a cluster"
    assert refused == Refused(f"the volume plugin kubernetes.io/cinder is served by {driver}")


@pytest.mark.long
@pytest.mark.parametrize("kind", [row.field for row in SOURCES])
@pytest.mark.parametrize("value", [3, [], {"a": 1}, None, True])
def test_no_content_of_a_source_raises(kind: str, value: Any) -> None:
    names = (
        "volumeID",
        "pdName",
        "diskURI",
        "secretName",
        "shareName",
        "volumePath",
        "partition",
        "fsType",
        "readOnly",
    )
    source = dict.fromkeys(names, value)
    assert inline({kind: source}) is not None
    strange = {"labels": {ZONE: value}, "annotations": {"x": value}}
    assert persistent({kind: source, "nodeAffinity": value, "accessModes": value}, **strange)
    required = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "values": value}]}]}}
    assert persistent({kind: source, "nodeAffinity": required})
