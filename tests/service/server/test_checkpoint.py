"""/checkpoint over real HTTP: what the runtime is asked for, and each refusal."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.service.server.main_listener import MainListener, main_listener
from tests.service.server.running import CONTAINER_ID, configuration

PATH = "/checkpoint/default/web/main"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[MainListener]:
    async with main_listener(configuration(tmp_path)) as server:
        await server.running.node.run_pod()
        yield server


async def test_the_runtime_writes_an_archive_below_the_root_directory(server: MainListener) -> None:
    node = server.running.node
    node.cri.fail("CheckpointContainer", "Unimplemented", "not here")
    status, body, _ = await server.request("POST", PATH)
    failed = "checkpointing of default/web/main failed (rpc error: code = Unimplemented desc = not here)"
    assert (status, body) == (500, failed)
    node.cri.clear_faults()
    status, body, headers = await server.request("POST", f"{PATH}?timeout=7&timeout=600")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    [archive] = json.loads(body)["items"]
    name = r"checkpoint-web_default-main-\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)\.tar"
    assert re.fullmatch(re.escape(f"{server.running.config.root_dir}/checkpoints/") + name, archive)
    sent = node.cri.requests("CheckpointContainer")[-1]
    assert sent == {"container_id": CONTAINER_ID, "location": archive, "timeout": 600}


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/checkpoint/default/none/main", 404, "pod does not exist"),
        ("/checkpoint/default/web/none", 404, "container none does not exist"),
        (f"{PATH}?timeout=x", 404, "cannot parse value of timeout parameter"),
        ("/checkpoint/default/web", 404, "404: Page Not Found"),
        ("/checkpoint/default/web/a/b", 404, "404: Page Not Found"),
    ],
)
async def test_bad_requests_are_404(server: MainListener, path: str, status: int, body: str) -> None:
    assert (await server.request("POST", path))[:2] == (status, body)
    assert server.running.node.cri.requests("CheckpointContainer") == []


async def test_a_container_that_does_not_run_has_no_state(server: MainListener) -> None:
    server.running.node.report_status({"waiting": {}})
    server.running.node.runtime.delete("uid-1")
    await server.running.node.network.settle()
    status, body, _ = await server.request("POST", PATH)
    assert (status, body) == (500, "checkpointing of default/web/main failed (container main not found)")


async def test_without_its_gate_the_path_is_unknown(tmp_path: Path) -> None:
    async with main_listener(configuration(tmp_path, feature_gates={"ContainerCheckpoint": False})) as server:
        assert (await server.request("POST", PATH))[:2] == (404, "404 page not found\n")
