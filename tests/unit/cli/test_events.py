"""Which events `bulkhead events` shows, and with which times."""

import time

import pytest

from services.cli.agent.events import EventChoice, event_lines

EVENTS = [
    {"time": "2026-01-02T03:04:05.000001Z", "type": "Normal", "reason": "Pulled", "kind": "Pod", "message": "m",
     "namespace": "shop", "name": "web", "uid": "u1", "from": "podsync"},
    {"time": "2026-01-02T04:04:05.000000Z", "type": "Normal", "reason": "Started", "kind": "Pod", "message": "m",
     "namespace": "shop", "name": "static-here", "uid": "u2", "from": "podsync"},
    {"time": "2026-01-02T05:04:05.000000Z", "type": "Normal", "reason": "NodeReady", "kind": "Node", "message": "m",
     "name": "here", "from": "status"},
]  # fmt: skip
FOUR = 1767326645.0  # 2026-01-02T04:04:05Z, of `date -u -d ... +%s`


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (EventChoice(), ["Pulled", "Started", "NodeReady"]),
        (EventChoice(since=FOUR), ["Started", "NodeReady"]),
        (EventChoice(since=FOUR + 0.5), ["NodeReady"]),
        (EventChoice(namespace="shop", since=FOUR), ["Started"]),
        (EventChoice(pod="static", node="here"), ["Started"]),
        (EventChoice(pod="shop/web"), ["Pulled"]),
        (EventChoice(pod="u1", since=FOUR), []),
    ],
)
def test_events_are_chosen_by_pod_namespace_and_age(choice: EventChoice, expected: list[str]) -> None:
    assert [event["reason"] for event in choice.choose(EVENTS)] == expected


def test_times_are_those_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")  # 5 h 30 min before UTC
    time.tzset()
    try:
        assert event_lines(EVENTS[:1], 0)[1].split()[:2] == ["2026-01-02", "08:34:05"]
    finally:
        monkeypatch.undo()
        time.tzset()
