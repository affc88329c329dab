"""Reads what a volume of files consists of (volumes.md 9): keys of Secrets and ConfigMaps, fields of the pod, tokens,
trust anchors and certificates.

Pure. The pod's own fields are read here, so that a changed label results in another `Files`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from posixpath import normpath

from msgspec import Struct

from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.pod_certificates import CertificateKey, CertificatePart, certificate_part
from services.volume.core.files.token_cache import TokenKey
from services.volume.core.files.trust_bundles import TrustBundlePart, trust_bundle_part
from shared.model.fields import dictionaries, dictionary, number, text
from shared.model.frozen_copy import replace
from shared.model.objects import Object, name, namespace, uid
from shared.podspec.field_ref import FieldError, field_value, resource_value
from shared.podspec.resources import main_containers

_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_SUBSCRIPTED = ("metadata.annotations['", "metadata.labels['")


class Item(Struct, frozen=True):
    """One key of an object and the file it becomes. `user`: the ID of its owner, None = the default of the volume."""

    key: str
    path: str
    mode: int | None = None
    user: int | None = None


class ObjectPart(Struct, frozen=True):
    """Keys of an object as files. `items` empty = all keys."""

    key: ObjectKey
    items: tuple[Item, ...] = ()
    optional: bool = False


@dataclass(frozen=True)
class DownwardFile:
    """A field of the pod as a file; it has an `error` instead of content where there is no such field."""

    path: str
    content: bytes = field(default=b"", repr=False)
    mode: int | None = None
    user: int | None = None
    error: str = ""


class DownwardPart(Struct, frozen=True):
    """Fields of the pod as files."""

    files: tuple[DownwardFile, ...]


class TokenPart(Struct, frozen=True):
    """A service account token as a file."""

    key: TokenKey
    path: str
    user: int | None = None


class RefusedPart(Struct, frozen=True):
    """A source that this node does not support; `reason` is the kubelet's text."""

    reason: str


Part = ObjectPart | DownwardPart | TokenPart | TrustBundlePart | CertificatePart | RefusedPart


@dataclass(frozen=True)
class Files:
    """The files of one volume. Of two parts with the same path the later one counts.

    `default_mode`: permission bits, None = the pod has none. `default_user`: the ID of the owner of files without one
    of their own, None = the pod names none. `fs_group`, `fs_user`: IDs, None = ours. `nested`: relative paths of
    directories that other volumes are mounted on. `size`: bytes of the tmpfs, 0 = the kernel's default. `pod_uid`: the
    UID of the volume's pod.
    """

    parts: tuple[Part, ...]
    default_mode: int | None
    default_user: int | None = None
    fs_group: int | None = None
    fs_user: int | None = None
    nested: tuple[str, ...] = ()
    pod_uid: str = ""
    size: int = field(default=0, compare=False)

    @property
    def objects(self) -> frozenset[ObjectKey]:
        """Return the key of every object that the content comes from."""
        return frozenset(part.key for part in self.parts if isinstance(part, ObjectPart | TrustBundlePart))

    @property
    def tokens(self) -> tuple[TokenKey, ...]:
        """Return the key of every token that the content comes from."""
        return tuple(part.key for part in self.parts if isinstance(part, TokenPart))

    @property
    def certificates(self) -> tuple[CertificateKey, ...]:
        """Return the key of every certificate of the pod that the content comes from."""
        return tuple(part.key for part in self.parts if isinstance(part, CertificatePart))


class PartReader:
    """Reads the sources of one volume of `pod`. `allocatable`: resource -> quantity text, for a limit that the pod does
    not set; `gates`: the feature gates that are on."""

    def __init__(self, pod: Object, allocatable: Mapping[str, str], gates: frozenset[str] = frozenset()) -> None:
        self._pod, self._allocatable, self._gates = pod, allocatable, gates
        self.used_allocatable = False  # some file shows a resource of a container, which without a limit is the node's
        self._texts: dict[str, bytes] = {}  # field path -> its text, made once for all files that show it

    def user(self, source: Object, field_name: str = "user") -> int | None:
        """Return the ID of the owner that the pod names for files, None = it names none, or the gate is off."""
        return number(source.get(field_name)) if "AtomicWriteVolumeUserFields" in self._gates else None

    def object(self, kind: str, source: Object, field_name: str) -> ObjectPart:
        """Return keys of a Secret or ConfigMap, whose name is in the field `field_name` of `source`."""
        key = ObjectKey(kind, namespace(self._pod), text(source.get(field_name)))
        items = tuple(
            Item(text(item.get("key")), text(item.get("path")), number(item.get("mode")), self.user(item))
            for item in dictionaries(source.get("items"))
        )
        return ObjectPart(key, items, optional=source.get("optional") is True)

    def downward(self, source: Object) -> DownwardPart:
        """Return fields of the pod as files."""
        return DownwardPart(tuple(self._downward_file(item) for item in dictionaries(source.get("items"))))

    def _downward_file(self, item: Object) -> DownwardFile:
        path = normpath(text(item.get("path")))
        try:
            content = self._value(item)
        except FieldError as error:
            return DownwardFile(path, error=str(error))
        return DownwardFile(path, content, number(item.get("mode")), self.user(item))

    def _value(self, item: Object) -> bytes:
        reference = dictionary(item.get("resourceFieldRef"))
        if reference:
            self.used_allocatable = True
            return resource_value(self._pod, {}, reference, self._allocatable).encode()
        path = text(dictionary(item.get("fieldRef")).get("fieldPath"))
        if path not in _FIELDS and not path.startswith(_SUBSCRIPTED):
            raise FieldError(f"unsupported fieldPath: {path}")
        if path not in self._texts:
            self._texts[path] = field_value(self._pod, path).encode("utf-8", "replace")
        return self._texts[path]

    def token(self, source: Object) -> TokenPart:
        """Return a token of the pod's service account as a file."""
        audience = text(source.get("audience"))
        key = TokenKey(
            namespace=namespace(self._pod),
            service_account=text(dictionary(self._pod.get("spec")).get("serviceAccountName")),
            audiences=(audience,) if audience else (),
            seconds=number(source.get("expirationSeconds")),
            pod=name(self._pod),
            pod_uid=uid(self._pod),
        )
        return TokenPart(key, text(source.get("path")), self.user(source))

    def certificate(self, volume: str, index: int, source: Object) -> CertificatePart | RefusedPart:
        """Return key and certificate of the pod, the source `index` of the volume, as files."""
        if "PodCertificateRequest" not in self._gates:
            return RefusedPart("unimplemented")
        account = text(dictionary(self._pod.get("spec")).get("serviceAccountName"))
        pod = {"namespace": namespace(self._pod), "name": name(self._pod), "uid": uid(self._pod)}
        part = certificate_part({**pod, "service_account": account}, volume, index, source)
        return replace(part, user=self.user(source))

    def trust_bundle(self, source: Object) -> TrustBundlePart | RefusedPart:
        """Return the trust anchors of ClusterTrustBundles as a file."""
        part = trust_bundle_part(source)
        if part is None:
            return RefusedPart("ClusterTrustBundle projection requires either name or signerName to be set")
        if "ClusterTrustBundleProjection" not in self._gates:
            return RefusedPart("ClusterTrustBundle projection is not supported in static kubelet mode")
        return replace(part, user=self.user(source))


def nested_mounts(pod: Object, volume: str) -> tuple[str, ...]:
    """Return the relative paths at which other volumes are mounted below this one: it is read-only, so the runtime
    cannot make the directories."""
    found: set[str] = set()
    for container in main_containers(pod):
        mounts = dictionaries(container.get("volumeMounts"))
        for outer in mounts:
            if outer.get("name") != volume or outer.get("subPath") or outer.get("subPathExpr"):
                continue
            above = normpath(text(outer.get("mountPath")) or "/").rstrip("/") + "/"
            paths = (normpath(text(inner.get("mountPath"))) for inner in mounts if inner.get("name") != volume)
            found |= {path.removeprefix(above) for path in paths if path.startswith(above)}
    return tuple(sorted(path for path in found if path and not path.startswith("..")))
