"""Reads what a pod requests of a CSI volume, from its PersistentVolume or inline source and from the CSIDriver; pure.

The names and texts are the kubelet's (volumes.md 14).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import ContentError, FoundToken, Problem, SetUpInputs
from services.volume.core.files.token_cache import TokenKey
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.pod_fields import changes_group_always, fs_group
from shared.model import objects
from shared.model.fields import dictionaries, dictionary, number, text
from shared.model.frozen_copy import replace
from shared.model.objects import Object

PREFIX = "kubernetes.io/csi: "
MIN_PERIOD_SECONDS = 10  # the API permits no shorter period
LABEL = "seLinuxMountContext"  # the field of a record that contains the SELinux label of the mount
PERSISTENT, EPHEMERAL = "Persistent", "Ephemeral"
_TOKENS = "csi.storage.k8s.io/serviceAccount.tokens"
_MODES = {
    "ReadWriteOnce": "SINGLE_NODE_WRITER",
    "ReadOnlyMany": "MULTI_NODE_READER_ONLY",
    "ReadWriteMany": "MULTI_NODE_MULTI_WRITER",
    "ReadWriteOncePod": "SINGLE_NODE_WRITER",
}
_MULTI_WRITER_MODES = {"ReadWriteOnce": "SINGLE_NODE_MULTI_WRITER", "ReadWriteOncePod": "SINGLE_NODE_SINGLE_WRITER"}
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class CsiVolume:
    """The data that the calls for one volume of one pod need beside `SetUpInputs`. `attachment`: the name of the
    VolumeAttachment, "" = the volume is not attached by a controller."""

    driver: str
    handle: str
    spec_name: str  # after which directories are named
    node: str
    ephemeral: bool = False
    read_only: bool = False
    fs_type: str = ""
    access_modes: tuple[str, ...] = ()
    mount_options: tuple[str, ...] = ()
    attributes: Pairs = ()
    attachment: str = ""
    stage_secret: ObjectKey | None = None
    publish_secret: ObjectKey | None = None
    expand_secret: ObjectKey | None = None
    pod_info: Pairs = ()  # added to the volume context
    tokens: tuple[tuple[str, TokenKey], ...] = ()  # by audience
    tokens_in_secrets: bool = False
    fs_group: int | None = None
    fs_group_policy: str = ""
    always_change_group: bool = True  # fsGroupChangePolicy is not OnRootMismatch
    republish: bool = False
    block: bool = False
    mount_label: str = ""  # the SELinux label in the mount options, "" = none
    health: str = field(default="", compare=False)  # the capability by which its health is read, "" = it is not
    updates_limit: bool = field(default=False, compare=False)  # how many volumes the node takes is read again

    @property
    def objects(self) -> frozenset[ObjectKey]:
        """Return the keys of the objects that the calls need."""
        attachment = ObjectKey("VolumeAttachment", "", self.attachment) if self.attachment else None
        return frozenset(key for key in (attachment, self.stage_secret, self.publish_secret) if key is not None)

    @property
    def volume_name(self) -> str:
        """Return `<driver>^<handle>`, by which pods share the staged volume; "" = it is never staged."""
        return "" if self.ephemeral else f"{self.driver}^{self.handle}"

    def access_mode(self, *, multi_writer: bool) -> str:
        """Return the access mode as CSI names it. `multi_writer`: the driver has SINGLE_NODE_MULTI_WRITER."""
        first = self.access_modes[0] if self.access_modes else "ReadWriteOnce"
        modes = {**_MODES, **(_MULTI_WRITER_MODES if multi_writer else {})}
        return modes.get(first, "UNKNOWN")

    def applies_fs_group(self) -> bool:
        """Return whether the volume is given to the pod's fsGroup after it was published (volumes.md 14.7)."""
        if self.fs_group is None or self.read_only or self.fs_group_policy == "None":
            return False
        if self.fs_group_policy == "File":
            return True
        once = self.ephemeral or bool({"ReadWriteOnce", "ReadWriteOncePod"} & set(self.access_modes))
        return bool(self.fs_type) and once

    def record(self) -> dict[str, str]:
        """Return the content of vol_data.json beside the published volume."""
        mode = {} if self.block else {"volumeLifecycleMode": EPHEMERAL if self.ephemeral else PERSISTENT}
        label = {LABEL: self.mount_label} if self.mount_label else {}
        return {
            "specVolID": self.spec_name,
            "volumeHandle": self.handle,
            "driverName": self.driver,
            "nodeName": self.node,
            **mode,
            "attachmentID": attachment_name(self.handle, self.driver, self.node),
            **label,
        }

    def staging_record(self) -> dict[str, str]:
        """Return the content of vol_data.json beside the staged file system."""
        label = {LABEL: self.mount_label} if self.mount_label else {}
        return {"volumeHandle": self.handle, "driverName": self.driver, **label}


@dataclass(frozen=True)
class Context:
    """The volume context and the secrets of one NodePublishVolume call."""

    volume: Mapping[str, str]
    secrets: Mapping[str, str] = field(repr=False)


def publish_context(volume: CsiVolume, gathered: SetUpInputs, secrets: Mapping[str, str]) -> Context:
    """Return the volume context and secrets, with the pod's data and its tokens where the CSIDriver requests them.
    `secrets`: of the publish secret. Raises ContentError where a token is missing."""
    context = {**dict(volume.attributes), **dict(volume.pod_info)}
    if not volume.tokens:
        return Context(context, secrets)
    tokens = {}
    for audience, key in sorted(volume.tokens, key=str):
        found = gathered.tokens.get(key) or FoundToken(problem=Problem("failed to fetch token: not requested"))
        if found.problem is not None:
            raise ContentError([found.problem])
        tokens[audience] = {"token": found.token, "expirationTimestamp": found.expiration}
    added = {_TOKENS: json.dumps(tokens, separators=(",", ":"))}
    if volume.tokens_in_secrets:
        return Context(context, {**secrets, **added})
    return Context({**context, **added}, secrets)


def attachment_name(handle: str, driver: str, node: str) -> str:
    """Return the name of the VolumeAttachment."""
    return f"csi-{sha256(f'{handle}{driver}{node}'.encode()).hexdigest()}"


def refused_mode(driver: str, csi_driver: Object | None, mode: str) -> str:
    """Return why the driver does not take volumes of this lifecycle mode; "" = it does."""
    if csi_driver is None:
        if mode == PERSISTENT:
            return ""
        return f'volume mode "{mode}" not supported by driver {driver} (no CSIDriver object)'
    modes = dictionary(csi_driver.get("spec")).get("volumeLifecycleModes") or [PERSISTENT]
    if isinstance(modes, list) and mode in modes:
        return ""
    only = " ".join(map(str, modes)) if isinstance(modes, list) else ""
    return f'volume mode "{mode}" not supported by driver {driver} (only supports ["{only}"])'


def inline_volume(pod: Object, name: str, source: Object, node: str, csi_driver: Object | None) -> CsiVolume:
    """Return an inline volume (spec.volumes[].csi)."""
    reference = dictionary(source.get("nodePublishSecretRef"))
    secret = text(reference.get("name"))
    return CsiVolume(
        driver=text(source.get("driver")),
        handle=f"csi-{sha256(f'{objects.uid(pod)}{name}'.encode()).hexdigest()}",
        spec_name=name,
        node=node,
        ephemeral=True,
        read_only=source.get("readOnly") is True,
        fs_type=text(source.get("fsType")),
        attributes=_pairs(source.get("volumeAttributes")),
        publish_secret=ObjectKey("Secret", objects.namespace(pod), secret) if secret else None,
        **_of_driver(pod, csi_driver, ephemeral=True),
    )


def persistent_csi_volume(
    pod: Object, persistent: PersistentVolume, source: Object, node: str, csi_driver: Object | None
) -> CsiVolume:
    """Return the volume of a PersistentVolume (spec.csi). A block volume has no mount options, group and tokens."""
    driver, handle = text(source.get("driver")), text(source.get("volumeHandle"))
    attached = csi_driver is None or dictionary(csi_driver.get("spec")).get("attachRequired") is not False
    options = persistent.spec.get("mountOptions")
    of_driver = _of_driver(pod, csi_driver, ephemeral=False)
    if persistent.block:
        options, of_driver = None, {**of_driver, "tokens": (), "fs_group": None}
    return CsiVolume(
        driver=driver,
        handle=handle,
        spec_name=persistent.name,
        node=node,
        read_only=persistent.read_only or source.get("readOnly") is True,
        fs_type=text(source.get("fsType")),
        access_modes=persistent.access_modes,
        mount_options=tuple(text(option) for option in options if option) if isinstance(options, list) else (),
        attributes=_pairs(source.get("volumeAttributes")),
        attachment=attachment_name(handle, driver, node) if attached else "",
        stage_secret=_secret(source, "nodeStageSecretRef"),
        publish_secret=_secret(source, "nodePublishSecretRef"),
        expand_secret=_secret(source, "nodeExpandSecretRef"),
        block=persistent.block,
        **of_driver,
    )


def with_mount_label(volume: CsiVolume, label: str) -> CsiVolume:
    """Return the volume mounted with this SELinux label, "" = without. Quotes let a label contain commas."""
    if not label:
        return volume
    option = f"context={json.dumps(label, ensure_ascii=False)}"
    return replace(volume, mount_label=label, mount_options=(*volume.mount_options, option))


def limit_period(csi_driver: Object | None) -> int | None:
    """Return the seconds after which the driver is called again for how many volumes the node takes; None = never."""
    spec = dictionary(csi_driver.get("spec")) if csi_driver is not None else {}
    period = number(spec.get("nodeAllocatableUpdatePeriodSeconds"))
    return max(period, MIN_PERIOD_SECONDS) if period is not None and period > 0 else None


def takes_mount_label(csi_driver: Object | None) -> bool:
    """Return whether the driver mounts volumes with an SELinux label."""
    return csi_driver is not None and dictionary(csi_driver.get("spec")).get("seLinuxMount") is True


def _of_driver(pod: Object, csi_driver: Object | None, *, ephemeral: bool) -> Object:
    """Return the fields of CsiVolume that the CSIDriver and the pod's security context decide."""
    spec = dictionary(csi_driver.get("spec")) if csi_driver is not None else {}
    return {
        "pod_info": _pod_info(pod, ephemeral=ephemeral) if spec.get("podInfoOnMount") is True else (),
        "tokens": tuple(_token(pod, request) for request in dictionaries(spec.get("tokenRequests"))),
        "tokens_in_secrets": spec.get("serviceAccountTokenInSecrets") is True,
        "fs_group": fs_group(pod),
        "fs_group_policy": text(spec.get("fsGroupPolicy")) or "ReadWriteOnceWithFSType",
        "always_change_group": changes_group_always(pod),
        "republish": spec.get("requiresRepublish") is True,
        "updates_limit": limit_period(csi_driver) is not None,
    }


def _pod_info(pod: Object, *, ephemeral: bool) -> Pairs:
    account = text(dictionary(pod.get("spec")).get("serviceAccountName"))
    return (
        ("csi.storage.k8s.io/ephemeral", "true" if ephemeral else "false"),
        ("csi.storage.k8s.io/pod.name", objects.name(pod)),
        ("csi.storage.k8s.io/pod.namespace", objects.namespace(pod)),
        ("csi.storage.k8s.io/pod.uid", objects.uid(pod)),
        ("csi.storage.k8s.io/serviceAccount.name", account),
    )


def _token(pod: Object, request: Object) -> tuple[str, TokenKey]:
    audience = text(request.get("audience"))
    key = TokenKey(
        namespace=objects.namespace(pod),
        service_account=text(dictionary(pod.get("spec")).get("serviceAccountName")) or "default",
        audiences=(audience,) if audience else (),
        seconds=number(request.get("expirationSeconds")),
        pod=objects.name(pod),
        pod_uid=objects.uid(pod),
    )
    return audience, key


def _secret(source: Object, field_name: str) -> ObjectKey | None:
    reference = dictionary(source.get(field_name))
    name, namespace = text(reference.get("name")), text(reference.get("namespace"))
    return ObjectKey("VolumeSecret", namespace, name) if name else None


def _pairs(value: object) -> Pairs:
    return tuple(sorted((str(key), str(entry)) for key, entry in dictionary(value).items()))


def driver_of(name: str) -> str:
    """Return the driver in the unique name of a CSI volume or FlexVolume; "" = it is of no driver."""
    before, mark, _ = name.partition("^")
    if mark:
        return before.rpartition("/")[2]
    return "" if name.startswith("kubernetes.io/") else name.rpartition("/")[0]
