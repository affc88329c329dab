"""Runs blocking calls of one kind in threads. A call that does not return occupies a place of its own kind only.

A thread inside a system call cannot be cancelled, so the number of places is bounded: all calls on one path take one
place, and the calls below one mount at most as many places as its share has.
"""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar, TypeVarTuple
from weakref import WeakValueDictionary

from msgspec import Struct

from services.volume.core.operations.mount_shares import Share
from shared.files.tree_removal import RemovalProgress
from shared.process.deadlines import waiting_for
from shared.time.clock import Clock

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
Value = TypeVar("Value")


def call_in_loop(loop: asyncio.AbstractEventLoop, function: Callable[[Value], None], value: Value) -> None:
    """Call the function in the loop's thread, unless the loop has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, value)


class HungError(OSError):
    """A call does not return, or could not begin because others do not return; `str()` names the path. `under_way`: the
    call goes on in its thread, and its `late` is called when it returns."""

    def __init__(self, text: str, *, under_way: bool = False) -> None:
        super().__init__(errno.ETIMEDOUT, text)
        self.under_way = under_way

    def __str__(self) -> str:
        return str(self.strerror)


class Call(Struct, frozen=True, eq=False):
    """A call that is under way in its thread.

    `began`: monotonic seconds; `removed`: how many entries it has removed; `mount`: the mount point that it is below,
    "" where that does not count.
    """

    what: str
    path: str
    began: float
    removed: RemovalProgress
    mount: str = ""


@dataclass(eq=False)
class _Reservation:
    """The place that a call occupies until its thread returns."""

    path: str
    mount: str
    held: list[asyncio.Lock | asyncio.Semaphore] = field(default_factory=list)
    running: "asyncio.Future[object] | None" = None
    spare: bool = False  # the call hangs: it keeps a spare thread, and another call may have its place
    late: Callable[[], None] = field(default=lambda: None)


class Threads:
    """Runs at most `places` calls at once, and one at a time for each path.

    `timeout` (seconds, None = none) is how long a caller waits for a place, and then for the call. `spare`: the number
    of calls that keep a thread after their timeout and free their place for others; with spare threads a caller waits
    for a place without a timeout.
    """

    def __init__(self, name: str, places: int, clock: Clock, timeout: float | None = None, spare: int = 0) -> None:
        self.timeout, self._spare = timeout, spare
        self._place_timeout = None if spare else timeout
        self.calls: dict[object, Call] = {}  # in their threads now
        self._places, self.clock = places, clock
        self.executor = ThreadPoolExecutor(places + spare, thread_name_prefix=f"volume {name}")
        self._free = asyncio.Semaphore(places)
        self._paths: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._mounts: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, path: str = "", share: Share | None = None) -> AsyncIterator["ReservedThread"]:
        """Wait for a place. `path`: the path on which the call may hang; `share`: of its mount. Raises HungError."""
        place = _Reservation(path, share.mount if share else "")
        try:
            with waiting_for("a free thread"):
                async with asyncio.timeout(self._place_timeout):
                    await self._take(place, share)
        except TimeoutError:
            raise HungError(self.explain(place)) from None
        try:
            yield ReservedThread(self, place)
        finally:
            if place.running is None or place.running.done():
                self._give_back(place)
            else:
                place.running.add_done_callback(lambda _: self._returned_late(place))

    async def call(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Wait for a free place, and call the function in a thread."""
        async with self.turn() as turn:
            return await turn.call("", function, *arguments)

    def close(self, *, wait: bool = False) -> None:
        """Begin no more calls; those that run are left alone, or with `wait` waited for: only for calls that return."""
        self.executor.shutdown(wait=wait, cancel_futures=True)

    async def _take(self, place: _Reservation, share: Share | None) -> None:
        needed: list[asyncio.Lock | asyncio.Semaphore] = [self._free]
        if share:
            needed.insert(0, self._mounts.setdefault(share.mount, asyncio.Semaphore(share.places)))
        if place.path:
            needed.insert(0, self._paths.setdefault(place.path, asyncio.Lock()))
        try:
            for lock in needed:
                await lock.acquire()
                place.held.append(lock)
        except BaseException:
            self._give_back(place)
            raise

    def use_spare(self, place: _Reservation) -> None:
        """Free the place of a call that does not return, as long as there are spare threads."""
        if self._spare:
            self._spare -= 1
            place.spare = True
            place.held.remove(self._free)
            self._free.release()

    def _give_back(self, place: _Reservation) -> None:
        if place.spare:
            self._spare += 1
        while place.held:
            place.held.pop().release()

    def _returned_late(self, place: _Reservation) -> None:
        assert place.running is not None
        if not place.running.cancelled():
            place.running.exception()  # asyncio would log an exception that nobody retrieves; the caller has gone
        self._give_back(place)
        place.late()

    def explain(self, place: _Reservation) -> str:
        """Return why a call at this place has not returned or could not begin: its path, and what others hang on."""
        path, calls = place.path, self.calls.values()
        if not path or any(call.path == path for call in calls):
            return f"{path} does not answer within {self.timeout:g} s"
        mount = self._mounts.get(place.mount)
        full = mount is not None and mount.locked()
        others = sorted({call.path for call in calls if call.mount == place.mount or not full})
        where = f"{len(others)} other paths{f' below {place.mount}' if full else ''}"
        return f"{path} was not looked at: {where} do not answer, {others[0] if others else ''} is one"


class ReservedThread:
    """An occupied place, in which one call may run."""

    def __init__(self, threads: Threads, place: _Reservation) -> None:
        self._threads, self._place = threads, place

    async def call(
        self,
        what: str,
        function: Callable[[*Arguments], Result],
        *arguments: *Arguments,
        removed: RemovalProgress | None = None,
        late: Callable[[], None] = lambda: None,
    ) -> Result:
        """Call the function in a thread. `late` is called when it returns after the timeout. Raises HungError, and what
        the function raises."""
        threads, place = self._threads, self._place
        place.late = late
        running = asyncio.get_running_loop().run_in_executor(threads.executor, function, *arguments)
        place.running = running  # type: ignore[assignment]
        threads.calls[place] = Call(
            what, place.path, threads.clock.monotonic(), removed or RemovalProgress(), place.mount
        )
        running.add_done_callback(lambda _: threads.calls.pop(place, None))
        try:
            with waiting_for("a blocking call"):
                async with asyncio.timeout(threads.timeout) as limit:
                    return await asyncio.shield(running)
        except TimeoutError:
            if not limit.expired():
                raise  # the call itself raised it
            if running.done():
                return running.result()  # it returned at the moment of the timeout
            threads.use_spare(place)
            raise HungError(threads.explain(place), under_way=True) from None
