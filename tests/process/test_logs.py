"""Processes whose log is copied to a stream of the operator's: a slow or missing reader does not delay them."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.supervised import CHECKOUT, eventually
from tests.support.waits.deadline import SLOWNESS, WAIT_SECONDS
from tests.support.waits.stopped import wait_stopped

# argv: directory, format, what to do
PROGRAM = """
import asyncio, logging, os, resource, signal, sys, time
from shared.config.effective import EffectiveConfig
from shared.log.klog import structured
from services.frame.log_configuration import configure_log
from shared.log.process_log import start_log

directory, form, order = sys.argv[1:]
handler = start_log("small")
log = logging.getLogger("small")
configure_log(handler, EffectiveConfig(node_name="n", root_dir="", run_dir="", log_dir=directory, cert_dir="",
                                       logging_format=form))
handler.open(directory)

async def chatter():
    longest, number = 0.0, 0
    while True:
        for _ in range(50):
            log.info(structured("tick", number=number, payload="x" * 100))
            number += 1
        before = time.monotonic()
        await asyncio.sleep(0.001)
        longest = max(longest, time.monotonic() - before)
        log.info(structured("turn", longest=longest))

def nested(depth):
    if depth:
        nested(depth - 1)
    raise ValueError("y" * 3000)

if order == "chatter":
    asyncio.run(chatter())
if order == "long":
    for number in range(20):  # less than the 256 KiB that wait for a slow reader
        log.info(structured("long", payload=str(number % 10) * 6000))
        try:
            nested(20)
        except ValueError:
            log.exception("failed")
        log.info("short")
    signal.pause()  # at its end a process waits 0.1 s for a reader that takes nothing
if order == "full":
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    for number in range(200):
        log.info("before %d", number)
        handler.flush()
    while not handler.stderr.dropped:  # the copy is written by a thread of its own, which may be late
        time.sleep(0.01)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    log.info("after")
if order == "log":
    for number in range(100):
        log.info("entry %d", number)
handler.finish(60)
os._exit(0)
"""
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def start(directory: Path, order: str, stream: int, form: str = "text") -> subprocess.Popen[bytes]:
    """The small program, with a copy of its log to the stream."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(directory), form, order],
        env={**ENVIRONMENT, "BULKHEAD_STDERR_FD": str(stream)},
        pass_fds=(stream,),
        stdin=subprocess.DEVNULL,
    )


def read_on(fd: int, found: list[bytes]) -> threading.Thread:
    """Read to the end in a thread."""

    def read() -> None:
        try:
            while more := os.read(fd, 65536):
                found.append(more)
        except OSError:
            pass  # the other end of a terminal has gone

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def check_ticks(lines: list[str]) -> None:
    """Check that a log of `chatter` has each tick but those that the log itself counts as lost: where the disk takes
    nothing for some tenths of a second; more are there than are lost. One lost line of 51 is no tick."""
    numbers = [int(match[1]) for line in lines if (match := re.search(r'number"?[=:](\d+)', line))]
    lost = sum(int(match[1]) for line in lines if (match := re.search(r"\b(\d+) lines lost", line)))
    missing = numbers[-1] + 1 - len(numbers)
    assert numbers == sorted(set(numbers))
    assert missing <= lost <= 1.1 * missing + 2
    assert missing < len(numbers)


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_pipe_without_a_reader_stops_no_service(
    form: str, tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    reader, writer = os.pipe()
    process = start(tmp_path, "chatter", writer, form)
    processes.append(process)
    os.close(writer)
    path = tmp_path / "small.log"
    more_than_fits = 2**20
    eventually(lambda: path.exists() and path.stat().st_size > more_than_fits, "the log to outgrow the pipe")
    process.send_signal(signal.SIGSTOP)  # so that nothing is rotated while it is read
    wait_stopped(process.pid)
    files = sorted(tmp_path.glob("small.log*"), reverse=True)  # within a rotation there is no small.log
    lines = "".join(file.read_text() for file in files).splitlines()[:-1]
    process.send_signal(signal.SIGCONT)
    check_ticks(lines)
    gaps = [float(match[1]) for line in lines if (match := re.search(r'longest"?[=:]([\d.e-]+)', line))]
    assert gaps[-1] < 10.0 * SLOWNESS

    found: list[bytes] = []
    thread = read_on(reader, found)  # the reader wakes up
    eventually(lambda: b" lines lost" in b"".join(found), "the copy to report what is missing")
    size = path.stat().st_size
    process.send_signal(signal.SIGKILL)
    thread.join(WAIT_SECONDS)
    os.close(reader)
    *copied, last = b"".join(found).decode().split("\n")
    assert size and last == ""
    for line in copied:
        if form == "json":
            json.loads(line)
        assert form == "json" or re.match(r"[IW]\d{4} [\d:.]{15} +\d+ \S+:\d+\] \S", line), line


def test_a_reader_that_goes_away_stops_no_service(tmp_path: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    reader, writer = os.pipe()
    process = start(tmp_path, "chatter", writer)
    processes.append(process)
    os.close(writer)
    assert os.read(reader, 1)
    os.close(reader)
    path = tmp_path / "small.log"
    size = path.stat().st_size
    eventually(lambda: path.stat().st_size > size + 2**20, "the log to go on")
    assert process.poll() is None
    check_ticks(path.read_text().splitlines()[:-1])


@pytest.mark.parametrize("form", ["text", "json"])
def test_long_records_of_two_processes_do_not_mix(
    form: str, tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 8192)
    for name in ("a", "b"):
        processes.append(start(tmp_path / name, "long", writer, form))
    os.close(writer)
    found: list[bytes] = []
    thread = read_on(reader, found)
    last = b'"msg":"short"' if form == "json" else b"] short\n"
    eventually(lambda: b"".join(found).count(last) == 2 * 20, "all records of both processes")
    for process in processes:
        process.kill()
    thread.join(WAIT_SECONDS)
    os.close(reader)
    lines = b"".join(found).decode().splitlines()
    if form == "json":
        records = [json.loads(line) for line in lines]
        assert len(records) == 2 * 60
        assert {record["msg"] for record in records} == {"long", "failed", "short"}
        assert all(record.get("truncated", 0) > 4096 for record in records if record["msg"] == "long")
    else:
        assert all(re.match(r"[IE]\d{4} |\t", line) for line in lines)
        assert sum(line.endswith("] short") for line in lines) == 2 * 20
        payloads = [line for line in lines if re.search(r"\d{50}|y{50}", line)]
        assert payloads and all(re.search(r'(\d)\1{30,}"?$|y{30,}$', line) for line in payloads)
    assert all(path.read_text().count("short") >= 20 for path in tmp_path.glob("*/small.log"))


def test_a_file_that_cannot_grow_costs_lines_only(tmp_path: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    stream = os.open(tmp_path / "stream", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    process = start(tmp_path, "full", stream)
    processes.append(process)
    os.close(stream)
    assert process.wait(WAIT_SECONDS) == 0
    lines = (tmp_path / "small.log").read_text().splitlines()
    messages = [line.rpartition("] ")[2] for line in lines]
    lost = next(int(found[1]) for line in messages if (found := re.fullmatch(r"(\d+) lines lost", line)))
    assert "after" in messages and lost > 50
    assert sum(line.startswith("before") for line in messages) + lost in (200, 201)  # the torn line is both
    copied = (tmp_path / "stream").read_text()
    assert copied.count("\n") < 201 and "after" in copied and " lines lost" in copied


def test_a_terminal_that_stops_background_writers_stops_no_service(
    tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    """`stty tostop`, and a service in a process group of its own on the operator's terminal."""
    master, slave = os.openpty()
    settings = termios.tcgetattr(slave)
    settings[3] |= termios.TOSTOP
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    shell = f"""
import fcntl, os, subprocess, sys, termios
os.setsid()
fcntl.ioctl({slave}, termios.TIOCSCTTY, 0)
sys.exit(subprocess.run(sys.argv[1:], process_group=0, pass_fds=({slave},)).returncode)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", shell, sys.executable, "-c", PROGRAM, str(tmp_path), "text", "log"],
        env={**ENVIRONMENT, "BULKHEAD_STDERR_FD": str(slave)},
        pass_fds=(slave,),
    )
    processes.append(process)
    os.close(slave)
    found: list[bytes] = []
    thread = read_on(master, found)
    assert process.wait(WAIT_SECONDS) == 0
    thread.join(WAIT_SECONDS)
    os.close(master)
    assert len(re.findall(rb"\] entry \d+\r\n", b"".join(found))) == 100
    assert (tmp_path / "small.log").read_text().count("entry") == 100


def test_a_stuck_stream_does_not_hold_up_the_end(tmp_path: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    process = start(tmp_path, "log", writer)
    processes.append(process)
    path = tmp_path / "small.log"
    eventually(lambda: path.exists() and "entry 99" in path.read_text(), "the log")
    logged_at = time.monotonic()
    assert process.wait(WAIT_SECONDS) == 0
    assert time.monotonic() - logged_at < 30.0  # `finish` would wait 60 s for a reader that may still come
    os.close(reader)
    os.close(writer)
