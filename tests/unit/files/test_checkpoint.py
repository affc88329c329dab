"""A record saved is a record found again, whatever happens to the disk."""

import errno
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.files import checkpoint as module
from shared.files.atomic import write_atomically
from shared.files.checkpoint import Checkpoint, RecordLocation, read_record


@pytest.fixture
def records(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "disk", tmp_path / "fallback")


def again(tmp_path: Path) -> Checkpoint:
    """The next process."""
    return Checkpoint(tmp_path / "disk", tmp_path / "fallback")


def break_disk(monkeypatch: pytest.MonkeyPatch, broken: Path, number: int = errno.ENOSPC) -> None:
    def write(path: Path, content: bytes, mode: int = 0o600) -> None:
        if broken in path.parents:
            raise OSError(number, os.strerror(number), str(path))
        write_atomically(path, content, mode)

    monkeypatch.setattr(module, "write_atomically", write)


def test_a_record_outlives_the_process(records: Checkpoint, tmp_path: Path) -> None:
    assert records.save("uid-1", {"state": "sync", "names": ["a"]}) is RecordLocation.ON_DISK
    assert again(tmp_path).load_all() == {"uid-1": {"state": "sync", "names": ["a"]}}


@pytest.mark.parametrize("key", ["a/b", "..", ".hidden", "ü", "x" * 1000, "with space", ""])
def test_any_key_is_a_file(records: Checkpoint, tmp_path: Path, key: str) -> None:
    records.save(key, {"n": 1})
    records.save(key + "2", {"n": 2})
    assert again(tmp_path).load_all() == {key: {"n": 1}, key + "2": {"n": 2}}


def test_a_deleted_record_is_gone(records: Checkpoint, tmp_path: Path) -> None:
    records.save("k", {})
    assert records.delete("k") is RecordLocation.ON_DISK
    assert records.delete("never-there") is RecordLocation.ON_DISK
    assert again(tmp_path).load_all() == {}


@pytest.mark.parametrize("content", [b"", b'{"version":1,"ke', b"[]", b'{"version":0,"key":"k"}', b'{"version":"9"}'])
def test_a_torn_record_is_set_aside(records: Checkpoint, tmp_path: Path, content: bytes) -> None:
    records.save("good", {"n": 1})
    (tmp_path / "disk/bad.json").write_bytes(content)
    assert again(tmp_path).load_all() == {"good": {"n": 1}}
    assert (tmp_path / "disk/bad.json.corrupt").read_bytes() == content


@pytest.mark.parametrize("directory", ["disk", "fallback"])
def test_records_of_a_newer_version_are_left_alone_and_reported_in_one_line(
    records: Checkpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture, directory: str
) -> None:
    records.save("good", {"n": 1})
    content = b'{"version":2,"records":[{"key":"k1"}]}'
    (tmp_path / directory).mkdir(exist_ok=True)
    for key in ("k1", "k2", "k3"):
        (tmp_path / directory / f"{key}.json").write_bytes(content)
    rolled_back = again(tmp_path)
    assert rolled_back.load_all() == rolled_back.load_all() == {"good": {"n": 1}}
    assert rolled_back.save("good", {"n": 2}) is RecordLocation.ON_DISK
    assert again(tmp_path).load_all() == {"good": {"n": 2}}
    assert [(tmp_path / directory / f"{key}.json").read_bytes() for key in ("k1", "k2", "k3")] == [content] * 3
    assert [line for line in caplog.messages if "newer" in line][1:] == caplog.messages[1:]
    assert "3 records, k1.json among them, are of a newer version" in caplog.messages[0]


def test_a_record_that_is_saved_replaces_one_of_a_newer_version(records: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk/k.json").write_bytes(b'{"version":2}')
    assert records.save("k", {"n": 1}) is RecordLocation.ON_DISK
    assert again(tmp_path).load_all() == {"k": {"n": 1}}


def test_an_envelope_with_more_in_it_is_read(records: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk/k.json").write_bytes(b'{"version":1,"key":"k","number":3,"data":{"n":1},"more":[]}')
    assert records.load_all() == {"k": {"n": 1}}


def test_what_an_interrupted_save_left_is_removed(records: Checkpoint, tmp_path: Path) -> None:
    records.save("k", {"n": 1})
    (tmp_path / "disk/.k.json.99.tmp").write_bytes(b"half")
    assert again(tmp_path).load_all() == {"k": {"n": 1}}
    assert not (tmp_path / "disk/.k.json.99.tmp").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
def test_a_full_disk_sends_records_to_the_fallback(
    records: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    records.save("k", {"n": 1})
    with monkeypatch.context() as broken:
        break_disk(broken, tmp_path / "disk", number)
        assert records.save("k", {"n": 2}) is RecordLocation.IN_FALLBACK
        assert records.trouble is not None and "free some space" in records.trouble
        assert again(tmp_path).load_all() == {"k": {"n": 2}}


def test_records_move_back_when_there_is_room(
    records: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        break_disk(broken, tmp_path / "disk")
        records.save("a", {"n": 1})
        records.save("b", {"n": 1})
    next_process = again(tmp_path)
    assert next_process.save("a", {"n": 2}) is RecordLocation.ON_DISK
    assert next_process.trouble is None
    assert list((tmp_path / "fallback").iterdir()) == []
    assert again(tmp_path).load_all() == {"a": {"n": 2}, "b": {"n": 1}}


def test_a_leftover_of_the_fallback_does_not_undo_a_later_save(
    records: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        break_disk(broken, tmp_path / "disk")
        records.save("k", {"n": 1})
    leftover = (tmp_path / "fallback/k.json").read_bytes()
    records.save("k", {"n": 2})
    (tmp_path / "fallback/k.json").write_bytes(leftover)  # as if killed between the save and the removal
    assert again(tmp_path).load_all() == {"k": {"n": 2}}


def test_a_record_of_a_process_after_a_restart_is_newer_than_those_on_disk(
    records: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        records.save("k", {"n": number})
    with monkeypatch.context() as broken:
        break_disk(broken, tmp_path / "disk")
        assert again(tmp_path).save("k", {"n": 5}) is RecordLocation.IN_FALLBACK
    assert again(tmp_path).load_all() == {"k": {"n": 5}}


class _KilledError(BaseException):
    """Stands for SIGKILL: no code of the product catches it."""


@pytest.mark.parametrize("removed", range(3))
def test_a_deletion_that_is_cut_short_never_revives_an_older_record(
    records: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: int
) -> None:
    with monkeypatch.context() as broken:
        break_disk(broken, tmp_path / "disk")
        records.save("k", {"n": 1})
    leftover = (tmp_path / "fallback/k.json").read_bytes()
    records.save("k", {"n": 2})
    (tmp_path / "fallback/k.json").write_bytes(leftover)  # as if killed between the save and the removal
    unlink, unlinked = Path.unlink, 0

    def unlink_until_killed(path: Path, missing_ok: bool = False) -> None:
        nonlocal unlinked
        if unlinked == removed:
            raise _KilledError
        unlink(path, missing_ok)
        unlinked += 1

    with monkeypatch.context() as killed:
        killed.setattr(Path, "unlink", unlink_until_killed)
        with pytest.raises(_KilledError):
            again(tmp_path).delete("k")
            raise _KilledError
    assert again(tmp_path).load_all() == ({} if removed >= 2 else {"k": {"n": 2}})


def test_a_record_deleted_on_a_broken_disk_stays_deleted(
    records: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records.save("k", {"n": 1})
    complete = module._remove

    def remove(directory: Path, key: str) -> None:
        if directory == tmp_path / "disk":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        complete(directory, key)

    with monkeypatch.context() as broken:
        broken.setattr(module, "_remove", remove)
        assert records.delete("k") is RecordLocation.IN_FALLBACK
        assert again(tmp_path).load_all() == {}
    later = again(tmp_path)
    later.save("other", {})
    assert again(tmp_path).load_all() == {"other": {}}
    assert not (tmp_path / "disk/k.json").exists()


def test_no_room_anywhere_is_no_exception(records: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_disk(monkeypatch, tmp_path)
    assert records.save("k", {}) is RecordLocation.NOWHERE


def test_something_in_the_way_is_a_trouble_and_not_an_exception(tmp_path: Path) -> None:
    (tmp_path / "disk").write_text("a file")
    checkpoint = Checkpoint(tmp_path / "disk", tmp_path / "fallback")
    assert checkpoint.save("k", {"a": 1}) is RecordLocation.IN_FALLBACK
    assert "cannot be written" in (checkpoint.trouble or "")
    assert Checkpoint(tmp_path / "disk", tmp_path / "fallback").load_all() == {"k": {"a": 1}}


def test_a_record_that_cannot_be_removed_is_noted_as_gone(tmp_path: Path) -> None:
    (tmp_path / "disk" / "k.json").mkdir(parents=True)
    checkpoint = Checkpoint(tmp_path / "disk", tmp_path / "fallback")
    assert checkpoint.delete("k") is RecordLocation.IN_FALLBACK
    assert checkpoint.load_all() == {}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mounted = tmp_path / "disk"
    mounted.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mounted)], check=True)
    yield mounted
    subprocess.run(["umount", str(mounted)], check=True)


@pytest.mark.root
def test_a_disk_that_is_really_full(small_disk: Path, tmp_path: Path) -> None:
    records = Checkpoint(small_disk, tmp_path / "fallback")
    records.save("k", {"n": 1})
    with (small_disk / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="space"):
        while True:
            filler.write(b"x" * 4096)
    assert records.save("k", {"n": 2}) is RecordLocation.IN_FALLBACK
    assert records.save("new", {"n": 1}) is RecordLocation.IN_FALLBACK
    assert records.delete("k") is RecordLocation.ON_DISK
    assert again(tmp_path).load_all() == {"new": {"n": 1}}
    (small_disk / "filler").unlink()
    assert records.save("third", {}) is RecordLocation.ON_DISK
    assert {path.name for path in small_disk.iterdir()} == {"new.json", "third.json"}


def test_many_records_are_saved_with_one_sync_of_the_directory(
    records: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(module, "sync_directory", synced.append)
    kept = records.save_all({f"uid-{number}": {"number": number} for number in range(50)})
    assert set(kept.values()) == {RecordLocation.ON_DISK} and len(kept) == 50
    assert synced == [tmp_path / "disk"]
    assert again(tmp_path).load_all() == {f"uid-{number}": {"number": number} for number in range(50)}


def test_where_one_of_many_cannot_be_written_each_is_kept_as_well_as_it_can_be(
    records: Checkpoint, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "uid-1.json").mkdir()  # in the way of this one alone
    kept = records.save_all({"uid-0": {"a": 1}, "uid-1": {"b": 2}})
    assert kept == {"uid-0": RecordLocation.ON_DISK, "uid-1": RecordLocation.IN_FALLBACK}
    assert again(tmp_path).load_all() == {"uid-0": {"a": 1}, "uid-1": {"b": 2}}


def test_a_record_with_text_that_is_not_unicode_is_saved_with_an_escape(records: Checkpoint, tmp_path: Path) -> None:
    assert records.save("u", {"why": "cannot remove caf\udce9", "n": 1}) is RecordLocation.ON_DISK
    assert again(tmp_path).load_all() == {"u": {"why": "cannot remove caf\\xe9", "n": 1}}


def test_where_no_thread_can_be_started_the_records_are_saved_one_by_one(
    records: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        kept = records.save_all({"uid-0": {"a": 1}, "uid-1": {"b": 2}})
    assert set(kept.values()) == {RecordLocation.ON_DISK}
    assert again(tmp_path).load_all() == {"uid-0": {"a": 1}, "uid-1": {"b": 2}}
    kept = records.save_all({"uid-0": {"a": 3}, "uid-1": {"b": 4}})  # threads can be started again
    assert set(kept.values()) == {RecordLocation.ON_DISK}
    assert again(tmp_path).load_all() == {"uid-0": {"a": 3}, "uid-1": {"b": 4}}


def test_a_reader_of_another_process_gets_the_newest_copy_and_changes_nothing(
    records: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, fallback = tmp_path / "disk", tmp_path / "fallback"
    assert read_record(disk, fallback, "node") is None
    records.save("node", {"n": 1})
    (disk / ".node.json.4711.tmp").write_bytes(b"half")
    (disk / "torn.json").write_bytes(b"half")
    (disk / "newer.json").write_bytes(b'{"version":2,"key":"newer","number":1,"data":{}}')
    names = {path.name for path in disk.iterdir()}
    assert read_record(disk, fallback, "node") == {"n": 1}
    assert read_record(disk, fallback, "torn") is None and read_record(disk, fallback, "newer") is None
    with monkeypatch.context() as patched:
        break_disk(patched, disk)
        records.save("node", {"n": 2})
    assert read_record(disk, fallback, "node") == {"n": 2}
    records.save("node", {"n": 3})
    assert read_record(disk, fallback, "node") == {"n": 3}
    assert {path.name for path in disk.iterdir()} == names
