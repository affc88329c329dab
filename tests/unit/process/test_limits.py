"""Limits we set for ourselves; what we may not do is a warning."""

import errno
import logging
import os
import resource
from pathlib import Path

import pytest

from shared.process import limits
from shared.process.limits import protect_process, set_oom_score


def present() -> str:
    return Path("/proc/self/oom_score_adj").read_text().strip()


def failing(monkeypatch: pytest.MonkeyPatch, number: int, times: int) -> list[str]:
    written: list[str] = []

    def write_text(path: Path, text: str, encoding: str) -> int:
        written.append(text)
        if len(written) <= times:
            raise OSError(number, os.strerror(number))
        return len(text)

    monkeypatch.setattr(Path, "write_text", write_text)
    monkeypatch.setattr(limits, "_RETRY_SECONDS", 0.0)
    return written


def test_a_score_that_is_set_already_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    written = failing(monkeypatch, errno.EPERM, 1)
    assert set_oom_score(int(present())) == ""
    assert not written


@pytest.mark.parametrize(
    ("number", "times", "tries", "problem"),
    [
        (errno.EPERM, 9, 1, "Operation not permitted (needs CAP_SYS_RESOURCE)"),
        (errno.EACCES, 9, 1, "Permission denied (needs CAP_SYS_RESOURCE)"),
        (errno.EIO, 1, 2, ""),
        (errno.EIO, 9, 2, "Input/output error"),
    ],
)
def test_a_second_try_is_made_where_it_may_help(
    monkeypatch: pytest.MonkeyPatch, number: int, times: int, tries: int, problem: str
) -> None:
    written = failing(monkeypatch, number, times)
    assert set_oom_score(int(present()) - 1) == problem
    assert len(written) == tries


def test_a_process_that_has_ended_is_a_reason_and_no_error() -> None:
    assert set_oom_score(-999, 2**22 + 1) == "No such file or directory"


def test_limits_that_are_not_allowed_are_warnings_with_what_is_used_instead(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[tuple[int, int]] = []

    def setrlimit(_: int, limit: tuple[int, int]) -> None:
        asked.append(limit)
        if limit[1] > 4096:
            raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    failing(monkeypatch, errno.EPERM, 9)
    with caplog.at_level(logging.WARNING):
        protect_process(int(present()) - 1, 1_000_000)
    assert asked == [(1_000_000, 1_000_000), (4096, 4096)]
    assert [record.getMessage().partition(" err=")[0] for record in caplog.records] == [
        '"Failed to set oom_score_adj"',
        '"Failed to set rlimit on max file handles"',
    ]
    assert "using=4096" in caplog.text
