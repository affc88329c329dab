"""Defines the interface of the bus, however bytes move.

`bus.process_bus` implements it with ZeroMQ; `tests.fakes.memory_bus` within one process, for tests.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from bus.messages.beat import Beat
from bus.messages.streams import Stream

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")


class Put(Struct, Generic[T], frozen=True):
    """A key has this value now (new or changed)."""

    key: str
    value: T
    cause: str = ""


class Deleted(Struct, frozen=True):
    """A key has no value any more: the owner deleted it, or a complete snapshot does not list it."""

    key: str
    cause: str = ""


class Freshness(Struct, frozen=True):
    """The freshness of the stream has changed. `complete`: the owner reports that it has listed everything in this
    incarnation, and every value was readable here. `stale`: nothing was received for three beats, or the owner speaks
    another protocol. A stale state is kept; take no destructive decision from it, nor from an incomplete one."""

    complete: bool
    stale: bool


Change = Put[T] | Deleted | Freshness


class OwnedStream(Protocol[T]):
    """The owner's side of one stream. Unchanged puts and deletes of absent keys send nothing; `refresh` changes the
    value in snapshots and sends nothing."""

    def put(self, key: str, value: T, cause: str = "") -> None: ...
    def refresh(self, key: str, value: T) -> None: ...
    def delete(self, key: str, cause: str = "") -> None: ...
    def get(self, key: str) -> T | None: ...
    def keys(self) -> tuple[str, ...]: ...
    def mark_complete(self) -> None: ...


class FollowedStream(Protocol[T_co]):
    """The follower's side of one stream: the owner's state as far as it was received."""

    @property
    def state(self) -> Mapping[str, T_co]: ...
    @property
    def complete(self) -> bool: ...
    @property
    def stale(self) -> bool: ...


class Bus(Protocol):
    """One service's connection to the others. Call own/follow/answer before `start`."""

    service: str
    incarnation: str

    def own(self, stream: Stream[T]) -> OwnedStream[T]: ...

    def follow(self, stream: Stream[T], on_change: Callable[[Change[T]], None] | None = None) -> FollowedStream[T]:
        """Follow a stream; `on_change` is called in the event loop, in order, and must not block or raise. Parts of a
        process that follow the same stream share its state, whose values none of them may change."""
        ...

    def on_beat(self, callback: Callable[[Beat], None]) -> None:
        """Call back for every beat of every service (for /healthz and Ready)."""
        ...

    def answer(self, request: type[R], handler: Callable[[R], Awaitable[Any]]) -> None:
        """Answer requests of this type. Handlers must be safe to repeat; they raise `RequestRefusedError` to answer an
        error. A handler is cancelled once the request's deadline has passed; one that must not be cut short shields
        itself."""
        ...

    async def ask(self, service: str, request: Any, answer: type[T], timeout: float = 5.0) -> T:
        """Ask another service; give up once `timeout` seconds have passed.

        Raises NoAnswerError, at once where too many requests of the type are under way, or RequestRefusedError with the
        other side's one line."""
        ...

    def progress(self, loop: str) -> None:
        """Note that a working loop turned and its work makes progress; the beat carries it."""
        ...

    def trouble(self, name: str, line: str | None) -> None:
        """Set (or with None clear) a named trouble that the beat carries."""
        ...

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class NoAnswerError(Exception):
    """The other service did not answer in time; the text names it and the request."""

    @classmethod
    def within(cls, service: str, request: str, timeout: float) -> "NoAnswerError":
        """Return the error after `timeout` seconds without an answer."""
        return cls(f"{service} did not answer {request} within {timeout:g} s")


class RequestRefusedError(Exception):
    """The other service answered with an error; the text is its one line."""
