"""Creates CertificateSigningRequests at the API server, and waits for one by list and watch of its name.

It uses `shared.kube.interface`, and decides nothing about certificates. Rules: config.md 5.4.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from typing import cast

from msgspec import Struct

from services.bootstrap.core.certificate_template import Template, demands_key_encipherment
from services.bootstrap.core.signing_request import (
    CsrOutcome,
    CsrState,
    is_well_formed,
    request_object,
    request_text,
    state_of,
)
from shared.kube import paths
from shared.kube.interface import ApiClient, ApiStatusError, ApiUnreachableError
from shared.model.objects import Object

log = logging.getLogger(__name__)

VERSIONS = ("v1", "v1beta1")
_WATCH_SECONDS = 300.0  # of one watch
_RELIST_SECONDS = 2.0  # between a broken watch and the next list
_LIMIT = "500"


class SubmittedRequest(Struct, frozen=True, kw_only=True):
    """A request that the API server has."""

    name: str
    uid: str
    version: str  # of the API: v1 or v1beta1


async def demands_encipherment(api: ApiClient) -> bool:
    """Return whether the server's signers demand `key encipherment` from every key. Raises ApiUnreachableError."""
    try:
        return demands_key_encipherment(await api.get(paths.VERSION))
    except ApiStatusError:  # some clients may not read the version; a new server is assumed
        return False


async def send(api: ApiClient, name: str, request: str, template: Template, *, encipherment: bool) -> Object:
    """Create the request under this name; the object, also where the name is taken (whose it is, the caller sees).

    Raises ApiStatusError, ApiUnreachableError.
    """
    for version in VERSIONS:
        body = request_object(name, request, template, encipherment=encipherment, version=version)
        try:
            created = await api.create(paths.certificate_signing_requests(version), body)
        except ApiStatusError as error:
            if error.already_exists:
                found = await api.get(paths.certificate_signing_request(version, name))
                return {**_checked(found), "apiVersion": body["apiVersion"]}
            if not error.not_found or version == VERSIONS[-1]:
                raise
        else:
            return {**_checked(created), "apiVersion": body["apiVersion"]}
    raise AssertionError("unreachable")


def sent(csr: Object) -> SubmittedRequest:
    """Return the part of an object that `send` returned which is to be stored."""
    metadata = csr["metadata"]
    return SubmittedRequest(name=metadata["name"], uid=metadata["uid"], version=csr["apiVersion"].rpartition("/")[2])


def holds(csr: Object, request: str) -> bool:
    """Return whether this object contains exactly this request."""
    return request_text(csr) == request


async def answered(
    api: ApiClient, request: SubmittedRequest, seconds: float, on_pending: Callable[[str], None] = lambda _: None
) -> CsrState:
    """Wait until the request is issued, denied, failed or gone; still pending after `seconds` is an answer, too.

    `on_pending` gets what it waits for. Broken connections are retried. Raises ApiStatusError.
    """
    return await _until(api, request, seconds, lambda found: found.outcome is not CsrOutcome.PENDING, on_pending)


async def gone(api: ApiClient, request: SubmittedRequest, seconds: float) -> bool:
    """Wait at most `seconds` until the request was deleted; return whether it was. Raise ApiStatusError."""
    return (
        await _until(api, request, seconds, lambda found: found.outcome is CsrOutcome.GONE)
    ).outcome is CsrOutcome.GONE


async def _until(
    api: ApiClient,
    request: SubmittedRequest,
    seconds: float,
    ends: Callable[[CsrState], bool],
    on_pending: Callable[[str], None] = lambda _: None,
) -> CsrState:
    found = unseen = CsrState(CsrOutcome.PENDING, line=f"{request.name} could not be looked at")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                try:
                    async with contextlib.aclosing(_states(api, request)) as states:
                        async for found in states:
                            if ends(found):
                                return found
                            on_pending(found.line)
                except ApiUnreachableError as error:
                    log.debug("%s: %s", request.name, error)
                    if found is unseen:
                        on_pending(f"{request.name} could not be looked at: {error}")
                except ApiStatusError as error:
                    if not error.gone and error.code < 500:
                        raise
                await asyncio.sleep(_RELIST_SECONDS)
    return found


async def _states(api: ApiClient, request: SubmittedRequest) -> AsyncGenerator[CsrState]:
    """Yield the request as a list has it, and then each change of it, until the watch ends."""
    path = paths.certificate_signing_requests(request.version)
    query = {"fieldSelector": f"metadata.name={request.name}"}
    # This is a quorum read of one key, because a cache that does not have the request yet would show it as deleted.
    listed = await api.get(path, {**query, "limit": _LIMIT})
    items, metadata = listed.get("items") or [], listed.get("metadata") or {}
    if "items" not in listed or not isinstance(items, list) or not isinstance(metadata, dict):
        raise ApiUnreachableError("the answer is no list")
    yield state_of(_checked(items[0]) if items else None, request.uid)
    version = str(metadata.get("resourceVersion") or "")
    watched = {**query, "resourceVersion": version, "allowWatchBookmarks": "true"}  # without, it is silent for minutes
    async with api.watch(path, watched, timeout=_WATCH_SECONDS) as events:
        async for event in events:
            if event.type == "BOOKMARK":
                continue
            yield state_of(None if event.type == "DELETED" else _checked(event.object), request.uid)


def _checked(found: object) -> Object:
    """Raise ApiUnreachableError for an answer that is not from an API server."""
    if not is_well_formed(found):
        raise ApiUnreachableError("the answer is no CertificateSigningRequest (is a proxy before the API server?)")
    return cast(Object, found)
