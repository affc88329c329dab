"""The ring of samples, and what is measured between two of them."""

from typing import Any

import pytest

from services.server.core.pages.node_history import (
    INTERVAL_SECONDS,
    MAX_SAMPLES,
    Latencies,
    NodeHistory,
    added,
    have_started,
    until_next,
)


def test_the_ring_keeps_one_hour() -> None:
    history = NodeHistory()
    for number in range(MAX_SAMPLES + 40):
        history.add(number * INTERVAL_SECONDS, {"node.cpu": number})
    data = history.data()
    assert MAX_SAMPLES * INTERVAL_SECONDS == 3600 and len(data["at"]) == len(data["values"]["node.cpu"]) == MAX_SAMPLES
    assert (data["at"][0], data["values"]["node.cpu"][-1]) == (40 * INTERVAL_SECONDS, MAX_SAMPLES + 39)


@pytest.mark.parametrize(("now", "seconds"), [(100.0, 10.0), (100.001, 9.999), (109.5, 0.5), (109.9995, 10.0005)])
def test_a_timer_that_ends_early_causes_no_second_sample(now: float, seconds: float) -> None:
    assert until_next(now) == pytest.approx(seconds)


def test_samples_from_before_the_machine_was_suspended_are_dropped() -> None:
    history = NodeHistory()
    history.add(10, {"a": 1})
    history.add(20, {"a": 2, "b": 2})
    history.add(3615, {"a": 3})
    assert history.data() == {"at": [20, 3615], "values": {"a": [2, 3], "b": [2, None]}}


def test_a_clock_that_is_set_back_begins_the_history_again_on_the_page_as_well() -> None:
    history = NodeHistory()
    history.add(5000, {"a": 1, "b": 1})
    before = history.data()
    history.add(10, {"a": 2})
    assert history.data() == {"at": [10], "values": {"a": [2]}} == added(before, history.data())
    history.add(20, {"a": 3})
    assert added(before, history.data())["at"] == [10, 20]


def test_samples_in_one_second_or_after_a_small_step_back_of_the_clock_have_moments_of_their_own() -> None:
    history = NodeHistory()
    for at in (100, 109.6, 110.4, 103, 120):
        before = history.data()
        history.add(at, {"a": at})
        assert added(before, history.data()) == {"at": [history.data()["at"][-1]], "values": {"a": [at]}}
    assert history.data()["at"] == [100, 110, 111, 112, 120]
    assert NodeHistory().restore(history.data(), wall=119.5)
    assert not NodeHistory().restore({"at": [100, 100], "values": {"a": [1, 2]}}, wall=119.5)


def test_a_series_has_a_value_or_none_at_each_moment() -> None:
    history = NodeHistory()
    history.add(10.2, {"old": 1.23456})
    history.add(20.0, {"new": 2.0, "unread": None})
    assert history.data() == {
        "at": [10, 20],
        "values": {"old": [1.235, None], "new": [None, 2], "unread": [None, None]},
    }


def test_only_new_samples_are_added_to_what_a_page_has() -> None:
    history = NodeHistory()
    none = history.data()
    history.add(10, {"a": 1})
    one = history.data()
    history.add(20, {"a": 2})
    history.add(30, {"a": 3, "b": 9})
    assert added(none, one) == one
    assert added(one, history.data()) == {"at": [20, 30], "values": {"a": [2, 3], "b": [None, 9]}}
    assert added(one, one) == {}


def test_the_longest_interval_and_delay_of_beats_are_measured() -> None:
    latencies = Latencies()
    assert latencies.take(0.0) == {"beats.interval": None, "messages.delay": None, "pods.start": None}
    for service, sent_at, now in (("pleg", 1.0, 1.001), ("sources", 1.0, 1.003), ("pleg", 3.5, 3.501)):
        latencies.note_beat(service, sent_at, now)
    taken = latencies.take(4.0)
    assert taken["beats.interval"] == 3.0  # sources has sent none since 1.0
    assert taken["messages.delay"] == pytest.approx(0.003)
    latencies.note_beat("sources", 4.0, 4.0)
    latencies.note_beat("pleg", 4.5, 4.5)
    assert latencies.take(5.0)["beats.interval"] == 3.0
    assert latencies.take(5.0)["beats.interval"] == 1.0


def test_the_longest_start_of_a_pod_counts_once_and_only_for_pods_that_arrived() -> None:
    latencies = Latencies()
    latencies.pod_arrived("a", 1.0)
    latencies.pod_arrived("a", 5.0)
    latencies.pod_arrived("b", 2.0)
    latencies.pod_arrived("gone", 0.0)
    latencies.pod_removed("gone")
    for uid in ("a", "b", "gone", "older than this process"):
        latencies.pod_started(uid, 7.0)
    assert latencies.take(7.0)["pods.start"] == 6.0
    latencies.pod_started("a", 9.0)
    assert latencies.take(9.0)["pods.start"] is None


RUNS: dict[str, Any] = {"running": {"startedAt": "x"}}
WAITS: dict[str, Any] = {"waiting": {"reason": "x"}}


@pytest.mark.parametrize(
    ("states", "started"),
    [
        ([], False),
        ([RUNS], False),
        ([WAITS, WAITS], False),
        ([RUNS, WAITS], False),
        ([RUNS, RUNS], True),
        ([RUNS, {"terminated": {"exitCode": 0}}], True),
    ],
)
def test_a_pod_has_started_when_each_container_has(states: list[dict[str, Any]], started: bool) -> None:
    spec = {"containers": [{"name": "a"}, {"name": "b"}]}
    assert have_started(spec, {"containerStatuses": [{"state": state} for state in states]}) is started


def test_a_restarted_process_continues_with_the_saved_hour() -> None:
    history = NodeHistory()
    for at in (10, 20, 3700):
        history.add(at, {"a": at / 4, "b": None})
    restored = NodeHistory()
    assert restored.restore(history.data(), 3720.0) and restored.data() == history.data()
    assert restored.restore({"at": [10, 3700], "values": {"a": [1, 2.5]}}, 3720.0)
    assert restored.data() == {"at": [3700], "values": {"a": [2.5]}}
    restored.add(3730, {"a": 3, "c": 1})
    assert restored.data() == {"at": [3700, 3730], "values": {"a": [2.5, 3], "c": [None, 1]}}


@pytest.mark.parametrize(
    "saved",
    [
        None,
        [],
        {},
        {"at": [], "values": {}},
        {"at": [10], "values": []},
        {"at": [20, 10], "values": {}},
        {"at": ["10"], "values": {}},
        {"at": [10], "values": {"a": [1, 2]}},
        {"at": [10], "values": {"a": ["1"]}},
        {"at": [10], "values": {"a": None}},
        {"at": [1000], "values": {"a": [1]}},
        {"at": list(range(MAX_SAMPLES + 1)), "values": {}},
        {"at": [10], "values": {f"s{number}": [1] for number in range(65)}},
    ],
)
def test_a_file_that_is_no_history_or_is_newer_than_now_is_not_taken(saved: Any) -> None:
    history = NodeHistory()
    history.add(5, {"a": 1})
    assert not history.restore(saved, 100.0)
    assert history.data() == {"at": [5], "values": {"a": [1]}}
