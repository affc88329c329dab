"""The man pages as `man` shows them, and as groff reads them: without a warning."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.installed.lacking import require_command
from tests.support.waits.deadline import WAIT_SECONDS
from tools.man_pages import write_pages

ENVIRONMENT = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "MANWIDTH": "80"}


@pytest.fixture(autouse=True)
def required() -> None:
    require_command("man")
    require_command("groff")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)


def warnings(file: Path) -> str:
    # Not man's --warnings, which drops them where standard error is no terminal.
    return run("groff", "-man", "-ww", "-z", "-Tutf8", str(file)).stderr


def test_groff_reads_every_page_without_a_warning(tmp_path: Path) -> None:
    assert {file.name: warnings(file) for file in write_pages(tmp_path) if warnings(file)} == {}


def test_an_unknown_request_is_a_warning(tmp_path: Path) -> None:
    page = tmp_path / "broken.1"
    page.write_text(".TH X 1\n.SH NAME\nx \\- y\n.foo bar\n")
    assert "foo" in warnings(page)


def test_man_shows_options_and_exit_codes(tmp_path: Path) -> None:
    write_pages(tmp_path)
    done = run("man", "-l", str(tmp_path / "bulkhead-exec.1"))
    assert done.returncode == 0 and "-n, --namespace NAME" in done.stdout
    assert "EXIT STATUS" in done.stdout and "wrong usage" in done.stdout and "bulkhead(1)" in done.stdout
