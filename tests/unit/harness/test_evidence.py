"""A failed test shows its agents: the end of their logs, the stories of their pods, a copy of their files."""

import json
import tempfile
from pathlib import Path

import pytest

from shared.story.files import directory_of
from tests.support.agents import evidence


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    home = tmp_path / "bkhome"
    (home / "log").mkdir(parents=True)
    (home / "log" / "podsync.log").write_text("".join(f"line {n}\n" for n in range(100)))
    stories = directory_of(str(home / "kubelet"))
    stories.mkdir(parents=True)
    head = {"what": "pod", "name": "web", "namespace": "default", "source": "api", "at": 1.0}
    (stories / "u-1.jsonl").write_text(json.dumps(head) + "\n")
    return home


def test_logs_and_stories_are_shown_and_the_files_are_kept(home: Path) -> None:
    (home / "containerd" / "state").mkdir(parents=True)
    (home / "containerd" / "state" / "db").write_text("the runtime's")
    (home / "socket").symlink_to("nowhere")
    shown = evidence.show(home, "tests/e2e/test_x.py::test_it[a/b]")
    assert "---- podsync.log\nline 75\n" in shown and "line 99" in shown and "line 74" not in shown
    assert "---- bulkhead explain u-1\ndefault/web (u-1, from api)" in shown
    kept = Path(shown.rpartition(": ")[2])
    assert kept.parent.name == "tests_e2e_test_x.py_test_it[a_b]"
    files = sorted(str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file())
    assert files == ["kubelet/bulkhead/podsync/stories/u-1.jsonl", "log/podsync.log"]


def test_a_home_that_has_gone_is_no_second_failure(tmp_path: Path) -> None:
    assert "files of the agent" in evidence.show(tmp_path / "gone", "t")
