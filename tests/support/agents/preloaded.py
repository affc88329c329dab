"""Starts our programs as forks of one interpreter that has imported them (tests/programs/preloaded.py)."""

import atexit
import hashlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.queue.family import MARK
from tests.support.waits.deadline import WAIT_SECONDS
from tests.support.waits.stopped import wait_stopped
from tests.support.waits.waiting import count_as_child

ROOT = Path(__file__).resolve().parents[3]
SERVER = "tests.programs.preloaded"
SHARED = "TEST_QUEUE_PRELOADED"  # environment: the directory with the sockets of interpreters that a queue shares
ROOM = "-" * 1000  # an argument, in which a program can show its own command line
MODULES = ("services.cli.", "tests.programs.seven_services", "tests.programs.container_command")
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
STREAMS = ("stdin", "stdout", "stderr")
MAX_MESSAGE_BYTES = 1 << 17
REPORT = struct.Struct("<qd")  # a process ID or exit code, and CPU seconds


def server_command(descriptor: int, modules: tuple[str, ...]) -> list[str]:
    """Return the command of an interpreter that imports these modules and serves this socket."""
    return [sys.executable, "-m", SERVER, str(descriptor), ROOM, *modules]


def socket_name(modules: tuple[str, ...]) -> str:
    """Return the name of the socket of the interpreter that has imported these modules for a whole queue. A process in
    other namespaces gets another name, and so finds none: a fork would have those of the queue."""
    namespaces = [str(Path("/proc/self/ns", name).readlink()) for name in _NAMESPACES]
    return hashlib.sha256(" ".join([*modules, *namespaces]).encode()).hexdigest()[:16]


@cache
def _server(modules: tuple[str, ...]) -> socket.socket:
    """Return the socket of an interpreter that has imported these modules, which ends with this process: a fork of the
    one that the queue shares, or without a queue one of its own."""
    if (shared := _connect(modules)) is not None:
        return shared
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = server_command(theirs.fileno(), modules)
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=ROOT)

    def stop() -> None:
        ours.close()
        process.wait()

    atexit.register(stop)
    return ours


def _connect(modules: tuple[str, ...]) -> socket.socket | None:
    """Return a connection with the interpreter that the queue shares, or None where there is no queue."""
    if not (directory := os.environ.get(SHARED)):
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(f"{directory}/{socket_name(modules)}")
        connection.send(os.environ[MARK].encode())
    except OSError:  # the queue has ended, or is on another machine
        connection.close()
        return None

    def stop() -> None:
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)  # the fork answers nothing; it ends
        connection.close()

    atexit.register(stop)
    return connection


class Preloaded:
    """A module of ours that runs as a program in a process of its own.

    `streams`: descriptors for its standard input, output and error; they stay open here. `modules`: what is imported
    before. `command_line`: what it shows as its own, in a session of its own; without one, it shows ours."""

    def __init__(
        self, module: str, arguments: Sequence[str], streams: tuple[int, int, int],
        environment: Mapping[str, str] = os.environ, *, modules: tuple[str, ...] = MODULES,
        command_line: Sequence[str] = (),
    ) -> None:  # fmt: skip
        request = {
            "module": module,
            "arguments": list(arguments),
            "environment": dict(environment),
            "directory": str(Path.cwd()),
            "command_line": list(command_line),
        }
        self._report, report = os.pipe()
        try:
            socket.send_fds(_server(modules), [json.dumps(request).encode()], [*streams, report])
        finally:
            os.close(report)
        self.pid, _ = self._read(WAIT_SECONDS)
        self.returncode: int | None = None  # as that of subprocess.Popen

    def _read(self, timeout: float) -> tuple[int, float]:
        if not select.select([self._report], [], [], timeout)[0]:
            raise TimeoutError(f"process {getattr(self, 'pid', '')} did not report within {timeout:g} s")
        number, cpu = REPORT.unpack(os.read(self._report, REPORT.size))
        return number, cpu

    def wait(self, timeout: float = WAIT_SECONDS) -> int:
        """Return the exit code, negative for a signal. Raises TimeoutError."""
        if self.returncode is None:
            self.returncode, cpu = self._read(timeout)
            count_as_child(cpu)
            os.close(self._report)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send the signal to the process, if it runs; after SIGSTOP it is stopped."""
        if self.returncode is None:
            try:
                os.kill(self.pid, number)
                if number == signal.SIGSTOP:
                    wait_stopped(self.pid)
            except (ProcessLookupError, FileNotFoundError):
                return

    def terminate(self) -> None:
        """Ask the process to end."""
        self.send_signal(signal.SIGTERM)

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""
        if self.returncode is None and select.select([self._report], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def kill(self) -> None:
        """End the process."""
        self.send_signal(signal.SIGKILL)


def run_preloaded(
    module: str, arguments: Sequence[str], *, given: str = "", output: int | None = None,
    environment: Mapping[str, str] = os.environ,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run the program with this text on its standard input, and return its exit code and what it wrote.

    `output`: a descriptor for its standard output, which is then not returned."""
    stdin, stdout, stderr = files = [os.memfd_create(name) for name in STREAMS]
    try:
        os.pwrite(stdin, given.encode(), 0)
        process = Preloaded(module, arguments, (stdin, stdout if output is None else output, stderr), environment)
        try:
            code = process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                process.wait()
        return subprocess.CompletedProcess([module, *arguments], code, _content(stdout), _content(stderr))
    finally:
        for file in files:
            os.close(file)


def _content(descriptor: int) -> str:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode()
