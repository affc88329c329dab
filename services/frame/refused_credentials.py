"""Reports to bootstrap that the API server refused the credentials in force, so that it runs their exec plugin again,
or replaces an expired client certificate.
The services with an API client use it. A lost report is made again with the next refusal.
"""

import asyncio
import contextlib

from bus.interface import Bus, NoAnswerError, RequestRefusedError
from bus.messages.bootstrap import CredentialsRenewal, RenewCredentials

_MAX_ANSWER_SECONDS = 10.0


class RefusedCredentials:
    """Reports each 401, when it is called with the version of the credentials; one report is under way at a time."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._reporting: asyncio.Task[None] | None = None

    def __call__(self, version: int) -> None:
        """Begin a report, unless one is under way."""
        if self._reporting is None or self._reporting.done():
            self._reporting = asyncio.create_task(self._report(version), name="refused credentials")

    async def _report(self, version: int) -> None:
        with contextlib.suppress(NoAnswerError, RequestRefusedError):  # the next request that is refused asks again
            await self._bus.ask("bootstrap", RenewCredentials(version=version), CredentialsRenewal, _MAX_ANSWER_SECONDS)
