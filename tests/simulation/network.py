"""The in-memory bus on a clock that jumps: every frame takes its way of some milliseconds, and faults lie on the way.

Streams and requests only; the node decides which incarnation runs and which is killed.
"""

import asyncio
import contextvars
from collections.abc import Callable
from dataclasses import dataclass

from bus import frames
from bus.answers import Answer
from bus.beat import BEAT_SECONDS
from bus.exchange import REMIND_SECONDS, Exchange
from bus.frames import AnswerHead, Frames, RequestHead
from bus.interface import NoAnswerError
from tests.fakes.memory_bus import Answered, Delivery, MemoryBus, MemoryNetwork
from tests.simulation.loop import Incarnation, NodeClock
from tests.simulation.story import Story

WAY = 0.001  # seconds from one service to another


@dataclass(frozen=True)
class Transfer:
    """What becomes of one frame: how many copies arrive, and how much later than it should."""

    copies: int = 1
    seconds: float = 0.0


ARRIVES = Transfer()


class SimulationNetwork(MemoryNetwork):
    """`transfer_of` decides copies and delay of each publication, request and answer (`ask`: streams "requests" and
    "answers")."""

    def __init__(self, clock: NodeClock, story: Story, transfer_of: Callable[[str, str, str], Transfer]) -> None:
        super().__init__(clock)
        self._story, self._transfer_of = story, transfer_of
        self._contexts: dict[str, contextvars.Context] = {}
        self._received: dict[tuple[str, str, str, bytes], bool] = {}
        self.on_publish: Callable[[str, Frames], None] = lambda _service, _frames: None

    def bus_of(self, incarnation: Incarnation) -> MemoryBus:
        """The bus of a new incarnation; it beats once it is started."""
        self._contexts[incarnation.service] = incarnation.context
        return self.bus(incarnation.service)

    def kill(self, service: str) -> None:
        """As the network sees a SIGKILL: what is under way to it is lost. Runs nothing of the dead."""
        bus = self._buses.pop(service, None)
        if bus is not None:
            bus._dead = True

    def beats(self, bus: MemoryBus) -> None:
        """Send a beat and check the others' beats every second from now on; called in the bus's own incarnation."""
        bus.beat()
        bus.tick()
        asyncio.get_running_loop().call_later(BEAT_SECONDS, self.beats, bus)

    def publish(self, sender: MemoryBus, published: Frames) -> None:
        if self._buses.get(sender.service) is not sender:
            return
        stream = frames.stream_of(published[0])
        if stream != "beats":
            self._story.note(sender.service, stream, published[-1])
            self.on_publish(sender.service, published)
        for bus in list(self._buses.values()):
            if bus is not sender and bus.started and self._receives(bus, sender.service, published[0]):
                self._send(Delivery(sender.service, bus.service, stream, published), bus)

    def _receives(self, bus: MemoryBus, service: str, topic: bytes) -> bool:
        """A started bus follows nothing new."""
        key = (bus.service, bus.incarnation, service, topic)
        if key not in self._received:
            self._received[key] = bus.receives(service, topic)
        return self._received[key]

    def joined(self, joined: MemoryBus) -> None:
        for bus in list(self._buses.values()):
            if bus.started and (bus is joined or joined.receives(bus.service, frames.BEATS_TOPIC)):
                asyncio.get_running_loop().call_soon(bus.beat_soon, context=self._contexts[bus.service])

    async def exchange(self, service: str, head: RequestHead, body: bytes, timeout: float) -> tuple[AnswerHead, bytes]:
        answered: Answered = asyncio.get_running_loop().create_future()
        exchange = Exchange(head, body)
        try:
            async with asyncio.timeout(timeout):
                while not answered.done():
                    self._ask(service, exchange, answered)
                    await asyncio.wait([answered], timeout=REMIND_SECONDS)
        except TimeoutError:
            raise NoAnswerError.within(service, head.type, timeout) from None
        return answered.result()

    def _ask(self, service: str, exchange: Exchange, answered: Answered) -> None:
        loop = asyncio.get_running_loop()
        asker, message = exchange.head.client.partition("/")[0], exchange.next()

        def arrive() -> None:
            bus = self._buses.get(service)
            if bus is not None and bus.started:
                self._contexts[service].run(bus.answers.take, *frames.read_request(message), answer)

        def answer(given: Answer) -> None:
            transfer = self._transfer_of(service, asker, "answers")
            for _ in range(transfer.copies):
                loop.call_later(WAY + transfer.seconds, deliver, *given, context=contextvars.Context())

        def deliver(head: AnswerHead, body: bytes) -> None:
            if answered.done():
                return
            if not head.unknown:
                answered.set_result((head, body))
            elif exchange.unknown():
                self._ask(service, exchange, answered)

        transfer = self._transfer_of(asker, service, "requests")
        for _ in range(transfer.copies):
            loop.call_later(WAY + transfer.seconds, arrive, context=contextvars.Context())

    def _send(self, delivery: Delivery, bus: MemoryBus) -> None:
        transfer = self._transfer_of(delivery.sender, delivery.receiver, delivery.stream)
        loop = asyncio.get_running_loop()
        for _ in range(transfer.copies):
            loop.call_later(WAY + transfer.seconds, self._arrive, delivery, bus, context=self._contexts[bus.service])

    def _arrive(self, delivery: Delivery, bus: MemoryBus) -> None:
        if self._buses.get(bus.service) is bus:
            bus.receive(delivery.frames)
