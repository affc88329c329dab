"""What cannot be read from the static pod path is logged once, and never ends the look."""

import logging
import os
from pathlib import Path

import pytest

from services.sources.adapters.manifest_files import ManifestFiles


def test_a_name_that_is_not_utf8_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "pod.yaml").write_text("a")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.yaml")).write_text("b")
    files = ManifestFiles(str(tmp_path))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert list(files.look()) == [f"{tmp_path}/pod.yaml"]
    assert [record.getMessage().count("not named in UTF-8") for record in caplog.records] == [1]


def test_a_name_that_went_and_came_back_is_logged_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files, directory = ManifestFiles(str(tmp_path)), tmp_path / "d"
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            directory.mkdir()
            files.look()
            directory.rmdir()
            files.look()
    assert len(caplog.records) == 2


def test_a_path_with_a_nul_byte_is_unreadable() -> None:
    [file] = ManifestFiles("/a\0b").look().values()
    assert file.unreadable == "cannot be read: its path holds a NUL byte"
