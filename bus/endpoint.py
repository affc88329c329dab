"""Implements one service's end of the bus without moving bytes: its streams, followed streams, answers and beat.

Decides which frame goes to whom and when a snapshot is requested. `process_bus` gives it ZeroMQ sockets, the double for
tests a network inside one process; both implement the methods at the end of `Endpoint`."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from bus import codec, frames
from bus.answers import MAX_PENDING_BYTES, MAX_PENDING_REQUESTS, Answers
from bus.beat import BeatContent
from bus.frames import AnswerHead, Frames, Update
from bus.interface import Change, NoAnswerError, RequestRefusedError
from bus.ledger import Ledger
from bus.measured import SNAPSHOT_AGAIN, BusMetrics, DropCounters
from bus.messages.beat import Beat
from bus.messages.followed import Followed, GetFollowed
from bus.messages.snapshot import GetSnapshot, Snapshot
from bus.messages.streams import CARRY_TRACES, Stream
from bus.stream import StreamFollower, StreamOwner
from shared.metrics.registry import Registry
from shared.model.frozen_copy import replace
from shared.process.deadlines import waiting_for
from shared.time.clock import Clock
from shared.tracing.span import Kind
from shared.tracing.tracer import Tracer

T = TypeVar("T")
R = TypeVar("R")

SNAPSHOT_TIMEOUT_SECONDS = 5.0  # then the next beat decides whether to request the snapshot again

LATE_SECONDS = 60.0  # after the deadline of a request, when it must have failed; if it has not, it never returns

log = logging.getLogger(__name__)


class Endpoint(ABC):
    """Implements `bus.interface.Bus`, except for moving bytes."""

    def __init__(
        self,
        service: str,
        incarnation: str,
        pid: int,
        clock: Clock,
        metrics: Registry | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.service, self.incarnation, self.clock = service, incarnation, clock
        self.drops = DropCounters(clock)
        self.tracer = tracer or Tracer()
        self.answers = Answers(service, clock, self.tracer)
        self.answers.register(GetSnapshot, self._answer_snapshot)
        self.answers.register(GetFollowed, self._answer_followed)
        self._metrics = BusMetrics(metrics or Registry(service), self.drops, self.answers)
        self._beat_content = BeatContent(service, incarnation, pid)
        self._ledgers: dict[str, Ledger] = {}
        self._followings: dict[str, StreamFollower[Any]] = {}
        self._beats_sent: dict[str, float] = {}  # by service: when it sent the newest beat that was received
        self._foreign: set[str] = set()  # services whose last beat had another major version
        self._beat_callbacks: list[Callable[[Beat], None]] = []
        self._fetches: set[asyncio.Task[None]] = set()
        self._asked: Counter[tuple[str, str]] = Counter()  # requests under way, by service and type
        self._asked_bytes: Counter[tuple[str, str]] = Counter()  # bytes of the bodies of those requests
        self._beat_is_due = False
        self._started = False

    # A service calls the methods below; bus.interface.Bus documents them.

    def own(self, stream: Stream[T]) -> StreamOwner[T]:
        """Become the owner of a stream. Raises ValueError when another service owns it, or this one does already."""
        self._refuse_when_started("own")
        if stream.owner != self.service:
            raise ValueError(f"{stream.name} is owned by {stream.owner}, not by {self.service}")
        if stream.name in self._ledgers:
            raise ValueError(f"{stream.name} is owned already")
        ledger = self._ledgers[stream.name] = Ledger(stream.name, self.incarnation)
        return StreamOwner(stream, ledger, self._publish_update)

    def follow(self, stream: Stream[T], on_change: Callable[[Change[T]], None] | None = None) -> StreamFollower[T]:
        """Follow a stream. All callers share one `StreamFollower` of it; each `on_change` is called in turn."""
        self._refuse_when_started("follow")
        following: StreamFollower[T] = self._followings.setdefault(stream.name, StreamFollower(stream, self.drops))
        if on_change is not None:
            following.listen(on_change)
        return following

    def on_beat(self, callback: Callable[[Beat], None]) -> None:
        """Call back for every beat of every service."""
        self._refuse_when_started("on_beat")
        self._beat_callbacks.append(callback)

    def answer(self, request: type[R], handler: Callable[[R], Awaitable[Any]]) -> None:
        """Answer requests of this type."""
        self._refuse_when_started("answer")
        self.answers.register(request, handler)

    async def ask(self, service: str, request: Any, answer: type[T], timeout: float = 5.0) -> T:
        """Ask another service. Raises NoAnswerError, RequestRefusedError, and UnencodableError when the request cannot
        be sent."""
        if not self._started:
            raise RuntimeError(f"{self.service} asked {service} before its bus was started")
        name = type(request).__name__
        body = codec.encode(request, f"request {name}")
        asked, waiting = self._asked[service, name], self._asked_bytes[service, name]
        if asked >= MAX_PENDING_REQUESTS or waiting + len(body) > MAX_PENDING_BYTES:
            raise NoAnswerError(f"{service} has {asked} {name} of {self.service} to answer: no more are sent")
        self._asked[service, name] += 1
        self._asked_bytes[service, name] += len(body)
        began, failed = self.clock.monotonic(), True
        try:
            with (
                self.tracer.child(f"{service}/{name}", Kind.CLIENT),
                waiting_for(f"the answer of {service} to {name}", timeout + LATE_SECONDS),
            ):
                head, answered = await self._exchange(service, name, body, timeout)
            failed = bool(head.error)
        finally:
            self._asked[service, name] -= 1
            self._asked_bytes[service, name] -= len(body)
            self._metrics.answered(service, name, self.clock.monotonic() - began, failed=failed)
        if head.error:
            raise RequestRefusedError(head.error)
        if head.type != answer.__name__:
            raise NoAnswerError(f"{service} answered {name} with a {head.type} instead of a {answer.__name__}")
        try:
            return codec.decode(answered, answer)
        except codec.UndecodableError as error:
            self.drops.drop("answer", f"{service}: {error}")
            raise NoAnswerError(f"{service} answered {name} with something that is {error}") from error

    def progress(self, loop: str) -> None:
        """Note that a working loop turned."""
        self._beat_content.progress(loop, self.clock.monotonic())

    def trouble(self, name: str, line: str | None) -> None:
        """Set or clear a named trouble; a beat reports it at once."""
        if self._beat_content.trouble(name, line) and self._started:
            self.beat_soon()

    # The process bus or the double calls the methods below.

    def receive(self, arrived: Sequence[bytes]) -> None:
        """Take one frame from a publisher. Never raises: a frame that does not decode is counted and dropped."""
        try:
            if arrived and arrived[0] == frames.BEATS_TOPIC:
                self._take_beat(frames.read_beat(arrived))
            else:
                self._take_update(arrived)
        except codec.UndecodableError as error:
            self.drops.drop("frame", error)
        except Exception as error:  # a bug of ours must cost only one frame, which the next beat replaces
            log.exception("bus: a frame could not be handled")
            self.drops.drop("frame", type(error).__name__)

    def beat(self) -> None:
        """Send a beat now."""
        self._beat_is_due = False
        self._metrics.beat()
        self._publish(frames.write_beat(self._present_beat()))

    def beat_soon(self) -> None:
        """Send a beat at the end of this turn of the loop, however often this is called within it."""
        if not self._beat_is_due:
            self._beat_is_due = True
            asyncio.get_running_loop().call_soon(self._beat_if_due)

    def tick(self) -> None:
        """Let the followed streams check the silence of their owners, and cancel overdue requests."""
        now = self.clock.monotonic()
        self.answers.expire()
        for following in self._followings.values():
            following.tick(now)

    def followed_services(self) -> set[str]:
        """Return the owners whose publications are needed."""
        return {following.stream.owner for following in self._followings.values()}

    def followed_topics(self) -> set[bytes]:
        """Return the topics to subscribe to."""
        return {frames.topic_of(name) for name in self._followings} | {frames.BEATS_TOPIC}

    def _take_beat(self, beat: Beat) -> None:
        self._compare_protocol(beat)
        self._beats_sent[beat.service] = beat.sent_at
        now = self.clock.monotonic()
        for following in self._followings.values():
            if following.stream.owner == beat.service:
                self._fetch_if(following, following.beat(beat, now))
        for callback in self._beat_callbacks:
            try:
                callback(beat)
            except Exception:
                log.exception("bus: a callback for beats failed on the beat of %s", beat.service)

    def _compare_protocol(self, beat: Beat) -> None:
        line = None
        if not codec.speaks(beat.protocol):
            self._foreign.add(beat.service)
            line = (
                f"{beat.service} speaks bus protocol {beat.protocol} and {self.service} {codec.PROTOCOL_VERSION}: "
                "restart the older one"
            )
        elif beat.service not in self._foreign:
            return
        else:
            self._foreign.discard(beat.service)
        self.trouble(f"bus protocol of {beat.service}", line)

    def _take_update(self, arrived: Sequence[bytes]) -> None:
        following = self._followings.get(frames.stream_of(arrived[0]) if arrived else "")
        try:
            update = frames.read_update(arrived)
        except codec.ForeignProtocolError:
            if following is not None:
                following.foreign()
            raise
        if following is not None:
            if update.stream in CARRY_TRACES:
                self.tracer.adopt(update.key, update.trace)
            self._fetch_if(following, following.update(update, self.clock.monotonic()))

    def _fetch_if(self, following: StreamFollower[Any], reason: str) -> None:
        if not reason:
            return
        task = asyncio.get_running_loop().create_task(self._fetch(following, reason), name="fetch snapshot")
        self._fetches.add(task)
        task.add_done_callback(self._fetches.discard)

    async def _fetch(self, following: StreamFollower[Any], reason: str) -> None:
        """Request the snapshot until the followed stream is in step. Without an answer, the next frame starts this
        again."""
        stream = following.stream
        while reason:
            if following.replica.incarnation:
                self.drops.counts[SNAPSHOT_AGAIN] += 1
            log.debug("bus: asking %s for the snapshot of %s: %s", stream.owner, stream.name, reason)
            try:
                snapshot = await self.ask(
                    stream.owner, GetSnapshot(stream=stream.name), Snapshot, SNAPSHOT_TIMEOUT_SECONDS
                )
            except (NoAnswerError, RequestRefusedError) as error:
                following.snapshot_lost()
                self.drops.drop("snapshot", error)
                return
            reason = following.snapshot(snapshot, self.clock.monotonic())

    async def _answer_snapshot(self, request: GetSnapshot) -> Snapshot:
        ledger = self._ledgers.get(request.stream)
        if ledger is None:
            raise RequestRefusedError(f"{self.service} does not own the stream {request.stream}")
        return ledger.snapshot()

    async def _answer_followed(self, request: GetFollowed) -> Followed:
        streams = {name: following.replicated() for name, following in self._followings.items()}
        return Followed(incarnation=self.incarnation, streams=streams, beats=dict(self._beats_sent))

    def _present_beat(self) -> Beat:
        return self._beat_content.beat(self.clock.monotonic(), self._ledgers.values())

    def _beat_if_due(self) -> None:
        if self._beat_is_due and self._started:
            self.beat()

    def _publish_update(self, update: Update) -> None:
        if self._started:  # before the start there is no follower, and every follower begins with a snapshot
            if trace := self.tracer.traceparent(update.key):
                update = replace(update, trace=trace)
            self._publish(frames.write_update(update))

    def _cancel_fetches(self) -> None:
        for task in list(self._fetches):
            task.cancel()

    def _refuse_when_started(self, verb: str) -> None:
        if self._started:
            raise RuntimeError(f"{self.service} called {verb} after its bus was started")

    # The process bus and the double implement the methods below.

    @abstractmethod
    def _publish(self, published: Frames) -> None:
        """Send the frames before returning."""

    @abstractmethod
    async def _exchange(self, service: str, type_name: str, body: bytes, timeout: float) -> tuple[AnswerHead, bytes]:
        """Send a request until it is answered. Raises NoAnswerError once `timeout` seconds have passed."""

    @abstractmethod
    async def start(self) -> None:
        """Begin to publish, follow and answer."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop to publish, follow and answer."""
