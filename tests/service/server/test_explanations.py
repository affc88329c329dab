"""`/bulkhead/explain` answers from the records on disk, as text and JSON."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path

import aiohttp
import pytest

from services.server.controllers import explanations
from services.server.controllers.explanations import MAX_THREADS, MAX_WAITING_REQUESTS
from shared.agent.places import LOCAL_SOCKET
from shared.files.checkpoint import Checkpoint
from shared.story.files import directory_of
from shared.story.lines import Story
from tests.service.server.running import Running, configuration, running
from tests.support.waits.deadline import WAIT_SECONDS

HEAD = {"what": "pod", "uid": "uid-1", "name": "web", "namespace": "default", "source": "api"}
PULLED = {"at": 5.0, "what": "done", "call": "PullImage", "image": "registry/web:1", "took": 2.0}
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "at": "1970-01-01T00:00:05Z"}
EXPLAIN = "/bulkhead/explain"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    directory = directory_of(str(tmp_path / "root"))
    directory.mkdir(parents=True)
    (directory / "uid-1.jsonl").write_text(json.dumps(HEAD) + "\n" + json.dumps(PULLED) + "\n")
    async with running(configuration(tmp_path)) as server:
        yield server


async def get(server: Running, path: str, **headers: str) -> tuple[int, str]:
    """Status and body over the local socket."""
    connector = aiohttp.UnixConnector(path=str(Path(server.config.run_dir) / LOCAL_SOCKET))
    session = aiohttp.ClientSession(connector=connector, headers=headers)
    async with session as client, client.get(f"http://local{path}") as response:
        return response.status, await response.text()


async def test_a_pod_the_list_and_images_are_shown(server: Running) -> None:
    status, text = await get(server, f"{EXPLAIN}/default/web")
    assert status == 200 and "image registry/web:1 is pulled, after 2.00 s" in text
    assert "default    web   uid-1" in (await get(server, EXPLAIN))[1]
    assert "default/web  image registry/web:1" in (await get(server, f"{EXPLAIN}/image?name=registry"))[1]
    assert await get(server, f"{EXPLAIN}/image?name=none") == (200, "")
    data = json.loads((await get(server, f"{EXPLAIN}/default/web?output=json"))[1])
    assert [line["image"] for line in data["story"]] == ["registry/web:1"]


async def test_the_node_is_shown_once_it_has_a_record(server: Running) -> None:
    assert await get(server, f"{EXPLAIN}/node") == (404, "no record of node\n")
    records = Checkpoint(Path(server.config.root_dir) / "status", Path(server.config.run_dir) / "status")
    records.save("node", {"conditions": [{**READY, "lastTransitionTime": "t"}], "changes": [READY]})
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(5))
    assert (await get(server, f"{EXPLAIN}/node"))[1].startswith(f"{at}  Ready is True: KubeletReady\n")


async def test_many_requests_leave_threads_for_the_logs(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, most, lock, go_on = 0, 0, threading.Lock(), threading.Event()

    def read(_directory: Path) -> list[Story]:
        nonlocal reading, most
        with lock:
            reading += 1
            most = max(most, reading)
        go_on.wait(60)
        with lock:
            reading -= 1
        return []

    monkeypatch.setattr(explanations, "newest_lines", read)
    asked = [asyncio.create_task(get(server, EXPLAIN)) for _ in range(MAX_THREADS + MAX_WAITING_REQUESTS + 10)]
    async with asyncio.timeout(WAIT_SECONDS):
        while most < MAX_THREADS:
            await asyncio.sleep(0.02)
        refused = [await one for one in islice(asyncio.as_completed(asked), 10)]  # those beyond the queue wait for none
        assert set(refused) == {(503, "32 requests of explain wait already\n")}
        go_on.set()
        statuses = [status for status, _ in await asyncio.gather(*asked)]
    assert statuses.count(200) == MAX_THREADS + MAX_WAITING_REQUESTS and most == MAX_THREADS


async def test_a_page_of_another_site_gets_no_story(server: Running, subtests: pytest.Subtests) -> None:
    for headers, status in [
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://local"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:8001"}, 200),  # through a proxy of kubectl
        ({}, 200),
    ]:
        with subtests.test(f"{headers!r:.80}"):
            assert (await get(server, EXPLAIN, **headers))[0] == status


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/default/none", 404, "no record of default/none\n"),
        ("/x", 404, "no record of x\n"),
        ("/a/b/c", 404, "404: Page Not Found"),
        ("?output=x", 400, "output: is 'x', must be text or json\n"),
        ("?since=x", 400, "since: is 'x', must be a duration such as 5m\n"),
    ],
)
async def test_bad_requests_are_one_line(server: Running, path: str, status: int, body: str) -> None:
    assert await get(server, EXPLAIN + path) == (status, body)
