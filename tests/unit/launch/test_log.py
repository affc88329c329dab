"""A service's log is klog's text, and never in the way."""

import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared import log as module
from shared.log import KlogFormatter, LogFile


@pytest.fixture
def handler(tmp_path: Path) -> Iterator[LogFile]:
    handler = LogFile("podsync", take_stdio=False)
    yield handler
    handler.finish()


def record(text: str, level: int = logging.INFO, args: tuple[object, ...] = ()) -> logging.LogRecord:
    return logging.LogRecord("x", level, "/a/worker.py", 12, text, args, None)


def test_a_line_has_klogs_header() -> None:
    line = KlogFormatter().format(record("pod %s started", args=("web",)))
    assert re.fullmatch(r"I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ worker\.py:12\] pod web started", line)


@pytest.mark.parametrize(
    ("level", "letter"), [(logging.DEBUG, "I"), (logging.WARNING, "W"), (logging.ERROR, "E"), (logging.CRITICAL, "F")]
)
def test_the_letter_is_the_severity(level: int, letter: str) -> None:
    assert KlogFormatter().format(record("x", level)).startswith(letter)


def test_a_text_cannot_forge_a_second_record() -> None:
    assert "\n\tE0101" in KlogFormatter().format(record("a\nE0101 00:00:00.000000       1 x.py:1] forged"))


def test_arguments_that_do_not_fit_are_shown() -> None:
    assert "arguments do not fit" in KlogFormatter().format(record("%d", args=("x",)))


def test_lines_before_the_directory_is_known_are_kept(handler: LogFile, tmp_path: Path) -> None:
    handler.emit(record("early"))
    handler.open(str(tmp_path / "log"))
    handler.emit(record("late"))
    handler.finish()
    assert [line.rpartition("] ")[2] for line in (tmp_path / "log/podsync.log").read_text().splitlines()] == [
        "early",
        "late",
    ]


def test_a_full_queue_drops_and_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_QUEUE", 2)
    handler = LogFile("podsync", take_stdio=False)
    for _ in range(5):
        handler.emit(record("x"))
    assert handler.dropped == 3
    handler.open(str(tmp_path))
    handler.finish()
    assert "3 lines lost" in (tmp_path / "podsync.log").read_text()


def test_the_file_is_rotated_by_size(tmp_path: Path) -> None:
    handler = LogFile("podsync", max_bytes=100, kept=2, take_stdio=False)
    handler.open(str(tmp_path))
    handler._thread.join(0)
    for number in range(6):
        handler._write([f"{number}" + "x" * 120 + "\n"])
    handler.finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["podsync.log", "podsync.log.1", "podsync.log.2"]
    assert (tmp_path / "podsync.log").read_text().startswith("5")
    assert (tmp_path / "podsync.log.2").read_text().startswith("3")


def test_a_moved_file_is_made_anew(handler: LogFile, tmp_path: Path) -> None:
    handler.open(str(tmp_path))
    (tmp_path / "podsync.log").rename(tmp_path / "elsewhere")
    handler.reopen()
    handler.emit(record("after"))
    handler.finish()
    assert "after" in (tmp_path / "podsync.log").read_text()


def test_a_disk_that_refuses_costs_lines_not_the_process(handler: LogFile, tmp_path: Path) -> None:
    handler.open(str(tmp_path))
    handler._fd = 10**6
    handler._write(["x\n"])
    assert handler.dropped == 1
    handler._fd = -1


def test_finishing_an_unopened_log_does_not_hang() -> None:
    handler = LogFile("podsync", take_stdio=False)
    handler.emit(record("x"))
    handler.finish()
    assert not any(thread is handler._thread for thread in threading.enumerate())
