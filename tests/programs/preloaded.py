"""Runs our modules as programs in forks of one interpreter that has imported them: a fork costs some milliseconds where
an interpreter of its own takes up to a second.

argv: the descriptor of a SOCK_SEQPACKET socket, room for the command line of a program, and the modules to import; of
one that ends with a dot, all below it.
Each message (tests/support/agents/preloaded.py) starts one program. Ends when the socket is closed. Of a socket that
listens, each connection has a fork of its own for its programs; its first message is the mark of what starts them
(tests/queue/family.py). This ends when its standard input is closed.
"""

import atexit
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from tests.queue.family import MARK
from tests.support.agents.preloaded import MAX_MESSAGE_BYTES, REPORT, STREAMS

READ_AT_IMPORT = {"shared.process.crash"}  # modules that read the environment when they are imported
FLUSH_FAILED = 120  # what an interpreter exits with that cannot write what its standard output holds


def import_all(names: list[str]) -> None:
    """Import the modules, and those below a name that ends with a dot."""
    for name in names:
        package = importlib.import_module(name.removesuffix("."))
        if name.endswith("."):
            for found in pkgutil.walk_packages(package.__path__, name):
                importlib.import_module(found.name)


def accept(listening: socket.socket) -> socket.socket | None:
    """Return each connection in a fork of its own, and None in this process when its standard input is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel removes forks that have ended
    while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
        requests, _ = listening.accept()
        with requests:
            if not os.fork():
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.setsid()
                os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
                listening.close()
                take_the_mark(requests.recv(MAX_MESSAGE_BYTES).decode())
                return requests.dup()
    return None


def serve(requests: socket.socket) -> None:
    """Start what is requested, and write how each process ended into the pipe that came with its request."""
    running: dict[int, tuple[int, int]] = {}  # descriptor of the process -> its ID, and the pipe
    while True:
        for ready in select.select([requests.fileno(), *running], [], [])[0]:
            if ready not in running:
                message, descriptors, *_ = socket.recv_fds(requests, MAX_MESSAGE_BYTES, len(STREAMS) + 1)
                if not message:
                    return
                *streams, report = descriptors
                if not (pid := os.fork()):
                    become(json.loads(message), streams)
                for stream in streams:
                    os.close(stream)
                os.write(report, REPORT.pack(pid, 0.0))
                running[os.pidfd_open(pid)] = pid, report
            else:
                pid, report = running.pop(ready)
                _, status, usage = os.wait4(pid, 0)
                os.write(report, REPORT.pack(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime))
                os.close(ready)
                os.close(report)


def become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Run the module as `python -m` would, with these standard streams, and end the process."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background of a shell ignores it
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(len(streams), os.sysconf("SC_OPEN_MAX"))
        if request["command_line"]:
            os.setsid()
            take_the_command_line(request["command_line"])
        os.environ.clear()
        os.environ.update(request["environment"])
        time.tzset()
        for name in READ_AT_IMPORT & sys.modules.keys():
            importlib.reload(sys.modules[name])
        os.chdir(request["directory"])
        sys.stdin = os.fdopen(0, closefd=False)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
        sys.argv = [request["module"], *request["arguments"]]
        sys.modules.pop(request["module"], None)
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        end_program(code)


def take_the_command_line(words: list[str]) -> None:
    """Let /proc and ps show this command line of a script, by which agents are found, and its name."""
    start, end, *_ = places_of_words()
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    assert len(text) <= end - start, f"no room for {words}"
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)
    Path("/proc/self/comm").write_text(Path(words[1]).name, encoding="utf-8")


def take_the_mark(mark: str) -> None:
    """Replace the mark in the environment of this process, also where /proc reads it: by it the family of an item is
    found (tests/queue/family.py)."""
    start, end = places_of_words()[2:]
    before = os.environ[MARK].encode()
    place = start + ctypes.string_at(start, end - start).index(f"{MARK}=".encode() + before) + len(f"{MARK}=")
    assert len(mark) <= len(before), f"no room for {mark}"
    ctypes.memmove(place, mark.encode().ljust(len(before), b"\0"), len(before))
    os.environ[MARK] = mark


def places_of_words() -> list[int]:
    """Return where the memory begins and ends in which the kernel reads the arguments, and so for the environment."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return [int(field) for field in fields[45:49]]


def end_program(code: int) -> NoReturn:
    """End the process as an interpreter ends, but free no memory: that of a thousand modules takes longer than a
    command."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            try:
                if stream is not None and not stream.closed:
                    stream.flush()
            except OSError:
                traceback.print_exc()
                code = FLUSH_FAILED
    finally:
        os._exit(code)


if __name__ == "__main__":
    sys.dont_write_bytecode = False
    import_all(sys.argv[3:])
    gc.collect()
    gc.freeze()  # a collection in a fork would write to every object, and so copy every page
    given = socket.socket(fileno=int(sys.argv[1]))
    if (programs := accept(given) if given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) else given) is not None:
        serve(programs)
    end_program(0)
