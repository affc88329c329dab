"""Finds which API objects a pod names. A static pod may name none: it must run without an API (pods.md 1.2.10); one
that was applied to a node without a cluster may name ConfigMaps and Secrets, which were applied too."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from shared.model.objects import Object
from shared.podspec.resources import main_containers
from shared.podspec.volume_types import TYPES

MAX_REFERENCES = 2_000  # different Secrets and ConfigMaps of one pod

_SECRET_FIELDS = {name: kind.secret for name, kind in TYPES.items() if kind.secret}
_VOLUMES = {name: kind.refers for name, kind in TYPES.items() if kind.refers}
_PROJECTED = {
    "clusterTrustBundle": "clustertrustbundles",
    "configMap": "configmaps (via projected volumes)",
    "podCertificate": "podcertificates",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
}
_OBJECTS = {
    "configmaps",
    "secrets",
    _VOLUMES["configMap"],
    _VOLUMES["secret"],
    _PROJECTED["configMap"],
    _PROJECTED["secret"],
}


class Reference(Struct, frozen=True, order=True):
    """A Secret or ConfigMap that a pod names; both are of the pod's own namespace."""

    kind: str  # Secret | ConfigMap
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """`<kind>/<namespace>/<name>`."""
        return f"{self.kind}/{self.namespace}/{self.name}"


def referenced_objects(pod: Object) -> dict[Reference, bool]:
    """Return the Secrets and ConfigMaps of a pod whose known fields have the right types (volumes.md 20). True: a
    volume shows the object's content, so that its changes matter for as long as the pod runs. Last come those of debug
    containers alone, which are added to a pod that runs.
    """
    spec, space = pod.get("spec") or {}, str((pod.get("metadata") or {}).get("namespace") or "")
    named = [("Secret", reference.get("name"), False) for reference in spec.get("imagePullSecrets") or ()]
    for container in main_containers(pod):
        named += _environment(container)
    for volume in spec.get("volumes") or ():
        for kind, field in _SECRET_FIELDS.items():
            value = (volume.get(kind) or {}).get(field)
            named.append(("Secret", value.get("name") if isinstance(value, dict) else value, kind == "secret"))
        for source in _sources(volume):
            named.append(("ConfigMap", (source.get("configMap") or {}).get("name"), True))
        for source in _sources(volume)[1:]:
            named.append(("Secret", (source.get("secret") or {}).get("name"), True))
    for container in spec.get("ephemeralContainers") or ():
        named += _environment(container)
    found: dict[Reference, bool] = {}
    for kind, name, shown in named:
        if isinstance(name, str) and name:
            reference = Reference(kind, space, name)
            found[reference] = found.get(reference, False) or shown
    return found


def claim_name(pod: Object, volume: Object) -> str:
    """Return the name of the PersistentVolumeClaim, of the pod's namespace, that an entry of spec.volumes stands for;
    "" = none. The claim of a generic ephemeral volume has a fixed name (volumes.md 2.5)."""
    if isinstance(claim := volume.get("persistentVolumeClaim"), dict):
        return str(claim.get("claimName") or "")
    if isinstance(volume.get("ephemeral"), dict):
        return f"{(pod.get('metadata') or {}).get('name') or ''}-{volume.get('name') or ''}"
    return ""


def claim_names(pod: Object) -> tuple[str, ...]:
    """Return the name of each PersistentVolumeClaim that the pod names, once."""
    names = (claim_name(pod, volume) for volume in (pod.get("spec") or {}).get("volumes") or ())
    return tuple(dict.fromkeys(name for name in names if name))


def _environment(container: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield what a container's variables are read from. Fields of debug containers may have any type, as nothing has
    validated them."""
    for listed in ("envFrom", "env"):
        sources = container.get(listed)
        for source in sources if isinstance(sources, list) else ():
            holder = _fields(source) if listed == "envFrom" else _fields(_fields(source).get("valueFrom"))
            for kind, field in (("Secret", "secret"), ("ConfigMap", "configMap")):
                yield (
                    kind,
                    _fields(holder.get(f"{field}{'Ref' if listed == 'envFrom' else 'KeyRef'}")).get("name"),
                    False,
                )


def _fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def api_reference(pod: Object, *, objects: bool = False) -> str:
    """Return the first kind of API object the pod refers to, in the kubelet's words; "" when it refers to none.
    `objects`: ConfigMaps and Secrets do not count.
    """
    return next((what for what in _references(pod) if not (objects and what in _OBJECTS)), "")


def _references(pod: Object) -> Iterator[str]:
    spec = pod.get("spec") or {}
    volumes = spec.get("volumes") or ()
    if spec.get("serviceAccountName"):
        yield "serviceaccounts"
    if any(_names_secret(volume) for volume in volumes) or _names(pod, "secret") or spec.get("imagePullSecrets"):
        yield "secrets"
    if any("configMap" in source for volume in volumes for source in _sources(volume)) or _names(pod, "configMap"):
        yield "configmaps"
    if spec.get("resourceClaims"):
        yield "resourceclaims"
    for volume in volumes:
        yield from (what for kind, what in _VOLUMES.items() if kind in volume)
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield from (what for kind, what in _PROJECTED.items() if kind in source)


def _sources(volume: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the volume itself and, of a projected one, its parts."""
    return [volume, *((volume.get("projected") or {}).get("sources") or ())]


def _names_secret(volume: dict[str, Any]) -> bool:
    direct = any((volume.get(kind) or {}).get(field) for kind, field in _SECRET_FIELDS.items())
    return direct or any("secret" in source for source in _sources(volume)[1:])


def _names(pod: Object, kind: str) -> bool:
    """Return whether an environment is filled from a `secret` or `configMap`."""
    return any(
        f"{kind}Ref" in source or f"{kind}KeyRef" in (source.get("valueFrom") or {})
        for container in main_containers(pod)
        for source in [*(container.get("envFrom") or ()), *(container.get("env") or ())]
    )
