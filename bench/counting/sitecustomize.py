"""Counts what an agent's processes send, receive and decode on the bus, and profiles their main threads.

Python imports this module at its start where its folder is on PYTHONPATH; the agent does not know of it. `BUS_COUNTS`
names the folder for the counts: a file `<process name>.<pid>` each, a line `<what> <stream or type> <bytes>` a count.
`PYTHON_PROFILES` names the folder for the profiles. Without a variable its part does nothing.
"""

import contextlib
import os
from typing import Any

_COUNTS = os.environ.get("BUS_COUNTS", "")
_PROFILES = os.environ.get("PYTHON_PROFILES", "")
_FILES: dict[int, int] = {}  # by pid: the descriptor; each forked process has its own file


def _write(what: str, of: str, size: int) -> None:
    pid = os.getpid()
    if pid not in _FILES:
        with open("/proc/self/comm", encoding="utf-8") as comm:  # noqa: PTH123  no more imports than needed
            name = comm.read().strip()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        _FILES[pid] = os.open(f"{_COUNTS}/{name}.{pid}", flags, 0o600)
    os.write(_FILES[pid], f"{what} {of} {size}\n".encode())


def _count_the_bus() -> None:
    from bus import codec, frames, process_bus

    decode, write_update, receive = codec.decode, frames.write_update, process_bus.ProcessBus.receive

    def counted_decode(data: bytes, to: Any) -> Any:
        if to.__module__ != "bus.frames":
            _write("decode", to.__name__, len(data))
        return decode(data, to)

    def counted_write(update: Any) -> Any:
        written = write_update(update)
        _write("sent", update.stream, sum(map(len, written)))
        return written

    def counted_receive(self: Any, arrived: Any) -> None:
        _write("received", arrived[0][:-1].decode(), sum(map(len, arrived)))
        receive(self, arrived)

    vars(codec)["decode"], vars(frames)["write_update"] = counted_decode, counted_write
    process_bus.ProcessBus.receive = counted_receive  # type: ignore[method-assign]


def _profile_the_main_thread() -> None:
    """Profile the main thread from the start of a service to its end, by the thread's own CPU time."""
    import cProfile
    import time

    from services.frame import launch

    begin, leave = launch.launch, os._exit

    def profiled(service: str, *given: Any, **named: Any) -> Any:
        profile = cProfile.Profile(time.thread_time)

        def dump(code: int) -> None:
            profile.disable()
            profile.dump_stats(f"{_PROFILES}/{service}.{os.getpid()}.pstats")
            leave(code)

        vars(os)["_exit"] = dump
        profile.enable()
        return begin(service, *given, **named)

    vars(launch)["launch"] = profiled


with contextlib.suppress(ImportError):  # this Python does not have our packages
    if _COUNTS:
        _count_the_bus()
    if _PROFILES:
        _profile_the_main_thread()
