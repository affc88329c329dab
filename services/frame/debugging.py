"""Answers requests to any process about itself: GetStacks, GetProfile and SetVerbosity. Changes only the log's
state."""

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable

from bus.interface import Bus, RequestRefusedError
from bus.messages.debugging import GetProfile, GetStacks, Profile, SetVerbosity, Stacks, VerbositySet
from services.frame.sampling import MAX_THREADS, Sampler
from shared.process.task_stacks import task_stacks

MAX_TEXT_CHARACTERS = 512 << 10  # of the threads' stacks, and of the tasks'
MAX_PROFILE_SECONDS = 300.0
MAX_VERBOSITY = 2**31 - 1
IN_USE = "cpu profiling already in use"


class Debugging:
    """Answers the requests. `set_verbosity` applies `-v` to the log of this process."""

    def __init__(self, set_verbosity: Callable[[int], object] = lambda _: None) -> None:
        self._set_verbosity = set_verbosity
        self._sampler: Sampler | None = None

    def serve(self, bus: Bus) -> None:
        """Answer the requests. Call it before the bus is started."""
        bus.answer(GetStacks, self.stacks)
        bus.answer(GetProfile, self.profile)
        bus.answer(SetVerbosity, self.set_verbosity)

    async def stacks(self, _request: GetStacks) -> Stacks:
        """Return where threads and tasks are."""
        tasks = task_stacks(asyncio.get_running_loop())
        return Stacks(threads=thread_stacks()[:MAX_TEXT_CHARACTERS], tasks=tasks[:MAX_TEXT_CHARACTERS])

    async def profile(self, request: GetProfile) -> Profile:
        """Return a profile. Raises RequestRefusedError while another one is made, and for a time that is too long."""
        if self._sampler is not None:
            raise RequestRefusedError(IN_USE)
        if not 0 < request.seconds <= MAX_PROFILE_SECONDS:
            raise RequestRefusedError(f"a profile takes more than 0 and at most {MAX_PROFILE_SECONDS:.0f} s")
        sampler = self._sampler = Sampler(request.seconds)
        try:
            return await _in_own_thread(sampler)
        finally:
            sampler.stop()
            self._sampler = None

    async def set_verbosity(self, request: SetVerbosity) -> VerbositySet:
        """Log with this `-v` from now on; the answer is the level that applies, 0 to MAX_VERBOSITY."""
        applied = min(max(request.verbosity, 0), MAX_VERBOSITY)
        self._set_verbosity(applied)
        return VerbositySet(verbosity=applied)


def thread_stacks() -> str:
    """Return the stack of each thread, outermost call first, as text."""
    frames = sys._current_frames()
    parts = []
    for thread in threading.enumerate()[:MAX_THREADS]:
        if thread.ident is not None and (frame := frames.get(thread.ident)) is not None:
            parts.append(f"Thread {thread.name}:\n{''.join(traceback.format_stack(frame))}")
    return "".join(parts)


async def _in_own_thread(sampler: Sampler) -> Profile:
    """Run the sampler in a thread of its own: the watchdog expects those of the event loop's executor to end soon."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Profile] = loop.create_future()

    def finish(profile: Profile) -> None:
        if not done.done():
            done.set_result(profile)

    def sample() -> None:
        profile = sampler.run()
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish, profile)

    threading.Thread(target=sample, name="profile", daemon=True).start()
    return await done
