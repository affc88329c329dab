"""The record of a takeover: what is saved is read again, and what is no record is refused in one line."""

from pathlib import Path

import pytest

from services.cli.systemd.unit import unit_of
from services.cli.takeover import exchange as takeover
from services.cli.takeover import node
from services.cli.takeover import unit as takeover_unit
from services.cli.takeover.account import Account
from services.cli.takeover.node import SystemdNode, Target
from services.cli.takeover.plan import Intent, Step
from services.cli.takeover.record import Record, RecordFile, SeenContainer, hold_lock
from shared.errors import OperatorError
from tests.unit.cli.systemd_bus import started_by
from tests.unit.cli.test_takeover_unit import GOOD

RECORD = Record(
    intent=Intent.ROLL_BACK,
    step=Step.RESTART,
    words=("/usr/bin/kubelet", "$KUBELET_ARGS"),
    containers=(SeenContainer(id="1", name="c", pod="shop/web"),),
    reason="interrupted",
)


def test_a_record_is_read_as_it_was_saved_and_removed_with_what_a_kill_left_of_it(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "bulkhead")
    assert file.load() is None
    file.save(RECORD)
    assert file.load() == RECORD
    assert file.path.stat().st_mode & 0o777 == 0o600
    left = file.path.with_name(f".{file.path.name}.1.tmp")
    left.touch()
    file.remove()
    assert (file.load(), left.exists()) == (None, False)
    file.remove()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 4096,
        b"[]",
        b"{}",
        b'{"intent":"takeover","step":"wait","words":[]}',
        b'{"intent":"conquer","step":"wait","words":["/k"]}',
        b'{"intent":"takeover","step":"wait","words":["\xff"]}',
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=range(8),
)
def test_what_is_no_record_is_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    file = RecordFile(tmp_path)
    file.path.write_bytes(content)
    with pytest.raises(OperatorError, match="is damaged") as raised:
        file.load()
    assert "\n" not in str(raised.value)


def test_a_second_command_is_refused_while_the_first_holds_the_lock(tmp_path: Path) -> None:
    refused = pytest.raises(OperatorError, match="another takeover or give-back is in progress")
    with hold_lock(tmp_path), refused, hold_lock(tmp_path):
        pass
    with hold_lock(tmp_path):
        pass


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of the commands on a node whose unit runs its own kubelet."""
    monkeypatch.setattr(takeover, "STATE", tmp_path)
    monkeypatch.setattr(takeover, "_FILE", tmp_path / "90-bulkhead.conf")
    monkeypatch.setattr(takeover, "kubelet_unit", lambda: unit_of(GOOD))
    return []


def test_a_damaged_record_prevents_a_takeover_and_no_give_back(tmp_path: Path, lines: list[str]) -> None:
    RecordFile(tmp_path).path.write_bytes(b"garbage")
    assert takeover.take_over(takeover.Options(), Account("takeover", lines.append, lines.append)) == 1
    assert len(lines) == 1 and "is damaged" in lines[0]
    assert takeover.give_back(5.0, "", Account("give-back", lines.append, lines.append)) == 0
    assert lines[-1] == "kubelet.service is not taken over; it runs /usr/bin/kubelet"


def test_a_drop_in_of_another_directory_is_known_by_its_program(tmp_path: Path, lines: list[str]) -> None:
    other = unit_of({**GOOD, "ExecStartEx": started_by("/opt/other/kubelet", "--v=2")})
    assert not takeover._is_replaced(other)
    (tmp_path / "90-bulkhead.conf").write_text(takeover_unit.drop_in_text("/opt/other/kubelet", ["--v=2"]))
    assert takeover._is_replaced(other)
    assert not takeover._is_replaced(unit_of(GOOD))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_drop_in_that_is_not_written_to_its_end_leaves_nothing(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begins(path: Path, content: bytes, mode: int) -> None:
        path.with_name(f".{path.name}.1.tmp").write_bytes(content[:10])
        raise error

    monkeypatch.setattr(node, "write_atomically", begins)
    drop_in = tmp_path / "kubelet.service.d" / "90-bulkhead.conf"
    target = Target(program="/k", config=None, run_dir="", needs_api_server=False, drop_in=drop_in)
    with pytest.raises(type(error)):
        SystemdNode(target, RecordFile(tmp_path / "state")).write(RECORD)
    assert list(tmp_path.iterdir()) == []
