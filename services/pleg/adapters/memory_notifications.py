"""Receives notifications of the kernel about memory: on cgroup v1 when a cgroup's use crosses a threshold, on v2 when
tasks wait for memory (PSI). Where the kernel has neither, only the periodic reading remains (node.md 5.9).
"""

import asyncio
import contextlib
import logging
import os
import select
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

log = logging.getLogger(__name__)

STALL = b"some 150000 2000000\0"  # tasks waited for 150 ms within 2 s
_EVENT_BYTES = 8


class MemoryNotifications:
    """Calls `notify` in `loop`. A thread waits for the kernel, because a loop cannot wait for PSI."""

    def __init__(self, loop: asyncio.AbstractEventLoop, notify: Callable[[], None]) -> None:
        self._loop, self._notify = loop, notify
        self._started = False
        self._lock = threading.Lock()  # so that no descriptor is closed while the thread reads it
        self._poll = select.epoll()
        self._armed: dict[tuple[Path, str], tuple[int, int]] = {}  # directory, name -> threshold, descriptor
        self._stalls: dict[Path, int | None] = {}  # file -> descriptor; None = the kernel refuses
        self._close = os.eventfd(0, os.EFD_CLOEXEC)
        self._poll.register(self._close, select.EPOLLIN)

    def watch_usage(self, directory: Path, thresholds: Mapping[str, int]) -> None:
        """Notify when the use of the cgroup v1 at `directory` crosses one of these numbers of bytes. They replace those
        of an earlier call by name. On a kernel without such notifications nothing happens."""
        for key in [key for key in self._armed if key[0] == directory and key[1] not in thresholds]:
            self._disarm(key)
        for name, threshold in thresholds.items():
            key = directory, name
            if key in self._armed and self._armed[key][0] == threshold:
                continue
            self._disarm(key)
            if (descriptor := _register(directory, threshold)) is not None:
                with self._lock:
                    self._armed[key] = threshold, descriptor
                    self._poll.register(descriptor, select.EPOLLIN)
                self._start()

    def watch_stalls(self, file: Path) -> None:
        """Notify when tasks wait for memory; `file`: memory.pressure of a cgroup v2, or /proc/pressure/memory."""
        if file in self._stalls:
            return
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:  # the cgroup may be made later
            return
        except OSError as error:
            log.debug("no notifications of %s: %s", file, error)
            self._stalls[file] = None
            return
        try:
            os.write(descriptor, STALL)
        except OSError as error:
            log.debug("no notifications of %s: %s", file, error)
            os.close(descriptor)
            self._stalls[file] = None
            return
        with self._lock:
            self._stalls[file] = descriptor
            self._poll.register(descriptor, select.EPOLLPRI)
        self._start()

    def close(self) -> None:
        """End the thread."""
        os.eventfd_write(self._close, 1)

    def _start(self) -> None:
        if not self._started:
            self._started = True
            threading.Thread(target=self._wait, name="memory-notifications", daemon=True).start()

    def _wait(self) -> None:
        while True:
            ready = self._poll.poll()
            if any(descriptor == self._close for descriptor, _ in ready):
                return
            with self._lock:
                for descriptor, events in ready:
                    self._take(descriptor, events)
            with contextlib.suppress(RuntimeError):  # raised where the loop is closed
                self._loop.call_soon_threadsafe(self._notify)

    def _take(self, descriptor: int, events: int) -> None:
        if descriptor in (armed for _, armed in self._armed.values()):
            with contextlib.suppress(OSError):
                os.read(descriptor, _EVENT_BYTES)
        elif events & (select.EPOLLERR | select.EPOLLHUP):  # the cgroup was removed; it may be made again
            for file in [file for file, open_ in self._stalls.items() if open_ == descriptor]:
                del self._stalls[file]
                with contextlib.suppress(OSError):
                    self._poll.unregister(descriptor)
                os.close(descriptor)

    def _disarm(self, key: tuple[Path, str]) -> None:
        with self._lock:
            if key in self._armed:
                _, descriptor = self._armed.pop(key)
                with contextlib.suppress(OSError):
                    self._poll.unregister(descriptor)
                os.close(descriptor)


def _register(directory: Path, threshold: int) -> int | None:
    """Return a descriptor that becomes readable when the use crosses the threshold; None = the kernel refuses."""
    descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    try:
        usage = os.open(directory / "memory.usage_in_bytes", os.O_RDONLY | os.O_CLOEXEC)
        try:
            (directory / "cgroup.event_control").write_text(f"{descriptor} {usage} {threshold}")
        finally:
            os.close(usage)
    except OSError as error:
        log.debug("no notifications of %s: %s", directory, error)
        os.close(descriptor)
        return None
    return descriptor
