"""The bus inside one process, for tests: the same endpoint, codec, ledgers and replicas on virtual time, no sockets.

A test makes one `MemoryNetwork`, takes a bus per service from it, and decides itself when time passes, what is lost,
and who is killed. Nothing happens by itself but deliveries, one per turn of the event loop, in order.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum

import msgspec

from bus import codec, frames
from bus.answers import Answer
from bus.beat import BEAT_SECONDS
from bus.endpoint import Endpoint
from bus.exchange import Exchange
from bus.frames import AnswerHead, Frames, RequestHead
from bus.interface import NoAnswerError

IDLE_TURNS = 20  # of the loop without a delivery: every task that could react has run
QUIET_TURNS = 2  # of asyncio's own loop after which nothing at all was ready to run: no task is left to react


class ManualClock:
    """A `shared.time.clock.Clock` that does not move by itself; wall and monotonic seconds move together, except while
    the machine is suspended."""

    def __init__(self, monotonic: float = 1000.0, wall: float = 1_700_000_000.0) -> None:
        self._monotonic, self._wall = monotonic, wall
        self.suspended = 0.0  # seconds in all

    def monotonic(self) -> float:
        """Seconds."""
        return self._monotonic

    def wall(self) -> float:
        """Seconds since the epoch."""
        return self._wall

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._monotonic += seconds
        self._wall += seconds

    def suspend(self, seconds: float) -> None:
        """Let time pass while the machine is suspended."""
        self.suspended += seconds
        self._wall += seconds


class Action(Enum):
    """What the network does with one delivery."""

    DELIVER = "deliver"
    DROP = "drop"
    DUPLICATE = "duplicate"
    DELAY = "delay"  # until `MemoryNetwork.release`


class Delivery(msgspec.Struct, frozen=True):
    """One publication on its way from one service to one other."""

    sender: str
    receiver: str
    stream: str  # "beats" for a beat
    frames: Frames


Answered = asyncio.Future[tuple[AnswerHead, bytes]]


class MemoryNetwork:
    """What the run directory and the sockets are to real processes.

    `action` decides each delivery of an update or a beat; set it to lose, repeat or delay it.
    """

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.action: Callable[[Delivery], Action] = lambda _: Action.DELIVER
        self._buses: dict[str, MemoryBus] = {}
        self._generations: dict[str, int] = {}
        self._queue: deque[tuple[MemoryBus, Delivery]] = deque()
        self._delayed: list[tuple[MemoryBus, Delivery]] = []
        self._exchanges: list[tuple[str, Exchange, Answered]] = []  # with the service asked
        self._idle_turns = 0
        self._next_beat = self.clock.monotonic() + BEAT_SECONDS

    def bus(self, service: str) -> "MemoryBus":
        """A new, not yet started bus of this service; after `kill` or `stop` the next incarnation, `<service>-<n>`."""
        if service in self._buses:
            raise RuntimeError(f"{service} is running already: kill or stop it first")
        self._generations[service] = generation = self._generations.get(service, 0) + 1
        bus = self._buses[service] = MemoryBus(self, service, f"{service}-{generation}")
        return bus

    def kill(self, service: str) -> None:
        """SIGKILL: what the service puts, asks or answers from now on is lost. Cancel its own tasks yourself."""
        self._buses.pop(service).die()

    def release(self) -> None:
        """Deliver what was delayed, after whatever is under way."""
        delayed, self._delayed = self._delayed, []
        for bus, delivery in delayed:
            self._enqueue(bus, delivery)

    def inject(self, receiver: str, arrived: Frames) -> None:
        """Let these frames arrive at a service as if someone had published them."""
        self._buses[receiver].receive(arrived)

    async def settle(self) -> None:
        """Return once all deliveries are made and no task reacts to them any more. Time does not pass."""
        ready = getattr(asyncio.get_running_loop(), "_ready", None)  # what runs next; other loops do not show it
        self._idle_turns = quiet = 0
        while self._queue or (self._idle_turns < IDLE_TURNS and quiet < QUIET_TURNS):
            await asyncio.sleep(0)
            self._idle_turns += 1
            quiet = quiet + 1 if ready is not None and not ready else 0

    async def advance(self, seconds: float) -> None:
        """Let time pass: beats every second, silence checked, requests overdue given up; settled after each."""
        end = self.clock.monotonic() + seconds
        while self._next_beat <= end:
            await self._move_to(self._next_beat)
            self._next_beat += BEAT_SECONDS
            for bus in list(self._buses.values()):
                if bus.started:
                    bus.beat()
                    bus.tick()
            await self.settle()
        await self._move_to(end)

    def publish(self, sender: "MemoryBus", published: Frames) -> None:
        """Called by a bus."""
        if self._buses.get(sender.service) is not sender:
            return
        stream = frames.stream_of(published[0])
        for bus in list(self._buses.values()):
            if bus.started and bus.receives(sender.service, published[0]):
                delivery = Delivery(sender.service, bus.service, stream, published)
                match self.action(delivery):
                    case Action.DELIVER:
                        self._enqueue(bus, delivery)
                    case Action.DUPLICATE:
                        self._enqueue(bus, delivery)
                        self._enqueue(bus, delivery)
                    case Action.DELAY:
                        self._delayed.append((bus, delivery))
                    case Action.DROP:
                        pass

    def joined(self, joined: "MemoryBus") -> None:
        """Called by a bus that started: the subscriptions of both sides are greeted, requests held for it arrive."""
        for bus in list(self._buses.values()):
            if bus.started and (bus is joined or joined.receives(bus.service, frames.BEATS_TOPIC)):
                bus.beat_soon()
        for service, exchange, answered in list(self._exchanges):
            if service == joined.service:
                self._hand(joined, exchange, answered)

    def left(self, left: "MemoryBus") -> None:
        """Called by a bus that stopped."""
        if self._buses.get(left.service) is left:
            del self._buses[left.service]

    async def exchange(self, service: str, head: RequestHead, body: bytes, timeout: float) -> tuple[AnswerHead, bytes]:
        """Called by a bus that asks."""
        answered: Answered = asyncio.get_running_loop().create_future()
        exchange = Exchange(head, body)
        waiting = service, exchange, answered
        self._exchanges.append(waiting)
        try:
            bus = self._buses.get(service)
            if bus is not None and bus.started:
                self._hand(bus, exchange, answered)
            return await answered
        except TimeoutError:
            raise NoAnswerError.within(service, head.type, timeout) from None
        finally:
            self._exchanges.remove(waiting)

    def _hand(self, bus: "MemoryBus", exchange: Exchange, answered: Answered) -> None:
        def send(answer: Answer) -> None:
            head, body = frames.read_answer(frames.write_answer(*answer))
            if answered.done():
                return
            if not head.unknown:
                answered.set_result((head, body))
            elif exchange.unknown():
                self._hand(bus, exchange, answered)

        bus.answers.take(*frames.read_request(exchange.next()), send)

    def _enqueue(self, bus: "MemoryBus", delivery: Delivery) -> None:
        self._queue.append((bus, delivery))
        asyncio.get_running_loop().call_soon(self._deliver_one)

    def _deliver_one(self) -> None:
        bus, delivery = self._queue.popleft()
        self._idle_turns = 0
        if self._buses.get(bus.service) is bus:
            bus.receive(delivery.frames)

    async def _move_to(self, moment: float) -> None:
        self.clock.advance(moment - self.clock.monotonic())
        for _, exchange, answered in self._exchanges:
            if exchange.head.deadline <= moment and not answered.done():
                answered.set_exception(TimeoutError())
        await self.settle()


class MemoryBus(Endpoint):
    """Implements `bus.interface.Bus` on a `MemoryNetwork`; made by `MemoryNetwork.bus`."""

    def __init__(self, network: MemoryNetwork, service: str, incarnation: str) -> None:
        super().__init__(service, incarnation, 1, network.clock)
        self._network = network
        self._last_id = 0
        self._dead = False

    @property
    def started(self) -> bool:
        """Others may follow and ask this bus."""
        return self._started

    async def start(self) -> None:
        """Join the network."""
        self._refuse_when_started("start")
        self._started = True
        self._network.joined(self)

    async def stop(self) -> None:
        """Leave the network."""
        self._network.left(self)
        self.die()

    def die(self) -> None:
        """End whatever is under way, as a SIGKILL would."""
        self._dead = True
        self._cancel_fetches()
        self.answers.cancel()

    def receives(self, service: str, topic: bytes) -> bool:
        """Whether this bus is subscribed to the topic of that service."""
        if self._beat_callbacks and topic == frames.BEATS_TOPIC:
            return True
        return service in self.followed_services() and topic in self.followed_topics()

    def _publish(self, published: Frames) -> None:
        self._network.publish(self, published)

    async def _exchange(self, service: str, type_name: str, body: bytes, timeout: float) -> tuple[AnswerHead, bytes]:
        if self._dead:
            raise NoAnswerError(f"{self.service} did not ask {service} for {type_name}: it is no more")
        self._last_id += 1
        head = RequestHead(
            v=codec.PROTOCOL_VERSION,
            client=f"{self.service}/{self.incarnation}",
            id=self._last_id,
            type=type_name,
            deadline=self.clock.monotonic() + timeout,
        )
        return await self._network.exchange(service, head, body, timeout)
