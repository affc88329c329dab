"""/debug/pprof/ and /debug/flags/v over real HTTP: profiles of all processes, stacks, the verbosity."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bus.messages.streams import SERVICES
from tests.service.server.main_listener import MainListener, main_listener
from tests.service.server.running import Node, configuration
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[MainListener]:
    async with main_listener(configuration(tmp_path)) as server:
        yield server


def stacks_of(body: str) -> dict[str, int]:
    """CPU time in microseconds by stack, of a profile as it is served."""
    stacks = {stack: int(used) for stack, _, used in (line.rpartition(" ") for line in body.splitlines())}
    assert len(stacks) == len(body.splitlines())
    return stacks


@pytest.fixture
def busy() -> Iterator[None]:
    """A thread that computes; all processes of the node are in this one, so that each of them has it."""
    ending = threading.Event()

    def compute() -> None:
        while not ending.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute)
    thread.start()
    yield
    ending.set()
    thread.join()


@pytest.mark.long
@pytest.mark.usefixtures("busy")
async def test_a_profile_counts_the_cpu_time_of_the_processes(server: MainListener) -> None:
    counted, deadline = set[str](), time.monotonic() + WAIT_SECONDS
    while counted != {"server", "pleg"}:  # a busy machine may give the thread no time for a second
        assert time.monotonic() < deadline, counted
        path = "/debug/pprof/profile?seconds=1&process=server&process=pleg"
        status, body, headers = await server.request("GET", path)
        assert (status, headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
        stacks = stacks_of(body)
        assert {stack.partition(";")[0] for stack in stacks} <= {"server", "pleg"}
        assert all(used > 0 for used in stacks.values()) and sum(stacks.values()) < 60e6
        computing = ";busy.<locals>.compute (test_debug_endpoints.py:"
        counted = {stack.partition(";")[0] for stack in stacks if computing in stack}


async def test_stacks_of_threads_and_tasks_are_text(server: MainListener) -> None:
    status, body, _ = await server.request("GET", "/debug/pprof/goroutine?process=server")
    assert status == 200
    assert body.startswith("== server ==\nThread MainThread:\n")
    assert "\nTask " in body
    assert "== volume ==" not in body
    status, index, _ = await server.request("GET", "/debug/pprof/")
    assert (status, index.startswith("/debug/pprof/")) == (200, True)
    assert (await server.request("GET", "/debug/pprof"))[2]["Location"] == "/debug/pprof/"


async def test_a_process_that_does_not_answer_is_named_and_fails_no_other(server: MainListener) -> None:
    server.running.node.network.kill("volume")
    async with clock_running(server):
        _, body, _ = await server.request("GET", "/debug/pprof/profile?seconds=1&process=volume&process=server")
        [missing] = [stack for stack in stacks_of(body) if stack.startswith("volume;")]
        assert missing.startswith("volume;(") and "volume" in missing.partition(";")[2]
        status, body, _ = await server.request("GET", "/debug/pprof/profile?seconds=1&process=volume")
        assert (status, body.startswith("Could not enable CPU profiling: volume: ")) == (500, True)
        _, body, _ = await server.request("GET", "/debug/pprof/goroutine?process=volume")
        assert body.startswith("== volume ==\n")
        status, body, _ = await server.request("PUT", "/debug/flags/v", b"4")
        assert (status, body) == (500, "failed set klog.logging.verbosity 4: no answer of volume")


async def test_a_client_that_waits_for_100_continue_gets_it_at_once(server: MainListener) -> None:
    host, _, port = server.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"PUT /debug/flags/v HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n")
    async with asyncio.timeout(WAIT_SECONDS):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"4")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    writer.close()


@asynccontextmanager
async def clock_running(server: MainListener) -> AsyncIterator[None]:
    """Let the time of the bus pass until the block ends."""

    async def run() -> None:
        while True:
            await server.running.node.network.advance(1)
            await asyncio.sleep(0.01)

    running = asyncio.create_task(run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_the_verbosity_of_all_processes_is_set(tmp_path: Path) -> None:
    got: list[int] = []
    node = Node()
    node.verbosity = got.append
    async with main_listener(configuration(tmp_path), node=node) as server:
        status, body, headers = await server.request("PUT", "/debug/flags/v", b"5")
        assert (status, body) == (200, "successfully set klog.logging.verbosity to 5")
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert got == [5] * (len(SERVICES) - 1)


async def test_what_is_no_verbosity_is_refused(server: MainListener, subtests: pytest.Subtests) -> None:
    for method, body, status, text in [
        ("GET", b"", 406, "unsupported http method"),
        ("POST", b"5", 406, "unsupported http method"),
        ("PUT", b"", 400, 'failed set klog.logging.verbosity : strconv.ParseInt: parsing "": invalid syntax'),
        ("PUT", b"x", 400, 'failed set klog.logging.verbosity x: strconv.ParseInt: parsing "x": invalid syntax'),
        (
            "PUT",
            b"3000000000",
            400,
            'failed set klog.logging.verbosity 3000000000: strconv.ParseInt: parsing "3000000000": value out of range',
        ),
        ("PUT", b"1" * 100, 400, "error reading request body: more than 64 bytes"),
    ]:
        with subtests.test(method):
            assert (await server.request(method, "/debug/flags/v", body))[:2] == (status, text)


async def test_the_keys_switch_each_handler_off(tmp_path: Path) -> None:
    config = configuration(tmp_path, enable_profiling_handler=False, enable_debug_flags_handler=False)
    async with main_listener(config) as server:
        for method in ("GET", "POST"):
            answer = await server.request(method, "/debug/pprof/profile")
            assert answer[:2] == (405, "profiling endpoint is disabled.\n")
            answer = await server.request(method, "/debug/flags/v")
            assert answer[:2] == (405, "flags endpoint is disabled.\n")
