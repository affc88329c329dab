"""Reviews and tokens that the other processes need from the API server (reference server.md 2, 3.3; volumes.md 10.1).

Tokens pass through and are neither logged nor kept.
"""

import asyncio
import random
from collections.abc import Callable

from bus.messages.status import IssuedToken, RequestToken, ReviewAccess, Reviewed, ReviewToken
from services.launch import Context
from services.status.clients import Clients
from shared.kube import paths
from shared.kube.interface import ApiClient, ApiError, ApiStatusError, ApiUnreachableError
from shared.model.objects import Object

_STEPS, _FIRST_WAIT, _FACTOR, _JITTER = 5, 0.5, 1.5, 0.2  # seconds
_TIMEOUT = 10.0  # seconds, of one request


class Reviews:
    """Answers ReviewToken, ReviewAccess and RequestToken; without clients with the kubelet's refusals."""

    def __init__(self, context: Context, clients: Clients | None, chance: Callable[[], float] = random.random) -> None:
        self._client: ApiClient | None = clients.kube if clients is not None else None
        self._chance = chance
        context.bus.answer(ReviewToken, self._review_token)
        context.bus.answer(ReviewAccess, self._review_access)
        context.bus.answer(RequestToken, self._request_token)

    async def run(self) -> None:
        """Nothing of its own to do: the bus calls."""
        await asyncio.Event().wait()

    async def _review_token(self, request: ReviewToken) -> Reviewed:
        spec: Object = {"token": request.token}
        if request.audiences:
            spec["audiences"] = list(request.audiences)
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        return await self._review(paths.TOKEN_REVIEWS, body, "authentication")

    async def _review_access(self, request: ReviewAccess) -> Reviewed:
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": request.spec}
        return await self._review(paths.SUBJECT_ACCESS_REVIEWS, body, "authorization")

    async def _review(self, path: str, body: Object, what: str) -> Reviewed:
        if self._client is None:
            return Reviewed(status={}, error=f"no client provided, cannot use webhook {what}")
        wait = _FIRST_WAIT
        for step in range(1, _STEPS + 1):
            try:
                return Reviewed(status=_status(await self._client.create(path, body, timeout=_TIMEOUT)))
            except ApiError as error:
                if step == _STEPS or not _transient(error):
                    return Reviewed(status={}, error=str(error))
            await asyncio.sleep(wait * (1 + _JITTER * self._chance()))
            wait *= _FACTOR
        raise AssertionError("unreachable")

    async def _request_token(self, request: RequestToken) -> IssuedToken:
        if self._client is None:
            return IssuedToken(error="cannot use TokenManager when kubelet is in standalone mode")
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": request.spec}
        path = paths.service_account_token(request.namespace, request.service_account)
        try:
            status = _status(await self._client.create(path, body, timeout=_TIMEOUT))
        except ApiError as error:
            not_found = isinstance(error, ApiStatusError) and error.not_found
            return IssuedToken(not_found=not_found, error=str(error))
        token, expiration = status.get("token"), status.get("expirationTimestamp")
        if not isinstance(token, str) or not token or not isinstance(expiration, str):
            return IssuedToken(error="the API server's answer to the TokenRequest has no token")
        return IssuedToken(token=token, expiration=expiration)


def _transient(error: ApiError) -> bool:
    if isinstance(error, ApiStatusError):
        return error.code == 429 or error.code >= 500
    return isinstance(error, ApiUnreachableError)


def _status(answer: Object) -> Object:
    status = answer.get("status")
    return status if isinstance(status, dict) else {}
