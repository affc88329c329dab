"""Expands a volume with a claim: writes the claim's status before and after the call of the plugin (volumes.md 17)."""

import logging
from collections.abc import Awaitable, Callable

from bus.interface import Bus, NoAnswerError, RequestRefusedError
from bus.messages.status import REQUESTED_WRITE_TIMEOUT_SECONDS, PatchClaimStatus, PatchedClaim
from services.volume.adapters.cluster_content import ClusterContent
from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.operations.operations import ExpandVolume
from services.volume.core.operations.outcome import Outcome
from services.volume.core.specs.claim_expansion import (
    is_infeasible,
    patch_after_failure,
    patch_after_success,
    patch_before,
)
from services.volume.core.specs.expansion import Expansion, ExpansionFailure
from services.volume.core.specs.volume_claims import CLAIM
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.time.clock import Clock
from shared.time.timestamps import rfc3339

log = logging.getLogger(__name__)


class VolumeExpansion:
    """Expands volumes. `reread` reads a claim again. After a kill at any line, the claim's status shows the expansion
    as under way or as required, and it is performed again."""

    def __init__(self, bus: Bus, clock: Clock, content: ClusterContent, reread: Callable[[ObjectKey], None]) -> None:
        self._bus, self._clock, self._content, self._reread = bus, clock, content, reread

    async def run(
        self, operation: ExpandVolume, again: bool, perform: Callable[[SetUpInputs], Awaitable[Outcome | None]]
    ) -> Outcome | None:
        """Expand the volume and return how that ended; None = it was not performed. `again`: it has failed finally
        before."""
        spec = operation.spec
        expansion = spec.expansion
        if expansion is None:
            return await perform(SetUpInputs())
        if (patch := patch_before(expansion)) is not None:
            version, error = await self._patch(expansion, patch)
            if error:
                return Outcome(error=error)
            expansion = replace(expansion, version=version)
        needed = replace(spec, objects=spec.expansion_objects, tokens=())
        gathered = await self._content.gather(needed) if spec.expansion_objects else SetUpInputs()
        outcome = await perform(gathered)
        if outcome is None:
            return None
        return await self._ended(expansion, outcome, again)

    async def _ended(self, expansion: Expansion, outcome: Outcome, again: bool) -> Outcome:
        if outcome.expansion is ExpansionFailure.UNSUPPORTED:
            # Without the recovery protocol, and for a claim that has the size already, the kubelet takes the expansion
            # as done by the controller alone.
            fails = expansion.recovery and not expansion.updated
            outcome = replace(outcome, expansion=ExpansionFailure.FINAL) if fails else replace(outcome, error="")
        if outcome.error:
            now = rfc3339(self._clock.wall())
            patch = patch_after_failure(expansion, outcome.expansion, outcome.error, now, again=again)
            if is_infeasible(expansion, outcome.expansion, again=again):
                outcome = replace(outcome, expansion=ExpansionFailure.INFEASIBLE)
            elif outcome.expansion is ExpansionFailure.INFEASIBLE:
                outcome = replace(outcome, expansion=ExpansionFailure.FINAL)
        else:
            patch = patch_after_success(expansion)
        if patch is None:
            return outcome
        _, error = await self._patch(expansion, patch)
        if error and not outcome.error:
            return Outcome(error=error)
        return outcome

    async def _patch(self, expansion: Expansion, status: Object) -> tuple[str, str]:
        """Patch the claim's status. Return the new resourceVersion and "", or "" and the error."""
        namespace, name = expansion.namespace, expansion.claim
        request = PatchClaimStatus(namespace=namespace, name=name, resource_version=expansion.version, status=status)
        try:
            answer = await self._bus.ask("status", request, PatchedClaim, REQUESTED_WRITE_TIMEOUT_SECONDS)
            version, error = answer.resource_version, answer.error
        except (NoAnswerError, RequestRefusedError) as failure:
            version, error = "", str(failure)
        self._reread(ObjectKey(CLAIM, namespace, name))
        if not error:
            return version, ""
        return "", f"updating PVC {namespace}/{name} failed: {error}"
