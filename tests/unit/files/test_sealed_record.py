"""A sealed record is read only with its key and its binding, and has nothing of its content in clear."""

import base64
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from shared.errors import OperatorError
from shared.files.sealed_record import KEY_FILE, RefusedRecordError, SealedRecord, load_sealing_key

KEY = bytes(range(32))
MAX_BYTES = 1 << 20
HERE = {"node": "edge-1", "cluster": "https://10.0.0.1:6443"}
CREDENTIAL = "bulkhead.offline-pods"


def record(place: Path, key: bytes = KEY, name: str = "pods") -> SealedRecord:
    """The record as a process finds it at its start."""
    return SealedRecord(place / "disk", place / "run", name, key, MAX_BYTES)


def stored(place: Path) -> Path:
    """The file of the record."""
    return place / "disk" / "pods.json"


def changed(place: Path, **fields: Any) -> None:
    """Replace fields of the record in its file."""
    content = json.loads(stored(place).read_text())
    content["data"].update(fields)
    stored(place).write_text(json.dumps(content))


def test_what_was_saved_is_read_and_the_last_save_counts(tmp_path: Path) -> None:
    assert record(tmp_path).load(HERE) is None
    record(tmp_path).save({"a": ["first"]}, HERE)
    record(tmp_path).save({"a": ["second", "ü\udcff"]}, HERE)
    assert record(tmp_path).load(HERE) == {"a": ["second", "ü\\xff"]}
    assert stat.S_IMODE(stored(tmp_path).stat().st_mode) == 0o600


def test_nothing_of_the_content_is_in_the_file_in_clear_or_in_base64(tmp_path: Path) -> None:
    secret = "hunter2-correct-horse"
    record(tmp_path).save({"objects": [{"data": {"password": base64.b64encode(secret.encode()).decode()}}]}, HERE)
    content = stored(tmp_path).read_bytes()
    sealed = base64.b64decode(json.loads(content)["data"]["sealed"])
    for form in (secret.encode(), base64.b64encode(secret.encode()), b"password"):
        assert form not in content and form not in sealed


def test_equal_records_are_sealed_differently(tmp_path: Path) -> None:
    written = []
    for _ in range(2):
        record(tmp_path).save({"a": 1}, HERE)
        written.append(json.loads(stored(tmp_path).read_text())["data"])
    assert written[0]["nonce"] != written[1]["nonce"] and written[0]["sealed"] != written[1]["sealed"]


@pytest.mark.parametrize(
    "other", [{"node": "edge-2", "cluster": HERE["cluster"]}, {"node": "edge-1", "cluster": "https://x"}, {}]
)
def test_a_record_of_another_node_or_cluster_is_refused_and_names_it(tmp_path: Path, other: dict[str, str]) -> None:
    record(tmp_path).save({"a": 1}, other)
    with pytest.raises(RefusedRecordError) as refused:
        record(tmp_path).load(HERE)
    line = str(refused.value)
    assert "\n" not in line and all(value in line for value in other.values())


def test_a_foreign_record_is_not_accepted_under_our_name(tmp_path: Path) -> None:
    record(tmp_path).save({"a": 1}, {"node": "edge-2", "cluster": HERE["cluster"]})
    changed(tmp_path, binding=HERE)
    with pytest.raises(RefusedRecordError, match="damaged, or was sealed with another key"):
        record(tmp_path).load(HERE)


def test_a_wrong_key_is_refused_and_the_next_save_replaces_the_record(tmp_path: Path) -> None:
    record(tmp_path).save({"a": 1}, HERE)
    other = record(tmp_path, bytes(32))
    with pytest.raises(RefusedRecordError, match="another key"):
        other.load(HERE)
    other.save({"a": 2}, HERE)
    assert record(tmp_path, bytes(32)).load(HERE) == {"a": 2}


def test_records_of_two_names_have_different_keys(tmp_path: Path) -> None:
    record(tmp_path).save({"a": 1}, HERE)
    content = json.loads(stored(tmp_path).read_text()) | {"key": "tokens"}
    (tmp_path / "disk" / "tokens.json").write_text(json.dumps(content))
    with pytest.raises(RefusedRecordError):
        record(tmp_path, name="tokens").load(HERE)


@pytest.mark.parametrize("kept", [0, 1, 10, 100, -1])
def test_a_truncated_file_is_no_record(tmp_path: Path, kept: int) -> None:
    record(tmp_path).save({"a": "text" * 100}, HERE)
    content = stored(tmp_path).read_bytes()
    stored(tmp_path).write_bytes(content[:kept])
    assert record(tmp_path).load(HERE) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"sealed": ""},
        {"sealed": "!"},
        {"sealed": None},
        {"sealed": base64.b64encode(bytes(64)).decode()},
        {"nonce": ""},
        {"nonce": 5},
        {"nonce": base64.b64encode(bytes(12)).decode()},
        {"binding": None},
        {"binding": [["node", "edge-1"]]},
    ],
)
def test_a_damaged_record_is_refused_in_one_line(tmp_path: Path, fields: dict[str, Any]) -> None:
    record(tmp_path).save({"a": 1}, HERE)
    changed(tmp_path, **fields)
    with pytest.raises(RefusedRecordError) as refused:
        record(tmp_path).load(HERE)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_too_large_is_not_read_and_the_next_save_replaces_it(tmp_path: Path) -> None:
    record(tmp_path).save({"a": 1}, HERE)
    with stored(tmp_path).open("r+b") as file:
        file.truncate(1 << 40)  # a sparse one, which no machine could read
    with pytest.raises(RefusedRecordError, match=r"it had 1099511627776 bytes, more than 1048576$"):
        record(tmp_path).load(HERE)
    record(tmp_path).save({"a": 2}, HERE)
    assert record(tmp_path).load(HERE) == {"a": 2}


def test_each_changed_byte_of_the_sealed_part_is_noticed(tmp_path: Path) -> None:
    record(tmp_path).save({"a": 1}, HERE)
    sealed = base64.b64decode(json.loads(stored(tmp_path).read_text())["data"]["sealed"])
    for index in range(len(sealed)):
        altered = bytearray(sealed)
        altered[index] ^= 1
        changed(tmp_path, sealed=base64.b64encode(altered).decode())
        with pytest.raises(RefusedRecordError):
            record(tmp_path).load(HERE)


def test_the_credential_of_the_unit_is_the_key_and_no_file_remains(tmp_path: Path) -> None:
    directory, given = tmp_path / "keys", tmp_path / "credentials"
    load_sealing_key(directory, CREDENTIAL, {})
    given.mkdir()
    (given / CREDENTIAL).write_bytes(KEY)
    assert load_sealing_key(directory, CREDENTIAL, {"CREDENTIALS_DIRECTORY": str(given)}) == KEY
    assert not (directory / KEY_FILE).exists()


def test_without_a_credential_a_file_of_root_is_made_once(tmp_path: Path) -> None:
    (tmp_path / "credentials").mkdir()
    environment = {"CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")}
    first = load_sealing_key(tmp_path / "keys", CREDENTIAL, environment)
    assert len(first) == 32 and load_sealing_key(tmp_path / "keys", CREDENTIAL, {}) == first
    assert stat.S_IMODE((tmp_path / "keys" / KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "keys").iterdir()] == [KEY_FILE]
    assert load_sealing_key(tmp_path / "others", CREDENTIAL, {}) != first


@pytest.mark.parametrize("with_credential", [False, True])
def test_a_kill_while_the_key_was_made_leaves_no_second_name_of_it(tmp_path: Path, with_credential: bool) -> None:
    key = load_sealing_key(tmp_path / "keys", CREDENTIAL, {})
    left = tmp_path / "keys" / ".key.77.tmp"
    left.hardlink_to(tmp_path / "keys" / KEY_FILE)
    given = tmp_path / "credentials"
    given.mkdir()
    if with_credential:
        (given / CREDENTIAL).write_bytes(KEY)
    found = load_sealing_key(tmp_path / "keys", CREDENTIAL, {"CREDENTIALS_DIRECTORY": str(given)})
    assert found == (KEY if with_credential else key) and not left.exists()


def test_two_processes_that_make_the_key_at_once_have_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its own temporary file, as two processes have; both have found no key."""
    barrier = threading.Barrier(2)
    numbers = iter((1, 2))
    real = os.getpid

    def pid() -> int:
        return next(numbers, real())

    exists = Path.exists

    def both_look(path: Path) -> bool:
        found = exists(path)
        if path.name == KEY_FILE:
            barrier.wait()
        return found

    monkeypatch.setattr(os, "getpid", pid)
    monkeypatch.setattr(Path, "exists", both_look)
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(load_sealing_key(tmp_path, CREDENTIAL, {}))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2 and found[0] == found[1]


def test_a_key_that_others_may_read_or_that_is_too_short_is_refused(tmp_path: Path) -> None:
    load_sealing_key(tmp_path, CREDENTIAL, {})
    (tmp_path / KEY_FILE).chmod(0o640)
    with pytest.raises(OperatorError, match="others than root may read the key"):
        load_sealing_key(tmp_path, CREDENTIAL, {})
    (tmp_path / KEY_FILE).chmod(0o600)
    (tmp_path / KEY_FILE).write_bytes(b"short")
    with pytest.raises(OperatorError, match="the key has 5 bytes, must have at least 32"):
        load_sealing_key(tmp_path, CREDENTIAL, {})
