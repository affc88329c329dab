"""The owner's ledger: what counts as a change, and what number it gets."""

from bus.frames import Update, UpdateKind
from bus.ledger import Ledger


def ledger() -> Ledger:
    return Ledger("pods.desired", "first")


def test_begins_empty_incomplete_and_without_a_number() -> None:
    snapshot = ledger().snapshot()
    assert (snapshot.number, snapshot.complete, snapshot.entries) == (0, False, {})


def test_numbers_each_change_of_the_stream() -> None:
    owner = ledger()
    assert owner.put("a", b"1", "because") == Update(
        stream="pods.desired",
        incarnation="first",
        number=1,
        kind=UpdateKind.PUT,
        key="a",
        value=b"1",
        cause="because",
    )
    assert owner.put("a", b"2") is not None
    assert owner.delete("a", "gone") == Update(
        stream="pods.desired", incarnation="first", number=3, kind=UpdateKind.DELETE, key="a", cause="gone"
    )


def test_publishes_nothing_of_an_unchanged_value() -> None:
    owner = ledger()
    owner.put("a", b"1")
    assert owner.put("a", b"1") is None
    assert owner.number == 1


def test_publishes_nothing_of_an_absent_key() -> None:
    assert ledger().delete("a") is None


def test_publishes_once_and_by_number_that_it_is_complete() -> None:
    owner = ledger()
    update = owner.mark_complete()
    assert update is not None
    assert (update.kind, update.number) == (UpdateKind.COMPLETE, 1)
    assert owner.mark_complete() is None
    assert owner.snapshot().complete


def test_its_snapshot_holds_the_latest_values_as_of_the_newest_number() -> None:
    owner = ledger()
    owner.put("a", b"1")
    owner.put("b", b"2")
    owner.delete("a")
    snapshot = owner.snapshot()
    assert (snapshot.incarnation, snapshot.number) == ("first", 3)
    assert {key: bytes(raw) for key, raw in snapshot.entries.items()} == {"b": b"2"}
    assert owner.keys() == ("b",)


def test_a_snapshot_does_not_change_with_the_ledger() -> None:
    owner = ledger()
    owner.put("a", b"1")
    snapshot = owner.snapshot()
    owner.put("b", b"2")
    assert list(snapshot.entries) == ["a"]


def test_shows_where_it_stands() -> None:
    owner = ledger()
    owner.put("a", b"1")
    assert repr(owner) == "<Ledger pods.desired first#1 1 keys incomplete>"
    owner.mark_complete()
    assert repr(owner) == "<Ledger pods.desired first#2 1 keys complete>"


def test_a_refreshed_value_is_in_the_snapshot_under_the_same_number() -> None:
    ledger = Ledger("s", "i")
    ledger.put("a", b"1")
    ledger.refresh("a", b"2")
    ledger.refresh("unknown", b"3")
    snapshot = ledger.snapshot()
    assert (snapshot.number, {key: bytes(raw) for key, raw in snapshot.entries.items()}) == (1, {"a": b"2"})
    assert ledger.put("a", b"2") is None
