"""The requests that a service may send to an API server; `shared.kube.client` does it over HTTP.

Objects are raw Kubernetes JSON. `tests.fakes.api_server` passes the same contract tests.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from shared.model.objects import Object

READ_TIMEOUT_SECONDS = 60.0  # an API server gives up a request itself after that time
# Seconds. An admission webhook may take 30 s, and 10 s by default: a client that gives up sooner never gets its write
# through while a webhook is slow, and makes it work for nothing.
WRITE_TIMEOUT_SECONDS = 34.0
MAX_RETRY_AFTER_SECONDS = 120.0  # whatever an API server or a proxy writes, it is asked again after that time
_UNRELATED = "no relationship found between node"
_FUTURE = ("too large resource version", "required revision is a future revision")


class PatchType(StrEnum):
    """The content type of a PATCH body."""

    STRATEGIC = "application/strategic-merge-patch+json"
    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"


class ApiError(Exception):
    """A request failed; the text is one line, without credentials."""


class ApiUnreachableError(ApiError):
    """No answer: refused, timed out, name or TLS trouble, connection lost midway. Whether it took effect is unknown.
    `is_outage`: the API server cannot be reached over the network; a slow answer is no outage."""

    is_outage = True


class ApiUnansweredError(ApiUnreachableError):
    """The request was sent over a connection and its answer did not come in time: the API server may be slow."""

    is_outage = False


class ApiMalformedError(ApiUnreachableError):
    """The answer is not one of an API server: no JSON object, or too long."""

    is_outage = False


class ApiStatusError(ApiError):
    """The API server answered with an error. `str(error)` is its message; `retry_after`, the seconds after which it may
    be asked again or None, is MAX_RETRY_AFTER_SECONDS at most."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.details = dict(details or {})
        self.retry_after = None if retry_after is None else min(retry_after, MAX_RETRY_AFTER_SECONDS)

    @property
    def not_found(self) -> bool:
        """404."""
        return self.code == 404

    @property
    def already_exists(self) -> bool:
        """409 AlreadyExists: the name is taken."""
        return self.code == 409 and self.reason == "AlreadyExists"

    @property
    def conflict(self) -> bool:
        """409 Conflict: a precondition (resourceVersion, uid) does not hold."""
        return self.code == 409 and self.reason != "AlreadyExists"

    @property
    def gone(self) -> bool:
        """410 Gone or Expired: the resourceVersion is too old, list again."""
        return self.code == 410

    @property
    def too_large_version(self) -> bool:
        """504 or 500: the resourceVersion is of a state that the server has not reached, perhaps never will."""
        return self.code >= 500 and any(text in self.message.lower() for text in _FUTURE)

    @property
    def forbidden(self) -> bool:
        """403."""
        return self.code == 403

    @property
    def unrelated(self) -> bool:
        """403 of the node authorizer: the object is related to no pod of this node. Since Kubernetes 1.32 this is also
        the answer to a GET of a pod that is gone, or was never bound to this node."""
        return self.forbidden and _UNRELATED in self.message


class WatchEvent(Struct, frozen=True):
    """One line of a watch. `type`: ADDED, MODIFIED, DELETED or BOOKMARK; an ERROR line is raised as ApiStatusError."""

    type: str
    object: Object
    size: int = 0  # bytes of the line


class ApiClient(Protocol):
    """A connection to the API server with one rate limit and one time limit.

    `path` begins with `/`, `query` holds unescaped values. `timeout` in seconds from when the rate limit lets the
    request through, None = the client's own.
    Every method raises ApiStatusError or ApiUnreachableError, and nothing else for what the other side may do.
    A 429, or a 5xx with Retry-After, is tried again after that time, at most ten times and within `timeout`; not a
    version that is too large.
    """

    @property
    def shares_watches(self) -> bool:
        """Watches share connections; False as long as none was opened."""
        ...

    async def get(self, path: str, query: Mapping[str, str] | None = None, *, timeout: float | None = None) -> Object:
        """GET one object, or a list with its `items` and `metadata.resourceVersion`. A `resourceVersion` in `query`
        permits an answer from the API server's cache: "0" of any age, else not older than that version; a cache that
        does not reach it within three seconds is refused as too large."""
        ...

    async def create(self, path: str, body: Object, *, timeout: float | None = None) -> Object:
        """POST to a collection or a subresource; the object as the API server stored it, or its answer to a review."""
        ...

    async def update(self, path: str, body: Object, *, timeout: float | None = None) -> Object:
        """PUT the complete object; the object as stored. A conflict where `body` has an older resourceVersion."""
        ...

    async def patch(
        self, path: str, body: Any, kind: PatchType = PatchType.STRATEGIC, *, timeout: float | None = None
    ) -> Object:
        """PATCH an object or its subresource; the object as stored. `body`: a mapping, for PatchType.JSON a list."""
        ...

    async def delete(
        self,
        path: str,
        options: Object | None = None,
        query: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> Object:
        """DELETE an object; `options` are DeleteOptions. The object while it terminates, or a Status of success. The
        path of a collection deletes all of its objects that the selectors in `query` fit; the list of them."""
        ...

    def watch(
        self, path: str, query: Mapping[str, str], *, timeout: float, answer_timeout: float | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Watch; the server ends it after `timeout` seconds (`timeoutSeconds`), this side somewhat later.
        `answer_timeout`: seconds from sending the request to the head of its answer, None = the client's time limit.
        The iterator ends normally when the server ends the watch; it raises ApiError when the connection breaks, when
        nothing arrives for minutes, or at an ERROR line."""
        ...

    async def drop_connections(self) -> None:
        """Use new connections from now on: requests keep failing, and a connection may be dead without an error."""
        ...

    async def close(self) -> None:
        """Close everything; requests under way fail with ApiUnreachableError."""
        ...
