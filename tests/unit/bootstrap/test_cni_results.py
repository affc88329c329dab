"""Of the files of libcni, those are removed that an earlier boot has left without JSON."""

import json
import logging
import os
from pathlib import Path

import pytest

from services.bootstrap.adapters.cni_results import remove_damaged

BOOTED = 1_000_000.0  # seconds since the epoch
RESULT = json.dumps({"kind": "cniCacheV1", "containerId": "c", "networkName": "bulkhead0"}).encode()


def write(file: Path, content: bytes, seconds_before_the_boot: float = 10.0) -> Path:
    file.write_bytes(content)
    os.utime(file, (BOOTED - seconds_before_the_boot,) * 2)
    return file


@pytest.mark.parametrize("content", [b"", bytes(4096), RESULT[:40], b"[" * 100_000, b"\xff"])
def test_a_file_without_json_is_removed(tmp_path: Path, content: bytes) -> None:
    damaged, good = write(tmp_path / "bulkhead0-a-eth0", content), write(tmp_path / "bulkhead0-b-eth0", RESULT)
    assert remove_damaged(BOOTED, tmp_path) == ["bulkhead0-a-eth0"]
    assert not damaged.exists() and good.read_bytes() == RESULT
    assert remove_damaged(BOOTED, tmp_path) == []


@pytest.mark.parametrize("seconds", [0.0, -5.0])
def test_a_file_that_may_be_being_written_stays(tmp_path: Path, seconds: float) -> None:
    file = write(tmp_path / "bulkhead0-a-eth0", b"", seconds)
    assert remove_damaged(BOOTED, tmp_path) == []
    assert file.exists()


def test_without_the_time_of_the_boot_nothing_is_removed(tmp_path: Path) -> None:
    write(tmp_path / "bulkhead0-a-eth0", b"")
    assert remove_damaged(0.0, tmp_path) == []


def test_what_is_no_file_of_libcni_stays(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(write(tmp_path.parent / "elsewhere", b""))
    (tmp_path / "directory").mkdir()
    write(tmp_path / "large", bytes(2**20 + 1))
    assert remove_damaged(BOOTED, tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 3


def test_without_the_directory_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert remove_damaged(BOOTED, tmp_path / "absent") == []
    assert remove_damaged(BOOTED, write(tmp_path / "file", b"")) == []


def test_a_file_that_cannot_be_removed_is_logged_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, b"")
    unlink = Path.unlink

    def refuse(file: Path, missing_ok: bool = False) -> None:
        if file.name == "a":
            raise PermissionError(1, "Operation not permitted")
        unlink(file, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    with caplog.at_level(logging.WARNING):
        assert remove_damaged(BOOTED, tmp_path) == ["b"]
    assert f"{tmp_path / 'a'}: cannot be looked at, or removed: Operation not permitted" in caplog.text


def test_a_directory_that_cannot_be_read_is_logged_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A power cut may damage the filesystem as well; the keeper would end, and containerd would not start."""
    directory = tmp_path / "results"
    directory.symlink_to(directory)
    with caplog.at_level(logging.WARNING):
        assert remove_damaged(BOOTED, directory) == []
    assert f"{directory}: cannot be read: Too many levels of symbolic links" in caplog.text
