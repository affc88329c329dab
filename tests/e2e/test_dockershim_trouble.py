"""Docker behind the shim in bad states: away, hung, with containers of somebody else, strange images, huge lines."""

import asyncio
import io
import json
import logging
import signal
import tarfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from cri_api.v1 import api_pb2

from services.dockershim.adapters.engine import Engine
from services.dockershim.core.create_requests import Host, sandbox_body
from services.dockershim.core.identity import CONTAINER, LOG_PATH, SANDBOX_ID, TYPE
from shared.cri.interface import Runtime, RuntimeCallError
from shared.model.runtime import ContainerState
from tests.support.runtime.contract_world import RealWorld, look, started, until
from tests.support.runtime.docker import PrivateDocker, private_docker
from tests.support.waits.deadline import SLOWNESS, WAIT_SECONDS
from tools.oci_image import BUSYBOX_IMAGE

pytestmark = pytest.mark.root
LONG_LINE = 16 * 1024 * 1024  # bytes
ALLOWED_SECONDS = 1.0  # for each request to a Docker that hangs


@pytest.fixture(scope="module")
def docker() -> Iterator[PrivateDocker]:
    with private_docker() as made:
        yield made


@pytest.fixture
async def world(docker: PrivateDocker, tmp_path: Path) -> AsyncIterator[RealWorld]:
    async with docker.serving() as runtime:
        yield RealWorld(runtime, tmp_path)


@pytest.fixture
async def engine(docker: PrivateDocker) -> AsyncIterator[Engine]:
    made = Engine(docker.endpoint)
    yield made
    await made.close()


async def test_a_docker_that_hangs_refuses_each_call_in_time_is_said_once_and_goes_on(
    docker: PrivateDocker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "services.dockershim")
    docker.signal(signal.SIGSTOP)
    try:
        async with docker.serving(request_seconds=ALLOWED_SECONDS, pull_progress_seconds=1.0) as runtime:
            pod, began = RealWorld(runtime, tmp_path).new_pod(), time.monotonic()
            calls = (
                runtime.version(), runtime.observe(), runtime.list_images(),
                runtime.run_pod_sandbox(pod, ""), runtime.create_container("a", {"image": {"image": "b"}}, pod),
                runtime.start_container("a"), runtime.stop_container("a", 0), runtime.remove_container("a"),
                runtime.stop_pod_sandbox("a"), runtime.remove_pod_sandbox("a"), runtime.exec_sync("a", ["b"], 0),
                runtime.update_container_resources("a", {"cpu_shares": 2}),
            )  # fmt: skip
            refused = await asyncio.gather(*calls, return_exceptions=True)
            ready = (await runtime.status())[0]
            seconds = time.monotonic() - began
            assert seconds < len(calls) * ALLOWED_SECONDS * SLOWNESS
            with pytest.raises(RuntimeCallError, match="the pull of a made no progress for 1 s: cancelled"):
                await runtime.pull_image({"image": "a"}, pod)
            assert [getattr(error, "code", error) for error in refused] == ["DeadlineExceeded"] * len(calls)
            assert (ready.status, ready.reason) == (False, "DockerNotReady")
            assert "did not answer in time" in ready.message
            docker.signal(signal.SIGCONT)
            await answers(runtime)
            assert [record.message for record in caplog.records] == [str(ready.message)]
    finally:
        docker.signal(signal.SIGCONT)


async def answers(runtime: Runtime) -> None:
    """Wait until Docker answers behind the shim."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (await runtime.status())[0].status:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


async def test_a_docker_that_is_away_at_the_start_of_the_shim_and_later_is_said_once_each_time(
    docker: PrivateDocker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "services.dockershim")
    docker.end()
    async with docker.serving() as runtime:
        with pytest.raises(RuntimeCallError) as refused:
            await runtime.version()
        assert refused.value.code == "Unavailable"
        text = refused.value.description
        assert text.startswith(f"Docker at {docker.endpoint} cannot be reached; is dockerd running? (")
        ready = (await runtime.status())[0]
        assert (ready.status, ready.message) == (False, text)
        await asyncio.to_thread(docker.start)
        await answers(runtime)
        world = RealWorld(runtime, tmp_path)
        sandbox, _ = await started(world, world.new_pod())
        assert [record.message for record in caplog.records] == [text]
        await runtime.remove_pod_sandbox(sandbox)


async def test_a_name_that_somebody_else_has_is_refused_with_who_has_it(world: RealWorld, engine: Engine) -> None:
    pod = world.new_pod()
    uid = pod["metadata"]["uid"]
    foreign = await engine.create(f"k8s_POD_pod_rec_{uid}_0", {"Image": BUSYBOX_IMAGE})
    try:
        with pytest.raises(RuntimeCallError, match=f'is reserved for "{foreign}"'):
            await world.runtime.run_pod_sandbox(pod, "")
    finally:
        await engine.remove(foreign)
    sandbox = await world.runtime.run_pod_sandbox(pod, "")
    assert [one.id for one in (await look(world, pod)).sandboxes] == [sandbox]
    await world.runtime.remove_pod_sandbox(sandbox)


async def test_somebody_elses_container_with_our_labels_is_neither_shown_nor_ended_nor_entered(
    world: RealWorld, engine: Engine
) -> None:
    pod = world.new_pod()
    sandbox, ours = await started(world, pod)
    labels = {**pod["labels"], TYPE: CONTAINER, SANDBOX_ID: sandbox, LOG_PATH: "no/path"}
    body = {"Image": BUSYBOX_IMAGE, "Cmd": ["sleep", "1000"], "Labels": labels, "HostConfig": {"NetworkMode": "none"}}
    foreign = await engine.create("someone", body)
    try:
        await engine.start(foreign)
        assert [container.id for container in (await look(world, pod)).containers] == [ours]
        for call in (
            world.runtime.exec_sync(foreign, ["true"], 5), world.runtime.stop_container(foreign, 0),
            world.runtime.start_container(foreign), world.runtime.update_container_resources(foreign, {}),
        ):  # fmt: skip
            with pytest.raises(RuntimeCallError) as refused:
                await call
            assert refused.value.code == "NotFound"
        await world.runtime.stop_pod_sandbox(sandbox)
        await world.runtime.remove_container(foreign)
        await world.runtime.remove_pod_sandbox(sandbox)
        assert (await engine.inspect(foreign))["State"]["Running"]
    finally:
        await engine.remove(foreign)


async def test_a_sandbox_in_the_network_of_the_node_has_its_names_also_where_the_shim_is_killed_after_its_start(
    docker: PrivateDocker, engine: Engine
) -> None:
    config = api_pb2.PodSandboxConfig(
        metadata=api_pb2.PodSandboxMetadata(name="dns", namespace="n", uid="u"),
        dns_config=api_pb2.DNSConfig(servers=["10.96.0.10"], searches=["svc", "n"], options=["ndots:5"]),
    )
    config.linux.security_context.namespace_options.network = api_pb2.NODE
    settings = docker.settings()
    body = sandbox_body(config, Host(settings.sandbox_image, settings.oom_score_floor), "", "")
    sandbox = await engine.create("k8s_POD_dns_n_u_0", body)
    try:
        await engine.start(sandbox)
        lines = Path((await engine.inspect(sandbox))["ResolvConfPath"]).read_text().splitlines()
        assert sorted(lines) == ["nameserver 10.96.0.10", "options ndots:5", "search svc n"]
    finally:
        await engine.remove(sandbox)


def image_without_layers(name: str) -> bytes:
    """What `docker save` would write of an image that has a configuration and no layer."""
    config = {"architecture": "amd64", "os": "linux", "config": {"Cmd": ["/run"]}, "rootfs": {"type": "layers"}}
    members = {
        "config.json": {**config, "rootfs": {"type": "layers", "diff_ids": []}},
        "manifest.json": [{"Config": "config.json", "RepoTags": [name], "Layers": []}],
    }
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for path, content in members.items():
            entry, data = tarfile.TarInfo(path), json.dumps(content).encode()
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return made.getvalue()


async def test_an_image_without_layers_is_shown_and_the_start_of_its_container_fails_with_the_reason(
    world: RealWorld, engine: Engine
) -> None:
    name = "localhost/empty:1"
    await engine.load(io.BytesIO(image_without_layers(name)))
    status = await world.runtime.image_status(name)
    assert status is not None and (status.repo_tags, status.size) == ((name,), 0)
    pod = world.new_pod()
    sandbox = await world.runtime.run_pod_sandbox(pod, "")
    config = {**world.container(pod), "image": {"image": name}, "command": ["/run"]}
    container = await world.runtime.create_container(sandbox, config, pod)
    with pytest.raises(RuntimeCallError, match="no such file or directory"):
        await world.runtime.start_container(container)
    seen = (await look(world, pod)).containers[0]
    assert (seen.state, seen.reason) == (ContainerState.EXITED, "ContainerCannotRun")
    await world.runtime.remove_pod_sandbox(sandbox)
    await world.runtime.remove_image(name)
    assert await world.runtime.image_status(name) is None


async def test_a_pull_from_a_registry_that_stalls_is_ended_and_says_so(docker: PrivateDocker) -> None:
    left = asyncio.Event()

    async def registry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            pass  # takes the request, and never answers
        left.set()
        writer.close()

    server = await asyncio.start_server(registry, "127.0.0.1", 0)
    image = f"127.0.0.1:{server.sockets[0].getsockname()[1]}/team/app:1"
    try:
        async with docker.serving(pull_progress_seconds=1.0) as runtime:
            with pytest.raises(RuntimeCallError, match=f"the pull of {image} made no progress for 1 s: cancelled"):
                await runtime.pull_image({"image": image}, {"metadata": {"name": "a"}})
            await asyncio.wait_for(left.wait(), WAIT_SECONDS)  # Docker has ended its request
    finally:
        server.close()


async def test_a_line_of_16_mib_is_whole_in_the_log(world: RealWorld) -> None:
    pod = world.new_pod()
    script = f"echo first; head -c {LONG_LINE} /dev/zero | tr '\\000' x; echo; echo last"
    sandbox, _ = await started(world, pod, world.container(pod, command=script))
    seen = await until(world, pod, lambda p: p.containers[0].state is ContainerState.EXITED)
    lines = [line.split(b" ", 3) for line in Path(seen.containers[0].log_path).read_bytes().splitlines()]
    assert [line[3] for line in (lines[0], lines[-1])] == [b"first", b"last"]
    long = lines[1:-1]
    assert {line[2] for line in long[:-1]} == {b"P"} and long[-1][2] == b"F"
    assert b"".join(line[3] for line in long) == b"x" * LONG_LINE
    await world.runtime.remove_pod_sandbox(sandbox)


async def test_the_log_of_a_container_that_writes_without_a_pause_is_rotated(world: RealWorld) -> None:
    pod = world.new_pod()
    sandbox, container = await started(world, pod, world.container(pod, command="yes"))
    log = Path((await look(world, pod)).containers[0].log_path)
    await grows(log)
    for number in range(3):
        old = log.rename(f"{log}.{number}")
        await asyncio.wait_for(world.runtime.reopen_container_log(container), WAIT_SECONDS)
        size = old.stat().st_size
        await grows(log)
        assert old.stat().st_size == size
    await world.runtime.remove_pod_sandbox(sandbox)


async def grows(log: Path) -> None:
    """Wait until more is written to a log."""
    size, deadline = log.stat().st_size, time.monotonic() + WAIT_SECONDS
    while log.stat().st_size == size:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
