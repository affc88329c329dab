"""Events about killed processes, from a kernel log that the test writes."""

import asyncio
import os
import socket
from pathlib import Path

from bus.messages.streams import events_of
from bus.stream import EventRecorder
from services.frame.launch import Context
from services.pleg.controllers.oom_watcher import OomWatcher
from shared.config.effective import EffectiveConfig
from tests.fakes.memory_bus import MemoryNetwork
from tests.support.waits.deadline import WAIT_SECONDS
from tests.unit.pleg.test_oom_records import OF_CGROUP, OF_NODE


class Kernel:
    """A log, and watchers that start one after the other."""

    def __init__(self, directory: Path) -> None:
        self.network = MemoryNetwork()
        run = directory / "run"
        run.mkdir()
        at = str(directory)
        self.config = EffectiveConfig(node_name="node1", run_dir=str(run), root_dir=at, log_dir=at, cert_dir=at)
        self.records: list[bytes] = []

    def log(self, *lines: str) -> None:
        self.records += [f"4,{len(self.records) + n},1,-;{line}\n KEY=value\n".encode() for n, line in enumerate(lines)]

    async def watched(self) -> list[str]:
        """The messages of the events of a watcher that reads the log from its begin."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            bus = self.network.bus("pleg")
            context = Context("pleg", self.config, bus, self.network.clock, asyncio.Event())
            stream = bus.own(events_of("pleg"))
            events = EventRecorder(stream, self.network.clock)
            theirs.setblocking(False)
            watcher = OomWatcher(context, events, lambda: os.dup(theirs.fileno()))
            watcher.start()
            for record in [*self.records, b"6,999,1,-;the last one"]:
                ours.send(record)
            async with asyncio.timeout(WAIT_SECONDS):
                while _waiting(theirs):
                    await asyncio.sleep(0)
            watcher.close()
            found = map(stream.get, stream.keys())
            self.network.kill("pleg")
            return [event.message for event in found if event is not None]


def _waiting(reader: socket.socket) -> bool:
    try:
        return bool(reader.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


async def test_a_kill_of_the_node_is_an_event_once_and_one_of_a_cgroup_is_none(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    kernel.log(*OF_CGROUP, *OF_NODE)
    assert await kernel.watched() == ["System OOM encountered, victim process: stress-ng, pid: 4242"]
    assert await kernel.watched() == []
    kernel.log(*OF_NODE)
    assert await kernel.watched() == ["System OOM encountered, victim process: stress-ng, pid: 4242"]


async def test_a_mark_of_another_boot_does_not_count(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    kernel.log(*OF_NODE)
    (tmp_path / "run" / "oom-record").write_text("another-boot 99\n")
    assert len(await kernel.watched()) == 1
