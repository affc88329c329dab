"""/logs/ over real HTTP: files, listings, traversal, links, and queries with a journalctl of the test."""

import asyncio
import gzip
import os
import stat
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from services.server.adapters import system_log_files
from services.server.controllers import system_logs
from services.server.core.access.authentication import ANONYMOUS
from services.server.core.logs.node_log_query import NodeLogQuery, parse_node_log_query
from tests.service.server.main_listener import MainListener, main_listener
from tests.service.server.running import configuration
from tests.support.waits.deadline import WAIT_SECONDS

JOURNALCTL = """#!/bin/sh
[ "$1" = --field ] && { echo kubelet.service; echo slow.service; exit 0; }
case "$*" in *slow*) echo begun; exec sleep 600;; esac
echo "$*"
echo warning >&2
exit 1
"""


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "varlog"
    (directory / "pods" / "p").mkdir(parents=True)
    (directory / "syslog").write_text("line 1\nline 2\n")
    (directory / "pods" / "p" / "0.log").write_text("of a pod")
    monkeypatch.setattr(system_log_files, "SYSTEM_LOGS", directory)
    return directory


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "journalctl"
    program.parent.mkdir()
    program.write_text(JOURNALCTL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


@pytest.fixture
async def server(tmp_path: Path, logs: Path) -> AsyncIterator[MainListener]:
    async with main_listener(configuration(tmp_path, enable_system_log_query=True)) as server:
        yield server


async def test_a_directory_is_a_page_with_links(server: MainListener) -> None:
    status, body, headers = await server.request("GET", "/logs/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert '<a href="pods/">pods/</a>\n<a href="syslog">syslog</a>\n' in body


async def test_a_file_is_sent_as_it_is_and_in_parts(server: MainListener) -> None:
    status, body, headers = await server.request("GET", "/logs/syslog")
    assert (status, body, headers["Content-Length"]) == (200, "line 1\nline 2\n", "14")
    status, body, part = await server.request("GET", "/logs/syslog", Range="bytes=7-12")
    assert (status, body, part["Content-Range"]) == (206, "line 2", "bytes 7-12/14")
    since = headers["Last-Modified"]
    assert (await server.request("GET", "/logs/syslog", **{"If-Modified-Since": since}))[0] == 304
    assert (await server.request("GET", "/logs/syslog", Range="bytes=14-"))[0] == 416


async def test_a_large_file_arrives_complete(server: MainListener, logs: Path) -> None:
    (logs / "large").write_bytes(bytes(range(256)) * 5000)
    async with server.client.get(f"{server.url}/logs/large") as response:
        assert await response.read() == bytes(range(256)) * 5000


async def test_a_client_that_leaves_in_the_middle_leaves_no_file_open(server: MainListener, logs: Path) -> None:
    with (logs / "large").open("wb") as large:
        large.truncate(1 << 30)
    async with aiohttp.ClientSession() as client, client.get(f"{server.url}/logs/large") as response:
        await response.content.readexactly(1 << 20)
        response.close()
    async with asyncio.timeout(WAIT_SECONDS):
        while any(os.path.realpath(f"/proc/self/fd/{each}") == str(logs / "large") for each in range(256)):
            await asyncio.sleep(0.01)


async def test_paths_are_redirected_as_go_does(server: MainListener, subtests: pytest.Subtests) -> None:
    for path, location in [
        ("/logs", "/logs/?a=b"),
        ("/logs/pods", "pods/?a=b"),
        ("/logs/syslog/", "../syslog?a=b"),
        ("/logs/pods/index.html", "./?a=b"),
        ("/logs/../etc/passwd", "/etc/passwd?a=b"),
        ("/logs/%2e%2e/etc/passwd", "/etc/passwd?a=b"),
        ("/logs//syslog", "/logs/syslog?a=b"),
    ]:
        with subtests.test(path):
            status, _, headers = await server.request("GET", f"{path}?a=b")
            assert (status, headers["Location"]) == (301, location)


async def test_what_is_not_there_is_404(server: MainListener, subtests: pytest.Subtests) -> None:
    for path in [
        "/logs/none",
        "/logs/syslog/x",
        "/logs/%00",
        "/logs/a%00b",
        "/logs/%ff",
        "/logs/..%5c..%5cetc",
        "/logs/%252e%252e/",
    ]:
        with subtests.test(path):
            assert (await server.request("GET", path))[:2] == (404, "404 page not found\n")


async def test_a_name_that_is_too_long_is_500_without_a_traceback(server: MainListener) -> None:
    assert (await server.request("GET", "/logs/" + "a" * 5000))[:2] == (500, "500 Internal Server Error\n")


async def test_links_are_followed_below_the_directory_alone(server: MainListener, logs: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("secret")
    (logs / "inside").symlink_to(logs / "pods" / "p" / "0.log")
    (logs / "outside").symlink_to(tmp_path / "secret")
    (logs / "above").symlink_to("../secret")
    (logs / "directory").symlink_to(tmp_path / "secrets")
    (logs / "circle").symlink_to("circle")
    assert (await server.request("GET", "/logs/inside"))[:2] == (200, "of a pod")
    for name in ("outside", "above", "directory/key", "directory/"):
        assert (await server.request("GET", f"/logs/{name}"))[:2] == (404, "404 page not found\n"), name
    assert (await server.request("GET", "/logs/circle"))[0] in (404, 500)
    assert (await server.request("GET", "/logs/?query=/outside"))[0] == 406
    assert (await server.request("GET", "/logs/?query=outside"))[1] == "\nlog not found for outside\n"


async def test_a_fifo_and_a_device_are_not_opened(server: MainListener, logs: Path) -> None:
    os.mkfifo(logs / "fifo")
    assert stat.S_ISFIFO((logs / "fifo").stat().st_mode)
    assert (await server.request("GET", "/logs/fifo"))[0] == 404


async def test_only_get_is_routed(server: MainListener) -> None:
    status, body, headers = await server.request("POST", "/logs/syslog")
    assert (status, body, headers["Allow"]) == (405, "405: Method Not Allowed", "GET")


@pytest.mark.usefixtures("journal")
async def test_a_query_prints_the_journal(server: MainListener) -> None:
    status, body, headers = await server.request("GET", "/logs/?query=kubelet&tailLines=3&pattern=x")
    assert (status, headers["Content-Type"]) == (200, "text/plain;charset=UTF-8")
    command = "--utc --no-pager --output=short-precise --pager-end --lines=3 --unit=kubelet --grep=x"
    assert body == f"{command}\nwarning\n"
    assert (await server.request("GET", "/logs/syslog?query=kubelet"))[:2] == (406, "path not allowed in query mode\n")


@pytest.mark.usefixtures("journal")
async def test_the_answer_is_compressed_for_gzip_alone(server: MainListener) -> None:
    async with aiohttp.ClientSession(auto_decompress=False) as client:
        async with client.get(f"{server.url}/logs/?query=kubelet", headers={"Accept-Encoding": "gzip"}) as response:
            assert gzip.decompress(await response.read()).endswith(b"warning\n")
        async with client.get(f"{server.url}/logs/?query=kubelet", headers={"Accept-Encoding": "gzip, br"}) as response:
            assert (await response.read()).endswith(b"warning\n")


@pytest.mark.usefixtures("journal")
async def test_services_without_a_journal_are_read_from_files(server: MainListener, logs: Path) -> None:
    (logs / "cron.log").write_text("of cron")
    (logs / "web").mkdir()
    (logs / "web" / "web.log").write_text("of web")
    assert (await server.request("GET", "/logs/?query=cron&query=web"))[1] == "of cronof web"
    assert (await server.request("GET", "/logs/?query=cron&query=kubelet"))[1] == "of cron"
    assert (await server.request("GET", "/logs/?query=cron&query=web&boot=0"))[1] == (
        "\noptions present and query resolved to log files for [cron web]\ntry without specifying options\n"
    )
    assert (await server.request("GET", "/logs/?query=/cron.log"))[:2] == (200, "of cron")
    status, body, _ = await server.request("GET", "/logs/?query=/none")
    assert (status, body) == (
        406,
        f'query: Invalid value: ["/none"]: stat {logs}/none: no such file or directory\n',
    )


@pytest.mark.usefixtures("journal")
async def test_a_pattern_that_takes_long_to_compile_delays_no_other_request(
    server: MainListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiling, may_end = threading.Event(), threading.Event()

    def parse(raw: str) -> NodeLogQuery | None:
        compiling.set()
        assert may_end.wait(60)
        return parse_node_log_query(raw)

    monkeypatch.setattr(system_logs, "parse_node_log_query", parse)
    asking = asyncio.create_task(server.request("GET", "/logs/?query=kubelet&pattern=a"))
    async with asyncio.timeout(WAIT_SECONDS):
        await asyncio.to_thread(compiling.wait, 60)
        assert (await server.request("GET", "/healthz/ping"))[:2] == (200, "ok")
        assert not asking.done()
        may_end.set()
        assert (await asking)[0] == 200


@pytest.mark.usefixtures("journal")
async def test_a_query_ends_at_its_deadline(server: MainListener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_logs, "MAX_QUERY_SECONDS", 3.0)
    async with asyncio.timeout(WAIT_SECONDS):
        assert (await server.request("GET", "/logs/?query=slow"))[:2] == (200, "begun\n")


@pytest.mark.usefixtures("logs", "journal")
async def test_without_its_key_a_query_is_ignored_and_without_the_handler_all_is_405(tmp_path: Path) -> None:
    async with main_listener(configuration(tmp_path)) as server:
        assert (await server.request("GET", "/logs/?query=kubelet"))[2]["Content-Type"].startswith("text/html")
    async with main_listener(configuration(tmp_path, enable_system_log_handler=False)) as server:
        for method in ("GET", "POST"):
            assert (await server.request(method, "/logs/syslog"))[:2] == (405, "logs endpoint is disabled.\n")


async def test_who_may_not_read_logs_gets_403(tmp_path: Path, logs: Path) -> None:
    asked = []

    async def deny(question: object, _address: str) -> bool:
        asked.append(question)
        return False

    async with main_listener(configuration(tmp_path), deny) as server:
        status, body, _ = await server.request("GET", "/logs/syslog")
    assert (status, body) == (
        403,
        f"Forbidden (user={ANONYMOUS.name}, verb=get, resource=nodes, subresource(s)=[log])\n",
    )
    assert len(asked) == 1
