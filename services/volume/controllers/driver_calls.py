"""Calls the drivers of dynamic resource allocation, each a few times at once, and checks their answers (node.md 4.16).

A driver may listen at several sockets, while it is updated: the one that registered last is called, and another one
where nothing listens there.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from bus.messages.volume import RegisteredPlugin
from services.volume.adapters import dra_drivers
from services.volume.adapters.dra_drivers import CalledClaim
from services.volume.core.resource_claims.claim import Claim
from services.volume.core.resource_claims.driver_checks import Answer, Device, check_prepared, check_unprepared
from shared.plugin_grpc.connection import PluginCallError
from shared.text.plain_text import plain
from shared.time.clock import Clock

MAX_CALLS = 8  # of one driver at the same time; further ones wait
MAX_WAIT_SECONDS = 10.0  # after the start, for drivers that are about to register

# Returns the sockets of the driver with this name, the last registered one first.
Endpoints = Callable[[str], list[RegisteredPlugin]]


class Outcome(Struct, frozen=True):
    """Has the outcome of a call by the claims' UIDs: their devices, or why the driver has failed, one line each."""

    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)


class DriverCalls:
    """Calls drivers by name. No call waits for one of another driver. `on_called` receives driver, method, code and
    seconds of each call that has ended."""

    def __init__(self, clock: Clock, endpoints: Endpoints, all_known: Callable[[], bool]) -> None:
        self._clock, self._endpoints, self._all_known = clock, endpoints, all_known
        self.on_called: Callable[[str, str, str, float], None] = lambda *_: None
        self._changed = asyncio.Event()
        self._waited = False
        self._free: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(MAX_CALLS))

    def drivers_changed(self) -> None:
        """Note that a driver has come or gone, or that all that are there are known."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def until_known(self, drivers: Collection[str]) -> None:
        """Wait until these drivers are registered, or known not to be: after a start they register within moments."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_WAIT_SECONDS):
                while not self._waited and any(self.missing(driver) for driver in drivers) and not self._all_known():
                    await self._changed.wait()
                return
        self._waited = True

    def missing(self, driver: str) -> str:
        """Return the error for a driver that is not registered, "" = it is."""
        return "" if self._endpoints(driver) else f"DRA driver {plain(driver)} is not registered"

    async def prepare(self, driver: str, claims: list[Claim]) -> Outcome:
        """Have the driver prepare the claims, in one call."""
        return await self._call(driver, claims, dra_drivers.PREPARE, dra_drivers.prepare, check_prepared)

    async def unprepare(self, driver: str, claim: Claim) -> str:
        """Have the driver unprepare the claim; return why it has failed, "" = it has not."""
        outcome = await self._call(driver, [claim], dra_drivers.UNPREPARE, dra_drivers.unprepare, check_unprepared)
        return outcome.errors.get(claim.uid, "")

    async def _call(self, driver: str, claims: list[Claim], method: str, call: "_Call", check: "_Check") -> Outcome:
        names = {claim.uid: claim.name for claim in claims}
        called = [CalledClaim(namespace=claim.namespace, uid=claim.uid, name=claim.name) for claim in claims]
        async with self._free[driver]:
            error = self.missing(driver)
            for plugin in self._endpoints(driver):
                began, code = self._clock.monotonic(), "Canceled"
                try:
                    answers = await call(plugin.endpoint, plugin.version, called)
                except PluginCallError as failure:
                    code = failure.code
                    error = f"DRA driver {plain(driver)}: {plain(str(failure))}"
                    if failure.code != "Unavailable":
                        break
                else:
                    code = "OK"
                    errors = check(names, answers)
                    devices = {uid: answers[uid].devices for uid in names.keys() - errors.keys()}
                    return Outcome(
                        devices, {uid: f"DRA driver {plain(driver)}: {text}" for uid, text in errors.items()}
                    )
                finally:
                    full = dra_drivers.full_method(plugin.version, method)
                    self.on_called(driver, full, code, self._clock.monotonic() - began)
        return Outcome(errors=dict.fromkeys(names, error))


_Call = Callable[[str, str, Iterable[CalledClaim]], Coroutine[Any, Any, Mapping[str, Answer]]]
_Check = Callable[[Mapping[str, str], Mapping[str, Answer]], dict[str, str]]
