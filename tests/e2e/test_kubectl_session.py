"""A session of kubectl through a real API server: exec -it, cp, port-forward, attach, logs -f across rotations.

By the kubectl of that server, by a current one, which falls back to SPDY, and by the current one through a front that
hands its WebSockets to the node as a current API server does.
"""

import asyncio
import fcntl
import gzip
import hashlib
import os
import pty
import random
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.agents.world import TICK_AND_RETURN_INPUT
from tests.support.clusters.cluster import Cluster
from tests.support.clusters.websocket_front import WebSocketFront
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

MEBIBYTE = 1 << 20
SIZE = (1024 if os.environ.get("NIGHT") else 256) * MEBIBYTE
SIZE_OF_OTHERS = 16 * MEBIBYTE  # for the other kubectls, whose end of the streams is what differs
KINDS = ("of-the-server", "current", "current-websocket")
WAIT = 2 * WAIT_SECONDS  # seconds for a line
TRANSFER_WAIT = 10 * WAIT_SECONDS  # seconds for a file
ECHO_PORT = 9000
CONFIG = {"containerLogMaxSize": "200000", "containerLogMaxFiles": 8, "containerLogMonitorInterval": "3s"}
LINES, STEPS = 1000, 30
# 100 bytes a line, 100 kB a step, some 15 s: at least two looks at the size find a log that is too large.
WRITE = (
    "echo waits; until [ -e /tmp/go ]; do sleep 0.1; done; n=0; "
    f"while [ $n -lt {LINES * STEPS} ]; do seq $((n+1)) $((n+{LINES})) | sed s/$/-{'x' * 90}/; n=$((n+{LINES})); "
    "sleep 0.5; done"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path_factory.mktemp("cluster"), config=CONFIG) as running:
        serve = f"mkdir -p /tmp; exec nc -ll -p {ECHO_PORT} -e cat"
        memory = [{"name": "data", "emptyDir": {"medium": "Memory"}}]
        web = running.pod("web", "sh", "-c", serve, volumes=memory)
        web["spec"]["containers"][0] |= {
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "readinessProbe": {"tcpSocket": {"port": ECHO_PORT}, "periodSeconds": 1},  # it runs before it listens
        }
        pods = [web]
        for kind in KINDS:
            once = running.pod(f"once-{kind}", "sh", "-c", TICK_AND_RETURN_INPUT, restartPolicy="Never")
            once["spec"]["containers"][0] |= {"stdin": True, "stdinOnce": True}
            writes = running.pod(f"writes-{kind}", "sh", "-c", f"mkdir -p /tmp; {WRITE}", restartPolicy="Never")
            pods += [once, writes]
        for pod in pods:
            await running.create(pod)
        await running.wait_served(*(pod["metadata"]["name"] for pod in pods))
        yield running


@dataclass(frozen=True)
class Kubectl:
    """One of KINDS. `size`: bytes of a large file; `front`: what its WebSockets pass, None for those that use SPDY."""

    kind: str
    size: int
    front: WebSocketFront | None


@pytest_asyncio.fixture(params=KINDS, autouse=True, loop_scope="module")
async def kubectl_in_use(request: pytest.FixtureRequest, cluster: Cluster) -> AsyncIterator[Kubectl]:
    kind, plane = str(request.param), cluster.plane
    async with AsyncExitStack() as stack:
        plane.kubectl_program = None if kind == KINDS[0] else Path(sys.executable).with_name("kubectl")
        front = None
        if kind == KINDS[2]:
            pair = plane.kubelet_client_pair  # of a cluster administrator
            front = WebSocketFront(plane.port, cluster.agent.port, plane.ca_file, pair, "main")
            plane.kubectl_server = (await stack.enter_async_context(front)).url
        yield Kubectl(kind, SIZE if kind == KINDS[0] else SIZE_OF_OTHERS, front)
        plane.kubectl_program, plane.kubectl_server = None, ""


def used(kubectl: Kubectl, protocol: str) -> bool:
    """Whether the streams passed as they do for this kind: by a WebSocket of this sub-protocol with the front only."""
    return kubectl.front is None or set(kubectl.front.upgrades) == {protocol}


V5, TUNNEL = "v5.channel.k8s.io", "SPDY/3.1+portforward.k8s.io"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory for large files: a test needs no space on the disk."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE * 2}", "tmpfs", tmp_path], check=True)
    yield tmp_path
    subprocess.run(["umount", "--lazy", tmp_path], check=True)


def content(size: int) -> Iterator[bytes]:
    """So many bytes, always the same, no two mebibytes alike."""
    chance = random.Random(15)
    block = chance.randbytes(MEBIBYTE - 8)
    for number in range(size // MEBIBYTE):
        yield struct.pack("<Q", number) + block


def digest_of(blocks: Iterator[bytes]) -> str:
    found = hashlib.sha256()
    for block in blocks:
        found.update(block)
    return found.hexdigest()


def blocks_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(MEBIBYTE):
            yield block


async def kubectl(cluster: Cluster, *args: str, seconds: float = WAIT) -> str:
    done = await asyncio.to_thread(cluster.plane.kubectl, *args, timeout=seconds)
    return done.stdout


@asynccontextmanager
async def started(cluster: Cluster, *args: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *cluster.plane.kubectl_command(*args),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=cluster.plane.kubectl_environment,
        limit=MEBIBYTE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Terminal:
    """kubectl on a terminal of its own."""

    def __init__(self, cluster: Cluster, *args: str) -> None:
        self._master, terminal = pty.openpty()
        self._set_size(24, 80)
        self._process = subprocess.Popen(
            cluster.plane.kubectl_command(*args),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=cluster.plane.kubectl_environment,
            start_new_session=True,
        )
        os.close(terminal)
        self._shown = b""
        asyncio.get_running_loop().add_reader(self._master, self._read)
        self._news = asyncio.Event()

    def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size, as a window does."""
        self._set_size(rows, columns)
        self._process.send_signal(signal.SIGWINCH)

    def type(self, line: str) -> None:
        """Type a line."""
        os.write(self._master, line.encode() + b"\n")

    async def until_shown(self, pattern: str) -> None:
        """Wait until the terminal has shown this since the last call."""
        async with asyncio.timeout(WAIT):
            while not (found := re.search(pattern.encode(), self._shown)):
                self._news.clear()
                await self._news.wait()
        self._shown = self._shown[found.end() :]

    async def exit_code(self) -> int:
        """Wait until kubectl has ended."""
        return await asyncio.wait_for(asyncio.to_thread(self._process.wait), WAIT)

    def close(self) -> None:
        """Take the terminal away."""
        asyncio.get_running_loop().remove_reader(self._master)
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def _set_size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> None:
        try:
            self._shown += os.read(self._master, 65536)
        except OSError:  # EIO: kubectl has ended
            asyncio.get_running_loop().remove_reader(self._master)
        self._news.set()


async def test_exec_with_a_terminal_follows_its_size_and_returns_the_exit_code(
    cluster: Cluster, kubectl_in_use: Kubectl
) -> None:
    terminal = Terminal(cluster, "exec", "-it", "web", "--", "sh")
    try:
        # The runtime applies a size some time after it was sent.
        terminal.type("until stty size | grep '^24 80'; do sleep 0.1; done; echo first''size")
        await terminal.until_shown("firstsize")
        terminal.resize(50, 132)
        terminal.type("until stty size | grep '^50 132'; do sleep 0.1; done; echo second''size")
        await terminal.until_shown("secondsize")
        terminal.type("exit 7")
        assert await terminal.exit_code() == 7
        assert used(kubectl_in_use, V5)
    finally:
        terminal.close()


async def test_the_exit_code_of_exec_is_that_of_the_command(cluster: Cluster) -> None:
    done = await asyncio.to_thread(cluster.plane.kubectl, "exec", "web", "--", "sh", "-c", "exit 3", check=False)
    assert done.returncode == 3


async def test_cp_copies_a_large_file_both_ways(cluster: Cluster, kubectl_in_use: Kubectl, memory: Path) -> None:
    size = kubectl_in_use.size
    wanted, file = digest_of(content(size)), memory / "file"
    with file.open("wb") as sent:
        sent.writelines(content(size))
    await kubectl(cluster, "cp", str(file), "web:/data/file", seconds=TRANSFER_WAIT)
    file.unlink()
    arrived = await kubectl(cluster, "exec", "web", "--", "sha256sum", "/data/file", seconds=TRANSFER_WAIT)
    assert arrived.split()[0] == wanted
    await kubectl(cluster, "cp", "web:/data/file", str(memory / "back"), seconds=TRANSFER_WAIT)
    assert (memory / "back").stat().st_size == size
    assert digest_of(blocks_of(memory / "back")) == wanted
    await kubectl(cluster, "exec", "web", "--", "rm", "/data/file")


async def test_port_forward_carries_as_much_in_both_directions_at_once(
    cluster: Cluster, kubectl_in_use: Kubectl
) -> None:
    size = kubectl_in_use.size
    async with started(cluster, "port-forward", "pod/web", f":{ECHO_PORT}") as process:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), WAIT)).decode()
        matched = re.match(r"Forwarding from 127\.0\.0\.1:(\d+)", line)
        assert matched, line
        reader, writer = await asyncio.open_connection("127.0.0.1", int(matched[1]))

        async def send() -> None:
            for block in content(size):
                writer.write(block)
                await writer.drain()

        async def receive() -> str:
            found, left = hashlib.sha256(), size
            while left and (block := await reader.read(min(left, MEBIBYTE))):
                found.update(block)
                left -= len(block)
            assert not left, f"{left} bytes were not returned"
            return found.hexdigest()

        async with asyncio.timeout(TRANSFER_WAIT):
            _, returned = await asyncio.gather(send(), receive())
        writer.close()
        assert returned == digest_of(content(size))
        assert used(kubectl_in_use, TUNNEL)


async def test_attach_reaches_the_process_of_the_container_and_ends_its_stdin(
    cluster: Cluster, kubectl_in_use: Kubectl
) -> None:
    once = f"once-{kubectl_in_use.kind}"
    async with started(cluster, "attach", "-i", once) as process:
        assert process.stdin is not None and process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), WAIT) == b"tick\n"
        process.stdin.write(b"hello\n")
        await process.stdin.drain()
        async with asyncio.timeout(WAIT):
            while (line := await process.stdout.readline()) == b"tick\n":
                pass
        assert line == b"hello\n"
        process.stdin.close()
        rest = await asyncio.wait_for(process.stdout.read(), WAIT)
        assert not rest.replace(b"tick\n", b"")
        assert await asyncio.wait_for(process.wait(), WAIT) == 0
        assert used(kubectl_in_use, V5)
    await cluster.wait_pod(once, lambda pod: pod["status"]["phase"] == "Succeeded", "to end", WAIT)


def written(cluster: Cluster, name: str, lines: list[int]) -> int:
    """Return how many of these lines the log files of the pod have."""
    files = sorted((cluster.agent.home.log_dir / "pods").glob(f"default_{name}_*/main/*"))
    text = b"".join(gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes() for file in files)
    return len({*lines} & {int(number) for number in re.findall(rb"(\d+)-x{90}", text)})


async def test_logs_that_follow_lose_and_double_no_line_across_rotations(
    cluster: Cluster, kubectl_in_use: Kubectl
) -> None:
    writes = f"writes-{kubectl_in_use.kind}"
    async with started(cluster, "logs", "-f", writes) as process:
        assert process.stdout is not None
        # It follows from here: a rotation before its first look would take lines away.
        assert await asyncio.wait_for(process.stdout.readline(), WAIT) == b"waits\n"
        await kubectl(cluster, "exec", writes, "--", "touch", "/tmp/go")
        text = await asyncio.wait_for(process.stdout.read(), TRANSFER_WAIT)
        assert await asyncio.wait_for(process.wait(), WAIT) == 0
    shown = [int(number) for number in re.findall(rb"(?m)^(\d+)-x{90}$", text)]
    lost = sorted({*range(1, LINES * STEPS + 1)} - {*shown})
    assert not lost, f"{len(lost)} lines lost, the first is {lost[0]}; the files have {written(cluster, writes, lost)}"
    assert shown == list(range(1, LINES * STEPS + 1))
    assert text.count(b"\n") == LINES * STEPS
    rotated = list((cluster.agent.home.log_dir / "pods").glob(f"default_{writes}_*/main/0.log.*"))
    assert len(rotated) >= 2, "the log was not rotated while it was followed"
