"""Sends reviews, and requests for tokens and for certificates of pods, to the API server for other processes (server.md
2, 3.3; volumes.md 10.1, 10.3).

Tokens are not logged, and kept only where `offlinePods` is enabled. Every client of the server's port can cause
reviews, so they have connections of their own and the lowest urgency, and the number of pending ones is bounded.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator

from bus.messages.status import (
    IssuedToken,
    RequestedPodCertificate,
    RequestPodCertificate,
    RequestToken,
    ReviewAccess,
    Reviewed,
    ReviewToken,
)
from services.frame.launch import Context
from services.status.adapters.clients import Clients
from services.status.controllers.offline_tokens import OfflineTokens
from services.status.core.token_lifetime import token_lifetime
from shared.kube import paths
from shared.kube.interface import WRITE_TIMEOUT_SECONDS, ApiClient, ApiError, ApiStatusError, ApiUnreachableError
from shared.model.fields import dictionary
from shared.model.objects import Object
from shared.time.backoff import Backoff

_STEPS, _RETRIES, _JITTER = 5, Backoff(initial=0.5, factor=1.5), 0.2
_TIMEOUT_SECONDS = 10.0  # of one review; no webhook has to admit it, and its caller waits for 30 s
# Requests at the same time; further ones are refused at once.
_MAX_PENDING = {ReviewToken: 100, ReviewAccess: 100, RequestToken: 500, RequestPodCertificate: 500}


class Reviews:
    """Answers ReviewToken, ReviewAccess, RequestToken and RequestPodCertificate. Without clients it answers with the
    kubelet's errors."""

    def __init__(self, context: Context, clients: Clients | None, chance: Callable[[], float] = random.random) -> None:
        self._clients, self._chance = clients, chance
        self._pending: Counter[type] = Counter()
        self._certificate_versions: tuple[str, ...] = paths.POD_CERTIFICATE_VERSIONS  # that of the last success first
        context.bus.answer(ReviewToken, self._review_token)
        context.bus.answer(ReviewAccess, self._review_access)
        self.offline: OfflineTokens | None = None
        if clients is not None and context.config.offline_pods is not None:
            self.offline = OfflineTokens(context, context.config.offline_pods, self._request_token)
        context.bus.answer(RequestToken, self._request_token if self.offline is None else self.offline.answer)
        context.bus.answer(RequestPodCertificate, self._request_certificate)

    async def _review_token(self, request: ReviewToken) -> Reviewed:
        if self._clients is None:
            return _no_client("authentication")
        spec: Object = {"token": request.token}
        if request.audiences:
            spec["audiences"] = list(request.audiences)
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        with self._counted(ReviewToken) as refusal:
            if refusal:
                return Reviewed(status={}, error=refusal)
            return await self._review(self._clients.token_reviews, paths.TOKEN_REVIEWS, body)

    async def _review_access(self, request: ReviewAccess) -> Reviewed:
        if self._clients is None:
            return _no_client("authorization")
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": request.spec}
        with self._counted(ReviewAccess) as refusal:
            if refusal:
                return Reviewed(status={}, error=refusal)
            return await self._review(self._clients.reviews, paths.SUBJECT_ACCESS_REVIEWS, body)

    async def _review(self, client: ApiClient, path: str, body: Object) -> Reviewed:
        for step in range(1, _STEPS + 1):
            try:
                answer = await client.create(path, body, timeout=_TIMEOUT_SECONDS)
                return Reviewed(status=dictionary(answer.get("status")))
            except ApiError as error:
                if step == _STEPS or not _transient(error):
                    return Reviewed(status={}, error=str(error))
            await asyncio.sleep(_RETRIES.delay(step, _JITTER * self._chance()))
        raise AssertionError("unreachable")

    async def _request_token(self, request: RequestToken) -> IssuedToken:
        if self._clients is None:
            return IssuedToken(error="cannot use TokenManager when kubelet is in standalone mode")
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": request.spec}
        path = paths.service_account_token(request.namespace, request.service_account)
        with self._counted(RequestToken) as refusal:
            if refusal:
                return IssuedToken(error=refusal)
            try:
                answer = await self._clients.tokens.create(path, body, timeout=WRITE_TIMEOUT_SECONDS)
            except ApiError as error:
                not_found = isinstance(error, ApiStatusError) and error.not_found
                return IssuedToken(not_found=not_found, error=str(error))
        status = dictionary(answer.get("status"))
        token, expiration = status.get("token"), status.get("expirationTimestamp")
        if not isinstance(token, str) or not token or not isinstance(expiration, str):
            return IssuedToken(error="the API server's answer to the TokenRequest has no token")
        return IssuedToken(token=token, expiration=expiration, lifetime=token_lifetime(answer))

    async def _request_certificate(self, request: RequestPodCertificate) -> RequestedPodCertificate:
        if self._clients is None:
            return RequestedPodCertificate(error="unimplemented")
        owner = {"apiVersion": "core/v1", "kind": "Pod", "name": request.pod, "uid": request.pod_uid}
        body: Object = {
            "kind": "PodCertificateRequest",
            "metadata": {"name": request.name, "namespace": request.namespace, "ownerReferences": [owner]},
            "spec": request.spec,
        }
        with self._counted(RequestPodCertificate) as refusal:
            if refusal:
                return RequestedPodCertificate(error=refusal)
            wrong = ""
            for version in self._certificate_versions:
                path = paths.pod_certificate_requests(version, request.namespace)
                sent = {"apiVersion": f"certificates.k8s.io/{version}", **body}
                try:
                    await self._clients.tokens.create(path, sent, timeout=WRITE_TIMEOUT_SECONDS)
                except ApiError as error:
                    wrong = str(error)
                    if isinstance(error, ApiStatusError) and error.not_found:  # the API server has no such version
                        continue
                    if not (isinstance(error, ApiStatusError) and error.already_exists):  # an earlier try created it
                        return RequestedPodCertificate(error=wrong)
                others = (other for other in paths.POD_CERTIFICATE_VERSIONS if other != version)
                self._certificate_versions = (version, *others)
                return RequestedPodCertificate()
        return RequestedPodCertificate(error=wrong)

    @contextlib.contextmanager
    def _counted(self, request: type) -> Iterator[str]:
        """Count a request while it is pending, and yield why it is refused, "" = it is not."""
        pending = self._pending[request]
        self._pending[request] += 1
        try:
            yield f"{pending} {request.__name__} are pending already" if pending >= _MAX_PENDING[request] else ""
        finally:
            self._pending[request] -= 1


def _no_client(what: str) -> Reviewed:
    return Reviewed(status={}, error=f"no client provided, cannot use webhook {what}")


def _transient(error: ApiError) -> bool:
    if isinstance(error, ApiStatusError):
        return error.code == 429 or error.code >= 500
    return isinstance(error, ApiUnreachableError)
