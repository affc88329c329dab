"""Every command in a pipe without UTF-8, in a pipe that is closed, and in a terminal of 40 columns without colours."""

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from services.cli.command import main
from shared.story.lines import Kind
from tests.service.cli.stage import COMMAND, Stage
from tests.support.agents.preloaded import Preloaded, run_preloaded
from tests.support.waits.deadline import WAIT_SECONDS
from tools.home import CHECKOUT

BULKHEAD = str(Path(sys.executable).with_name("bulkhead"))
COLUMNS = 40
RUN_DIR = "--run-dir"
# The arguments of a command; one that is not named here is run with --help: it would change the agent or the machine.
EXAMPLES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("version",): (),
    ("explain",): ("--root-dir", "ROOT"),
    ("config", "check"): ("--node-ip=192.0.2.1",),
    ("config", "show"): ("--node-ip=192.0.2.1",),
    ("config", "diff"): ("FILE", "FILE", "--node-ip=192.0.2.1"),
    ("config", "flags"): (),
    ("completion",): ("zsh", "kubelet"),
    ("status",): ("-o", "wide", RUN_DIR, "RUN"),
    ("describe",): ("web-0", RUN_DIR, "RUN"),
    ("cpus",): (RUN_DIR, "RUN"),
    ("devices",): (RUN_DIR, "RUN"),
    ("events",): (RUN_DIR, "RUN"),
    ("images",): (RUN_DIR, "RUN"),
    ("certs",): (RUN_DIR, "RUN"),
    ("logs",): ("--service", "podsync", RUN_DIR, "RUN"),
    ("exec",): (RUN_DIR, "RUN", "web-0", "--", "true"),
    ("pods", "list"): (RUN_DIR, "RUN"),
    ("pods", "apply"): ("-f", "FILE", RUN_DIR, "RUN"),
    ("pods", "delete"): ("nothing", RUN_DIR, "RUN"),
    ("what-if",): ("FILE", RUN_DIR, "RUN"),
}
TABLES = {("status",), ("pods", "list"), ("explain",)}  # commands whose lines fit into the terminal
NO_UTF8 = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


def commands(group: click.Group, *words: str) -> list[tuple[str, ...]]:
    """The words of every command below the group."""
    found: list[tuple[str, ...]] = []
    for name, command in group.commands.items():
        found += commands(command, *words, name) if isinstance(command, click.Group) else [(*words, name)]
    return found


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("agent")
    stage = Stage(directory, 30)
    lines = [f"I0102 03:04:05.000000    4711 podsync/pods.py:7] größer {'x' * 200}\n"] * 2000  # more than a pipe holds
    (stage.log_dir / "podsync.log").write_text("".join(lines), encoding="utf-8")
    stories = directory / "kubelet/bulkhead/podsync/stories"
    stories.mkdir(parents=True)
    story = [
        {"at": 1.0, "what": Kind.POD, "uid": "u", "name": "web", "namespace": "shop"},
        {"at": 1.0, "what": Kind.EVENT, "reason": "Größe", "message": "m" * 300},
    ]
    (stories / "u.jsonl").write_text("".join(json.dumps(line) + "\n" for line in story))
    (directory / "config.yaml").write_text("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
    yield stage
    stage.stop()


def words_and_arguments(stage: Stage, words: tuple[str, ...]) -> list[str]:
    """The command's words with its arguments."""
    directory = stage.run_dir.parent
    places = {"RUN": str(stage.run_dir), "ROOT": str(directory / "kubelet"), "FILE": str(directory / "config.yaml")}
    arguments = [places.get(one, one) for one in EXAMPLES.get(words, ("--help",))]
    return [*words, *arguments]


@pytest.mark.long
@pytest.mark.share(8, test=3)
@pytest.mark.parametrize("words", commands(main), ids=" ".join)
def test_a_pipe_without_utf8_gets_text_without_colours(stage: Stage, words: tuple[str, ...]) -> None:
    # The installed program: an interpreter chooses its encoding when it starts.
    command = [BULKHEAD, *words_and_arguments(stage, words)]
    answer = subprocess.run(
        command, capture_output=True, check=False, timeout=WAIT_SECONDS, env={**os.environ, **NO_UTF8}
    )
    assert b"Traceback" not in answer.stderr, answer.stderr
    assert b"\x1b" not in answer.stdout + answer.stderr
    assert (answer.stdout + answer.stderr).isascii()
    assert answer.returncode in (0, 1, 2, 3), answer


@pytest.mark.share(4)
@pytest.mark.parametrize("words", commands(main), ids=" ".join)
def test_a_pipe_that_is_closed_ends_the_command_without_a_message(stage: Stage, words: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        answer = run_preloaded(COMMAND, words_and_arguments(stage, words), output=writer)
    finally:
        os.close(writer)
    assert "Traceback" not in answer.stderr and "BrokenPipe" not in answer.stderr, answer.stderr
    assert answer.returncode in (0, 1, 2, 3), answer


@pytest.mark.share(4)
@pytest.mark.parametrize("output", ["closed pipe", "closed terminal", "full disk", "none"])
def test_a_command_that_must_not_end_half_way_goes_on_without_output(output: str) -> None:
    program = "from services.cli.terminal import output; import os; "
    program += "[write(7 * 'line') for write in (output.write_if_possible, output.write_error_if_possible) * 3]; "
    program += "os.write(int(os.environ['DONE']), b'done')"
    done, report = os.pipe()
    reader, writer = pty.openpty() if output == "closed terminal" else os.pipe()
    os.close(reader)
    if output == "full disk":
        os.dup2(os.open("/dev/full", os.O_WRONLY), writer)
    command = ["sh", "-c", 'exec "$0" "$@" >&- 2>&-'] if output == "none" else []
    try:
        answer = subprocess.run(
            [*command, sys.executable, "-c", program],
            stdout=writer, stderr=writer, check=False, timeout=WAIT_SECONDS, pass_fds=(report,),
            env={**os.environ, "DONE": str(report)},
        )  # fmt: skip
    finally:
        os.close(writer)
        os.close(report)
    assert (answer.returncode, os.read(done, 10)) == (0, b"done")
    os.close(done)


@pytest.mark.share(8, test=2)
@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
@pytest.mark.parametrize("words", [("status",), ("pods", "list"), ("explain",), ("exec",)], ids=" ".join)
def test_a_command_without_standard_streams_ends_as_with_them(
    stage: Stage, words: tuple[str, ...], closed: str
) -> None:
    arguments = words_and_arguments(stage, words)
    # Not the installed program: where the machine is busy, an answer may take longer than the second that it waits.
    command = ["sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, "-m", COMMAND, *arguments]
    answer = subprocess.run(command, cwd=CHECKOUT, capture_output=True, check=False, timeout=4 * WAIT_SECONDS)
    assert b"Traceback" not in answer.stderr, answer.stderr
    open_streams = run_preloaded(COMMAND, arguments)
    assert answer.returncode == open_streams.returncode
    assert bool(answer.stdout) == bool(open_streams.stdout) if "1" not in closed else not answer.stdout


@pytest.mark.share(4)
@pytest.mark.parametrize("words", commands(main), ids=" ".join)
def test_a_narrow_terminal_without_colours(stage: Stage, words: tuple[str, ...]) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    arguments = words_and_arguments(stage, words)
    process = Preloaded(COMMAND, arguments, (theirs, theirs, theirs), {**environment, "NO_COLOR": "1"})
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + WAIT_SECONDS
    try:
        while select.select([ours], [], [], max(deadline - time.monotonic(), 0.0))[0]:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # EIO: the other side is closed
                break
        assert process.wait(WAIT_SECONDS) in (0, 1, 2, 3), shown
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    text = shown.decode()
    assert "Traceback" not in text and "\x1b" not in text, text
    if words in TABLES:
        assert [line for line in text.splitlines() if len(line) > COLUMNS] == []


def test_the_examples_are_of_commands_that_exist() -> None:
    assert EXAMPLES.keys() <= set(commands(main))
