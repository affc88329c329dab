"""Patches the status of PersistentVolumeClaims when volume requests it for an expansion (volumes.md 17)."""

from bus.messages.status import PatchClaimStatus, PatchedClaim
from services.frame.launch import Context
from services.status.adapters.clients import Clients
from shared.kube import paths
from shared.kube.interface import WRITE_TIMEOUT_SECONDS, ApiError, PatchType
from shared.model.fields import dictionary
from shared.model.objects import Object

_MAX_PENDING = 100  # requests at the same time; further ones are refused at once


class ClaimStatuses:
    """Answers PatchClaimStatus. Each request is sent at most once: the caller decides what follows from a failure."""

    def __init__(self, context: Context, clients: Clients | None) -> None:
        self._clients, self._pending = clients, 0
        context.bus.answer(PatchClaimStatus, self._patch)

    async def _patch(self, request: PatchClaimStatus) -> PatchedClaim:
        if self._clients is None:
            return PatchedClaim(error="the node has no API server whose claims it could update")
        if self._pending >= _MAX_PENDING:
            return PatchedClaim(error=f"{self._pending} PatchClaimStatus are pending already")
        path = f"{paths.persistent_volume_claim(request.namespace, request.name)}/status"
        body: Object = {"metadata": {"resourceVersion": request.resource_version}, "status": request.status}
        self._pending += 1
        try:
            patched = await self._clients.tokens.patch(path, body, PatchType.STRATEGIC, timeout=WRITE_TIMEOUT_SECONDS)
        except ApiError as error:
            return PatchedClaim(error=str(error))
        finally:
            self._pending -= 1
        version = dictionary(patched.get("metadata")).get("resourceVersion")
        return PatchedClaim(resource_version=str(version or ""))
