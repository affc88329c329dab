"""Defines what the core knows of one volume of one pod, which its plugin reads from spec.volumes; pure."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import msgspec

from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.pod_certificates import CertificateKey
from services.volume.core.files.token_cache import TokenKey
from services.volume.core.specs.expansion import Expansion
from shared.model.objects import Object
from shared.podspec.resources import parse_resources

ATTACH = "AttachVolume.Attach"  # the kubelet's name of that step
FLEX_VOLUME = "kubernetes.io/flexvolume"  # the plugin of all FlexVolume drivers


class SELinuxUse(msgspec.Struct, frozen=True):
    """How a pod uses a PersistentVolume whose driver takes SELinux labels, on a host with SELinux.

    `access_mode`: the widest of the volume, as metrics name it; `labels`: those of the containers that mount it, none
    where the pod declines a mount with a label; `enforced`: the volume is mounted with its label, so that a second one
    is an error; `unlabelled`: how many of the containers have options of which no label can be made.
    """

    access_mode: str
    labels: tuple[str, ...]
    enforced: bool
    unlabelled: int = 0


@dataclass(frozen=True, kw_only=True)
class VolumeSpec:
    """What a plugin requests for a volume. A volume is set up again when a new spec is not equal to the old one."""

    plugin: str  # its name, as `kubernetes.io/secret`
    source: Hashable  # the plugin's own value: directories, modes, files; the core only compares it
    # Its key among the volumes of its pod: "" = its name in the pod, else `<plugin>/<directory>`, where the directory
    # is named after the PersistentVolume (volumes.md 8.2).
    key: str = ""
    # The plugin's name of a volume with a device layer. Pods with the same volume share its device, which is mounted
    # once, below their own mounts. "" = it has no device layer, and only one pod has it.
    volume_name: str = ""
    attachable: bool = False  # the attach-detach controller attaches it to the node before its device is mounted
    block: bool = False  # the pod gets a block device and no mounted file system
    capacity: int = field(default=0, compare=False)  # bytes that it is to have; 0 = not known, it is never expanded
    expansion: Expansion | None = field(default=None, compare=False)  # None = its claim requests none
    expansion_objects: frozenset[ObjectKey] = field(default=frozenset(), compare=False)  # Secrets for that
    has_directory: bool = True  # below `pods/<uid>/volumes`; it is torn down once the pod does not want the volume
    read_only: bool = False  # for every container
    selinux_relabel: bool = False  # its files belong to the pod: the runtime may give them the container's label
    requires_remount: bool = False  # its content may change while it is mounted: it is set up again from time to time
    objects: frozenset[ObjectKey] = frozenset()  # Secrets, ConfigMaps and trust bundles that set-up needs
    tokens: tuple[TokenKey, ...] = ()  # service account tokens that set-up needs
    certificates: tuple[CertificateKey, ...] = ()  # of the pod, that set-up needs
    provisional: bool = field(default=False, compare=False)  # the node's allocatable resources are not known yet
    # Where the volume is, outside of the root directory, so that a call on it may hang: a path of the node, or
    # `<server>:<path>`.
    node_path: str = ""
    node_check: str = ""  # the check of `node_path` that set-up makes, as an error names it; "" = none
    served_by: str = ""  # the driver that every call for the volume waits for; "" = none
    reports_health: bool = field(default=False, compare=False)  # its driver may report adverse conditions
    updates_limit: bool = field(default=False, compare=False)  # its driver reports again how many the node takes
    claim: str = ""  # `<namespace>/<name>` of the PersistentVolumeClaim; "" = it has none
    group: int | None = field(default=None, compare=False)  # a supplemental group of the pods that use it
    one_pod: bool = field(default=False, compare=False)  # ReadWriteOncePod: no second pod of this node may have it
    mount_label: str = ""  # the SELinux label that its device and the volume are mounted with; "" = none
    selinux: SELinuxUse | None = field(default=None, compare=False)  # None = its driver takes no labels
    elsewhere: bool = field(default=False, compare=False)  # a PersistentVolume that may not be used on this node
    migrated: bool = field(default=False, compare=False)  # it was translated from an in-tree plugin

    @property
    def unique_name(self) -> str:
        """Return the key of its device, as volumesInUse has it; "" = it has no device layer."""
        return unique_name(self.plugin, self.volume_name) if self.volume_name else ""


def unique_name(plugin: str, volume_name: str) -> str:
    """Return `<plugin>/<volume name>` (volumes.md 2.6). A FlexVolume driver is a plugin of its own there, and its name
    the first part of the volume name."""
    return volume_name if plugin == FLEX_VOLUME else f"{plugin}/{volume_name}"


class Refused(msgspec.Struct, frozen=True):
    """A volume that cannot be mounted as it is specified. `reason`: the inner text of the FailedMount message; `step`:
    the kubelet's name for the step that fails; `unsupported`: no attempt can mount a volume of its type."""

    reason: str
    step: str = "MountVolume.SetUp"
    unsupported: bool = False


class Unprocessed(Refused, frozen=True):
    """A volume whose claim cannot be used now, until the claim changes. `reason`: the kubelet's text, "" while the
    claim is being read; `quiet`: the reason is expected to end soon, and is no event at first; `selinux`: the use that
    is refused because of its labels."""

    quiet: bool = False
    selinux: SELinuxUse | None = None


def spec_name(key: str) -> str:
    """Return the name of a volume in directories, messages and plugins: for a PersistentVolume its name."""
    return key.rpartition("/")[2]


class Node(msgspec.Struct, frozen=True):
    """The node as a volume depends on it.

    `memory`: bytes that pods may have, 0 = not known; `allocatable`: resource -> quantity text; `provisional`: both are
    only estimated; `alone`: there is no API server; `name`, `labels`: of the Node, labels None = not read yet;
    `csi_driver`: the CSIDriver of the volume at hand, None = it has none; `gates`: the feature gates of volumes that
    are on; `file_label`: the default SELinux label of files that containers use, "" = SELinux is off; `flex_attaches`:
    the FlexVolume driver of the volume at hand attaches volumes to nodes; `attaches`: there is no attach-detach
    controller, because the node attaches volumes itself or there is no cluster.
    """

    memory: int = 0
    allocatable: Mapping[str, str] = msgspec.field(default_factory=dict)
    provisional: bool = False
    alone: bool = False
    name: str = ""
    labels: Mapping[str, str] | None = None
    csi_driver: Object | None = None
    gates: frozenset[str] = frozenset()
    health_capability: str = ""  # by which CSI drivers report the health of volumes, "" = they are not asked
    file_label: str = ""
    flex_attaches: bool = False
    attaches: bool = False


def node_of(allocatable: Mapping[str, str], *, provisional: bool = False, alone: bool = False) -> Node:
    """Return the node with these allocatable resources."""
    memory = parse_resources(allocatable).get("memory")
    return Node(0 if memory is None else memory.base(), allocatable, provisional, alone)
