"""Ends all that a run of tests has started when the run ends: a plug-in of pytest, `pytest -p tests.queue.family`.

A run that gets SIGKILL takes nothing down, and supervisords, containerds and the containers behind their shims have
sessions of their own. So everything inherits a mark in its environment, by which it is found, and a process that does
nothing else waits for the end of pytest, and of the queue that has started it, and then kills what has the mark.
"""

import atexit
import os
import select
import signal
import time
from pathlib import Path

MARK = "TEST_QUEUE_ITEM"  # environment of everything that an item starts: the process that began it, and a number
OF_A_TEST = "PYTEST_CURRENT_TEST"  # pytest itself sets it in the environment of what a test starts
GRACE_SECONDS = 60.0  # for pytest to take things down, after Ctrl-C or when the queue has ended
_KILL_SECONDS = 10.0  # for the kernel to end what is killed; a process in a system call that hangs does not end


def family_of(mark: str) -> set[int]:
    """Return the processes with this mark in their environment and all their descendants, but not this process."""
    parents: dict[int, int] = {}
    marked: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # ended meanwhile
        if state == "Z":
            continue
        parents[int(entry.name)] = int(parent)
        if f"{MARK}={mark}".encode() in environment:
            marked.add(int(entry.name))
    family = set(marked)
    while more := {pid for pid, parent in parents.items() if parent in family and pid not in family}:
        family |= more
    return family - {os.getpid()}


def kill_family(mark: str) -> None:
    """Kill every process with this mark and its descendants, also containers."""
    deadline = time.monotonic() + _KILL_SECONDS
    while (left := family_of(mark)) and time.monotonic() < deadline:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)  # until the kernel has ended them; what they started meanwhile has the mark as well


def pytest_configure() -> None:
    """Called at the start of pytest. A run without a queue marks what it starts itself, and one that a test has started
    belongs to what that test has started."""
    if OF_A_TEST in os.environ:
        return
    mark = os.environ.setdefault(MARK, f"{os.getpid()}.0")
    ours = os.pidfd_open(os.getpid())
    try:
        theirs = os.pidfd_open(int(mark.partition(".")[0]))
    except ProcessLookupError:
        theirs = ours  # the queue has ended already
    reading, writing = os.pipe()
    if not (starter := os.fork()):
        os.setsid()
        if watcher := os.fork():  # a grandchild, for tests look at the children of their process
            os.write(writing, str(watcher).encode())
            os._exit(0)
        _watch(mark, ours, theirs)
    os.waitpid(starter, 0)
    watcher, owner = os.pidfd_open(int(os.read(reading, 20))), os.getpid()
    for file in {ours, theirs, reading, writing}:
        os.close(file)

    def dismiss() -> None:
        if os.getpid() == owner:  # and not in a fork that runs what is registered
            signal.pidfd_send_signal(watcher, signal.SIGKILL)

    atexit.register(dismiss)


def _watch(mark: str, ours: int, theirs: int) -> None:
    """Wait for the end of pytest or its queue, and end what has the mark. Never returns."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for entry in list(Path("/proc/self/fd").iterdir()):
            if int(entry.name) not in (ours, theirs):
                try:
                    os.close(int(entry.name))  # a pipe is read to its end when pytest has ended
                except OSError:
                    continue
        select.select([ours, theirs], [], [])
        select.select([ours], [], [], GRACE_SECONDS)
        kill_family(mark)
    finally:
        os._exit(0)
