"""The certificate store on disk: what is loaded, what is written, and what a kill between two steps leaves."""

import os
import stat
import time
from pathlib import Path

import pytest

from services.bootstrap.adapters import certificate_store
from services.bootstrap.adapters.certificate_store import CertificateStore
from shared.errors import OperatorError

WALL = 1_700_000_000.0
POINTS = ("written", "linked", "stored")


class KilledError(BaseException):
    """What stands for SIGKILL."""


def put(store: CertificateStore, text: str, wall: float = WALL) -> Path:
    return store.put(f"CERT {text}\n", f"KEY {text}", wall, lambda _: None)


def text_of(store: CertificateStore) -> str:
    pair = store.read()
    assert pair is not None
    return pair.certificate


def test_what_is_put_is_found_under_its_local_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        store = CertificateStore("kubelet-client", str(tmp_path / "a/pki"))
        file = put(store, "one")
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()
    assert file.name == "kubelet-client-2023-11-15-07-13-20.pem"
    assert file.read_text() == "CERT one\nKEY one\n"
    assert store.current.readlink() == file
    assert file.is_absolute()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "a/pki").stat().st_mode) == 0o755
    assert sorted(path.name for path in (tmp_path / "a/pki").iterdir()) == [file.name, "kubelet-client-current.pem"]


def test_older_files_stay_those_of_the_same_second_too(tmp_path: Path) -> None:
    store = CertificateStore("kubelet-client", str(tmp_path))
    for number, wall in (("one", WALL), ("two", WALL), ("three", WALL + 1)):
        put(store, number, wall)
    files = sorted(tmp_path.glob("*-2*.pem"))
    assert [path.read_text().split()[1] for path in files] == ["one", "two", "three"]
    assert [path.stem[-2:] for path in files] == ["20", "21", "22"]
    assert "three" in text_of(store)


def test_the_order_of_loading(tmp_path: Path) -> None:
    given = (tmp_path / "given.crt", tmp_path / "given.key")
    store = CertificateStore("kubelet-server", str(tmp_path), (str(given[0]), str(given[1])))
    assert store.read() is None
    (tmp_path / "kubelet-server.crt").write_text("plain")
    assert store.read() is None  # half a pair is none
    (tmp_path / "kubelet-server.key").write_text("key")
    assert text_of(store) == "plain"
    given[0].write_text("given")
    assert text_of(store) == "plain"
    given[1].write_text("key")
    assert text_of(store) == "given"
    put(store, "current")
    assert text_of(store).startswith("CERT current")
    store.current.unlink()
    store.current.symlink_to(tmp_path / "nowhere")
    assert text_of(store) == "given"


@pytest.mark.parametrize("before", [False, True], ids=["the first", "a later one"])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_between_two_steps_leaves_a_store_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, before: bool
) -> None:
    store = CertificateStore("kubelet-client", str(tmp_path))
    if before:
        put(store, "old", WALL - 60)

    def killed(name: str) -> None:
        if name == f"bootstrap.certificate.{point}":
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(certificate_store, "crash_point", killed)
        with pytest.raises(KilledError):
            put(store, "new")
    after = CertificateStore("kubelet-client", str(tmp_path))
    after.recover()
    found = after.read()
    wanted = {"written": "old", "linked": "old", "stored": "new"}[point]
    if before or wanted == "new" or point == "linked":
        assert found is not None
        assert ("new" if not before else wanted) in found.certificate
    else:
        assert found is None
    put(after, "next", WALL + 60)
    assert "next" in text_of(after)
    assert not (tmp_path / "kubelet-client-updated.pem").exists()


@pytest.mark.parametrize("name", ["kubelet-client-current.pem", "kubelet-client-updated.pem"])
def test_a_file_where_a_link_belongs_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("another program's")
    store = CertificateStore("kubelet-client", str(tmp_path))
    store.recover()
    with pytest.raises(OperatorError, match=f"{name}: is a file and not a link"):
        put(store, "one")
    assert (tmp_path / name).read_text() == "another program's"


@pytest.mark.parametrize("age", [0, 60])
def test_a_file_that_was_not_read_back_well_does_not_become_current(tmp_path: Path, age: int) -> None:
    store = CertificateStore("kubelet-client", str(tmp_path))
    put(store, "old", WALL - age)

    def check(text: str) -> None:
        raise OperatorError("is bad")

    with pytest.raises(OperatorError, match="is bad"):
        store.put("x", "y", WALL, check)
    assert "old" in text_of(store)


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "kubelet-client-current.pem").mkdir()
    with pytest.raises(OperatorError) as caught:
        CertificateStore("kubelet-client", str(tmp_path)).read()
    assert str(caught.value).startswith(f"{tmp_path}/kubelet-client-current.pem: is not a regular file (")
    os.mkfifo(tmp_path / "kubelet-server-current.pem")  # is not waited for
    with pytest.raises(OperatorError, match="is not a regular file"):
        CertificateStore("kubelet-server", str(tmp_path)).read()


def test_a_mark_changes_with_the_pair(tmp_path: Path) -> None:
    store = CertificateStore("kubelet-client", str(tmp_path))
    seen = [store.mark()]
    for wall in (WALL, WALL + 1):
        put(store, "same", wall)
        seen.append(store.mark())
    assert seen[0] == ()
    assert len(set(seen)) == 3
    assert store.mark() == seen[-1]


def test_a_store_that_cannot_be_written_is_named_the_same_at_each_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")  # as from fallocate: without a name

    monkeypatch.setattr(certificate_store, "write_atomically", full)
    for wall in (WALL, WALL + 60):
        with pytest.raises(OSError, match="No space left") as caught:
            put(CertificateStore("kubelet-client", str(tmp_path)), "one", wall)
        assert caught.value.filename == str(tmp_path)
