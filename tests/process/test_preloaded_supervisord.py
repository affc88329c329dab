"""The supervisord that most agents of tests have is a fork (tests/support/agents/supervisord_start.py). What it shows
and inherits is that of one that is executed."""

import ast
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.programs.preloaded import READ_AT_IMPORT
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


def test_a_forked_supervisord_looks_like_one_that_is_executed(tmp_path: Path) -> None:
    assert look(tmp_path / "forked", preloaded=True) == look(tmp_path / "executed", preloaded=False)


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
