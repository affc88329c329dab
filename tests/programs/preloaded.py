"""Runs our modules as programs in forks of one interpreter that has imported them: a fork costs some milliseconds where
an interpreter of its own takes up to a second.

argv: the descriptor of a SOCK_SEQPACKET socket, room for the command line of a program, and the modules to import; of
one that ends with a dot, all below it.
Each message (tests/support/agents/preloaded.py) starts one program. Ends when the socket is closed.
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
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # of the memory in which the kernel reads the arguments
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    assert len(text) <= end - start, f"no room for {words}"
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)
    Path("/proc/self/comm").write_text(Path(words[1]).name, encoding="utf-8")


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
    serve(socket.socket(fileno=int(sys.argv[1])))
