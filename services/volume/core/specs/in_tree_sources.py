"""Has the in-tree plugins that a CSI driver serves, and how the source of each is that of its driver (volumes.md 15);
pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from services.volume.core.specs.in_tree_topology import BETA_ZONE, SEPARATOR, ZONE
from shared.model.fields import number, text
from shared.model.objects import Object

_UNSPECIFIED = "UNSPECIFIED"  # a project or zone of GCE that the driver replaces by that of the node
_EBS_VOLUME = re.compile(r"vol-[^/]*")
_STORAGE_ACCOUNT = re.compile(r"azure-storage-account-(.+)-secret")
_RESOURCE_GROUP = "kubernetes.io/azure-file-resource-group"  # an annotation
_PX_SECRET, _PX_SECRET_NAMESPACE = "openstorage.io/auth-secret-name", "openstorage.io/auth-secret-namespace"
_READ_WRITE_ONCE, _READ_ONLY_MANY = "ReadWriteOnce", "ReadOnlyMany"


class TranslationError(ValueError):
    """A volume has no counterpart of its CSI driver. The text has the kubelet's words."""


class InTree(Struct, frozen=True, kw_only=True):
    """A volume of an in-tree plugin. `name`: of the PersistentVolume, or of the volume in its pod; `namespace`: of the
    claim or the pod; `labels`, `annotations`: of the PersistentVolume; `inline`: it is one of spec.volumes."""

    source: Object
    name: str
    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    inline: bool = False

    def text(self, name: str) -> str:
        """Return the string in this field of the source."""
        return text(self.source.get(name))


class InTreeSource(Struct, frozen=True, kw_only=True):
    """One plugin. `field`: its name in spec.volumes; `identity`: what an inline volume is named after; `handle` and
    `others`: the volumeHandle and further fields of spec.csi, may raise TranslationError; `access_modes`: those of a
    PersistentVolume, None = they stay; `topology`: the label of the driver for zones, "" = none."""

    field: str
    plugin: str
    driver: str
    identity: Callable[[InTree], str]
    others: Callable[[InTree], Object]
    handle: Callable[[InTree], str]
    is_named_by_handle: bool = False
    inline_access_mode: Callable[[InTree], str] = lambda _: _READ_WRITE_ONCE
    access_modes: Callable[[Sequence[Any]], list[str]] | None = None
    topology: str = ""


def _ebs_volume(given: InTree) -> str:
    """Return the ID of the volume, which may be written as `aws://<zone>/<ID>`."""
    written = given.text("volumeID")
    if not written.startswith("aws://"):
        return written
    found = written.removeprefix("aws://").partition("/")[2].strip("/")
    if _EBS_VOLUME.fullmatch(found) is None:
        why = f"Invalid format for AWS volume ({written})"
        raise TranslationError(f"failed to translate Kubernetes ID to EBS Volume ID {why}")
    return found


def _ebs(given: InTree) -> Object:
    partition = number(given.source.get("partition")) or 0
    return {**_mounted(given), "volumeAttributes": {"partition": str(partition)} if partition > 0 else {}}


def _gce_disk(given: InTree) -> str:
    """Return the path of the disk: that of a zone, or of a region where the labels name several zones."""
    zones = (given.labels.get(BETA_ZONE) or given.labels.get(ZONE) or "").split(SEPARATOR)
    where = f"zones/{zones[0] or _UNSPECIFIED}" if len(zones) == 1 else f"regions/{_gce_region(zones)}"
    return f"projects/{_UNSPECIFIED}/{where}/disks/{given.text('pdName')}"


def _gce_region(zones: Sequence[str]) -> str:
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            why = f"zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            raise TranslationError(f"failed to get region from zones: {why}")
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        why = f"multiple or no regions gotten from zones, got: {' '.join(sorted(regions))}"
        raise TranslationError(f"failed to get region from zones: {why}")
    return regions.pop()


def _gce(given: InTree) -> Object:
    partition = number(given.source.get("partition")) or 0
    return {**_mounted(given), "volumeAttributes": {"partition": str(partition) if partition else ""}}


def _gce_access_modes(modes: Sequence[Any]) -> list[str]:
    """Return the mode that the driver takes for these: the in-tree plugin attached a disk to one node unless all modes
    were read-only."""
    return [_READ_ONLY_MANY if modes and all(mode == _READ_ONLY_MANY for mode in modes) else _READ_WRITE_ONCE]


def _azure_disk(given: InTree) -> Object:
    caching, fs_type = given.text("cachingMode"), given.text("fsType")
    attributes = {"kind": "Managed"}
    attributes |= {"cachingMode": caching} if caching else {}
    attributes |= {"fsType": fs_type} if fs_type else {}
    return {**_mounted(given), "volumeAttributes": attributes}


def _azure_share(given: InTree) -> str:
    """Return `<resource group>#<account>#<share>#<name of the volume>#<namespace of the Secret>`."""
    secret, group = given.text("secretName"), given.annotations.get(_RESOURCE_GROUP, "")
    account = _STORAGE_ACCOUNT.search(secret)
    parts = (group, account[1] if account else secret, given.text("shareName"), given.name, _azure_namespace(given))
    return "#".join(parts)


def _azure_file(given: InTree) -> Object:
    secret = {"name": given.text("secretName"), "namespace": _azure_namespace(given)}
    return {
        "readOnly": given.source.get("readOnly") is True,
        "volumeAttributes": {"shareName": given.text("shareName")},
        "nodeStageSecretRef": secret,
    }


def _azure_namespace(given: InTree) -> str:
    named = "" if given.inline else given.text("secretNamespace")
    return named or given.namespace or "default"


def _portworx(given: InTree) -> Object:
    name, namespace = given.annotations.get(_PX_SECRET), given.annotations.get(_PX_SECRET_NAMESPACE)
    secret = {"name": name, "namespace": namespace}
    fields = ("nodeStageSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef") if name and namespace else ()
    return {"fsType": given.text("fsType"), "volumeAttributes": {}, **dict.fromkeys(fields, secret)}


def _vsphere(given: InTree) -> Object:
    policy = given.text("storagePolicyName")
    return {"fsType": given.text("fsType"), "volumeAttributes": {"storagepolicyname": policy} if policy else {}}


def _mounted(given: InTree) -> Object:
    return {"readOnly": given.source.get("readOnly") is True, "fsType": given.text("fsType")}


def _mode_of_read_only(given: InTree) -> str:
    return _READ_ONLY_MANY if given.source.get("readOnly") is True else _READ_WRITE_ONCE


def _field(name: str) -> Callable[[InTree], str]:
    return lambda given: given.text(name)


SOURCES = (
    InTreeSource(
        field="awsElasticBlockStore",
        plugin="kubernetes.io/aws-ebs",
        driver="ebs.csi.aws.com",
        identity=_ebs_volume,
        handle=_ebs_volume,
        others=_ebs,
        topology="topology.ebs.csi.aws.com/zone",
    ),
    InTreeSource(
        field="gcePersistentDisk",
        plugin="kubernetes.io/gce-pd",
        driver="pd.csi.storage.gke.io",
        identity=_field("pdName"),
        handle=_gce_disk,
        others=_gce,
        inline_access_mode=_mode_of_read_only,
        access_modes=_gce_access_modes,
        topology="topology.gke.io/zone",
    ),
    InTreeSource(
        field="azureDisk",
        plugin="kubernetes.io/azure-disk",
        driver="disk.csi.azure.com",
        identity=_field("diskURI"),
        handle=_field("diskURI"),
        others=_azure_disk,
        is_named_by_handle=True,
    ),
    InTreeSource(
        field="azureFile",
        plugin="kubernetes.io/azure-file",
        driver="file.csi.azure.com",
        identity=_azure_share,
        handle=_azure_share,
        others=_azure_file,
        is_named_by_handle=True,
        inline_access_mode=lambda _: "ReadWriteMany",
    ),
    InTreeSource(
        field="cinder",
        plugin="kubernetes.io/cinder",
        driver="cinder.csi.openstack.org",
        identity=_field("volumeID"),
        handle=_field("volumeID"),
        others=lambda given: {**_mounted(given), "volumeAttributes": {}},
        topology="topology.cinder.csi.openstack.org/zone",
    ),
    InTreeSource(
        field="portworxVolume",
        plugin="kubernetes.io/portworx-volume",
        driver="pxd.portworx.com",
        identity=_field("volumeID"),
        handle=_field("volumeID"),
        others=_portworx,
        inline_access_mode=_mode_of_read_only,
    ),
    InTreeSource(
        field="vsphereVolume",
        plugin="kubernetes.io/vsphere-volume",
        driver="csi.vsphere.vmware.com",
        identity=_field("volumePath"),
        handle=_field("volumePath"),
        others=_vsphere,
    ),
)
