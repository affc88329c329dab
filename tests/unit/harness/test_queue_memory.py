"""What a run of tests leaves in memory is removed at the latest by the next one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.queue import memory
from tests.queue.memory import begin_in

CHECKOUT = Path(__file__).resolve().parents[3]
_KILLED = """
import os, pathlib, signal, sys
from tests.queue.memory import begin_in
place = begin_in(pathlib.Path(sys.argv[1]))
(place / "1" / "test_a0").mkdir(parents=True)
(place / "1" / "test_a0" / "file").write_text("left")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_removes_what_a_killed_one_left_and_nothing_of_one_that_runs(tmp_path: Path) -> None:
    running = begin_in(tmp_path)
    subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], cwd=CHECKOUT, check=False)
    left = [each for each in tmp_path.iterdir() if each != running]
    assert [(each / "1/test_a0/file").read_text() for each in left] == ["left"]
    (tmp_path / "of-another-program").touch()
    new = begin_in(tmp_path)
    assert {*tmp_path.iterdir()} == {running, new, tmp_path / "of-another-program"}


def test_memory_that_is_missing_or_small_or_not_writable_takes_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert begin_in(tmp_path / "missing") is None
    monkeypatch.setattr(memory, "MIN_FREE_BYTES", 1 << 60)
    assert begin_in(tmp_path) is None
    monkeypatch.undo()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert begin_in(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
