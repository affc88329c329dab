"""Volumes whose files come from Secrets, ConfigMaps, the pod itself and service account tokens (volumes.md 9): what
one entry of spec.volumes asks for. The pod's own fields are read here, so that a changed label is a changed source."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from posixpath import normpath
from typing import Any

from services.volume.core.token_cache import TokenKey
from shared.model.objects import Object, name, namespace, uid
from shared.podspec.field_ref import FieldError, field_value, resource_value
from shared.podspec.resources import main_containers

SECRET = "kubernetes.io/secret"
CONFIG_MAP = "kubernetes.io/configmap"
DOWNWARD_API = "kubernetes.io/downward-api"
PROJECTED = "kubernetes.io/projected"
PLUGINS = (SECRET, CONFIG_MAP, DOWNWARD_API, PROJECTED)

_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_SUBSCRIPTED = ("metadata.annotations['", "metadata.labels['")


@dataclass(frozen=True)
class ObjectKey:
    """A Secret or ConfigMap."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """The key of the stream `objects.changed`."""
        return f"{self.kind}/{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Item:
    """One key of an object and the file it becomes."""

    key: str
    path: str
    mode: int | None = None


@dataclass(frozen=True)
class ObjectPart:
    """Keys of an object; no items = all of them."""

    key: ObjectKey
    items: tuple[Item, ...] = ()
    optional: bool = False


@dataclass(frozen=True)
class DownwardFile:
    """A field of the pod as a file; `error` instead of content where it names nothing."""

    path: str
    content: bytes = field(default=b"", repr=False)
    mode: int | None = None
    error: str = ""


@dataclass(frozen=True)
class DownwardPart:
    """Fields of the pod."""

    files: tuple[DownwardFile, ...]


@dataclass(frozen=True)
class TokenPart:
    """A service account token as a file."""

    key: TokenKey
    path: str


@dataclass(frozen=True)
class RefusedPart:
    """A source this node does not give; `reason` in the kubelet's words."""

    reason: str


Part = ObjectPart | DownwardPart | TokenPart | RefusedPart


@dataclass(frozen=True)
class Files:
    """Parts in order, a later one wins. `size`: bytes of the tmpfs, 0 = the kernel's default. `nested`: directories
    for mounts of other volumes. `provisional`: rests on what the node can allocate, which is not known yet."""

    plugin: str
    parts: tuple[Part, ...]
    default_mode: int | None
    fs_group: int | None = None
    fs_user: int | None = None
    nested: tuple[str, ...] = ()
    size: int = field(default=0, compare=False)
    provisional: bool = field(default=False, compare=False)

    @property
    def in_memory(self) -> bool:
        """On a tmpfs; only ConfigMaps lie on the disk."""
        return self.plugin != CONFIG_MAP

    @property
    def objects(self) -> frozenset[ObjectKey]:
        """Every object the content comes from."""
        return frozenset(part.key for part in self.parts if isinstance(part, ObjectPart))


def files_source(
    pod: Object, volume: Object, *, allocatable: Mapping[str, str], provisional: bool = False, size: int = 0
) -> Files | None:
    """The files one entry of spec.volumes asks for; None = it is of another type. `allocatable`: resource -> quantity
    text; `provisional`: those are a guess."""
    reader = _Reader(pod, allocatable)
    match volume:
        case {"secret": dict() as source}:
            plugin, parts = SECRET, [reader.object("Secret", source, "secretName")]
        case {"configMap": dict() as source}:
            plugin, parts = CONFIG_MAP, [reader.object("ConfigMap", source, "name")]
        case {"downwardAPI": dict() as source}:
            plugin, parts = DOWNWARD_API, [reader.downward(source)]
        case {"projected": dict() as source}:
            plugin, parts = PROJECTED, [reader.projected(part) for part in _dicts(source.get("sources"))]
        case _:
            return None
    return Files(
        plugin=plugin,
        parts=tuple(parts),
        default_mode=_number(source.get("defaultMode")),
        fs_group=fs_group(pod),
        fs_user=fs_user(pod),
        nested=tuple(_nested(pod, str(volume.get("name", "")))),
        size=size,
        provisional=provisional and reader.asked_for_resources,
    )


def fs_group(pod: Object) -> int | None:
    """The group that volumes of the pod belong to."""
    return _number(_dict(_dict(pod.get("spec")).get("securityContext")).get("fsGroup"))


def fs_user(pod: Object) -> int | None:
    """The user that every container of the pod runs as; None unless all say the same (volumes.md 5.5)."""
    of_pod = _dict(_dict(pod.get("spec")).get("securityContext")).get("runAsUser")
    users = set()
    for container in main_containers(pod):
        own = _dict(container.get("securityContext")).get("runAsUser")
        users.add(_number(of_pod if own is None else own))
    return users.pop() if len(users) == 1 else None


class _Reader:
    def __init__(self, pod: Object, allocatable: Mapping[str, str]) -> None:
        self._pod, self._allocatable = pod, allocatable
        self.asked_for_resources = False
        self._texts: dict[str, bytes] = {}  # field path -> its text, made once for all files that show it

    def object(self, kind: str, source: Object, field_name: str) -> Part:
        key = ObjectKey(kind, namespace(self._pod), _text(source.get(field_name)))
        items = tuple(
            Item(_text(item.get("key")), _text(item.get("path")), _number(item.get("mode")))
            for item in _dicts(source.get("items"))
        )
        return ObjectPart(key, items, optional=source.get("optional") is True)

    def projected(self, source: Object) -> Part:
        match source:
            case {"secret": dict() as inner}:
                return self.object("Secret", inner, "name")
            case {"configMap": dict() as inner}:
                return self.object("ConfigMap", inner, "name")
            case {"downwardAPI": dict() as inner}:
                return self.downward(inner)
            case {"serviceAccountToken": dict() as inner}:
                return self._token(inner)
            case {"clusterTrustBundle": dict() as inner}:
                if inner.get("name") is None and inner.get("signerName") is None:
                    return RefusedPart("ClusterTrustBundle projection requires either name or signerName to be set")
                return RefusedPart("ClusterTrustBundle projection is not supported in static kubelet mode")
            case {"podCertificate": _}:
                return RefusedPart("unimplemented")
        return RefusedPart(f"projection of {', '.join(sorted(map(str, source))) or 'nothing'} is not supported")

    def downward(self, source: Object) -> Part:
        return DownwardPart(tuple(self._downward_file(item) for item in _dicts(source.get("items"))))

    def _downward_file(self, item: Object) -> DownwardFile:
        path = normpath(_text(item.get("path")))
        try:
            text = self._value(item)
        except FieldError as error:
            return DownwardFile(path, error=str(error))
        return DownwardFile(path, text, _number(item.get("mode")))

    def _value(self, item: Object) -> bytes:
        reference = _dict(item.get("resourceFieldRef"))
        if reference:
            self.asked_for_resources = True
            return resource_value(self._pod, {}, reference, self._allocatable).encode()
        path = _text(_dict(item.get("fieldRef")).get("fieldPath"))
        if path not in _FIELDS and not path.startswith(_SUBSCRIPTED):
            raise FieldError(f"unsupported fieldPath: {path}")
        if path not in self._texts:
            self._texts[path] = field_value(self._pod, path).encode("utf-8", "replace")
        return self._texts[path]

    def _token(self, source: Object) -> Part:
        audience = _text(source.get("audience"))
        key = TokenKey(
            namespace=namespace(self._pod),
            service_account=_text(_dict(self._pod.get("spec")).get("serviceAccountName")),
            audiences=(audience,) if audience else (),
            seconds=_number(source.get("expirationSeconds")),
            pod=name(self._pod),
            pod_uid=uid(self._pod),
        )
        return TokenPart(key, _text(source.get("path")))


def _nested(pod: Object, volume: str) -> Iterator[str]:
    """Where other volumes are mounted below this one: the volume is read-only, no runtime can make a directory."""
    found: set[str] = set()
    for container in main_containers(pod):
        mounts = _dicts(container.get("volumeMounts"))
        for outer in mounts:
            if outer.get("name") != volume or outer.get("subPath") or outer.get("subPathExpr"):
                continue
            above = normpath(_text(outer.get("mountPath")) or "/").rstrip("/") + "/"
            paths = (normpath(_text(inner.get("mountPath"))) for inner in mounts if inner.get("name") != volume)
            found |= {path.removeprefix(above) for path in paths if path.startswith(above)}
    yield from sorted(path for path in found if path and not path.startswith(".."))


def _dict(value: Any) -> Object:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[Object]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
