"""The one table of volume types: what the API has of each, and what this agent does with it.

A new type that the agent mounts is one row here, and its plugin in services/volume/plugins with a row in registry.py.
"""

import msgspec

from shared.model.schema import ListOf, MapOf, Scalar, Struct

_S, _B, _I32 = Scalar.STRING, Scalar.BOOLEAN, Scalar.INT32
LOCAL_REF: Struct = {"name": _S}
FIELD_REF: Struct = {"apiVersion": _S, "fieldPath": _S}
RESOURCE_REF: Struct = {"containerName": _S, "resource": _S, "divisor": Scalar.QUANTITY}
_USER = Scalar.INT64
_ITEMS = ListOf({"key": _S, "path": _S, "mode": _I32, "user": _USER})
_DOWNWARD_ITEMS = ListOf(
    {"path": _S, "mode": _I32, "user": _USER, "fieldRef": FIELD_REF, "resourceFieldRef": RESOURCE_REF}
)
# The sources of a projected volume; all of them are mounted.
PROJECTIONS: Struct = {
    "secret": {"name": _S, "items": _ITEMS, "optional": _B},
    "configMap": {"name": _S, "items": _ITEMS, "optional": _B},
    "downwardAPI": {"items": _DOWNWARD_ITEMS},
    "serviceAccountToken": {"audience": _S, "expirationSeconds": Scalar.INT64, "path": _S, "user": _USER},
    "clusterTrustBundle": {"user": _USER},
    "podCertificate": {"user": _USER},
}

_CSI = "a PersistentVolume of the CSI driver"
_ENDED = "a PersistentVolume of a CSI driver for other storage, as the product has ended"


class VolumeType(msgspec.Struct, frozen=True, kw_only=True):
    """One type. A type with the field `defaultMode` gets its default."""

    fields: Struct  # those that this agent reads; others are carried along
    in_pod: bool = True  # spec.volumes of a pod may have it
    mounted: bool = False  # this agent mounts it, or what it stands for
    mounted_persistent: bool = False  # this agent mounts a PersistentVolume of this type
    directory: str = ""  # the directory below pods/<uid>/volumes in which each volume of this type has its own
    required: tuple[str, ...] = ()  # fields that may not be empty
    secret: str = ""  # field that names the Secret with its credentials or files
    refers: str = ""  # the kind of API object that it names, in the words with which static pods are refused
    driver: str = ""  # the CSI driver that serves such volumes, which are translated; "" = they are not
    removed: str = ""  # the release of Kubernetes that removed its plugin; "" = it has one
    gate: str = ""  # the feature gate with which it is mounted, locked off since Kubernetes 1.36; "" = it needs none
    instead: str = ""  # what an operator can use in place of a type that this agent does not mount

    def why_unmounted(self, name: str) -> str:
        """Return why no volume of this type, which has this name, is mounted, and what to use instead."""
        why = f"was removed in Kubernetes {self.removed}"
        why = f"needs the feature gate {self.gate}, which Kubernetes 1.36 has locked" if self.gate else why
        return f"the volume plugin {name} {why}: use {self.instead}"


def is_of_huge_pages(medium: str) -> bool:
    """Return whether an emptyDir of this medium is one of huge pages: `HugePages`, or `HugePages-<size>`."""
    return medium == "HugePages" or medium.startswith("HugePages-")


TYPES: dict[str, VolumeType] = {
    "emptyDir": VolumeType(
        fields={"medium": _S, "sizeLimit": Scalar.QUANTITY, "mode": _I32},
        mounted=True,
        directory="kubernetes.io~empty-dir",
    ),
    "hostPath": VolumeType(fields={"path": _S, "type": _S}, mounted=True, mounted_persistent=True),
    "configMap": VolumeType(
        fields={"name": _S, "items": _ITEMS, "defaultMode": _I32, "defaultUser": _USER, "optional": _B},
        mounted=True,
        directory="kubernetes.io~configmap",
        refers="configmaps (via configmap volumes)",
    ),
    "secret": VolumeType(
        fields={"secretName": _S, "items": _ITEMS, "defaultMode": _I32, "defaultUser": _USER, "optional": _B},
        mounted=True,
        directory="kubernetes.io~secret",
        secret="secretName",
        refers="secrets (via secret volumes)",
    ),
    "downwardAPI": VolumeType(
        fields={"items": _DOWNWARD_ITEMS, "defaultMode": _I32, "defaultUser": _USER},
        mounted=True,
        directory="kubernetes.io~downward-api",
    ),
    "projected": VolumeType(
        fields={"sources": ListOf(PROJECTIONS), "defaultMode": _I32, "defaultUser": _USER},
        mounted=True,
        directory="kubernetes.io~projected",
    ),
    "persistentVolumeClaim": VolumeType(
        fields={"claimName": _S, "readOnly": _B},
        mounted=True,
        required=("claimName",),
        refers="persistentvolumeclaims",
    ),
    "ephemeral": VolumeType(
        fields={"volumeClaimTemplate": {}}, mounted=True, refers="persistentvolumeclaims (via ephemeral volumes)"
    ),
    "image": VolumeType(fields={"reference": _S, "pullPolicy": _S}, mounted=True, required=("reference",)),
    "csi": VolumeType(
        fields={
            "driver": _S,
            "readOnly": _B,
            "fsType": _S,
            "volumeAttributes": MapOf(_S),
            "nodePublishSecretRef": LOCAL_REF,
        },
        mounted=True,
        mounted_persistent=True,
        directory="kubernetes.io~csi",
        secret="nodePublishSecretRef",
        refers="csidrivers (via CSI volumes)",
    ),
    "nfs": VolumeType(
        fields={"server": _S, "path": _S, "readOnly": _B},
        mounted=True,
        mounted_persistent=True,
        directory="kubernetes.io~nfs",
        required=("server", "path"),
    ),
    "local": VolumeType(fields={}, in_pod=False, mounted_persistent=True),
    "iscsi": VolumeType(
        fields={
            "targetPortal": _S,
            "portals": ListOf(_S),
            "iqn": _S,
            "lun": _I32,
            "iscsiInterface": _S,
            "initiatorName": _S,
            "fsType": _S,
            "readOnly": _B,
            "chapAuthDiscovery": _B,
            "chapAuthSession": _B,
            "secretRef": LOCAL_REF,
        },
        mounted=True,
        mounted_persistent=True,
        directory="kubernetes.io~iscsi",
        required=("targetPortal", "iqn"),
        secret="secretRef",
    ),
    "fc": VolumeType(
        fields={"targetWWNs": ListOf(_S), "lun": _I32, "wwids": ListOf(_S), "fsType": _S, "readOnly": _B},
        mounted=True,
        mounted_persistent=True,
        directory="kubernetes.io~fc",
    ),
    "gitRepo": VolumeType(
        fields={"repository": _S, "revision": _S, "directory": _S},
        directory="kubernetes.io~git-repo",
        gate="GitRepoVolumeDriver",
        instead="an emptyDir that an init container fills with git clone",
    ),
    "glusterfs": VolumeType(
        fields={},
        refers="endpoints (via glusterFS volumes)",
        removed="1.26",
        instead="an nfs volume of a server that exports the GlusterFS volume",
    ),
    "cephfs": VolumeType(
        fields={"secretRef": LOCAL_REF},
        secret="secretRef",
        removed="1.31",
        instead=f"{_CSI} cephfs.csi.ceph.com",
    ),
    "rbd": VolumeType(
        fields={"secretRef": LOCAL_REF}, secret="secretRef", removed="1.31", instead=f"{_CSI} rbd.csi.ceph.com"
    ),
    "cinder": VolumeType(
        fields={"secretRef": LOCAL_REF},
        secret="secretRef",
        mounted=True,
        mounted_persistent=True,
        driver="cinder.csi.openstack.org",
    ),
    "azureFile": VolumeType(
        fields={"secretName": _S},
        secret="secretName",
        refers="secrets (via azureFile volumes)",
        mounted=True,
        mounted_persistent=True,
        driver="file.csi.azure.com",
    ),
    "azureDisk": VolumeType(fields={}, mounted=True, mounted_persistent=True, driver="disk.csi.azure.com"),
    "awsElasticBlockStore": VolumeType(fields={}, mounted=True, mounted_persistent=True, driver="ebs.csi.aws.com"),
    "gcePersistentDisk": VolumeType(fields={}, mounted=True, mounted_persistent=True, driver="pd.csi.storage.gke.io"),
    "flexVolume": VolumeType(
        fields={"driver": _S, "fsType": _S, "secretRef": LOCAL_REF, "readOnly": _B, "options": MapOf(_S)},
        mounted=True,
        mounted_persistent=True,
        required=("driver",),
        secret="secretRef",
    ),
    "flocker": VolumeType(fields={}, removed="1.25", instead=_ENDED),
    "photonPersistentDisk": VolumeType(fields={}, removed="1.16", instead=f"{_CSI} csi.vsphere.vmware.com"),
    "portworxVolume": VolumeType(fields={}, mounted=True, mounted_persistent=True, driver="pxd.portworx.com"),
    "quobyte": VolumeType(fields={}, removed="1.25", instead=f"{_CSI} csi.quobyte.com"),
    "scaleIO": VolumeType(
        fields={"secretRef": LOCAL_REF},
        secret="secretRef",
        removed="1.22",
        instead=f"{_CSI} csi-vxflexos.dellemc.com (Dell PowerFlex)",
    ),
    "storageos": VolumeType(
        fields={"secretRef": LOCAL_REF},
        secret="secretRef",
        removed="1.25",
        instead=_ENDED,
    ),
    "vsphereVolume": VolumeType(fields={}, mounted=True, mounted_persistent=True, driver="csi.vsphere.vmware.com"),
}
# The fields of each type that spec.volumes may have: exactly one of these keys makes a volume.
VOLUME_TYPES: Struct = {name: kind.fields for name, kind in TYPES.items() if kind.in_pod}
