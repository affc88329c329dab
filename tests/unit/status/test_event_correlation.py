"""What becomes of events that look alike: combined, counted, dropped; with a clock, and as recorded of a Go kubelet."""

from typing import Any

import pytest

from bus.messages.event import KubeEvent
from services.status.core.event_correlation import BURST, MAX_KEYS, CorrelatedEvent, EventCorrelator
from services.status.core.event_object import event_object
from shared.model.frozen_copy import replace
from tests.support.recorded.pods import recording

EVENT = KubeEvent(
    type="Warning",
    reason="BackOff",
    message="m",
    namespace="default",
    name="web",
    uid="u",
    field_path="spec.containers{c}",
)
COMBINED = "(combined from similar events): "


class Correlation:
    """A correlator and its clock; events get the names e1, e2, …"""

    def __init__(self) -> None:
        self.correlator, self.now, self.number = EventCorrelator(), 1000.0, 0

    def see(self, event: KubeEvent = EVENT, after: float = 0.0) -> CorrelatedEvent:
        self.now += after
        self.number += 1
        return self.correlator.correlate(event, f"e{self.number}", self.now)

    def message(self, text: str, after: float = 0.0) -> CorrelatedEvent:
        return self.see(replace(EVENT, message=text), after)


def test_an_equal_event_counts_up_the_first_one() -> None:
    seen = Correlation()
    first, second, third = seen.see(), seen.see(after=10), seen.see(after=4000)
    assert [known.name for known in (first, second, third)] == ["e1"] * 3
    assert [known.count for known in (first, second, third)] == [1, 2, 3]
    assert (third.first_time, third.last_time) == (1000.0, 5010.0)


@pytest.mark.parametrize(
    "other",
    [
        {"type": "Normal"},
        {"reason": "Failed"},
        {"message": "n"},
        {"namespace": "other"},
        {"name": "other"},
        {"uid": "other"},
        {"kind": "Node"},
        {"field_path": "spec.containers{d}"},
    ],
)
def test_one_that_differs_is_another(other: dict[str, Any]) -> None:
    seen = Correlation()
    seen.see()
    assert (seen.see(replace(EVENT, **other)).name, seen.see().count) == ("e2", 2)


def test_the_revision_of_the_pod_and_the_time_make_no_difference() -> None:
    seen = Correlation()
    seen.see()
    assert seen.see(replace(EVENT, resource_version="77", time="2026-01-01T00:00:00Z")).count == 2


def test_from_the_tenth_message_on_similar_events_are_combined() -> None:
    seen = Correlation()
    apart = [seen.message(f"m{number}") for number in range(9)]
    together = [seen.message(f"m{number}") for number in range(9, 14)]
    assert [known.message for known in apart] == [f"m{number}" for number in range(9)]
    assert {known.count for known in apart} == {1}
    assert [(known.name, known.count) for known in together] == [("e10", number) for number in range(1, 6)]
    assert [known.message for known in together] == [f"{COMBINED}m{number}" for number in range(9, 14)]


def test_the_place_in_the_pod_does_not_keep_similar_events_apart() -> None:
    seen = Correlation()
    for number in range(9):
        seen.see(replace(EVENT, message=f"m{number}", field_path=f"spec.containers{{{number}}}"))
    assert seen.message("m9").message == f"{COMBINED}m9"


@pytest.mark.parametrize(("other", "combined"), [({"reason": "R"}, False), ({"uid": "v"}, False), ({}, True)])
def test_only_what_is_similar_is_combined(other: dict[str, Any], combined: bool) -> None:
    seen = Correlation()
    for number in range(9):
        seen.message(f"m{number}")
    assert seen.see(replace(EVENT, message="m9", **other)).message.startswith(COMBINED) is combined


def test_an_equal_message_is_one_message_however_often_it_comes() -> None:
    seen = Correlation()
    assert [seen.message("m", 1).message for _ in range(20)] == ["m"] * 20


def test_one_of_the_first_nine_keeps_its_own_object() -> None:
    seen = Correlation()
    for number in range(12):
        seen.message(f"m{number}")
    assert (seen.message("m3").name, seen.message("m3").count) == ("e4", 3)


@pytest.mark.parametrize(("pause", "message"), [(600.0, f"{COMBINED}new"), (600.1, "new")])
def test_ten_minutes_without_a_similar_event_end_it(pause: float, message: str) -> None:
    seen = Correlation()
    for number in range(10):
        seen.message(f"m{number}", after=599)
    assert seen.message("new", after=pause).message == message


def test_spam_is_twenty_five_at_once_and_one_more_every_five_minutes() -> None:
    seen = Correlation()
    assert [seen.see().is_spam for _ in range(27)] == [False] * int(BURST) + [True, True]
    assert [seen.see(after=after).is_spam for after in (299, 2, 0, 300)] == [True, False, True, False]


def test_what_was_spam_is_counted() -> None:
    seen = Correlation()
    for _ in range(30):
        seen.see()
    assert seen.see(after=600).count == 31


def test_spam_is_decided_by_object_and_type_and_not_by_reason() -> None:
    seen = Correlation()
    for number in range(25):
        seen.see(replace(EVENT, reason=f"R{number}"))
    assert seen.see(replace(EVENT, reason="another")).is_spam
    assert not seen.see(replace(EVENT, type="Normal")).is_spam
    assert not seen.see(replace(EVENT, uid="v")).is_spam


def test_a_clock_that_steps_back_neither_fails_nor_refills() -> None:
    seen = Correlation()
    for _ in range(26):
        seen.see()
    assert seen.see(after=-3600).is_spam
    assert not seen.see(after=300).is_spam


def test_the_counts_of_the_earlier_process_are_continued() -> None:
    before = Correlation()
    first, second = before.see(), before.see(after=5)
    correlator = EventCorrelator({first.key: second.recorded})
    replayed = correlator.correlate(EVENT, "new", 1005.0, done_before=True)
    assert (replayed.count, replayed.counted_before) == (2, True)
    again = correlator.correlate(EVENT, "new", 1010.0)
    assert (again.name, again.count, again.first_time) == ("e1", 3, 1000.0)
    unknown = correlator.correlate(replace(EVENT, uid="v"), "e7", 1010.0, done_before=True)
    assert (unknown.name, unknown.count, unknown.counted_before) == ("e7", 1, False)


def test_the_oldest_keys_are_forgotten() -> None:
    seen = Correlation()
    seen.see()
    for number in range(MAX_KEYS):
        seen.see(replace(EVENT, uid=str(number)))
    assert seen.see().count == 1


def test_the_same_events_again_give_the_same_objects() -> None:
    runs = []
    for _ in range(2):
        seen = Correlation()
        runs.append([seen.message(f"m{number % 13}", after=number) for number in range(60)])
    assert runs[0] == runs[1]


@pytest.mark.parametrize("name", ["crashloop", "poststart-fails", "deadline", "bad-command", "image-volume"])
def test_recorded_pods_are_counted_as_recorded(name: str) -> None:
    recorded = recording(name)["events"]
    seen, objects = Correlation(), {}
    for number in range(max(event["count"] for event in recorded)):
        for event in (event for event in recorded if event["count"] > number):
            sent = _sent(event)
            known = seen.see(sent, after=10)
            objects[known.name] = event_object(sent, known, "node1")
    fields = ("count", "type", "reason", "message", "involvedObject")
    written = [{field: body[field] for field in fields} for body in objects.values()]
    assert written == [{field: event[field] for field in fields} for event in recorded]


def _sent(event: dict[str, object]) -> KubeEvent:
    about = event["involvedObject"]
    assert isinstance(about, dict)
    return KubeEvent(
        type=str(event["type"]),
        reason=str(event["reason"]),
        message=str(event["message"]),
        kind=about["kind"],
        namespace=about["namespace"],
        name=about["name"],
        uid=about["uid"],
        field_path=about.get("fieldPath", ""),
        resource_version=about.get("resourceVersion", ""),
    )
