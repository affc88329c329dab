"""Samples the stacks of this process's threads, and how much CPU time each thread used since the sample before.
The CPU time between two samples counts for the stack of the second one. Uses no signals, because the watchdog has
SIGPROF.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from types import CodeType, FrameType

from bus.messages.debugging import Frame, Profile, ProfiledStack

PERIOD_SECONDS = 0.01
MAX_FRAMES = 128  # of one stack; the innermost ones
MAX_STACKS = 2000  # of different stacks; the CPU time of further ones counts for an empty stack without a thread
MAX_THREADS = 200
_CPU_OF_THREAD = 6  # the clock id of a thread's CPU time is its number, inverted, and these bits (Linux)

_Line = tuple[CodeType, int]
_OTHER: tuple[_Line, ...] = ()


class Sampler:
    """Collects samples for `seconds`; `stop` ends `run` earlier."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._counts: dict[tuple[str, tuple[_Line, ...]], int] = {}  # CPU time in nanoseconds
        self._used: dict[int, int] = {}  # nanoseconds of CPU time by number of the thread
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End `run` soon."""
        self._stopped.set()

    def run(self) -> Profile:
        """Sample in this thread until the seconds are over or `stop` is called, and return the profile."""
        end = time.monotonic() + self._seconds
        for thread, _ in _threads():
            self._newly_used(thread)
        while not self._stopped.wait(PERIOD_SECONDS) and time.monotonic() < end:
            for thread, frame in _threads():
                if used := self._newly_used(thread):
                    self._count(thread.name, frame, used)
        return self._profile()

    def _newly_used(self, thread: threading.Thread) -> int:
        # Python 3.11 keeps the number that the main thread had before a fork; it is always that of the process.
        number = os.getpid() if thread is threading.main_thread() else thread.native_id or 0
        try:
            used = time.clock_gettime_ns((~number << 3) | _CPU_OF_THREAD)
        except OSError:  # the thread has ended
            return 0
        before, self._used[number] = self._used.get(number, 0), used
        return max(0, used - before)

    def _count(self, thread: str, frame: FrameType | None, nanoseconds: int) -> None:
        lines: list[_Line] = []
        while frame is not None and len(lines) < MAX_FRAMES:
            lines.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        key = thread, tuple(lines)
        if key not in self._counts and len(self._counts) >= MAX_STACKS:
            key = "", _OTHER
        self._counts[key] = self._counts.get(key, 0) + nanoseconds

    def _profile(self) -> Profile:
        places: dict[_Line, int] = {}
        stacks = tuple(
            ProfiledStack(
                thread=thread,
                frames=tuple(places.setdefault(line, len(places)) for line in lines),
                nanoseconds=nanoseconds,
            )
            for (thread, lines), nanoseconds in self._counts.items()
        )
        frames = tuple(Frame(function=code.co_qualname, file=code.co_filename, line=line or 0) for code, line in places)
        return Profile(frames=frames, stacks=stacks)


def _threads() -> Iterator[tuple[threading.Thread, FrameType]]:
    """Yield the threads of Python without this one, each with its innermost frame."""
    own, frames = threading.get_ident(), sys._current_frames()
    for thread in threading.enumerate()[:MAX_THREADS]:
        if thread.ident is not None and thread.ident != own and thread.ident in frames:
            yield thread, frames[thread.ident]
