"""The driver of resource claims of the simulated node, as another process: a call that was sent is carried out even
when volume is killed. It takes the place of volume's sockets and connections, not of anything that decides.
"""

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

from bus.messages.volume import RegisteredPlugin
from services.volume.adapters.dra_drivers import CALL_TIMEOUT_SECONDS, CalledClaim
from services.volume.controllers.plugin_registration import PluginRegistration
from services.volume.core.resource_claims.driver_checks import Answer, Device
from shared.plugin_grpc.connection import PluginCallError
from tests.simulation.faults import Fault, PluginFault
from tests.simulation.loop import INCARNATION, Incarnation
from tests.simulation.oracle import Oracle
from tests.simulation.story import Story

DRIVER, SERVICE, ENDPOINT = "gpu.example.com", "v1.DRAPlugin", "dra.sock"
SLOW_SECONDS = 1.0
_Answers = Mapping[str, Answer]


def cdi_name(uid: str) -> str:
    """Return the CDI device of a claim."""
    return f"{DRIVER}/claim={uid}"


class SimulatedDriver:
    """The driver's process, or none while it is dead. `prepared`: UID of a claim -> its name; `unprepared` is called
    with the name of a claim that goes."""

    def __init__(self, story: Story, oracle: Oracle, rng: Random, faults: tuple[Fault, ...]) -> None:
        self._story, self._oracle, self._rng = story, oracle, rng
        self._faults = [fault for fault in faults if isinstance(fault, PluginFault)]
        self._process = 0  # its number
        self._deaths = 0  # that have not ended yet
        self._dying: list[PluginFault] = []
        self._pending: list[asyncio.Future[_Answers]] = []
        self._volume: tuple[Incarnation, contextvars.Context, PluginRegistration] | None = None
        self.prepared: dict[str, str] = {}
        self.unprepared: Callable[[str], None] = lambda _: None

    def begin(self) -> None:
        """Plan its faults."""
        for fault in self._faults:
            self._later(fault.at, self._fault_begins, fault)

    def lose_power(self) -> None:
        """Forget what was prepared: the machine has ended."""
        self.prepared.clear()

    # -- faults ----------------------------------------------------------------------------------------------------

    def _die(self, seconds: float) -> None:
        """End the process; another one begins after some time, and has prepared what this one had."""
        self._deaths += 1
        self._process += 1
        self._story.add("driver", f"has ended for {seconds:g} s")
        for pending in self._pending:
            if not pending.done():
                pending.set_exception(PluginCallError("Unavailable", "connection reset"))
        self._pending.clear()
        self._changed()
        self._later(seconds, self._live)

    def _live(self) -> None:
        self._deaths -= 1
        if not self._deaths:
            self._story.add("driver", "begins again")
            self._changed()

    def _fault_begins(self, fault: PluginFault) -> None:
        if fault.kind == "dead":
            self._die(fault.seconds)
        elif fault.kind == "dies":
            self._dying.append(fault)
            self._later(fault.seconds, self._no_longer_dying, fault)

    def _no_longer_dying(self, fault: PluginFault) -> None:
        if fault in self._dying:
            self._dying.remove(fault)

    def _has(self, kind: str) -> bool:
        now = self._story.seconds
        return any(fault.kind == kind and fault.at <= now < fault.at + fault.seconds for fault in self._faults)

    # -- in place of volume's sockets ------------------------------------------------------------------------------

    async def registered(self, registration: PluginRegistration) -> None:
        """In place of `PluginRegistration.run`."""
        incarnation = INCARNATION.get()
        assert incarnation is not None
        self._volume = (incarnation, contextvars.copy_context(), registration)
        registration.on_change()
        await asyncio.Event().wait()

    def endpoints(self, _kind: str, name: str) -> list[RegisteredPlugin]:
        """In place of `PluginRegistration.endpoints`."""
        if self._deaths or name != DRIVER:
            return []
        return [RegisteredPlugin(type="DRAPlugin", name=DRIVER, endpoint=ENDPOINT, version=SERVICE)]

    def _changed(self) -> None:
        if self._volume is not None:
            incarnation, context, registration = self._volume
            if not incarnation.dead:
                asyncio.get_running_loop().call_soon(registration.on_change, context=context.copy())

    # -- calls -----------------------------------------------------------------------------------------------------

    async def prepare(self, _endpoint: str, _service: str, claims: Iterable[CalledClaim]) -> _Answers:
        """In place of the call of the adapter. Raises PluginCallError."""
        return await self._call(tuple(claims), self._prepare)

    async def unprepare(self, _endpoint: str, _service: str, claims: Iterable[CalledClaim]) -> _Answers:
        """In place of the call of the adapter. Raises PluginCallError."""
        return await self._call(tuple(claims), self._unprepare)

    def _prepare(self, claims: tuple[CalledClaim, ...]) -> _Answers:
        for claim in claims:
            self._story.add("driver", f"prepares {claim.name}")
            self.prepared[claim.uid] = claim.name
        return {
            claim.uid: Answer(devices=(Device(pool="node", device=claim.name, cdi_devices=(cdi_name(claim.uid),)),))
            for claim in claims
        }

    def _unprepare(self, claims: tuple[CalledClaim, ...]) -> _Answers:
        for claim in claims:
            self._story.add("driver", f"unprepares {claim.name}")
            self.unprepared(claim.name)
            self.prepared.pop(claim.uid, None)
        return {claim.uid: Answer() for claim in claims}

    async def _call(
        self, claims: tuple[CalledClaim, ...], effect: Callable[[tuple[CalledClaim, ...]], _Answers]
    ) -> _Answers:
        answered: asyncio.Future[_Answers] = asyncio.get_running_loop().create_future()
        way = self._rng.uniform(0.0005, 0.002) + (SLOW_SECONDS if self._has("slow") else 0.0)
        self._later(way, self._carry_out, self._process, claims, effect, answered)
        try:
            async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
                return await answered
        except TimeoutError:
            raise PluginCallError("DeadlineExceeded", "context deadline exceeded") from None

    def _carry_out(
        self,
        process: int,
        claims: tuple[CalledClaim, ...],
        effect: Callable[[tuple[CalledClaim, ...]], _Answers],
        answered: "asyncio.Future[_Answers]",
    ) -> None:
        if self._dying and process == self._process and not self._deaths:
            fault = self._dying.pop()
            if self._rng.random() < 0.5:  # it has done its work, and does not answer
                effect(claims)
            self._die(fault.seconds)
        if self._deaths or process != self._process:
            if not answered.done():
                answered.set_exception(PluginCallError("Unavailable", "connection refused"))
            return
        result = effect(claims)
        if self._has("silent"):
            self._pending.append(answered)
        elif not answered.done():
            answered.set_result(result)

    def _later(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        asyncio.get_running_loop().call_later(seconds, do, *args, context=contextvars.Context())
