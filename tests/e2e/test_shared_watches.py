"""Many watched Secrets on a real API server: one connection for all watches, resumed without a list when it breaks."""

import contextlib
import ctypes
import errno
import os
import re
import socket
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from tests.support.agents.agent import NODE
from tests.support.clusters.cluster import Cluster
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

NAMES = [f"s{number:02}" for number in range(90)]
_ESTABLISHED = "01"
_PIDFD_GETFD = 438  # the number of the system call, on every architecture


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    async with Cluster(directory, plane={"audit": True}) as running:
        yield running


def connections_of(pid: int, port: int) -> list[int]:
    """The descriptors of a process that are established TCP connections to this port."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _ESTABLISHED and int(fields[2].rpartition(":")[2], 16) == port:
                inodes.add(fields[9])
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:
            continue  # closed meanwhile
        if (match := re.fullmatch(r"socket:\[(\d+)\]", target)) and match[1] in inodes:
            found.append(int(entry.name))
    return found


def cut(pid: int, descriptor: int) -> None:
    """Shut another process' connection down, as a network does that breaks it."""
    process = os.pidfd_open(pid)
    try:
        ours = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, process, descriptor, 0)
        if ours < 0:
            assert ctypes.get_errno() == errno.EBADF, os.strerror(ctypes.get_errno())  # the process has closed it
            return
        with closing(socket.socket(fileno=ours)) as taken, contextlib.suppress(OSError):  # ENOTCONN: it has ended
            taken.shutdown(socket.SHUT_RDWR)
    finally:
        os.close(process)


async def test_ninety_watched_secrets_share_a_connection_and_go_on_when_it_is_cut(cluster: Cluster) -> None:
    for name in NAMES:
        await cluster.create({"kind": "Secret", "metadata": {"name": name}, "stringData": {name: "old"}})
    sources = [{"secret": {"name": name}} for name in NAMES]
    pod = cluster.pod("reader", volumes=[{"name": "all", "projected": {"sources": sources}}])
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "all", "mountPath": "/all"}]
    created = await cluster.create(pod)
    await cluster.wait_ready("reader", seconds=2 * WAIT_SECONDS)
    volume = cluster.agent.home.path / f"kubelet/pods/{created['metadata']['uid']}/volumes/kubernetes.io~projected/all"
    port, pid = urlsplit(cluster.plane.url).port or 0, cluster.agent.pid_of("sources")

    await update(cluster, volume, NAMES[:3], "new")

    # Lists over HTTP/1.1 leave connections, which close after they idle for a minute; each is for many requests.
    async def few() -> bool:
        return len(connections_of(pid, port)) <= len(NAMES) // 3

    # To read the tables of all connections takes 10 ms.
    await cluster.wait_for(few, "most connections to close", 4 * WAIT_SECONDS, every=1.0)
    cluster.plane.forget_requests()
    for connection in connections_of(pid, port):
        cut(pid, connection)
    await update(cluster, volume, NAMES, "newest")
    requests = cluster.plane.requests_by_user()[f"system:node:{NODE}"]
    # Each watch is resumed from its version. A slow API server may end a new connection once more.
    assert len(NAMES) <= requests["watch secrets"] <= 3 * len(NAMES) and not requests["list secrets"], requests
    await cluster.delete_pod("reader", grace=0)
    await cluster.wait_gone("reader")


async def update(cluster: Cluster, volume: Path, names: list[str], word: str) -> None:
    """Change these Secrets, and wait until the volume of the pod shows them."""
    for name in names:
        path = f"/api/v1/namespaces/default/secrets/{name}"
        await cluster.plane.admin.patch(path, {"stringData": {name: word}})

    def shown() -> bool:
        try:
            return all((volume / name).read_text() == word for name in names)
        except FileNotFoundError:  # the directory behind the symbolic link was replaced in this moment
            return False

    await cluster.agent.wait_for(shown, f"{word!r} in the volume", 2 * WAIT_SECONDS)
