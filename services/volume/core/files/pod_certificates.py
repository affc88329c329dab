"""Decides when certificates of pods are requested, and what a projected volume shows of them (volumes.md 10.3); pure.

The state of one projection is in memory only: after a restart a new certificate is requested, and the volume keeps its
files meanwhile. Moments are seconds since the epoch.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from msgspec import Struct

from bus.messages.event import KubeEvent
from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.trust_bundles import certificates_of, pem
from shared.model.fields import dictionaries, dictionary, number, text
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.time.timestamps import parse_rfc3339

REQUEST = "PodCertificateRequest"
NOT_ISSUED = "credential bundle is not issued yet"
ABANDON_AFTER_SECONDS = 600.0  # after which a request that is not there counts as deleted
JITTER_SECONDS = 300.0  # a random part of it is added to ABANDON_AFTER_SECONDS, and to the moment of a refresh
OVERDUE_AFTER_SECONDS = 600.0  # after the moment of the refresh
LOOK_SECONDS = 60.0  # between looks while something is due


class CertificateKey(Struct, frozen=True):
    """Names one projection of a certificate, and what it requests.

    `volume`: its name in the pod; `index`: of the source; `seconds`: maxExpirationSeconds, None = as long as the signer
    decides; `annotations`: userAnnotations, sorted.
    """

    namespace: str
    pod: str
    pod_uid: str
    service_account: str
    volume: str
    index: int
    signer: str
    key_type: str
    seconds: int | None = None
    annotations: tuple[tuple[str, str], ...] = ()


class CertificatePart(Struct, frozen=True):
    """Key and certificates of the pod as files; a path of "" is no file."""

    key: CertificateKey
    bundle_path: str = ""
    key_path: str = ""
    chain_path: str = ""
    user: int | None = None  # the ID of the owner of the files


@dataclass(frozen=True)
class Credential:
    """An issued certificate. `private_key`, `chain`: PEM; `reported`: the events of its age that were recorded."""

    private_key: bytes = field(repr=False)
    chain: bytes = field(repr=False)
    refresh_at: float
    expires: float
    reported: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Pending:
    """A PodCertificateRequest that has no result yet. `private_key`: PEM."""

    name: str
    private_key: bytes = field(repr=False)
    abandon_at: float


class Projection(Struct, frozen=True):
    """The state of one projection. `refused`: the kubelet's text after a request was denied or failed, for good;
    `ended`: `denied` or `failed` then."""

    credential: Credential | None = None
    pending: Pending | None = None
    refused: str = ""
    ended: str = ""


class Step(Enum):
    """What is to be done for a projection. REQUEST: make a key and request a certificate; READ: read the pending
    request."""

    REQUEST = auto()
    READ = auto()
    NOTHING = auto()


def next_step(projection: Projection, wall: float) -> Step:
    """Return what to do for the projection now."""
    if projection.refused:
        return Step.NOTHING
    if projection.pending is not None:
        return Step.READ
    credential = projection.credential
    return Step.REQUEST if credential is None or wall >= credential.refresh_at else Step.NOTHING


def look_again_at(projection: Projection, wall: float) -> float:
    """Return when to call `next_step` again even if no change was reported."""
    if projection.refused:
        return math.inf
    if projection.pending is None and projection.credential is not None:
        refresh_at = projection.credential.refresh_at
        return refresh_at if refresh_at > wall else wall + LOOK_SECONDS
    return wall + LOOK_SECONDS


def requested(projection: Projection, name: str, private_key: bytes, *, wall: float, chance: float) -> Projection:
    """Return the projection after the PodCertificateRequest of this name was created. `chance`: in [0, 1)."""
    return replace(
        projection, pending=Pending(name, private_key, wall + ABANDON_AFTER_SECONDS + chance * JITTER_SECONDS)
    )


def answered(
    projection: Projection, request: Object | None, key: CertificateKey, *, wall: float, chance: float
) -> tuple[Projection, tuple[KubeEvent, ...]]:
    """Return the projection after the pending request was read, and the events to record. `request`: as the API server
    has it, None = it has none."""
    pending = projection.pending
    if pending is None:
        return projection, ()
    if request is None:
        gone = wall > pending.abandon_at
        return (replace(projection, pending=None) if gone else projection), ()
    status = dictionary(request.get("status"))
    for condition in dictionaries(status.get("conditions")):
        kind, reason, message = (text(condition.get(name)) for name in ("type", "reason", "message"))
        if kind in ("Denied", "Failed"):
            why = f"PodCertificateRequest was permanently {kind.lower()}: reason={_quoted(reason)}"
            event = _event(key, kind, f"{reason}%!(EXTRA string={message})")  # as the kubelet words it
            return Projection(refused=f"{why} message={_quoted(message)}", ended=kind.lower()), (event,)
        if kind == "Issued":
            return Projection(credential=_issued(pending, status, wall, chance)), ()
    return projection, ()


def aged(projection: Projection, key: CertificateKey, wall: float) -> tuple[Projection, tuple[KubeEvent, ...]]:
    """Return the events of a certificate that should have been replaced or has expired, each once, and the projection
    that notes them."""
    credential = projection.credential
    if credential is None:
        return projection, ()
    due = {}
    if wall > credential.refresh_at + OVERDUE_AFTER_SECONDS:
        due["CertificateOverdueForRefresh"] = "PodCertificate refresh overdue"
    if wall > credential.expires:
        due["CertificateExpired"] = "PodCertificate expired"
    new = due.keys() - credential.reported
    reported = replace(projection, credential=replace(credential, reported=credential.reported | new))
    return reported, tuple(_event(key, reason, due[reason]) for reason in sorted(new, reverse=True))


def state_of(projection: Projection, wall: float) -> str:
    """Return the state as the kubelet's metric names it."""
    credential = projection.credential
    if projection.ended or credential is None:
        return projection.ended or "not_yet_issued"
    if wall > credential.expires:
        return "expired"
    return "overdue_for_refresh" if wall > credential.refresh_at + OVERDUE_AFTER_SECONDS else "fresh"


def files_of(part: CertificatePart, credential: Credential) -> dict[str, bytes]:
    """Return path -> content of the files."""
    files = {
        part.bundle_path: credential.private_key + credential.chain,
        part.key_path: credential.private_key,
        part.chain_path: credential.chain,
    }
    return {path: content for path, content in files.items() if path}


def object_key(key: CertificateKey, name: str) -> ObjectKey:
    """Return the key of a PodCertificateRequest for the projection."""
    return ObjectKey(REQUEST, key.namespace, name)


def request_spec(key: CertificateKey, *, account_uid: str, node: str, node_uid: str, stub: str) -> Object:
    """Return the spec of a PodCertificateRequest. `stub`: a PKCS#10 request without content, DER in base64."""
    spec: Object = {
        "signerName": key.signer,
        "podName": key.pod,
        "podUID": key.pod_uid,
        "serviceAccountName": key.service_account,
        "serviceAccountUID": account_uid,
        "nodeName": node,
        "nodeUID": node_uid,
        "stubPKCS10Request": stub,
    }
    if key.seconds is not None:
        spec["maxExpirationSeconds"] = key.seconds
    if key.annotations:
        spec["unverifiedUserAnnotations"] = dict(key.annotations)
    return spec


def certificate_part(pod: Mapping[str, str], volume: str, index: int, source: Object) -> CertificatePart:
    """Return a projection of type podCertificate. `pod`: namespace, name, uid and service account of the pod."""
    annotations = dictionary(source.get("userAnnotations"))
    key = CertificateKey(
        namespace=pod["namespace"],
        pod=pod["name"],
        pod_uid=pod["uid"],
        service_account=pod["service_account"],
        volume=volume,
        index=index,
        signer=text(source.get("signerName")),
        key_type=text(source.get("keyType")),
        seconds=number(source.get("maxExpirationSeconds")),
        annotations=tuple(sorted((str(name), str(value)) for name, value in annotations.items())),
    )
    return CertificatePart(
        key,
        bundle_path=text(source.get("credentialBundlePath")),
        key_path=text(source.get("keyPath")),
        chain_path=text(source.get("certificateChainPath")),
    )


def _issued(pending: Pending, status: Object, wall: float, chance: float) -> Credential:
    refresh_at, expires = (parse_rfc3339(text(status.get(name))) for name in ("beginRefreshAt", "notAfter"))
    return Credential(
        private_key=pending.private_key,
        chain=b"".join(map(pem, certificates_of(text(status.get("certificateChain"))))),
        refresh_at=(wall if refresh_at is None else refresh_at) + chance * JITTER_SECONDS,
        expires=math.inf if expires is None else expires,
    )


def _event(key: CertificateKey, reason: str, message: str) -> KubeEvent:
    return KubeEvent(
        type="Warning", reason=reason, message=message, namespace=key.namespace, name=key.pod, uid=key.pod_uid
    )


def _quoted(value: str) -> str:
    """Return the value as Go quotes it with %q, for the characters that an API server permits."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
