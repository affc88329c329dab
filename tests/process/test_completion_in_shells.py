"""zsh and fish themselves load the completion of `bulkhead` and `kubelet` and complete commands, options and flags."""

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.agents.agent import BIN
from tests.support.installed.lacking import require_command
from tests.support.waits.deadline import WAIT_SECONDS

CASES = [
    ("bulkhead desc", "bulkhead describe"),
    ("bulkhead status --wait", "bulkhead status --wait-ready"),
    ("bulkhead config che", "bulkhead config check"),
    ("bulkhead config check --image-credential-provider-c", "--image-credential-provider-config"),
    ("kubelet --image-credential-provider-c", "kubelet --image-credential-provider-config"),
    ("kubelet --node-i", "kubelet --node-ip"),
]


def environment(home: Path) -> dict[str, str]:
    path = f"{BIN}:{os.environ['PATH']}"
    return {"HOME": str(home), "PATH": path, "TERM": "vt100", "LC_ALL": "C.UTF-8", "COLUMNS": "200"}


def scripts(shell: str, directory: Path, name: str) -> None:
    """Write the scripts of both programs into a directory; `name` of a file, with a place for the program."""
    directory.mkdir(parents=True)
    for program in ("bulkhead", "kubelet"):
        words = [str(BIN / "bulkhead"), "completion", shell, program]
        text = subprocess.run(words, capture_output=True, check=True, timeout=WAIT_SECONDS).stdout
        (directory / name.format(program)).write_bytes(text)


class Terminal:
    """What a shell in a terminal prints."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.shown = ""

    def wait_for(self, text: str) -> None:
        """Read until the text was printed."""
        deadline = time.monotonic() + WAIT_SECONDS
        while text not in self.shown:
            ready, _, _ = select.select([self._descriptor], [], [], max(deadline - time.monotonic(), 0.0))
            assert ready, f"{text!r} is not in {self.shown!r}"
            self.shown += os.read(self._descriptor, 4096).decode(errors="replace")

    def send(self, text: str) -> None:
        """Type the text."""
        self.shown = ""
        os.write(self._descriptor, text.encode())


@contextmanager
def zsh(home: Path) -> Iterator[Terminal]:
    """An interactive zsh without any configuration but the scripts in its fpath."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["zsh", "-f", "-i"], stdin=theirs, stdout=theirs, stderr=theirs, env=environment(home), cwd=home,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    terminal = Terminal(ours)
    try:
        terminal.send(f"fpath=({home}/functions $fpath); autoload -U compinit; compinit -u -D; PS1='rea''dy> '\n")
        terminal.wait_for("ready> ")
        yield terminal
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.mark.parametrize("sourced", [False, True])
def test_zsh_completes_again_and_again(tmp_path: Path, sourced: bool) -> None:
    require_command("zsh")
    scripts("zsh", tmp_path / ("sourced" if sourced else "functions"), "_{}")
    with zsh(tmp_path) as terminal:
        if sourced:
            terminal.send("source sourced/_bulkhead; source sourced/_kubelet; PS1='do''ne> '\n")
            terminal.wait_for("done> ")
            terminal.send("PS1='rea''dy> '\n")
            terminal.wait_for("ready> ")
        for typed, completed in CASES:
            terminal.send(f"{typed}\t")
            terminal.wait_for(completed.removeprefix(typed))
            terminal.send("\x15\n")  # remove the line
            terminal.wait_for("ready> ")


def test_zsh_lists_commands_with_their_help(tmp_path: Path) -> None:
    require_command("zsh")
    scripts("zsh", tmp_path / "functions", "_{}")
    with zsh(tmp_path) as terminal:
        terminal.send("bulkhead s\t")
        terminal.wait_for("support-bundle")
        terminal.wait_for("status")


@pytest.mark.parametrize(("typed", "completed"), CASES)
def test_fish_completes(tmp_path: Path, typed: str, completed: str) -> None:
    require_command("fish")
    directory = tmp_path / ".config/fish/completions"
    scripts("fish", directory, "{}.fish")
    words = ["fish", "-c", f'complete -C "{typed}"']
    answer = subprocess.run(
        words, env=environment(tmp_path), capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )
    offered = [line.partition("\t")[0] for line in answer.stdout.splitlines()]
    assert completed.rpartition(" ")[2] in offered, answer
    assert answer.stderr == ""
