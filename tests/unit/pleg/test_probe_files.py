"""What probes counted, on its way from one process to the next."""

from pathlib import Path

import pytest

from services.pleg.adapters import probe_files
from services.pleg.adapters.probe_files import ProbeFiles
from services.pleg.core.probe_memory import ProbeMemory
from shared.model.frozen_copy import replace

MEMORY = ProbeMemory(
    container="c", kind="liveness", container_id="abc", fingerprint=7, result="success", last="failure", in_a_row=2,
    held=False, phase=0.25,
)  # fmt: skip


@pytest.mark.parametrize("uid", ["0d8f-1", "../../etc/passwd", "a/b", ".", "ä %2F"])
def test_a_pod_is_found_again_whatever_its_uid_and_nothing_lies_elsewhere(tmp_path: Path, uid: str) -> None:
    directory = tmp_path / "run" / "probes"
    ProbeFiles(directory).save(uid, [MEMORY])
    assert ProbeFiles(directory).load() == {uid: [MEMORY]}
    assert [path.parent for path in tmp_path.rglob("*.json")] == [directory]
    ProbeFiles(directory).forget(uid)
    assert ProbeFiles(directory).load() == {}


def test_where_nothing_was_left_nothing_is_found(tmp_path: Path) -> None:
    files = ProbeFiles(tmp_path / "none")
    assert files.load() == {}
    files.forget("a")


def test_what_cannot_be_replaced_is_removed_for_it_is_no_longer_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = ProbeFiles(tmp_path)
    files.save("a", [MEMORY])

    def full(path: Path, content: bytes) -> None:
        path.write_bytes(content[:10])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(probe_files, "_write", full)
        files.save("a", [MEMORY, MEMORY])
        files.save("a", [MEMORY])
    assert list(tmp_path.iterdir()) == [] and len(caplog.records) == 1
    files.save("a", [MEMORY])
    assert ProbeFiles(tmp_path).load() == {"a": [MEMORY]}


def test_a_memory_that_no_worker_can_have_written_is_not_sound() -> None:
    for odd in ({"result": "x"}, {"last": "y"}, {"in_a_row": -1}, {"phase": float("nan")}):
        assert not replace(MEMORY, **odd).sound
    assert MEMORY.sound
