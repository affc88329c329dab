"""Messages of which status is the owner, and writes to the API server on behalf of others."""

from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

# Seconds to wait for a write that is requested from status: somewhat longer than status waits for the API server.
REQUESTED_WRITE_TIMEOUT_SECONDS = 40.0


class VolumesReported(Struct, frozen=True, kw_only=True):
    """Stream `volumes.reported`, key `node`: the status.volumesInUse that the API server has of the Node, after a write
    of `volumes.in_use` or a comparison that found nothing to write."""

    generation: str  # of the `VolumesInUse` that was compared with the Node, and written where it differed
    volumes: tuple[str, ...]  # status.volumesInUse of the Node as the API server returned it
    resource_version: str  # of that Node


class ShutdownReported(Struct, frozen=True, kw_only=True):
    """Stream `shutdown.reported`, key `node`: the API server, where there is one, has the Node and the statuses of the
    pods as they are after a `node.shutdown` that is over."""

    began: str  # of that `NodeShutdown`


class RequestToken(Struct, frozen=True, kw_only=True):
    """Request to status: a TokenRequest for a service account (volumes.md 10.1)."""

    namespace: str  # of the service account
    service_account: str  # its name
    spec: dict[str, Any]  # TokenRequestSpec: audiences, expirationSeconds, boundObjectRef


@dataclass(frozen=True, kw_only=True)
class IssuedToken:
    """Answer to RequestToken. Never logged."""

    token: str = field(default="", repr=False)  # never logged
    expiration: str = ""  # RFC 3339
    # seconds from the token's issue to its expiration, 0 = unknown; the API server may make it shorter than requested
    lifetime: int = 0
    not_found: bool = False  # service account or pod, or the subresource, is absent
    error: str = ""  # the API server's text; empty with a token


class PatchClaimStatus(Struct, frozen=True, kw_only=True):
    """Request to status: a strategic merge patch of the status of a PersistentVolumeClaim (volumes.md 17)."""

    namespace: str  # of the PersistentVolumeClaim
    name: str  # of the PersistentVolumeClaim
    # of the claim that the patch was made for; the API server refuses the patch when the claim is newer
    resource_version: str
    status: dict[str, Any]  # the strategic merge patch below `status`


class PatchedClaim(Struct, frozen=True, kw_only=True):
    """Answer to PatchClaimStatus."""

    resource_version: str = ""  # of the patched claim
    error: str = ""  # the API server's text; empty when the claim is patched


class RequestPodCertificate(Struct, frozen=True, kw_only=True):
    """Request to status: create a PodCertificateRequest (volumes.md 10.3). Its result is read through sources."""

    namespace: str  # of the pod
    name: str  # of the PodCertificateRequest, made from its public key: the same request has the same name
    pod: str  # name of the pod
    pod_uid: str  # pod UID
    spec: dict[str, Any]  # PodCertificateRequestSpec


class RequestedPodCertificate(Struct, frozen=True, kw_only=True):
    """Answer to RequestPodCertificate."""

    error: str = ""  # the API server's text; empty where the request is in the API server


@dataclass(frozen=True, kw_only=True)
class ReviewToken:
    """Request to status: whose bearer token is this? (TokenReview, server.md 2.) Never logged."""

    token: str = field(repr=False)  # never logged
    audiences: tuple[str, ...] = ()  # that the token must be for one of; empty = that of the API server


class ReviewAccess(Struct, frozen=True, kw_only=True):
    """Request to status: may this user do this? (SubjectAccessReview, server.md 3.3.)"""

    spec: dict[str, Any]  # SubjectAccessReviewSpec


class Reviewed(Struct, frozen=True, kw_only=True):
    """Answer to ReviewToken and ReviewAccess: the review's status, or why there is none."""

    status: dict[str, Any]  # TokenReviewStatus or SubjectAccessReviewStatus; empty with an error
    error: str = ""  # why there is no review
