"""/containerLogs over real HTTP: real log files, followed while they are written, rotated and ended."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from services.server.core.routes import ServedEndpoints
from shared.model.runtime import ContainerState
from tests.service.server.running import CONTAINER, NAMESPACE, POD, UID, Running, configuration, pod_log, running
from tests.support.waits.deadline import WAIT_SECONDS

STREAM_REFUSED = (
    'unable to return the given log stream: "Stdout". Please enable PodLogsQuerySplitStreams feature gate in kubelet'
)
LOGS = f"/containerLogs/{NAMESPACE}/{POD}/{CONTAINER}"


def line(text: str, stream: str = "stdout", second: int = 0) -> bytes:
    return f"2024-01-01T00:00:{second:02d}.000000000Z {stream} F {text}\n".encode()


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """Logs are a matter of the main listener; here the read-only one serves them too, so that TLS is not in the way."""
    monkeypatch.setattr("services.server.controllers.listeners.ServedEndpoints", _all_served)
    async with running(configuration(tmp_path)) as server:
        yield server


def _all_served(debugging: bool, checks: tuple[str, ...], **more: Any) -> ServedEndpoints:
    return ServedEndpoints(True, checks, **more)


@pytest.fixture
async def log(server: Running, tmp_path: Path) -> Path:
    """The log of a running container."""
    path = pod_log(tmp_path)
    path.write_bytes(line("one", second=1) + line("two", "stderr", 2) + line("three", second=3))
    await server.node.run_pod(path)
    return path


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


class Follower:
    """An open log request read piece by piece."""

    def __init__(self, server: Running, query: str = "follow=true") -> None:
        self._request = server.client.get(f"{server.read_only}{LOGS}?{query}")

    async def __aenter__(self) -> "Follower":
        async with asyncio.timeout(WAIT_SECONDS):
            self.response = await self._request.__aenter__()
        assert self.response.status == 200
        return self

    async def __aexit__(self, *_: object) -> None:
        self.response.close()

    async def read(self, size: int) -> bytes:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.response.content.readexactly(size)

    async def rest(self) -> bytes:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.response.content.read()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0)


async def test_options(server: Running, log: Path, subtests: pytest.Subtests) -> None:
    server.node.network.clock.advance(200_000_000)  # the lines are of 2024, virtual time begins before
    for query, body in [
        ("", "one\ntwo\nthree\n"),
        ("tailLines=1", "three\n"),
        ("tailLines=0", ""),
        ("tail=2", "two\nthree\n"),
        ("limitBytes=5", "one\nt"),
        ("sinceTime=2024-01-01T00:00:02Z", "two\nthree\n"),
        ("timestamps=true&tailLines=1", "2024-01-01T00:00:03.000000000Z three\n"),
        ("sinceSeconds=3600", ""),
    ]:
        with subtests.test(query):
            assert await server.get(f"{server.read_only}{LOGS}?{query}") == (200, body)


async def test_refusals(server: Running, log: Path, subtests: pytest.Subtests) -> None:
    for path, status, body in [
        (f"/containerLogs/{NAMESPACE}/other/{CONTAINER}", 404, 'pod "other" does not exist'),
        (f"/containerLogs/other/{POD}/{CONTAINER}", 404, f'pod "{POD}" does not exist'),
        (f"/containerLogs/{NAMESPACE}/{POD}/x%22y", 404, f'container "x\\"y" not found in pod "{POD}"'),
        (f"{LOGS}?tailLines=x", 400, '{"message": "Unable to decode query."}'),
        (f"{LOGS}?limitBytes=0", 422, '{"message": "Invalid request."}'),
        (
            f"{LOGS}?previous=true",
            400,
            f'previous terminated container "{CONTAINER}" in pod "{POD}" not found',
        ),
        (
            f"{LOGS}?stream=Stdout",
            400,
            STREAM_REFUSED,
        ),
        ("/containerLogs/x", 404, "404: Page Not Found"),
    ]:
        with subtests.test(path):
            assert await server.get(server.read_only + path) == (status, body)


async def test_the_gate_permits_one_stream_alone(
    server: Running, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = {"PodLogsQuerySplitStreams": True}
    async with running(configuration(tmp_path, feature_gates=gates)) as other:
        await other.node.run_pod(log)
        assert await other.get(f"{other.read_only}{LOGS}?stream=Stderr") == (200, "two\n")


async def test_the_answer_for_a_waiting_container_has_the_reason(server: Running, log: Path) -> None:
    server.node.report_status({"waiting": {"reason": "ContainerCreating"}})
    await server.node.network.settle()
    text = f'container "{CONTAINER}" in pod "{POD}" is waiting to start: ContainerCreating'
    assert await server.get(server.read_only + LOGS) == (400, text)


async def test_where_the_runtime_was_not_observed_the_file_is_found_by_its_name(server: Running) -> None:
    await server.node.run_pod()
    server.node.runtime.delete(UID)
    await server.node.network.settle()
    text = "unable to retrieve container logs for containerd://c1"
    assert await server.get(server.read_only + LOGS) == (200, text)
    path = Path(server.config.pod_logs_dir) / f"{NAMESPACE}_{POD}_{UID}" / CONTAINER / "0.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(line("found"))
    assert await server.get(server.read_only + LOGS) == (200, "found\n")


async def test_a_missing_file_is_reported_in_the_body(server: Running, tmp_path: Path) -> None:
    path = pod_log(tmp_path, "gone.log")
    await server.node.run_pod(path)
    text = f'failed to try resolving symlinks in path "{path}": lstat {path}: no such file or directory'
    assert await server.get(server.read_only + LOGS) == (200, text)


async def test_an_unknown_format_is_an_error_in_the_body_without_the_content(server: Running, tmp_path: Path) -> None:
    path = pod_log(tmp_path)
    path.write_bytes(b"hello\n")
    await server.node.run_pod(path)
    text = "failed to get parse function: unsupported log format: a first line of 6 bytes, neither CRI nor JSON"
    assert await server.get(server.read_only + LOGS) == (200, text)


async def test_a_follower_gets_headers_at_once_and_lines_as_they_come(server: Running, tmp_path: Path) -> None:
    path = pod_log(tmp_path)
    path.touch()
    await server.node.run_pod(path)
    async with Follower(server) as follower:
        append(path, line("one"))
        assert await follower.read(4) == b"one\n"
        append(path, line("two")[:-5])
        append(path, line("two")[-5:])
        assert await follower.read(4) == b"two\n"


async def test_following_ends_when_the_container_has_ended_and_all_is_read(server: Running, log: Path) -> None:
    async with Follower(server, "follow=true&tailLines=1") as follower:
        assert await follower.read(6) == b"three\n"
        append(log, line("last words"))
        server.node.observe(log, ContainerState.EXITED)
        await server.node.network.settle()
        assert await follower.rest() == b"last words\n"


async def test_a_follower_goes_on_while_the_runtimes_observer_is_away(server: Running, log: Path) -> None:
    async with Follower(server, "follow=true&tailLines=1") as follower:
        assert await follower.read(6) == b"three\n"
        server.node.network.kill("pleg")
        await server.node.network.advance(10)
        append(log, line("still here"))
        assert await follower.read(11) == b"still here\n"


async def test_a_follower_goes_on_in_the_new_file_after_rotation(server: Running, log: Path) -> None:
    async with Follower(server) as follower:
        await follower.read(14)
        log.rename(log.with_suffix(".20240101"))
        append(log.with_suffix(".20240101"), line("before"))
        log.write_bytes(line("after"))
        assert await follower.read(13) == b"before\nafter\n"


async def test_a_follower_that_is_slower_than_two_rotations_gets_every_line(server: Running, log: Path) -> None:
    async with Follower(server) as follower:
        await follower.read(14)
        for number in range(2):  # at once: the follower does not look in between
            rotated = log.with_name(f"{log.name}.20240101-00000{number}")
            log.rename(rotated)
            append(rotated, line(f"end of {number}"))
            log.write_bytes(line(f"begin of {number + 1}"))
            stamp = 10**9 * (time.time_ns() // 10**9 + number)  # rotations are seconds apart
            os.utime(rotated, ns=(stamp, stamp))
        packed = log.with_name(f"{log.name}.20240101-000000")
        packed.rename(packed.with_name(f"{packed.name}.gz"))  # as the second rotation does
        assert await follower.read(40) == b"end of 0\nbegin of 1\nend of 1\nbegin of 2\n"


async def test_a_byte_limit_ends_a_follower(server: Running, log: Path) -> None:
    async with Follower(server, "follow=true&limitBytes=5") as follower:
        assert await follower.rest() == b"one\nt"


@pytest.mark.long
async def test_clients_that_leave_take_their_files_and_tasks_with_them(server: Running, log: Path) -> None:
    assert await server.get(server.read_only + LOGS)  # whatever is made once is made now
    files, tasks = _open_files(log), len(asyncio.all_tasks())
    followers = [await Follower(server).__aenter__() for _ in range(20)]
    for follower in followers:
        assert await follower.read(14) == b"one\ntwo\nthree\n"
    assert _open_files(log) == files + 20
    for follower in followers:
        await follower.__aexit__()
    await until(lambda: _open_files(log) == files and len(server.service.endpoints.wakers) == 0)
    await until(lambda: len(asyncio.all_tasks()) <= tasks)


async def test_many_followers_see_the_same_lines(server: Running, log: Path) -> None:
    followers = [await Follower(server, "follow=true&tailLines=1").__aenter__() for _ in range(30)]
    for follower in followers:
        assert await follower.read(6) == b"three\n"
    for number in range(10):
        append(log, line(f"line {number}"))
    server.node.observe(log, ContainerState.EXITED)
    await server.node.network.settle()
    expected = b"".join(b"line %d\n" % number for number in range(10))
    assert await asyncio.gather(*(follower.rest() for follower in followers)) == [expected] * 30
    for follower in followers:
        await follower.__aexit__()


@pytest.mark.long
async def test_a_long_log_arrives_whole_while_health_is_answered(server: Running, tmp_path: Path) -> None:
    path = pod_log(tmp_path)
    path.write_bytes(line("x" * 200) * 200_000)
    await server.node.run_pod(path)
    download = asyncio.create_task(server.get(server.read_only + LOGS))
    answered = 0
    async with asyncio.timeout(WAIT_SECONDS):
        while not download.done():
            assert await server.get(server.read_only + "/healthz") == (200, "ok")
            answered += 1
    status, body = await download
    assert (status, len(body)) == (200, 201 * 200_000)
    assert answered > 3


@pytest.mark.long
async def test_a_client_that_does_not_read_does_not_fill_the_memory(server: Running, tmp_path: Path) -> None:
    path = pod_log(tmp_path)
    path.write_bytes(line("x" * 200) * 400_000)
    await server.node.run_pod(path)
    _, writer = await asyncio.open_connection("127.0.0.1", server.config.read_only_port, limit=1)
    writer.write(f"GET {LOGS} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    position = -1
    async with asyncio.timeout(WAIT_SECONDS):
        while position != (position := _position(path)) or position <= 0:
            await asyncio.sleep(0.2)  # no event shows that the server waits
    assert position < path.stat().st_size / 2
    writer.transport.abort()
    await until(lambda: _open_files(path) == 0)


async def test_a_hung_disk_holds_up_neither_others_nor_the_clients_leave(
    server: Running, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung, released = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        hung.set()
        released.wait(20)

    monkeypatch.setattr("services.server.adapters.log_files.LogReader._advance", hang)
    follower = await Follower(server).__aenter__()
    await until(hung.is_set)
    assert await server.get(server.read_only + "/healthz") == (200, "ok")
    await follower.__aexit__()
    await until(lambda: len(server.service.endpoints.wakers) == 0)
    assert _open_files(log) == 1  # the thread still has it
    released.set()
    await until(lambda: _open_files(log) == 0)


async def test_an_error_in_the_middle_of_a_log_breaks_the_connection(
    server: Running, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("services.server.adapters.log_files.LogReader._advance", fail)
    async with Follower(server) as follower:
        with pytest.raises(aiohttp.ClientPayloadError):
            await follower.rest()


async def test_an_old_client_gets_the_log_without_chunks(server: Running, log: Path) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.config.read_only_port)
    writer.write(f"GET {LOGS} HTTP/1.0\r\n\r\n".encode())
    async with asyncio.timeout(WAIT_SECONDS):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b"chunked" not in head.lower()
    assert body == b"one\ntwo\nthree\n"


async def test_an_unreadable_log_is_reported_in_the_body(server: Running, tmp_path: Path) -> None:
    path = pod_log(tmp_path)
    path.mkdir()
    await server.node.run_pod(path)
    assert await server.get(server.read_only + LOGS) == (
        200,
        f'failed to open log file "{path}": open {path}: not a regular file',
    )


async def test_without_inotify_a_follower_looks_again_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("services.server.adapters.directory_watch.Inotify", refuse)
    monkeypatch.setattr("services.server.adapters.log_stream.RECHECK_SECONDS", 0.01)
    monkeypatch.setattr("services.server.controllers.listeners.ServedEndpoints", _all_served)
    path = pod_log(tmp_path)
    path.touch()
    async with running(configuration(tmp_path)) as server:
        await server.node.run_pod(path)
        async with Follower(server) as follower:
            append(path, line("one"))
            assert await follower.read(4) == b"one\n"


def _descriptors(path: Path) -> list[Path]:
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            if descriptor.readlink() == path:
                found.append(descriptor)
        except FileNotFoundError:
            continue
    return found


def _open_files(path: Path) -> int:
    return len(_descriptors(path))


def _position(path: Path) -> int:
    for descriptor in _descriptors(path):
        first = (Path("/proc/self/fdinfo") / descriptor.name).read_text().splitlines()[0]
        return int(first.split()[1])
    return -1
