"""The supervisord that most agents of tests have is a fork (tests/support/agents/supervisord_start.py). What it shows
and inherits is that of one that is executed."""

import ast
import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.programs.preloaded import READ_AT_IMPORT
from tests.queue.family import MARK
from tests.queue.preloading import shared_interpreters
from tests.support.agents import preloaded as servers
from tests.support.agents.supervisord_start import start_supervisord
from tests.support.waits.deadline import WAIT_SECONDS
from tools.leftovers import agent_processes_of, wait_until

CHECKOUT = Path(__file__).resolve().parents[2]
CONF = """
[supervisord]
nodaemon=true
pidfile={0}/pid
logfile={0}/log
environment=OF_THE_TEST="it"
[program:look]
command=/bin/sh -c "env | sort > {0}/env.new; mv {0}/env.new {0}/env; exec sleep 1000"
directory={0}
stdout_logfile=NONE
stderr_logfile=NONE
"""


def look(home: Path, *, preloaded: bool) -> dict[str, Any]:
    """Start supervisord, and return what can be seen of it."""
    home.mkdir()
    conf = home / "supervisord.conf"
    conf.write_text(CONF.format(home))
    command = [str(CHECKOUT / ".venv/bin/supervisord"), "-n", "-s", "-c", str(conf)]
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "WORD": "one"}
    console = os.open(home / "console", os.O_CREAT | os.O_WRONLY)
    process = start_supervisord(command, environment, console, console, preloaded=preloaded)
    os.close(console)
    try:
        assert wait_until((home / "env").exists, WAIT_SECONDS)
        place = Path(f"/proc/{process.pid}")
        status = (place / "status").read_text()
        assert agent_processes_of(home) == [process.pid]
        return {
            "words": [word.decode() for word in (place / "cmdline").read_bytes().split(b"\0") if word][:2],
            "conf": str(conf).encode() in (place / "cmdline").read_bytes(),
            "name": (place / "comm").read_text(),
            "session": os.getsid(process.pid) == process.pid,
            "directory": (place / "cwd").readlink(),
            "files": sorted(re.sub(r"\d+", "n", without(home, str(f.readlink()))) for f in (place / "fd").iterdir()),
            "signals": re.findall(r"^(Sig(?:Blk|Ign|Cgt)):\s*(\w+)", status, re.M),
            "environment": without(home, (home / "env").read_text()),
            "exit code": end(process),
        }
    finally:
        process.kill()
        process.wait()


def without(home: Path, text: str) -> str:
    return text.replace(str(home), "HOME")


def end(process: Any) -> int:
    began = time.monotonic()
    process.terminate()
    while (code := process.poll()) is None:
        assert time.monotonic() - began < WAIT_SECONDS
        time.sleep(0.02)
    return int(code)


@pytest.fixture(autouse=True)
def no_server_of_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Connect anew, and without the interpreters of the queue that runs these tests."""
    monkeypatch.delenv(servers.SHARED, raising=False)
    servers._server.cache_clear()
    yield
    servers._server.cache_clear()


def test_a_forked_supervisord_looks_like_one_that_is_executed(tmp_path: Path) -> None:
    assert look(tmp_path / "forked", preloaded=True) == look(tmp_path / "executed", preloaded=False)


@pytest.mark.asyncio
async def test_so_does_one_of_an_interpreter_that_a_queue_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARK, "1.1")  # of this process, without a queue
    with shared_interpreters() as variables:
        monkeypatch.setenv(*variables.popitem())
        forked = await asyncio.to_thread(look, tmp_path / "forked", preloaded=True)
    assert forked == await asyncio.to_thread(look, tmp_path / "executed", preloaded=False)


# Starts a program, and prints the process that starts programs for this one, and the one which that is a fork of.
CLIENT = """
import os, sys
from pathlib import Path
from tests.queue.family import MARK, family_of
from tests.support.agents.preloaded import Preloaded
def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
program = Preloaded("http.server", ("--bind", "127.0.0.1", "0"), (0, os.open(os.devnull, os.O_WRONLY), 2))
family = family_of(os.environ[MARK])
server = parent(program.pid)
assert {program.pid, server} <= family and parent(server) not in family, (program.pid, server, family)
print(server, parent(server), flush=True)
sys.stdin.read()
program.kill()
program.wait()
"""


@pytest.mark.asyncio
async def test_a_shared_interpreter_has_a_fork_with_the_mark_of_each_item_that_ends_with_it() -> None:
    with shared_interpreters() as variables:
        clients = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", CLIENT),
                cwd=CHECKOUT,
                env={**os.environ, **variables, MARK: f"1.{number}"},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            for number in (1, 2)
        ]
        lines = [await client.stdout.readline() for client in clients if client.stdout]
        (one, root), (other, same) = [[int(word) for word in line.split()] for line in lines]
        assert root == same
        assert one != other
        for client in clients:
            await client.communicate(b"")
            assert client.returncode == 0
        assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (one, other)), WAIT_SECONDS)
        assert Path(f"/proc/{root}").exists()
    assert not Path(f"/proc/{root}").exists()


@pytest.mark.root
@pytest.mark.no_runtime
def test_a_process_in_a_namespace_of_its_own_shares_no_interpreter_of_the_queue() -> None:
    command = [sys.executable, "-c", "from tests.support.agents.preloaded import *; print(socket_name(MODULES))"]
    inside, outside = (
        subprocess.run([*first, *command], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.strip()
        for first in (["unshare", "--pid", "--fork"], [])
    )
    assert outside == servers.socket_name(servers.MODULES) and outside != inside


def test_what_reads_the_environment_when_it_is_imported_is_imported_again() -> None:
    files = (file for package in ("bus", "services", "shared") for file in (CHECKOUT / package).rglob("*.py"))
    reading = {file for file in files if any("environ" in text for text in at_import(file))}
    assert {".".join(file.relative_to(CHECKOUT).with_suffix("").parts) for file in reading} == READ_AT_IMPORT


def at_import(file: Path) -> Iterator[str]:
    """The statements outside of functions."""
    for statement in ast.parse(file.read_bytes()).body:
        for inner in statement.body if isinstance(statement, ast.ClassDef) else [statement]:
            if not isinstance(
                inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
            ):
                yield ast.unparse(inner).replace("environment", "")
