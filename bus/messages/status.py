"""Messages of which status is the owner, and writes to the API server on behalf of others."""

from dataclasses import dataclass, field
from typing import Any

# Seconds to wait for a write that is requested from status: somewhat longer than status waits for the API server.
REQUESTED_WRITE_TIMEOUT = 40.0


@dataclass(frozen=True, kw_only=True)
class VolumesReported:
    """Stream `volumes.reported`, key `node`: the status.volumesInUse that the API server has of the Node, after a write
    of `volumes.in_use` or a comparison that found nothing to write."""

    generation: str  # of `volumes.in_use`
    volumes: tuple[str, ...]
    resource_version: str  # of the Node that has them


@dataclass(frozen=True, kw_only=True)
class RequestToken:
    """Request to status: a TokenRequest for a service account (volumes.md 10.1)."""

    namespace: str
    service_account: str
    spec: dict[str, Any]  # TokenRequestSpec: audiences, expirationSeconds, boundObjectRef


@dataclass(frozen=True, kw_only=True)
class IssuedToken:
    """Answer to RequestToken. Never logged."""

    token: str = field(default="", repr=False)
    expiration: str = ""  # RFC3339
    lifetime: int = 0  # seconds from its issue to `expiration`, 0 = unknown; may be less than was asked for
    not_found: bool = False
    error: str = ""  # the API server's words; "" with a token


@dataclass(frozen=True, kw_only=True)
class PatchClaimStatus:
    """Request to status: a strategic merge patch of the status of a PersistentVolumeClaim (volumes.md 17)."""

    namespace: str
    name: str
    resource_version: str  # of the claim that the patch was made for; the API server refuses it for a newer one
    status: dict[str, Any]  # the patch below `status`


@dataclass(frozen=True, kw_only=True)
class PatchedClaim:
    """Answer to PatchClaimStatus."""

    resource_version: str = ""  # of the patched claim
    error: str = ""  # the API server's words; "" = patched


@dataclass(frozen=True, kw_only=True)
class RequestPodCertificate:
    """Request to status: create a PodCertificateRequest (volumes.md 10.3). Its result is read through sources."""

    namespace: str
    name: str  # made from the public key: the same request has the same name
    pod: str
    pod_uid: str
    spec: dict[str, Any]  # PodCertificateRequestSpec


@dataclass(frozen=True, kw_only=True)
class RequestedPodCertificate:
    """Answer to RequestPodCertificate."""

    error: str = ""  # the API server's words; "" = it has the request


@dataclass(frozen=True, kw_only=True)
class ReviewToken:
    """Request to status: whose bearer token is this? (TokenReview, server.md 2.) Never logged."""

    token: str = field(repr=False)
    audiences: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReviewAccess:
    """Request to status: may this user do this? (SubjectAccessReview, server.md 3.3.)"""

    spec: dict[str, Any]  # SubjectAccessReviewSpec


@dataclass(frozen=True, kw_only=True)
class Reviewed:
    """Answer to ReviewToken and ReviewAccess: the review's status, or why there is none."""

    status: dict[str, Any]  # TokenReviewStatus or SubjectAccessReviewStatus
    error: str = ""
