"""A copy of the log for the process that started the agent: an inherited descriptor, written by a thread of its own.

The descriptor may be a file, a pipe, a terminal or a socket, and others write to it: its flags stay as they are. A
reader that does not read costs lines, which are counted, and never time; one that has gone is given up silently.
"""

import errno
import os
import select
import signal
import socket
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

TOGETHER = select.PIPE_BUF  # bytes; what is written at once up to here no other writer can come between
_MAX_WAITING_BYTES = 256 * 2**10  # for a slow reader
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOBUFS, errno.ENOMEM)


class CopyTarget:
    """A descriptor that others use too. Raises OSError when it is not open."""

    def __init__(self, fd: int) -> None:
        mode = os.fstat(fd).st_mode
        os.set_inheritable(fd, False)  # a shim that inherited it would hold the reader for the lifetime of a pod
        self.limit = sys.maxsize if stat.S_ISREG(mode) else TOGETHER  # bytes that stay together
        self._given = self._fd = fd
        self._asks_first = False
        self._socket = socket.socket(fileno=os.dup(fd)) if stat.S_ISSOCK(mode) else None
        if stat.S_ISFIFO(mode) or os.isatty(fd):
            # O_NONBLOCK belongs to the open file, which the shell and others share: we open one of our own.
            try:
                flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
                self._fd = os.open(f"/proc/self/fd/{fd}", flags)
            except OSError:
                self._asks_first = True

    def write(self, data: bytes) -> int:
        """Write what fits now; the number of bytes. Raises BlockingIOError when nothing does."""
        if self._socket is not None:
            return self._socket.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        if self._asks_first and not self.ready(0):
            raise BlockingIOError
        return os.write(self._fd, data)

    def ready(self, milliseconds: int | None = None) -> bool:
        """Wait until something can be written, or be known about the reader's end."""
        poll = select.poll()
        poll.register(self._fd if self._socket is None else self._socket.fileno(), select.POLLOUT)
        return bool(poll.poll(milliseconds))

    def close(self) -> None:
        """Close what was opened here; the descriptor itself stays."""
        if self._socket is not None:
            self._socket.close()
        elif self._fd != self._given:
            os.close(self._fd)


class StreamCopy:
    """Takes lines without waiting and writes them to an outlet; `lost` makes the line about those that are missing.

    With `hold` lines are collected: up to so many bytes, and not longer than so many seconds.
    """

    def __init__(self, outlet: CopyTarget, lost: Callable[[int], bytes]) -> None:
        self.dropped = 0
        self.given_up = False
        self.limit = outlet.limit
        self._outlet, self._lost = outlet, lost
        self._hold_bytes, self._hold_seconds, self._since = 0, 0.0, 0.0
        self._pieces: deque[bytes] = deque()
        self._bytes, self._dropping, self._torn = 0, False, False
        self._stuck = self._ending = self._ended = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def hold(self, size: int, seconds: float) -> None:
        """Collect up to `size` bytes for at most `seconds`; 0 bytes: write at once."""
        with self._changed:
            self._hold_bytes, self._hold_seconds = size, seconds
            self._changed.notify()

    def put(self, pieces: list[bytes]) -> None:
        """Hand over the pieces of one record, each of which is written completely. Drops them when too much waits."""
        with self._changed:
            if self.given_up:
                return
            size = sum(map(len, pieces))
            most = _MAX_WAITING_BYTES + self._hold_bytes
            if self._bytes and self._bytes + size > (most // 2 if self._dropping else most):
                self._dropping = True
                self.dropped += 1
                return
            self._dropping = False
            if self.dropped:
                pieces = [self._lost(self.dropped), *pieces]
                size += len(pieces[0])
                self.dropped = 0
            if not self._pieces:
                self._since = time.monotonic()
            self._pieces.extend(pieces)
            self._bytes += size
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="log copy", daemon=True)
            self._thread.start()

    def finish(self, timeout: float) -> None:
        """Write what waits, for at most `timeout` seconds, and 0.1 for a reader that takes nothing."""
        deadline = time.monotonic() + timeout
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            while self._thread and not self._ended and (left := deadline - time.monotonic()) > 0:
                if not self._changed.wait_for(lambda: self._ended or not self._stuck, min(0.1, left)):
                    return
                self._changed.wait_for(lambda: self._ended or self._stuck, left)

    def _run(self) -> None:
        # A terminal that is set to stop background writers (stty tostop) stops the whole process otherwise.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            while data := self._take():
                self._write(data)
        except OSError:
            with self._changed:
                self.given_up = True
                self._pieces.clear()
        finally:
            self._outlet.close()
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _take(self) -> bytes:
        """Return the next complete pieces, as many as stay together; empty at the end."""
        with self._changed:
            while not self._ending and not (self._pieces and self._due()):
                left = self._since + self._hold_seconds - time.monotonic() if self._pieces else None
                self._changed.wait(left)
            taken: list[bytes] = []
            size, most = 0, min(self.limit, 2**16)
            while self._pieces and (not taken or size + len(self._pieces[0]) <= most):
                taken.append(self._pieces.popleft())
                size += len(taken[-1])
            self._bytes -= size
            return b"".join(taken)

    def _due(self) -> bool:
        return self._bytes >= self._hold_bytes or time.monotonic() >= self._since + self._hold_seconds

    def _write(self, data: bytes) -> None:
        data = b"\n" + data if self._torn else data
        refused = 0
        while data:
            try:
                written = self._outlet.write(data)
            except BlockingIOError:
                self._set_stuck(True)
                self._outlet.ready()
                refused += 1
                if refused > 1:
                    with self._changed:  # some terminals call themselves ready and then take nothing
                        self._changed.wait(0.05)
                continue
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                with self._changed:
                    self.dropped += data.count(b"\n")
                return
            refused = 0
            if self._stuck:
                self._set_stuck(False)
            self._torn = data[written - 1 : written] != b"\n"
            data = data[written:]

    def _set_stuck(self, stuck: bool) -> None:
        with self._changed:
            self._stuck = stuck
            self._changed.notify_all()


def adopt_stream(number: str, lost: Callable[[int], bytes]) -> StreamCopy | None:
    """Return a copy to the descriptor with this number, None when there is none such."""
    try:
        fd = int(number)
        return StreamCopy(CopyTarget(fd), lost) if fd > 2 else None
    except (ValueError, OSError, OverflowError):
        return None
