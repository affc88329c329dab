"""Transition times, the order of conditions, node events, and which events are logged."""

from bus.messages.event import KubeEvent
from services.status.core.event_log import EventLog
from services.status.core.node_conditions import (
    MAX_KEPT_CHANGES,
    MAX_MESSAGE_CHARACTERS,
    is_change,
    joined,
    ready_condition,
    same_but_for,
    transitions,
    with_changes,
)
from shared.time.timestamps import go_duration, rfc3339, rfc3339_micro

PRESSURE = {
    "type": "MemoryPressure",
    "status": "False",
    "reason": "KubeletHasSufficientMemory",
    "message": "kubelet has sufficient memory available",
    "lastTransitionTime": "t0",
}


def test_the_transition_time_moves_with_the_status_only() -> None:
    first = ready_condition(ready=False, message="a", now="t1", previous=None)
    second = ready_condition(ready=False, message="b", now="t2", previous=first)
    third = ready_condition(ready=True, message="c", now="t3", previous=second)
    assert [c["lastTransitionTime"] for c in (first, second, third)] == ["t1", "t1", "t3"]
    assert [c["lastHeartbeatTime"] for c in (first, second, third)] == ["t1", "t2", "t3"]
    assert [c["reason"] for c in (first, second, third)] == ["KubeletNotReady", "KubeletNotReady", "KubeletReady"]


def test_conditions_stand_in_the_kubelets_order() -> None:
    ready = ready_condition(ready=True, message="m", now="t", previous=None)
    pressures = [{**PRESSURE, "type": kind} for kind in ("Own", "PIDPressure", "MemoryPressure")]
    conditions = joined(pressures, ready, now="t")
    assert [c["type"] for c in conditions] == ["MemoryPressure", "PIDPressure", "Own", "Ready"]
    assert {c["lastHeartbeatTime"] for c in conditions} == {"t"}
    assert conditions[0]["lastTransitionTime"] == "t0"


def test_node_events_follow_changed_statuses_and_new_pressures_but_no_first_ready() -> None:
    ready = ready_condition(ready=True, message="m", now="t", previous=None)
    not_ready = ready_condition(ready=False, message="m", now="t", previous=ready)
    assert [t.reason for t in transitions([], [PRESSURE, ready])] == ["NodeHasSufficientMemory"]
    assert transitions([PRESSURE, ready], [PRESSURE, ready]) == []
    assert [t.reason for t in transitions([ready], [not_ready])] == ["NodeNotReady"]
    assert [t.reason for t in transitions([not_ready], [ready])] == ["NodeReady"]


def test_a_difference_may_be_left_out_of_the_comparison() -> None:
    assert same_but_for([PRESSURE], [{**PRESSURE, "message": "x"}], "message")
    assert not same_but_for([PRESSURE], [{**PRESSURE, "status": "True"}], "message")


def test_an_event_is_logged_once_with_type_reason_object_and_message() -> None:
    log = EventLog(since="2026-01-01T00:00:00.000000Z")
    event = KubeEvent(
        type="Warning",
        reason="FailedMount",
        message="MountVolume.SetUp failed\nfor a reason",
        namespace="default",
        name="web",
        uid="u",
        field_path="spec.containers{c}",
        time="2026-01-01T00:00:01.000000Z",
    )
    assert log.line("volume", "1", event, is_new=False) == (
        "type=Warning reason=FailedMount object=Pod/default/web uid=u fieldPath=spec.containers{c} "
        'message="MountVolume.SetUp failed for a reason" from=volume at=2026-01-01T00:00:01.000000Z'
    )
    assert log.line("volume", "1", event, is_new=False) is None
    assert log.line("podsync", "1", event, is_new=False) is not None


def test_an_event_from_before_our_start_was_logged_by_the_earlier_process() -> None:
    log = EventLog(since="2026-01-01T00:00:00.000000Z")
    old = KubeEvent(type="Normal", reason="R", message="m", time="2025-12-31T23:59:59.999999Z")
    assert log.line("podsync", "1", old, is_new=False) is None
    assert log.line("podsync", "1", old, is_new=True) is not None  # a clock was set back
    undated = KubeEvent(type="Normal", reason="R", message="m", kind="Node", name="n")
    assert (
        log.line("podsync", "2", undated, is_new=False)
        == 'type=Normal reason=R object=Node/n message="m" from=podsync at=-'
    )


def test_times_and_durations_are_written_as_kubernetes_writes_them() -> None:
    assert rfc3339(0.9) == "1970-01-01T00:00:00Z"
    assert rfc3339_micro(1.5) == "1970-01-01T00:00:01.500000Z"
    assert [go_duration(s) for s in (0, 0.45, 31, 90.5, 180, 7200)] == [
        "0s",
        "450ms",
        "31s",
        "1m30.5s",
        "3m0s",
        "2h0m0s",
    ]


def test_the_history_has_changed_statuses_and_reasons_the_newest_200() -> None:
    down = ready_condition(ready=False, message="runtime is down" * 100, now="t1", previous=None)
    still_down = ready_condition(ready=False, message="other", now="t2", previous=down)
    up = ready_condition(ready=True, message="", now="t3", previous=still_down)
    history = with_changes((), (), [down])
    history = with_changes(history, [down], [still_down])
    history = with_changes(history, [still_down], [up])
    assert [(one["status"], one["at"]) for one in history] == [("False", "t1"), ("True", "t3")]
    assert len(history[0]["message"]) == MAX_MESSAGE_CHARACTERS
    assert all(is_change(one) for one in history) and not is_change({"type": "Ready"})
    for _ in range(MAX_KEPT_CHANGES):
        history = with_changes(history, [up], [down])
    assert [one["at"] for one in history] == ["t1"] * MAX_KEPT_CHANGES
