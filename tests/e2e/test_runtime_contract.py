"""The runtime contract against a real containerd."""

import asyncio
import json
import logging
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from shared.cri.client import CriRuntime
from shared.cri.interface import RuntimeCallError
from shared.model.runtime import ContainerState
from tests.support.installed.chosen_programs import chosen_suite
from tests.support.installed.debian_containerd import INSTALLED, NEWEST
from tests.support.runtime.containerd import PrivateContainerd, started_containerd
from tests.support.runtime.contract_world import RealWorld, look, started, until
from tests.support.waits.deadline import WAIT_SECONDS
from tests.unit.cri.left_tasks_contract import LeftTasksContract
from tests.unit.cri.runtime_contract import RuntimeContract
from tools import containerd as containerd_tool
from tools.containerd import start_task

pytestmark = [pytest.mark.root, pytest.mark.versions]

_TEMPLATE = """\
{"cniVersion": "0.4.0", "name": "made", "plugins": [
  {"type": "bridge", "bridge": "bkt-template", "ipam": {"type": "host-local", "subnet": "{{.PodCIDR}}"}}
]}
"""


@pytest.fixture(scope="module")
def containerd() -> Iterator[PrivateContainerd]:
    with started_containerd() as containerd:
        yield containerd


class ContainerdWorld(RealWorld):
    """containerd, and what is below its CRI."""

    def __init__(self, containerd: PrivateContainerd, runtime: CriRuntime, directory: Path) -> None:
        super().__init__(runtime, directory)
        self._containerd = containerd
        self.runtime: CriRuntime = runtime

    def leave_task(self, container_id: str) -> None:
        start_task(self._containerd.embedded.socket, container_id)


@pytest.fixture
async def world(containerd: PrivateContainerd, tmp_path: Path) -> AsyncIterator[ContainerdWorld]:
    runtime = CriRuntime(containerd.endpoint, request_timeout=60)
    try:
        yield ContainerdWorld(containerd, runtime, tmp_path)
        for pod in (await runtime.observe()).values():
            for sandbox in pod.sandboxes:
                await runtime.stop_pod_sandbox(sandbox.id)
                await runtime.remove_pod_sandbox(sandbox.id)
    finally:
        await runtime.close()


class TestContainerd(RuntimeContract, LeftTasksContract):
    """The contract as it is."""

    is_containerd_2 = chosen_suite() == NEWEST

    @pytest.mark.skipif(chosen_suite() != INSTALLED, reason="newer ones have it: tests/e2e/test_newer_containerd.py")
    async def test_it_reports_that_it_has_no_event_stream(self, world: ContainerdWorld) -> None:
        with pytest.raises(RuntimeCallError) as refusal:
            async for _ in world.runtime.events():
                pass
        assert refusal.value.code == "Unimplemented"

    async def test_the_last_log_lines_stand_in_for_an_empty_message_of_a_failure(self, world: ContainerdWorld) -> None:
        pod = world.new_pod()
        config = world.container(pod, command="echo last words; exit 3")
        config["annotations"]["io.kubernetes.container.terminationMessagePolicy"] = "FallbackToLogsOnError"
        config["command"] = ["sh", "-c", "echo last words; exit 3"]
        await started(world, pod, config)
        seen = await until(world, pod, lambda p: p.containers[0].state is ContainerState.EXITED)
        assert (seen.containers[0].exit_code, seen.containers[0].termination_message) == (3, "last words\n")


class WithTemplate(PrivateContainerd):
    """A containerd that makes its CNI configuration of a template, once it has the addresses for pods."""

    @property
    def made(self) -> Path:
        """Return the configuration that it makes."""
        return Path(self.embedded.cni_conf_dir) / "10-containerd-net.conflist"

    def start(self) -> None:
        super().start()
        self.end()
        template, file = self.directory / "template", Path(self.embedded.config_file)
        template.write_text(_TEMPLATE)
        text, line = file.read_text(), "    max_conf_num = 1\n"
        assert text.count(line) == 1
        file.write_text(text.replace(line, f'{line}    conf_template = "{template}"\n'))
        (Path(self.embedded.cni_conf_dir) / "10-bulkhead.conflist").unlink()
        self._process = containerd_tool.start(self.embedded, self.log)


async def test_containerd_makes_a_configuration_of_its_template_once() -> None:
    with tempfile.TemporaryDirectory(prefix="bkc", dir="/tmp") as directory:
        containerd = WithTemplate(Path(directory))
        runtime = CriRuntime(containerd.endpoint, request_timeout=60)
        try:
            containerd.start()
            assert not await _network_is_ready(runtime)
            await runtime.update_runtime_config("10.91.201.0/24,fd00:91:201::/64")
            assert json.loads(containerd.made.read_text())["plugins"][0]["ipam"]["subnet"] == "10.91.201.0/24"
            deadline = time.monotonic() + WAIT_SECONDS
            while not await _network_is_ready(runtime):
                assert time.monotonic() < deadline, "the runtime does not read what it made"
                await asyncio.sleep(0.05)
            before = containerd.made.read_text()
            await runtime.update_runtime_config("10.91.202.0/24")
            assert containerd.made.read_text() == before, "where there is a configuration, it counts"
        finally:
            await runtime.close()
            await containerd.stop()


async def _network_is_ready(runtime: CriRuntime) -> bool:
    return next(condition.status for condition in await runtime.status() if condition.type == "NetworkReady")


async def test_a_containerd_without_streams_lists_as_before_and_is_asked_for_each_once(
    containerd: PrivateContainerd, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """containerd streams lists from 2.4 on, which is not among those of the tests."""
    caplog.set_level(logging.INFO)
    runtime = CriRuntime(containerd.endpoint, request_timeout=60, streams_lists=True)
    plain = CriRuntime(containerd.endpoint, request_timeout=60)
    world = ContainerdWorld(containerd, runtime, tmp_path)
    asked: list[str] = []
    merge = runtime._channel.merge

    async def counted(path: str, method: str, request: Any, answer: Any, timeout: float) -> bool:
        asked.append(path.rpartition("/")[2])
        return await merge(path, method, request, answer, timeout)

    runtime._channel.merge = counted  # type: ignore[method-assign]
    try:
        pod = world.new_pod()
        sandbox, _ = await started(world, pod)
        for _ in range(3):
            assert (await runtime.observe()).keys() == (await plain.observe()).keys() != set()
            assert set(await runtime.list_images()) == set(await plain.list_images()) != set()
            assert (await runtime.writable_layers()).keys() == (await plain.writable_layers()).keys()
        assert asked == ["StreamContainers", "StreamPodSandboxes", "StreamImages", "StreamContainerStats"]
        assert [record.levelname for record in caplog.records if "stream" in record.message] == ["INFO"]
        await runtime.stop_pod_sandbox(sandbox)
        await runtime.remove_pod_sandbox(sandbox)
    finally:
        await runtime.close()
        await plain.close()


def test_the_client_works_on_uvloop_where_relisting_what_did_not_change_inspects_nothing(
    containerd: PrivateContainerd, tmp_path: Path
) -> None:
    """The services run on uvloop; and a hundred pods are relisted every few seconds."""

    async def check() -> None:
        runtime = CriRuntime(containerd.endpoint, request_timeout=60)
        world = ContainerdWorld(containerd, runtime, tmp_path)
        pod = world.new_pod()
        sandbox, _ = await started(world, pod)
        first = await look(world, pod)
        methods: list[str] = []
        channel = runtime._channel
        original = channel.call

        async def counted(stub: object, method: str, request: object, timeout: float | None) -> object:
            methods.append(method)
            return await original(stub, method, request, timeout)

        channel.call = counted  # type: ignore[method-assign]
        assert first.same_content(await look(world, pod))
        assert methods == ["ListContainers", "ListPodSandbox"]
        await runtime.stop_pod_sandbox(sandbox)
        await runtime.remove_pod_sandbox(sandbox)
        await runtime.close()

    uvloop.run(check())
