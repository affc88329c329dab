"""Sends one GET to the API server as an answer to another service."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from bus.messages.sources import FoundObject
from services.sources.controllers.api_server import ApiServer
from shared.kube.interface import READ_TIMEOUT_SECONDS, ApiClient, ApiStatusError, ApiUnreachableError

# In all, the wait for the rate limit included: a read whose caller does not wait any more
# (REQUESTED_READ_TIMEOUT_SECONDS) leaves its queue. A connection whose peer is gone breaks within ten seconds by itself
# (`shared.kube.dialing`).
MAX_WAIT_SECONDS = READ_TIMEOUT_SECONDS + 5.0
MAX_RETRY_SECONDS = 5.0  # from its beginning, within which a read is repeated if the API server has asked to wait
# Seconds between tries while the node authorizer does not know yet that a pod of this node names the object.
FORBIDDEN_RETRIES = (0.1, 0.2, 0.4)


async def live_read(
    api: ApiServer, client: ApiClient, path: str, query: Mapping[str, str] | None = None, *, may_lag: bool = False
) -> FoundObject:
    """Return the object, or why there is none, with the API server's text. `may_lag`: a 403 may pass within moments. An
    outage that is detected here counts for every watch; during an outage nothing is sent."""
    try:
        async with asyncio.timeout(MAX_WAIT_SECONDS):
            return await _read(api, client, path, query, may_lag=may_lag)
    except TimeoutError:
        error = f"{path}: more is asked of the API server than its rate limit lets through"
        return FoundObject(object=None, error=error)


async def find_served(
    api: ApiServer, path_of: Callable[[str], str], versions: Sequence[str], selector: str = ""
) -> FoundObject | str:
    """Return the path of a collection in the first of these versions that the API server has, else the last answer,
    which says why there is none. `path_of`: the path by version; `selector`: the fieldSelector without which a node may
    not list the collection, "" = it may."""
    query = {"limit": "1", **({"fieldSelector": selector} if selector else {})}
    found = FoundObject(object=None, not_found=True)
    for version in versions:
        # A list from the API server's cache would ignore the limit.
        found = await live_read(api, api.clients.objects, path_of(version), query)
        if found.object is not None:
            return path_of(version)
        if not found.not_found:
            break
    return found


async def _read(
    api: ApiServer, client: ApiClient, path: str, query: Mapping[str, str] | None, *, may_lag: bool
) -> FoundObject:
    retries, began = iter(FORBIDDEN_RETRIES if may_lag else ()), api.clock.monotonic()
    while True:
        if api.is_outage:  # during an outage only the watch of our Node sends requests
            return FoundObject(object=None, error=api.away)
        try:
            found = await client.get(path, query, timeout=READ_TIMEOUT_SECONDS)
            api.is_there()
            return FoundObject(object=found)
        except ApiStatusError as error:
            delay = next(retries, None) if error.forbidden else error.retry_after
            if delay is None or api.clock.monotonic() + delay >= began + MAX_RETRY_SECONDS:
                return FoundObject(object=None, not_found=error.not_found, error=str(error))
            await asyncio.sleep(delay)
        except ApiUnreachableError as error:
            api.failed(path, error)
            return FoundObject(object=None, error=str(error))
