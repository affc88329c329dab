"""What waits to be written, and what a restart knows of it."""

from typing import Any

import pytest

from bus.messages.event import MAX_KEPT_EVENTS
from services.status.core.event_correlation import CorrelatedEvent
from services.status.core.event_counts import MAX_KINDS, EventCounts, RecordedEvent
from services.status.core.event_marks import EventAction, EventMarks
from services.status.core.event_queue import MAX_EVENTS, MAX_TRIES, EventQueue, EventWrite


def _write(name: str, count: int = 1) -> EventWrite:
    correlated = CorrelatedEvent(name, "m", count, 1.0, 2.0, is_spam=False, key=name)
    occurrences = (("podsync", f"{name}-{count}"),)
    return EventWrite(
        "default", name, {"count": count}, is_new=count == 1, occurrences=occurrences, correlated=correlated
    )


def test_it_is_first_in_first_out() -> None:
    queue = EventQueue()
    for name in "abc":
        queue.add(_write(name))
    assert [write.name for write in (queue.take(), queue.take(), queue.take()) if write] == ["a", "b", "c"]
    assert queue.take() is None


def test_what_happens_again_while_it_waits_is_one_request() -> None:
    queue = EventQueue()
    for count in (1, 2, 3):
        queue.add(_write("a", count))
    write = queue.take()
    assert write is not None and write.is_new and write.body == {"count": 3} and len(write.occurrences) == 3
    assert len(queue) == 0


def test_one_that_happens_without_end_does_not_grow() -> None:
    queue = EventQueue()
    for count in range(1, 1000):
        queue.add(_write("a", count))
    write = queue.take()
    assert (
        write is not None
        and len(write.occurrences) == MAX_KEPT_EVENTS
        and write.occurrences[-1] == ("podsync", "a-999")
    )
    assert (write.number, write.correlated.count) == (999, 999)


def test_when_it_is_full_the_newest_is_not_taken_and_a_count_is() -> None:
    queue = EventQueue()
    assert all(queue.add(_write(str(number))) for number in range(MAX_EVENTS))
    assert not queue.add(_write("more"))
    assert queue.add(_write("7", 2))
    assert len(queue) == MAX_EVENTS


def test_what_comes_back_is_first_in_its_newest_form_and_gives_up_in_the_end() -> None:
    queue = EventQueue()
    queue.add(_write("a"))
    queue.add(_write("b"))
    for tries in range(MAX_TRIES - 1):
        write = queue.take()
        assert write is not None and (write.name, write.tries) == ("a", tries)
        queue.add(_write("a", tries + 2))
        assert queue.bring_back(write)
    last = queue.take()
    assert last is not None and last.is_new and last.body == {"count": MAX_TRIES} and last.number == MAX_TRIES
    assert not queue.bring_back(last)
    following = queue.take()
    assert following is not None and following.name == "b"


def test_marks_know_what_is_new_what_is_done_and_what_came_before() -> None:
    marks = EventMarks()
    assert [marks.take("podsync", "1"), marks.take("podsync", "1")] == [EventAction.NEW, EventAction.KNOWN]
    assert marks.take("pleg", "1") is EventAction.NEW
    marks.take("podsync", "2")
    marks.done("podsync", "1")
    next_process = EventMarks(marks.to_save())
    assert [next_process.take("podsync", key) for key in "1121"] == [
        EventAction.DONE_BEFORE,
        EventAction.KNOWN,
        EventAction.NEW,
        EventAction.KNOWN,
    ]


def test_marks_are_bounded_and_cover_what_a_writer_keeps() -> None:
    marks = EventMarks()
    for number in range(5000):
        marks.take("podsync", str(number))
        marks.done("podsync", str(number))
    kept = marks.to_save()["podsync"]
    assert kept[-MAX_KEPT_EVENTS:] == [str(number) for number in range(5000 - MAX_KEPT_EVENTS, 5000)]
    assert len(kept) == 2 * MAX_KEPT_EVENTS


@pytest.mark.parametrize("saved", [None, 3, [], {"podsync": 3}, {"podsync": [1, None, "x"]}, {"else": ["x"]}])
def test_marks_of_no_use_are_no_marks(saved: Any) -> None:
    assert EventMarks(saved).take("podsync", "y") is EventAction.NEW


def test_counts_continue_where_the_earlier_process_stopped() -> None:
    counts = EventCounts()
    counts.add("k", RecordedEvent("e1", 1, 5.0), 1)
    counts.add("k", RecordedEvent("e1", 4, 5.0), 2)  # a fourth waits
    counts.add("other", RecordedEvent("e9", 1, 6.5), 1)
    next_process = EventCounts(counts.to_save())
    assert next_process.earlier == {"k": RecordedEvent("e1", 3, 5.0), "other": RecordedEvent("e9", 1, 6.5)}
    next_process.add("k", RecordedEvent("e1", 4, 5.0), 1)
    assert EventCounts(next_process.to_save()).earlier["k"] == RecordedEvent("e1", 4, 5.0)


def test_counts_are_bounded_and_a_forgotten_kind_is_counted_from_one() -> None:
    counts = EventCounts()
    for number in range(MAX_KINDS + 5):
        counts.add(str(number), RecordedEvent(f"e{number}", 1, 1.0), 7)
    counts.add("9", RecordedEvent("again", 1, 2.0), 1)
    earlier = EventCounts(counts.to_save()).earlier
    assert len(earlier) == MAX_KINDS and "4" not in earlier
    assert earlier["9"] == RecordedEvent("again", 1, 2.0)


@pytest.mark.parametrize(
    "saved",
    [None, 3, {}, [7], [[]], [["k", "n", 0, 1.0]], [["k", "", 1, 1.0]], [["k", "n", 1, 1e18]], [["k", "n", "1", 1.0]]],
)
def test_counts_of_no_use_are_no_counts(saved: Any) -> None:
    assert EventCounts(saved).earlier == {}
