"""Reads the Go kubelet's checkpoint of resource claims once, and keeps it in step with the record, for a Go kubelet
that gets the node back (node.md 4.14).

The checkpoint is derived: it is written soon after the record, at most once a second, and at the end of the process. A
write that failed is repeated with the next change, and after `RETRY_SECONDS`.
"""

import asyncio
import contextlib
import logging
from pathlib import Path

from bus.interface import Bus
from services.volume.adapters.claim_files import CheckpointFile
from services.volume.adapters.threads import Threads
from services.volume.core.resource_claims.claim import Claim
from services.volume.core.resource_claims.dra_state import FILE_NAME
from shared.go_checkpoints.checksums import CheckpointError
from shared.process.crash import crash_point
from shared.time.clock import Clock

log = logging.getLogger(__name__)

MIN_SECONDS = 1.0  # between two writes: each has all claims of the node
RETRY_SECONDS = 10.0
_TROUBLE = "checkpoint of resource claims"


class ClaimCheckpoint:
    """Writes the checkpoint below the root directory. `run` is the loop."""

    def __init__(self, bus: Bus, clock: Clock, root: Path) -> None:
        self._bus = bus
        self._file = CheckpointFile(root / FILE_NAME)
        self._threads = Threads(_TROUBLE, 1, clock)
        self._newest: tuple[Claim, ...] | None = None  # None = the record was not read yet
        self._changed = asyncio.Event()

    async def load(self) -> tuple[Claim, ...]:
        """Return the claims of the checkpoint. One that cannot be used is logged, and counts as none."""
        try:
            return await self._threads.call(self._file.load)
        except (OSError, CheckpointError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            remedy = "claims that only another kubelet knows stay prepared until their drivers restart"
            log.warning("%s: cannot be used: %s (%s)", self._file.path, why, remedy)
            return ()

    def write(self, claims: tuple[Claim, ...]) -> None:
        """Write the checkpoint of these claims soon, unless there is none and there are no claims."""
        self._newest = claims
        if claims or self._file.is_there:
            self._changed.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            crash_point("volume.claim.recorded")
            try:
                await self._threads.call(self._file.save, self._newest or ())
            except OSError as error:
                why = f"{self._file.path}: cannot be written: {error.strerror} (free space or repair the file system)"
                self._bus.trouble(_TROUBLE, why)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_SECONDS):
                        await self._changed.wait()
                self._changed.set()
            else:
                self._bus.trouble(_TROUBLE, None)
                await asyncio.sleep(MIN_SECONDS)

    def close(self) -> None:
        """Write what is not written yet, and then no more. Blocks for a write."""
        self._threads.close(wait=True)
        if self._newest is not None:  # also where a write has failed
            with contextlib.suppress(OSError):  # it is written at the next start
                self._file.save(self._newest)
