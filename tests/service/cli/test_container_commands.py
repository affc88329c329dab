"""`bulkhead logs POD` and `bulkhead exec` against a server on its local socket, and a runtime that echoes."""

import asyncio
import json
import os
import signal
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from services.cli.agent.local_server import Query, open_answer
from services.cli.pods import remote_command
from services.cli.pods.logs import LogOptions
from shared.agent.places import LOCAL_SOCKET
from shared.errors import OperatorError
from tests.service.server.running import CONTAINER, NAMESPACE, POD, Running, configuration, pod_log, running
from tests.service.server.spdy_backend import Backend, streaming_backend

EXEC = f"/exec/{NAMESPACE}/{POD}/{CONTAINER}"
LOGS = f"/containerLogs/{NAMESPACE}/{POD}/{CONTAINER}"
_LOCAL_MODES = 3  # index in the attributes of a terminal
QUERY = [("command", "cat"), ("command", "a b&c"), ("input", "1"), ("output", "1"), ("error", "1")]


def content(run_dir: str, path: str, query: Query = ()) -> bytes:
    """A complete answer of the server with this run directory."""
    with open_answer(run_dir, path, query) as blocks:
        return b"".join(blocks)


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    async with streaming_backend() as backend:
        yield backend


@pytest.fixture
async def server(tmp_path: Path, backend: Backend) -> AsyncIterator[Running]:
    async with running(configuration(tmp_path)) as server:
        server.node.cri.streaming_url = f"http://127.0.0.1:{backend.port}"
        await server.node.run_pod()
        yield server


async def test_exec_passes_words_input_output_and_the_exit_code(
    server: Running, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = b"x" * 100_000 + b"\xff\n"
    (tmp_path / "input").write_bytes(given)
    with (tmp_path / "input").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        status = await asyncio.wait_for(
            remote_command.run(server.config.run_dir, EXEC, QUERY, stdin=True, terminal=False), 60
        )
    assert remote_command.outcome(status) == (7, "")
    assert capfdbinary.readouterr().out == given
    assert server.node.cri.requests("Exec")[0]["cmd"] == ["cat", "a b&c"]


async def test_what_the_agent_refuses_is_the_error_of_the_command(server: Running) -> None:
    path = f"/exec/{NAMESPACE}/{POD}/other"
    with pytest.raises(OperatorError, match=r'^container not found \("other"\)$'):
        await remote_command.run(server.config.run_dir, path, QUERY, stdin=False, terminal=False)


async def test_a_server_that_is_away_is_named_with_its_socket(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"server.sock: server cannot be reached \(bulkhead status"):
        content(str(tmp_path), "/pods")


@pytest.mark.parametrize("head", [b"Transfer-Encoding: chunked\r\n\r\n4\r\n", b"Content-Length: 9\r\n\r\n"])
async def test_an_answer_that_breaks_off_is_one_line(tmp_path: Path, head: bytes) -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"line\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(half, tmp_path / LOCAL_SOCKET):
        with pytest.raises(OperatorError, match=r"server.sock: the answer broke off \(bulkhead status"):
            await asyncio.to_thread(content, str(tmp_path), LOGS)


async def test_logs_are_those_that_the_options_choose(server: Running, tmp_path: Path) -> None:
    path = pod_log(tmp_path)
    path.write_bytes(b"".join(b"2024-01-01T00:00:0%d.000000000Z stdout F line %d\n" % (n, n) for n in range(9)))
    await server.node.run_pod(path)
    query = LogOptions(tail=2, timestamps=True).query()
    lines = (await asyncio.to_thread(content, server.config.run_dir, LOGS, query)).decode().splitlines()
    assert lines == ["2024-01-01T00:00:07.000000000Z line 7", "2024-01-01T00:00:08.000000000Z line 8"]
    assert LogOptions(since=60, follow=True).query() == [("follow", "true"), ("sinceSeconds", "60")]
    with pytest.raises(OperatorError, match="previous terminated container"):
        await asyncio.to_thread(content, server.config.run_dir, LOGS, LogOptions(previous=True).query())


@pytest.mark.parametrize("stdin", [False, True])
def test_a_terminal_passes_keys_on_only_with_input(monkeypatch: pytest.MonkeyPatch, stdin: bool) -> None:
    ours, theirs = os.openpty()
    modes = []

    async def session(*_: object, **__: object) -> bytes:
        modes.append(bool(termios.tcgetattr(theirs)[_LOCAL_MODES] & termios.ISIG))
        return b'{"status": "Success"}'

    pod = SimpleNamespace(namespace=NAMESPACE, name=POD)
    agent = SimpleNamespace(run_dir="", require=lambda _: None)
    monkeypatch.setattr(remote_command, "local_agent", lambda _: nullcontext(agent))
    monkeypatch.setattr(remote_command, "find_pod", lambda *_: (pod, None))
    monkeypatch.setattr(remote_command, "choose_container", lambda *_: CONTAINER)
    monkeypatch.setattr(remote_command, "run", session)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with open(theirs, closefd=False) as terminal:
            monkeypatch.setattr(sys, "stdin", terminal)
            code = remote_command.run_in_container("", POD, "", "", ("sh",), print, stdin=stdin, terminal=True)
        assert (code, modes) == (0, [not stdin])
        assert termios.tcgetattr(theirs)[_LOCAL_MODES] & termios.ISIG
    finally:
        signal.signal(signal.SIGTERM, before)
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        ({"status": "Success"}, 0, ""),
        ({"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}}, 3, ""),
        ({"status": "Failure", "message": "no such program"}, 1, "no such program"),
        ({"status": "Failure", "details": {"causes": "x"}}, 1, "the end of the command cannot be read"),
        ([], 1, "the end of the command cannot be read"),
    ],
)
def test_the_end_of_a_command_is_its_exit_code(status: object, code: int, message: str) -> None:
    found, text = remote_command.outcome(json.dumps(status).encode())
    assert (found, text.split(" (")[0]) == (code, message)


def test_a_session_that_broke_off_is_a_failure() -> None:
    assert remote_command.outcome(b"")[0] == 1


def test_exec_refuses_a_word_that_is_not_utf8_and_runs_no_other_command(tmp_path: Path) -> None:
    """yarl leaves out of a query what is not UTF-8: `rm file` would have been run."""
    err = list[str]()
    words = ("rm", "file\udcff")
    code = remote_command.run_in_container(str(tmp_path), POD, "", "", words, err.append, stdin=False, terminal=False)
    assert (code, err) == (1, ["the command is not UTF-8 text (pass it on standard input)"])
