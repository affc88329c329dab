"""The follower's replica: when it is in step, when it asks for the snapshot, and what it may call deleted."""

import msgspec
import pytest

from bus.frames import Update, UpdateKind
from bus.interface import Deleted, Freshness, Put
from bus.messages.beat import Beat
from bus.messages.snapshot import Snapshot
from bus.replica import MAX_KEPT_UPDATES, NOTHING, Outcome, Replica

STREAM = "pods.desired"
FRESH = Freshness(complete=False, stale=False)
FRESH_AND_COMPLETE = Freshness(complete=True, stale=False)
STALE = Freshness(complete=False, stale=True)


def put(number: int, key: str, value: bytes, incarnation: str = "first") -> Update:
    return Update(
        stream=STREAM, incarnation=incarnation, number=number, kind=UpdateKind.PUT, key=key, value=value, cause="why"
    )


def delete(number: int, key: str, incarnation: str = "first") -> Update:
    return Update(stream=STREAM, incarnation=incarnation, number=number, kind=UpdateKind.DELETE, key=key, cause="why")


def complete(number: int, incarnation: str = "first") -> Update:
    return Update(stream=STREAM, incarnation=incarnation, number=number, kind=UpdateKind.COMPLETE)


def beat(number: int, incarnation: str = "first", protocol: str = "2.0", stream: str = STREAM) -> Beat:
    return Beat(
        service="sources", incarnation=incarnation, protocol=protocol, pid=1, sent_at=0.0, streams={stream: number}
    )


def snapshot(number: int, incarnation: str = "first", *, complete: bool = False, **entries: bytes) -> Snapshot:
    raw = {key: msgspec.Raw(value) for key, value in entries.items()}
    return Snapshot(stream=STREAM, incarnation=incarnation, number=number, complete=complete, entries=raw)


@pytest.fixture
def replica() -> Replica:
    """In step with the first incarnation at number 5, holding a and b."""
    replica = Replica(STREAM)
    replica.beat(beat(5), 0.0)
    replica.snapshot(snapshot(5, a=b"1", b=b"2"), 0.0)
    return replica


class TestBeginning:
    def test_begins_empty_incomplete_and_stale(self) -> None:
        replica = Replica(STREAM)
        assert (dict(replica.entries), replica.complete, replica.stale) == ({}, False, True)

    def test_asks_for_the_snapshot_at_the_first_beat(self) -> None:
        assert Replica(STREAM).beat(beat(0), 0.0) == Outcome((), "new incarnation first")

    def test_asks_for_the_snapshot_at_the_first_update_and_applies_it_on_top(self) -> None:
        replica = Replica(STREAM)
        assert replica.update(put(6, "c", b"3"), 0.0).need_snapshot == "new incarnation first"
        outcome = replica.snapshot(snapshot(5, a=b"1"), 0.0)
        assert outcome.changes == (Put("a", b"1", "in the owner's snapshot"), FRESH, Put("c", b"3", "why"))
        assert outcome.need_snapshot == ""

    def test_is_fresh_with_an_empty_snapshot(self) -> None:
        replica = Replica(STREAM)
        replica.beat(beat(0), 0.0)
        assert replica.snapshot(snapshot(0), 0.0).changes == (FRESH,)

    def test_waits_for_the_owner_to_own_the_stream(self) -> None:
        assert Replica(STREAM).beat(beat(1, stream="another"), 0.0) == NOTHING

    def test_delivers_nothing_while_it_has_nothing(self) -> None:
        assert Replica(STREAM).tick(100.0) == NOTHING


class TestInStep:
    def test_applies_the_next_update(self, replica: Replica) -> None:
        assert replica.update(put(6, "a", b"9"), 1.0).changes == (Put("a", b"9", "why"),)
        assert replica.update(delete(7, "b"), 1.0).changes == (Deleted("b", "why"),)
        assert dict(replica.entries) == {"a": b"9"}

    def test_ignores_an_update_it_has_already(self, replica: Replica) -> None:
        assert replica.update(put(5, "a", b"old"), 1.0) == NOTHING
        assert replica.entries["a"] == b"1"

    def test_delivers_nothing_of_a_value_that_is_the_same(self, replica: Replica) -> None:
        assert replica.update(put(6, "a", b"1"), 1.0) == NOTHING

    def test_delivers_nothing_of_a_deleted_key_it_never_had(self, replica: Replica) -> None:
        assert replica.update(delete(6, "never"), 1.0) == NOTHING

    def test_is_content_with_a_beat_of_its_number(self, replica: Replica) -> None:
        assert replica.beat(beat(5), 1.0) == NOTHING

    def test_delivers_that_the_owner_is_complete(self, replica: Replica) -> None:
        assert replica.update(complete(6), 1.0).changes == (FRESH_AND_COMPLETE,)

    def test_shows_where_it_stands(self, replica: Replica) -> None:
        assert repr(replica) == "<Replica pods.desired first#5 2 keys incomplete>"
        replica.update(complete(6), 1.0)
        replica.tick(60.0)
        assert repr(replica) == "<Replica pods.desired first#6 2 keys complete, stale>"


class TestOutOfStep:
    def test_asks_again_when_an_update_is_missing(self, replica: Replica) -> None:
        assert replica.update(put(8, "c", b"3"), 1.0) == Outcome((), "updates 6 to 7 are missing")

    def test_asks_again_when_the_beat_has_another_number(self, replica: Replica) -> None:
        assert replica.beat(beat(6), 1.0) == Outcome((), "the beat is at 6, this copy at 5")

    def test_asks_once_while_a_snapshot_is_under_way(self, replica: Replica) -> None:
        replica.beat(beat(6), 1.0)
        assert replica.beat(beat(7), 1.0) == NOTHING
        assert replica.update(put(9, "c", b"3"), 1.0) == NOTHING

    def test_reports_what_the_snapshot_changes_and_nothing_else(self, replica: Replica) -> None:
        replica.beat(beat(8), 1.0)
        outcome = replica.snapshot(snapshot(8, b=b"2", c=b"3"), 1.0)
        assert outcome.changes == (
            Deleted("a", "not in the owner's snapshot"),
            Put("c", b"3", "in the owner's snapshot"),
        )

    def test_applies_what_arrived_while_the_snapshot_was_under_way(self, replica: Replica) -> None:
        replica.update(put(8, "c", b"3"), 1.0)
        replica.update(put(9, "d", b"4"), 1.0)
        outcome = replica.snapshot(snapshot(8, a=b"1", b=b"2", c=b"3"), 1.0)
        assert outcome == Outcome((Put("c", b"3", "in the owner's snapshot"), Put("d", b"4", "why")))

    def test_asks_again_when_updates_were_lost_while_the_snapshot_was_under_way(self, replica: Replica) -> None:
        replica.update(put(8, "c", b"3"), 1.0)
        replica.update(put(10, "d", b"4"), 1.0)
        replica.update(put(11, "e", b"5"), 1.0)
        outcome = replica.snapshot(snapshot(8, a=b"1", b=b"2", c=b"3"), 1.0)
        assert outcome.need_snapshot == "updates 9 to 9 are missing"
        assert replica.snapshot(snapshot(10, d=b"4"), 1.0).changes[-1] == Put("e", b"5", "why")

    def test_ignores_a_snapshot_older_than_itself(self, replica: Replica) -> None:
        replica.beat(beat(6), 1.0)
        assert replica.snapshot(snapshot(3), 1.0) == NOTHING
        assert replica.number == 5

    def test_asks_until_it_is_answered_though_the_numbers_agree(self, replica: Replica) -> None:
        replica.update(complete(6), 1.0)
        replica.update(put(3, "a", b"0", incarnation="long dead"), 1.0)  # late; complete is in doubt from here on
        replica.snapshot_lost()
        assert replica.beat(beat(6), 2.0).need_snapshot == "new incarnation long dead"
        replica.snapshot_lost()
        assert replica.update(put(7, "c", b"3"), 3.0).need_snapshot == "new incarnation long dead"
        outcome = replica.snapshot(snapshot(6, complete=True, a=b"1", b=b"2"), 3.0)
        assert (replica.complete, outcome.changes[-1], outcome.need_snapshot) == (True, Put("c", b"3", "why"), "")
        assert replica.beat(beat(7), 4.0) == NOTHING

    def test_begins_again_when_the_snapshot_was_lost(self, replica: Replica) -> None:
        replica.update(put(8, "c", b"3"), 1.0)
        replica.snapshot_lost()
        assert replica.beat(beat(8), 2.0).need_snapshot

    def test_keeps_a_bounded_number_of_updates_and_asks_for_the_others(self, replica: Replica) -> None:
        replica.beat(beat(6), 1.0)
        for number in range(6, 6 + MAX_KEPT_UPDATES + 1):
            replica.update(put(number, "a", b"%d" % number), 1.0)
        assert replica.snapshot(snapshot(6, a=b"6"), 1.0).need_snapshot


class TestRestartOfTheOwner:
    def test_asks_at_the_first_beat_of_another_incarnation(self, replica: Replica) -> None:
        assert replica.beat(beat(5, "second"), 1.0) == Outcome((), "new incarnation second")

    def test_is_incomplete_from_the_first_frame_of_it(self, replica: Replica) -> None:
        replica.update(complete(6), 1.0)
        assert replica.beat(beat(0, "second"), 2.0).changes == (FRESH,)

    def test_is_incomplete_when_only_the_snapshot_shows_it(self, replica: Replica) -> None:
        replica.update(complete(6), 1.0)
        replica.beat(beat(7), 2.0)
        outcome = replica.snapshot(snapshot(1, "second", c=b"3"), 2.0)
        assert outcome.changes == (FRESH, Put("c", b"3", "in the owner's snapshot"))

    def test_keeps_what_is_not_listed_until_the_owner_is_complete(self, replica: Replica) -> None:
        replica.beat(beat(1, "second"), 1.0)
        assert replica.snapshot(snapshot(1, "second", a=b"1"), 1.0) == NOTHING
        assert dict(replica.entries) == {"a": b"1", "b": b"2"}
        assert replica.update(complete(2, "second"), 1.0).changes == (
            Deleted("b", "not listed by second, which is complete"),
            FRESH_AND_COMPLETE,
        )

    def test_deletes_what_a_complete_snapshot_does_not_list_before_it_calls_itself_complete(
        self, replica: Replica
    ) -> None:
        replica.beat(beat(2, "second"), 1.0)
        assert replica.snapshot(snapshot(2, "second", complete=True, a=b"1"), 1.0).changes == (
            Deleted("b", "not in the owner's snapshot"),
            FRESH_AND_COMPLETE,
        )

    def test_a_key_put_again_is_confirmed(self, replica: Replica) -> None:
        replica.beat(beat(0, "second"), 1.0)
        replica.snapshot(snapshot(0, "second"), 1.0)
        replica.update(put(1, "b", b"2", "second"), 1.0)
        assert replica.update(complete(2, "second"), 1.0).changes == (
            Deleted("a", "not listed by second, which is complete"),
            FRESH_AND_COMPLETE,
        )

    def test_a_second_snapshot_of_the_incomplete_incarnation_deletes_only_what_that_one_had(
        self, replica: Replica
    ) -> None:
        replica.beat(beat(1, "second"), 1.0)
        replica.snapshot(snapshot(1, "second", c=b"3"), 1.0)
        replica.beat(beat(3, "second"), 1.0)
        assert replica.snapshot(snapshot(3, "second", d=b"4"), 1.0).changes == (
            Deleted("c", "not in the owner's snapshot"),
            Put("d", b"4", "in the owner's snapshot"),
        )
        assert set(replica.entries) == {"a", "b", "d"}

    def test_forgets_the_last_words_of_the_incarnation_it_left(self, replica: Replica) -> None:
        replica.update(complete(6), 1.0)
        replica.update(put(8, "c", b"3"), 1.0)
        outcome = replica.snapshot(snapshot(1, "second", complete=True), 1.0)
        assert outcome.need_snapshot == ""
        assert replica.complete

    def test_asks_again_when_the_snapshot_is_of_the_incarnation_before_the_one_received(self, replica: Replica) -> None:
        replica.update(put(1, "c", b"3", "third"), 1.0)
        assert replica.snapshot(snapshot(4, "second"), 1.0).need_snapshot == "new incarnation third"

    def test_a_late_update_of_a_dead_incarnation_costs_one_more_snapshot_and_no_third(self) -> None:
        replica = Replica(STREAM)
        replica.update(put(3, "c", b"3", "dead"), 0.0)
        assert replica.snapshot(snapshot(1, "second", complete=True), 0.0).need_snapshot == "new incarnation dead"
        assert replica.snapshot(snapshot(1, "second", complete=True), 0.0) == NOTHING
        assert replica.complete


class TestSilence:
    def test_is_stale_after_three_beats_without_a_sign_and_keeps_its_state(self, replica: Replica) -> None:
        assert replica.tick(3.0) == NOTHING
        assert replica.tick(3.1) == Outcome((STALE,))
        assert replica.tick(4.0) == NOTHING
        assert set(replica.entries) == {"a", "b"}

    def test_any_proof_of_being_in_step_keeps_it_fresh(self, replica: Replica) -> None:
        replica.beat(beat(5), 2.0)
        assert replica.tick(5.0) == NOTHING
        replica.update(put(6, "c", b"3"), 5.0)
        assert replica.tick(8.0) == NOTHING

    def test_a_beat_alone_does_not_keep_a_copy_fresh_that_gets_no_snapshot(self, replica: Replica) -> None:
        replica.beat(beat(6), 1.0)
        replica.snapshot_lost()
        replica.beat(beat(6), 3.0)
        assert replica.tick(4.0) == Outcome((STALE,))

    def test_a_late_copy_of_an_old_update_is_no_proof(self, replica: Replica) -> None:
        replica.update(put(5, "b", b"2"), 3.0)
        assert replica.tick(3.5) == Outcome((STALE,))

    def test_is_fresh_again_with_a_matching_beat(self, replica: Replica) -> None:
        replica.tick(10.0)
        assert replica.beat(beat(5), 11.0) == Outcome((FRESH,))


class TestProtocol:
    def test_another_major_version_makes_it_stale_at_once(self, replica: Replica) -> None:
        assert replica.beat(beat(5, protocol="3.0"), 1.0) == Outcome((STALE,))

    def test_another_minor_version_is_understood(self, replica: Replica) -> None:
        assert replica.beat(beat(5, protocol="2.999"), 1.0) == NOTHING
