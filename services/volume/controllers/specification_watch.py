"""Compares prepared resource claims with the CDI specifications of the machine. Where they are lost, no container
runtime can start a container with the claim's devices, so the driver prepares the claim again (node.md 4.16).
"""

import logging
import math

from services.volume.adapters.cdi_specifications import CdiSpecifications
from services.volume.adapters.threads import Threads
from services.volume.core.resource_claims.claims_of_node import ClaimsOfNode
from shared.text.plain_text import plain
from shared.time.clock import Clock

log = logging.getLogger(__name__)

LOOK_SECONDS = 60.0  # between two looks while claims are prepared; a pod that gets claims causes one as well
_TIMEOUT_SECONDS = 10.0  # of one look


class SpecificationWatch:
    """Looks at the specifications for `claims`, if a claim has CDI devices."""

    def __init__(self, claims: ClaimsOfNode, clock: Clock) -> None:
        self._claims, self._clock = claims, clock
        self._specifications = CdiSpecifications()
        self._threads = Threads("CDI specifications", 1, clock, _TIMEOUT_SECONDS)
        self._looked = -math.inf

    @property
    def due(self) -> float:
        """Return when the next look is due (monotonic seconds); infinity = no claim has CDI devices."""
        return self._looked + LOOK_SECONDS if self._claims.has_cdi_devices else math.inf

    async def look(self) -> bool:
        """Look now, and return whether a claim must be prepared again."""
        if not self._claims.has_cdi_devices:
            return False
        self._looked = self._clock.monotonic()
        try:
            devices = await self._threads.call(self._specifications.look)
        except OSError as error:
            log.warning("CDI specifications cannot be read: %s", error)
            return False
        lost = self._claims.set_specifications(devices)
        for claim, driver in lost:
            where = f"ResourceClaim {claim.namespace}/{claim.name}"
            log.warning("%s: DRA driver %s prepares it again: its CDI specifications are gone", where, plain(driver))
        return bool(lost)

    def close(self) -> None:
        """Look no more."""
        self._threads.close()
