"""Finds what `bulkhead what-if` says about the resource claims of a pod: which of them drivers have prepared on this
node already, and which drivers are missing. Pure.

A node reads a ResourceClaim only for a pod that is bound to it, so what is allocated to others is not known here."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from shared.model.objects import Object

KINDS = ("ResourceClaim", "ResourceClaimTemplate")
PLUGINS, PREPARED, ADMITTED = "plugins.registered", "claims.prepared", "pods.admitted"
STREAMS = (PLUGINS, PREPARED, ADMITTED)
_DRA = "DRAPlugin"
_NOT_KNOWN = "not known"

Items = Mapping[str, Mapping[str, Any]]


class PreviewedClaim(Struct, frozen=True, kw_only=True):
    """Has one entry of the pod's `spec.resourceClaims`. `kind` and `object`: what it names; `state`: of a ResourceClaim
    that another pod has as in `claims.prepared`, else `given` (in the files) or `not known`; `devices`: of a prepared
    one, as `<driver>/<pool>/<device>`; `problem`: why the pod would wait for it, "" = nothing known."""

    name: str
    kind: str
    object: str
    state: str
    devices: tuple[str, ...] = ()
    problem: str = ""


def registered_drivers(streams: Mapping[str, Items | None]) -> tuple[str, ...] | None:
    """Return the names of the DRA drivers that are registered and listen, None = volume did not answer."""
    plugins = streams.get(PLUGINS)
    if plugins is None:
        return None
    drivers = (item for item in plugins.values() if item["type"] == _DRA)
    return tuple(sorted(item["name"] for item in drivers if item.get("connected", True)))


def previewed_claims(
    pod: Object, given: Mapping[str, Object], streams: Mapping[str, Items | None]
) -> tuple[PreviewedClaim, ...]:
    """Return the claims of the pod in the order of its spec. `given`: the objects of the files by
    `<kind>/<namespace>/<name>`; `streams`: the items of STREAMS, None = the owner did not answer."""
    space = str(pod["metadata"]["namespace"])
    known = {claim["claim"]: claim for claim in _known(space, streams)}
    return tuple(
        _previewed(space, entry, given, known, registered_drivers(streams))
        for entry in pod["spec"].get("resourceClaims") or ()
    )


def _known(space: str, streams: Mapping[str, Items | None]) -> Iterator[Mapping[str, Any]]:
    """Yield the ResourceClaims of the namespace that pods of this node have, prepared ones last."""
    admitted = streams.get(ADMITTED) or {}
    items = (streams.get(PREPARED) or {}).items()
    claims = [each for uid, item in items if admitted.get(uid, {}).get("namespace") == space for each in item["claims"]]
    yield from sorted(claims, key=lambda claim: bool(claim["state"] == "prepared"))


def _previewed(
    space: str,
    entry: Mapping[str, Any],
    given: Mapping[str, Object],
    known: Mapping[str, Mapping[str, Any]],
    registered: tuple[str, ...] | None,
) -> PreviewedClaim:
    kind = KINDS[0] if entry.get("resourceClaimName") else KINDS[1]
    name = str(entry.get("resourceClaimName") or entry.get("resourceClaimTemplateName") or "")
    document = given.get(f"{kind}/{space}/{name}")
    claim = known.get(name, {}) if kind == KINDS[0] else {}
    devices = claim.get("devices") or ()
    drivers = {device["driver"] for device in devices} | set(_allocated(document or {}))
    missing = sorted(drivers - set(registered)) if registered is not None else []
    problem = f"DRA driver {', '.join(missing)} is not registered, or does not listen" if missing else ""
    if registered == () and not problem:
        problem = "no DRA driver is registered"
    return PreviewedClaim(
        name=str(entry.get("name") or ""),
        kind=kind,
        object=name,
        state=str(claim.get("state") or ("given" if document is not None else _NOT_KNOWN)),
        devices=tuple(f"{device['driver']}/{device['pool']}/{device['device']}" for device in devices),
        problem=problem,
    )


def _allocated(claim: Object) -> Iterator[str]:
    """Yield the drivers of the devices that a claim of a file has, as `kubectl get -o yaml` prints it."""
    found: Any = claim
    for key in ("status", "allocation", "devices", "results"):
        found = found.get(key) if isinstance(found, Mapping) else None
    for each in found if isinstance(found, list) else ():
        if isinstance(each, Mapping) and isinstance(each.get("driver"), str):
            yield each["driver"]
