"""Termination messages: the file, else the log; never a link, a pipe or more than the limit."""

import os
from pathlib import Path

import pytest

from shared.cri.termination import last_log_lines, read_termination_message

STAMP = "2026-01-01T00:00:00.000000000Z"


def message(
    path: Path | None, *, policy: str = "File", code: int = 1, reason: str = "Error", log: Path | str = "/nonexistent"
) -> str:
    annotations = {
        "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
        "io.kubernetes.container.terminationMessagePolicy": policy,
    }
    mounts = [("/etc/hosts", "/etc/hosts"), *([("/dev/termination-log", str(path))] if path else [])]
    return read_termination_message(annotations, mounts, exit_code=code, reason=reason, log_path=str(log))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "message"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    log = tmp_path / "0.log"
    log.write_text(f"{STAMP} stdout F first\n{STAMP} stderr F last\n")
    return log


def test_it_is_the_content_of_the_mounted_file(file: Path) -> None:
    file.write_text("bye")
    assert message(file) == "bye"


def test_only_the_last_4096_bytes_count(file: Path) -> None:
    file.write_text("a" * 5000 + "z")
    assert message(file) == "a" * 4095 + "z"


def test_bytes_that_are_no_text_are_replaced(file: Path) -> None:
    file.write_bytes(b"\xff!")
    assert message(file) == "\ufffd!"


def test_no_file_and_no_mount_is_no_message(file: Path) -> None:
    assert message(file) == ""
    assert message(None) == ""


def test_a_directory_a_link_or_a_pipe_is_an_error_in_the_text(file: Path, tmp_path: Path) -> None:
    assert message(tmp_path) == f"Error on reading termination log {tmp_path}: open {tmp_path}: is not a regular file"
    os.mkfifo(file)
    assert message(file).endswith("is not a regular file")
    link = tmp_path / "link"
    link.symlink_to("/etc/shadow")
    assert message(link).startswith(f"Error on reading termination log {link}: ")


def test_the_log_stands_in_for_an_empty_file_of_a_failure(file: Path, log: Path) -> None:
    file.touch()
    assert message(file, policy="FallbackToLogsOnError", log=log) == "first\nlast\n"
    file.write_text("own words")
    assert message(file, policy="FallbackToLogsOnError", log=log) == "own words"


def test_the_log_does_not_stand_in_for_a_success_or_where_nothing_ran(file: Path, log: Path) -> None:
    assert message(file, policy="FallbackToLogsOnError", log=log, code=0) == ""
    assert message(file, policy="FallbackToLogsOnError", log=log, reason="ContainerCannotRun") == ""
    assert message(file, log=log) == ""


def test_a_log_that_cannot_be_read_is_an_error_in_the_text(file: Path) -> None:
    text = "Error on reading termination message from logs: "
    assert message(file, policy="FallbackToLogsOnError", log="/nonexistent/0.log") == (
        f'{text}failed to try resolving symlinks in path "/nonexistent/0.log": lstat /nonexistent: '
        "no such file or directory"
    )
    assert message(file, policy="FallbackToLogsOnError", log="/dev") == (
        f'{text}failed to open log file "/dev": open /dev: is not a regular file'
    )


def test_80_lines_and_2048_bytes_of_a_log_count_and_pieces_are_joined() -> None:
    lines = "".join(f"{STAMP} stdout F {n}\n" for n in range(100)).encode()
    assert last_log_lines(lines).split()[0] == b"20"
    long = f"{STAMP} stdout F {'x' * 3000}\n".encode()
    assert last_log_lines(long) == b"x" * 2047 + b"\n"
    pieces = f"{STAMP} stdout P one \n{STAMP} stdout F two\nnot a log line\n{STAMP} stdout F unended".encode()
    assert last_log_lines(pieces) == b"one two\nunended"


def test_a_file_of_any_size_is_read_at_its_end_only(file: Path) -> None:
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)
        sparse.seek(0, os.SEEK_END)
        sparse.write(b"end")
    assert message(file) == "\0" * 4093 + "end"


def test_a_device_is_not_read(tmp_path: Path) -> None:
    assert message(Path("/dev/zero")) == (
        "Error on reading termination log /dev/zero: open /dev/zero: is not a regular file"
    )
