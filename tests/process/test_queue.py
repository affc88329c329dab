"""The queue of `make test`: what it prints and returns when a test is red, and when a process hangs or is killed."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.queue.family import GRACE_SECONDS, MARK, OF_A_TEST
from tests.queue.planning import Item
from tests.queue.worker import Worker
from tests.support.waits.deadline import WAIT_SECONDS
from tools.leftovers import alive, wait_until

CHECKOUT = Path(__file__).resolve().parents[2]

_GREEN = "def test_green():\n    pass\n"
_RED = "def test_red():\n    assert 1 == 2, 'the reason'\n"
_SKIPPED = "import pytest\ndef test_skipped():\n    pytest.skip('needs another disk')\n"
_RECORDS = "def test_records(record_property):\n    record_property('seconds', 2.5)\n"
_COLLECTED_NEVER = "import no_such_module_anywhere\n"
_KILLED = (
    "import os, signal\ndef test_before():\n    pass\ndef test_killed():\n    os.kill(os.getpid(), signal.SIGKILL)\n"
)
_LEAVES = "import os\ndef test_leaves():\n    os._exit(0)\n"
# Its own timeout cannot end it, and it has started a process in a session of its own: both before its seconds begin.
_HANGS = """
import pathlib, signal, subprocess, time, pytest
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
pathlib.Path(PLACE, "child").write_text(str(child.pid))
@pytest.mark.timeout(1)
def test_hangs():
    pathlib.Path(PLACE, "ignores").touch()
    time.sleep(1000)
"""
_WAITS = """
import pathlib, subprocess, time, pytest
@pytest.fixture
def taken_down():
    yield
    pathlib.Path(PLACE, "taken_down").touch()
def test_waits(taken_down):
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    pathlib.Path(PLACE, "child").write_text(str(child.pid))
    pathlib.Path(PLACE, "begun").touch()
    time.sleep(1000)
"""
# What it starts has started a process that inherits nothing, as a shim starts a container.
_STARTS = """
import os, pathlib, subprocess, time
def test_starts():
    script = "env -i sleep 1000 & echo $! > {0}/container.new; mv {0}/container.new {0}/container; wait"
    shim = subprocess.Popen(["sh", "-c", script.format(PLACE)], start_new_session=True)
    pathlib.Path(PLACE, "shim").write_text(str(shim.pid))
    pathlib.Path(PLACE, "pytest").write_text(str(os.getpid()))
    pathlib.Path(PLACE, "begun").touch()
    time.sleep(1000)
"""


def write(directory: Path, **files: str) -> None:
    for name, text in files.items():
        (directory / f"test_{name}.py").write_text(text.replace("PLACE", repr(str(directory))))


def start(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.queue", str(directory), f"--build={directory}/build", *arguments]
    return subprocess.Popen(command, cwd=CHECKOUT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def run(directory: Path, *arguments: str) -> tuple[int, str]:
    queue = start(directory, *arguments)
    output, _ = queue.communicate(timeout=4 * WAIT_SECONDS)
    return queue.returncode, output


def failed(output: str) -> list[str]:
    """The names under the last heading "failed:", without the directories."""
    lines = output.rpartition("\nfailed:\n")[2].split("\n\n")[0].splitlines()
    return [line.strip().rpartition("/")[2] for line in lines]


def test_all_green(tmp_path: Path) -> None:
    write(tmp_path, green=_GREEN, more=_GREEN)
    code, output = run(tmp_path)
    assert code == 0, output
    assert output.endswith("\n2 passed, 0 failed\n")
    assert (tmp_path / "build" / "001.xml").exists()


def test_whatever_fails_is_printed_named_at_the_end_and_counted(tmp_path: Path) -> None:
    write(tmp_path, green=_GREEN, red=_RED, imports=_COLLECTED_NEVER)
    code, output = run(tmp_path)
    assert code == 1
    assert "the reason" in output
    assert "no_such_module_anywhere" in output
    assert failed(output) == ["test_imports.py", "test_red.py::test_red"]
    assert output.endswith("\n1 passed, 2 failed\n")


def test_the_end_says_why_tests_were_skipped(tmp_path: Path) -> None:
    write(tmp_path, green=_GREEN, first=_SKIPPED, second=_SKIPPED)
    code, output = run(tmp_path)
    assert code == 0, output
    assert "\nskipped:\n  2: needs another disk\n" in output, output


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (_KILLED, "killed by SIGKILL in {}::test_killed; 1 of its 2 tests have no result"),
        (_LEAVES, "ended with exit code 0 in {}::test_leaves; 1 of its 1 tests have no result"),
    ],
    ids=["killed", "leaves"],
)
def test_a_process_that_ends_early_is_a_failure(tmp_path: Path, text: str, shown: str) -> None:
    write(tmp_path, early=text)
    code, output = run(tmp_path)
    assert code == 1
    assert f"test_early.py: {shown.format(tmp_path / 'test_early.py')}\n" in output.rpartition("\nfailed:\n")[2], output


def test_a_process_that_hangs_is_a_failure_with_its_stack_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    write(tmp_path, hangs=_HANGS)
    code, output = run(tmp_path, f"--grace={WAIT_SECONDS / 20:g}")
    assert code == 1
    assert "hung in" in failed(output)[0] + output.rpartition("\nfailed:\n")[2]
    assert "in test_hangs" in output  # of the stack
    assert not alive(int((tmp_path / "child").read_text()))


def test_a_failure_is_printed_while_other_tests_run(tmp_path: Path) -> None:
    write(tmp_path, a_red=_RED, b_waits=_WAITS)
    queue = start(tmp_path)
    try:
        assert queue.stdout is not None
        for line in queue.stdout:
            if "the reason" in line:
                break
        assert queue.poll() is None
        assert wait_until((tmp_path / "begun").exists, WAIT_SECONDS)
    finally:
        queue.send_signal(signal.SIGINT)
        queue.communicate(timeout=2 * WAIT_SECONDS)


def test_ctrl_c_takes_down_what_runs_and_ends_all_that_was_started(tmp_path: Path) -> None:
    write(tmp_path, waits=_WAITS)
    queue = start(tmp_path)
    assert wait_until((tmp_path / "begun").exists, 2 * WAIT_SECONDS)
    queue.send_signal(signal.SIGINT)
    output, _ = queue.communicate(timeout=2 * WAIT_SECONDS)
    assert queue.returncode == 130, output
    assert (tmp_path / "taken_down").exists()
    assert not alive(int((tmp_path / "child").read_text()))


async def test_a_ctrl_c_while_a_process_begins_ends_it_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, waits=_WAITS)
    monkeypatch.chdir(CHECKOUT)
    item = Item("other", (str(tmp_path / "test_waits.py"),), 1.0)
    worker = Worker(item, 1, directory=tmp_path, scratch=tmp_path / "scratch", grace=GRACE_SECONDS, arguments=[])
    running = asyncio.create_task(worker.run(lambda _: None))
    await asyncio.sleep(0)  # the worker does not have its process yet
    worker.interrupt()
    assert (await asyncio.wait_for(running, WAIT_SECONDS)).failure == ""


def test_a_second_ctrl_c_kills_what_does_not_end(tmp_path: Path) -> None:
    write(tmp_path, hangs=_HANGS.replace("SIGALRM", "SIGINT").replace("timeout(1)", "timeout(200)"))
    queue = start(tmp_path)
    assert wait_until((tmp_path / "ignores").exists, 2 * WAIT_SECONDS)
    queue.send_signal(signal.SIGINT)
    assert queue.stdout is not None
    while "interrupted" not in queue.stdout.readline():
        pass
    queue.send_signal(signal.SIGINT)
    queue.communicate(timeout=WAIT_SECONDS)
    assert queue.returncode == 130
    assert not alive(int((tmp_path / "child").read_text()))


@pytest.mark.parametrize("by", ["queue", "pytest"])
def test_what_a_killed_run_has_started_ends_with_it(tmp_path: Path, by: str) -> None:
    write(tmp_path, starts=_STARTS)
    if by == "queue":
        killed = start(tmp_path)
    else:
        command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "-p", "no:cacheprovider", str(tmp_path)]
        environment = {name: value for name, value in os.environ.items() if name not in (OF_A_TEST, MARK)}
        killed = subprocess.Popen(command, cwd=CHECKOUT, text=True, stdout=subprocess.PIPE, env=environment)
    assert wait_until(lambda: all((tmp_path / name).exists() for name in ("begun", "container")), WAIT_SECONDS)
    started = [int((tmp_path / name).read_text()) for name in ("shim", "container")]
    assert all(alive(pid) for pid in started)
    killed.kill()
    if by == "queue":
        os.kill(int((tmp_path / "pytest").read_text()), signal.SIGKILL)
    assert wait_until(lambda: not any(alive(pid) for pid in started), WAIT_SECONDS)
    killed.communicate(timeout=WAIT_SECONDS)  # to the end of its output: nothing that is left keeps it open


def test_marked_tests_run_once_more_with_a_variable_of_the_environment(tmp_path: Path) -> None:
    text = "import os, pytest\n@pytest.mark.long\ndef test_once_more():\n    assert 'NEWER' not in os.environ\n"
    write(tmp_path, green=_GREEN, marked=text + _GREEN)
    code, output = run(tmp_path, "--also=NEWER=1:long")
    assert code == 1
    assert failed(output) == ["test_marked.py::test_once_more (NEWER=1)"]
    assert output.endswith("\n3 passed, 1 failed\n")


def test_what_a_test_records_is_in_its_junit_file(tmp_path: Path) -> None:
    """As the checks in a machine do (tests/machine/seconds.py), also in `make night`."""
    write(tmp_path, records=_RECORDS)
    code, output = run(tmp_path)
    assert code == 0, output
    [file] = (tmp_path / "build").glob("*.xml")
    assert '<property name="seconds" value="2.5"' in file.read_text()


def test_a_path_that_does_not_exist_is_a_clear_line(tmp_path: Path) -> None:
    code, output = run(tmp_path / "nowhere")
    assert (code, output) == (2, f"tests.queue: {tmp_path}/nowhere: no such file or directory\n")
