"""The runtime contract against Docker behind the shim."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from shared.cri.interface import StreamOptions
from shared.model.runtime import RuntimePod
from tests.service.server.spdy_peer import Refused, SpdyPeer
from tests.support.runtime.contract_world import RealWorld, World, started, until
from tests.support.runtime.docker import PrivateDocker, private_docker
from tests.unit.cri.runtime_contract import RuntimeContract

pytestmark = pytest.mark.root
V4 = "v4.channel.k8s.io"


@pytest.fixture(scope="module")
def docker() -> Iterator[PrivateDocker]:
    with private_docker() as made:
        yield made


@pytest.fixture
async def world(docker: PrivateDocker, tmp_path: Path) -> AsyncIterator[RealWorld]:
    async with docker.serving() as runtime:
        yield RealWorld(runtime, tmp_path)
        for pod in (await runtime.observe()).values():
            for sandbox in pod.sandboxes:
                await runtime.stop_pod_sandbox(sandbox.id)
                await runtime.remove_pod_sandbox(sandbox.id)


class TestDocker(RuntimeContract):
    """The contract as it is, but for what Docker is."""

    async def test_it_reports_its_name_and_version(self, world: World) -> None:
        version = await world.runtime.version()
        assert (version.name, version.api_version) == ("docker", "v1") and version.version

    async def test_an_old_runtime_reports_no_cgroup_driver(self, world: World) -> None:
        assert await world.runtime.runtime_config() == "cgroupfs"

    async def test_a_command_has_its_input_to_the_end_and_its_streams_and_exit_code(self, world: World) -> None:
        _, container = await started(world, world.new_pod())
        streams = StreamOptions(stdin=True, stdout=True, stderr=True)
        url = await world.runtime.exec_url(container, ["sh", "-c", "cat; echo bye >&2; exit 7"], streams)
        async with await peer_of(url, V4) as peer:
            opened = {name: await peer.open(("streamType", name)) for name in ("error", "stdin", "stdout", "stderr")}
            await peer.send(opened["stdin"], b"some words", fin=True)
            assert await peer.finished(opened["stdout"]) == b"some words"
            assert await peer.finished(opened["stderr"]) == b"bye\n"
            status = json.loads(await peer.finished(opened["error"]))
        assert (status["reason"], status["details"]["causes"][0]["message"]) == ("NonZeroExitCode", "7")
        with pytest.raises(Refused, match="older than a minute"):
            await peer_of(url, V4)

    async def test_a_port_is_forwarded_and_a_closed_one_named(self, world: World) -> None:
        pod = world.new_pod()
        serve = "while true; do echo hello | nc -l -p 8080; done"
        sandbox, _ = await started(world, pod, world.container(pod, command=serve))
        await until(world, pod, partial(listens, 8080))  # it runs before it listens
        url = await world.runtime.port_forward_url(sandbox, [8080])
        async with await peer_of(url, "portforward.k8s.io") as peer:
            answers = []
            for port in ("8080", "8081"):
                headers = (("port", port), ("requestID", port))
                error = await peer.open(("streamType", "error"), *headers)
                data = await peer.open(("streamType", "data"), *headers)
                answers.append((await peer.finished(data), await peer.finished(error)))
        assert answers[0] == (b"hello\n", b"")
        assert answers[1][0] == b"" and b"failed to connect to localhost:8081" in answers[1][1]


def listens(port: int, pod: RuntimePod) -> bool:
    """Return whether a process in the network of the pod listens on this port."""
    tables = (Path(f"/proc/{pod.containers[0].pid}/net/{table}").read_text() for table in ("tcp", "tcp6"))
    return any(re.search(rf"^ *\d+: \w+:{port:04X} \w+:0000 0A ", table, re.MULTILINE) for table in tables)


async def peer_of(url: str, protocol: str) -> SpdyPeer:
    """Return a connection to the shim's streaming server."""
    parts = urlsplit(url)
    assert parts.port is not None
    return await SpdyPeer.connect(parts.port, parts.path, protocol)
