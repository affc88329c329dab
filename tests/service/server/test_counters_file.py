"""The counters of /metrics on disk: what a restarted server reads back, and what it makes of a file it cannot use."""

import logging
from pathlib import Path

import pytest

from bus.messages.metrics import MetricFamily
from services.server.adapters import counters_file
from services.server.adapters.counters_file import CountersFile
from services.server.core.metrics.gathered_metrics import Counters, ProcessCounters
from shared.metrics.family import Kind

FAMILY = MetricFamily(
    name="s", kind=Kind.HISTOGRAM, help="S.", labels=("to", "by"), buckets=(0.1,), series=((("a", "ü"), (1, 2, 0.5)),)
)
COUNTERS = Counters(since=5.5, processes={"pleg": ProcessCounters(incarnation="1", newest=(FAMILY,), ended=(FAMILY,))})


def test_a_server_of_the_same_generation_reads_what_was_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert CountersFile(tmp_path, "boot/1/2").read() is None
    CountersFile(tmp_path, "boot/1/2").write(COUNTERS)
    assert CountersFile(tmp_path, "boot/1/2").read() == COUNTERS
    for other in ("boot/1/2/2", "boot/1/3", ""):
        assert CountersFile(tmp_path, other).read() is None
    assert caplog.records == []


def test_a_write_that_was_cut_short_costs_nothing(tmp_path: Path) -> None:
    CountersFile(tmp_path, "1").write(COUNTERS)
    left = tmp_path / ".metrics.json.123.tmp"
    left.write_bytes(b"{")
    assert CountersFile(tmp_path, "1").read() == COUNTERS
    assert not left.exists()


def test_a_damaged_or_large_file_is_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, path = CountersFile(tmp_path, "1"), tmp_path / "metrics.json"
    file.write(COUNTERS)
    complete = path.read_bytes()
    for damaged in (
        b"",
        complete[:-1],
        complete[: len(complete) // 2],
        b"[" * 100_000,
        b"\xff",
        b'{"generation": "1"}',
    ):
        caplog.clear()
        path.write_bytes(damaged)
        assert file.read() is None
        [record] = caplog.records
        assert record.levelno == logging.WARNING and str(path) in record.getMessage() and not record.exc_info
    monkeypatch.setattr(counters_file, "MAX_FILE_BYTES", len(complete) - 1)
    path.write_bytes(complete)
    assert file.read() is None
    path.unlink()
    file.write(COUNTERS)
    assert not path.exists()


def test_a_failure_to_write_is_logged_once_until_it_works_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_dir = tmp_path / "run"
    file = CountersFile(run_dir, "1")
    for _ in range(3):
        file.write(COUNTERS)
    assert len(caplog.records) == 1
    run_dir.mkdir()
    file.write(COUNTERS)
    assert file.read() == COUNTERS
    assert len(caplog.records) == 1
