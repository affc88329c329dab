"""Shares the interpreters whose forks are the programs of tests (tests/programs/preloaded.py) among all processes of a
run. Each process of pytest would import the product for itself, which takes a CPU second.

An interpreter starts when the first process connects, and ends with the queue, whatever ends that.
"""

import asyncio
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.queue.family import MARK
from tests.support.agents.preloaded import MODULES, ROOT, SHARED, server_command, socket_name
from tests.support.agents.supervisord_start import LOADED

_ROOM = "-" * 40  # for the mark of an item, in the environment
_WAITING = 100  # connections


@contextmanager
def shared_interpreters() -> Iterator[dict[str, str]]:
    """Give the block the variables of the environment by which the processes of its items find the interpreters. It
    needs the running event loop."""
    with ExitStack() as ends:
        directory = ends.enter_context(tempfile.TemporaryDirectory(prefix="bkq", dir="/tmp"))
        for modules in (MODULES, LOADED):
            ends.enter_context(_shared(Path(directory) / socket_name(modules), modules))
        yield {SHARED: directory}


@contextmanager
def _shared(path: Path, modules: tuple[str, ...]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        loop.remove_reader(listening)
        descriptor = listening.fileno()
        # A mark that is no item's: what this starts has that of its item.
        environment = {**os.environ, MARK: _ROOM}
        command = server_command(descriptor, modules)
        started.append(
            subprocess.Popen(
                command, stdin=subprocess.PIPE, pass_fds=[descriptor], cwd=ROOT, env=environment, start_new_session=True
            )
        )

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen(_WAITING)
        loop.add_reader(listening, start)
        try:
            yield
        finally:
            loop.remove_reader(listening)
            for process in started:
                process.communicate()  # closes its standard input
