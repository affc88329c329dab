"""Events at the API server: all of them, none twice, through restarts, outages and refusals."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bus.messages.event import MAX_KEPT_EVENTS, KubeEvent
from services.status.core.event_queue import MAX_EVENTS
from shared.kube import paths
from tests.fakes.api_resources import target_of
from tests.service.status.event_stage import EventStage, event_stage
from tests.service.status.node_stage import node_stage

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[EventStage]:
    async with event_stage(tmp_path) as stage:
        yield stage


async def test_an_event_is_recorded_and_counted_up(stage: EventStage) -> None:
    await stage.pass_time(2)
    stage.publish_event("Container started", field_path="spec.containers{c}", resource_version="5")
    await stage.pass_time(30)
    stage.publish_event("Container started", field_path="spec.containers{c}", resource_version="9")
    await stage.pass_time(1)
    (event,) = stage.events()
    assert (event["count"], event["firstTimestamp"], event["lastTimestamp"]) == (
        2,
        "2023-11-14T22:13:22Z",
        "2023-11-14T22:13:52Z",
    )
    assert event["involvedObject"]["resourceVersion"] == "5"
    assert [method for method, _ in stage.api.requests] == ["POST", "PATCH"]
    patch = stage.api.received[-1].body
    assert patch.keys() == {"count", "lastTimestamp", "message"}


async def test_similar_events_are_combined(stage: EventStage) -> None:
    for number in range(12):
        stage.publish_event(f"m{number}", writer=("podsync", "pleg")[number % 2])
        await stage.pass_time(2)
    alone = {f"m{number}": 1 for number in range(9)}
    assert stage.counts() == alone | {"(combined from similar events): m11": 3}


async def test_spam_is_not_sent(stage: EventStage) -> None:
    await stage.pass_time(2)
    for _ in range(40):
        stage.publish_event()
        await stage.pass_time(0.1)
    assert len(stage.api.requests) == 25
    assert stage.counts() == {"m": 25}
    await stage.pass_time(300)
    stage.publish_event()
    await stage.pass_time(1)
    assert stage.counts() == {"m": 41}


async def test_a_deleted_event_is_created_again(stage: EventStage) -> None:
    stage.publish_event()
    await stage.pass_time(2)
    (event,) = stage.events()
    stage.api.delete(paths.event("default", event["metadata"]["name"]))
    stage.publish_event()
    await stage.pass_time(2)
    (again,) = stage.events()
    assert (again["metadata"]["name"], again["count"]) == (event["metadata"]["name"], 2)


async def test_events_of_the_node_are_in_default_and_all_is_wired(tmp_path: Path) -> None:
    async with node_stage(tmp_path) as stage:
        await stage.start()
        await stage.until(stage.ready, within=5)
        await stage.pass_time(3)
        found = [event for _, event in stage.api.store.below(target_of(paths.events("default")))]
        assert {"Starting", "NodeHasNoDiskPressure"} <= {event["reason"] for event in found}
        for event in found:
            assert event["involvedObject"] == {"kind": "Node", "name": "n1", "apiVersion": "v1"}
            assert event["source"] == {"component": "kubelet", "host": "n1"}


@pytest.mark.long
async def test_events_that_wait_disturb_nothing_else(tmp_path: Path) -> None:
    async with node_stage(tmp_path) as stage:
        await stage.start()
        await stage.until(stage.ready, within=5)
        stage.api.down()
        await stage.pass_time(60)
        stage.api.up()
        await stage.until(stage.ready, within=10)
        await stage.pass_time(20)
        assert stage.lease and stage.lease_ages[-1] < 11


# Restarts.


async def test_what_happened_while_status_was_dead_is_recorded_once(stage: EventStage) -> None:
    _publish_many(stage, 0, 40)
    await stage.pass_time(5)
    await stage.kill()
    _publish_many(stage, 40, 60)
    stage.publish_event("again", uid="x")
    stage.publish_event("again", uid="x")
    await stage.pass_time(3)
    sent = len(stage.api.requests)
    await stage.start()
    await stage.pass_time(5)
    assert stage.counts() == {f"m{number}": 1 for number in range(60)} | {"again": 2}
    assert len(stage.api.requests) - sent <= 22


async def test_kills_at_every_moment_double_nothing(stage: EventStage) -> None:
    sent = 0
    for run in range(8):
        for step in range(4):
            same = sent % 3 != 0
            stage.publish_event(
                "same" if same else f"m{sent}", "podsync" if same else "pleg", uid="s" if same else str(sent)
            )
            sent += 1
            await stage.pass_time(0.13 * run + 0.05 * step)
        await stage.kill()
        await stage.pass_time(0.4)
        await stage.start()
    await stage.pass_time(10)
    equal = sum(1 for number in range(sent) if number % 3)
    assert stage.counts() == {f"m{number}": 1 for number in range(0, sent, 3)} | {"same": equal}


@pytest.mark.parametrize("writer_restarts", [False, True])
async def test_what_no_stream_shows_any_more_is_counted_on_after_a_restart(
    stage: EventStage, writer_restarts: bool
) -> None:
    for _ in range(3):
        stage.publish_event("again", uid="x")
        await stage.pass_time(2)
    (before,) = stage.events()
    stage.api.down()
    stage.publish_event("again", uid="x")  # and it was never sent
    await stage.pass_time(2)
    await stage.kill()
    stage.api.up()
    await stage.start()
    await stage.pass_time(10)
    assert stage.counts() == {"again": 4}
    if writer_restarts:
        stage.network.kill("podsync")
        await stage.start_writer("podsync")
    else:
        _publish_many(stage, 0, MAX_KEPT_EVENTS)
    await stage.pass_time(60)
    for number in range(5, 8):
        await stage.kill()
        await stage.start()
        await stage.pass_time(2)
        stage.publish_event("again", uid="x")
        await stage.pass_time(3)
        assert stage.counts()["again"] == number
    (after,) = [event for event in stage.events() if event["message"] == "again"]
    assert after["metadata"]["name"] == before["metadata"]["name"]
    assert after["firstTimestamp"] == before["firstTimestamp"]


@pytest.mark.parametrize("content", [None, b"", b"[]", b'{"version":1,"recorded":{"podsync":4}}', b"\xff"])
async def test_without_the_marks_events_are_sent_again_and_not_doubled(
    stage: EventStage, tmp_path: Path, content: bytes | None
) -> None:
    _publish_many(stage, 0, 5)
    stage.publish_event("m0", uid="0")
    await stage.pass_time(5)
    await stage.kill()
    marks = tmp_path / "events" / "recorded.json"
    marks.unlink() if content is None else marks.write_bytes(content)
    before = stage.counts()
    await stage.start()
    await stage.pass_time(5)
    assert stage.counts() == before == {"m0": 2} | {f"m{number}": 1 for number in range(1, 5)}


async def test_what_a_kill_within_a_save_left_is_removed_at_the_start(stage: EventStage, tmp_path: Path) -> None:
    await stage.kill()
    unfinished = tmp_path / "events" / ".recorded.json.4711.tmp"
    unfinished.parent.mkdir(exist_ok=True)
    unfinished.write_bytes(b"{")
    await stage.start()
    assert not unfinished.exists()


async def test_a_restarted_writer_publishes_new_events_under_old_keys(stage: EventStage) -> None:
    _publish_many(stage, 0, 3)
    await stage.pass_time(2)
    stage.network.kill("podsync")
    await stage.start_writer("podsync")
    _publish_many(stage, 3, 5)
    await stage.pass_time(2)
    assert stage.counts() == {f"m{number}": 1 for number in range(5)}


@pytest.mark.long
async def test_the_marks_are_written_at_most_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[object] = []
    monkeypatch.setattr("services.status.adapters.event_marks_file.write_atomically", lambda *args: writes.append(args))
    async with event_stage(tmp_path) as stage:
        for number in range(200):
            stage.publish_event(uid=str(number))
            await stage.pass_time(0.05)
        assert 8 <= len(writes) <= 11


# The API server is away, or refuses.


async def test_after_an_outage_all_is_there_within_ten_seconds(stage: EventStage) -> None:
    await stage.pass_time(2)
    stage.api.down()
    _publish_many(stage, 0, 80)
    for _ in range(5):
        stage.publish_event("again", uid="x")
    await stage.pass_time(63)
    stage.api.up()
    assert await stage.until_settled(85, within=10) <= 10
    assert stage.counts()["again"] == 5


async def test_after_a_black_hole_all_is_there_within_ten_seconds(stage: EventStage) -> None:
    await stage.pass_time(2)
    stage.api.pause()
    _publish_many(stage, 0, 30)
    await stage.pass_time(57)
    stage.api.resume()
    await stage.until_settled(30, within=10)


@pytest.mark.long
async def test_an_hour_without_an_api_server_takes_bounded_room(
    stage: EventStage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.pass_time(2)
    stage.api.down()
    for minute in range(60):
        _publish_many(stage, 40 * minute, 40 * minute + 40)
        await stage.pass_time(60)
    assert stage.api.requests == []
    stage.api.up()
    await stage.pass_time(60)
    # One is given up every minute and a half, and leaves room for a new one.
    assert MAX_EVENTS - 1 <= stage.total <= MAX_EVENTS
    assert len([line for line in caplog.messages if "more events wait" in line]) == 1
    assert len([line for line in caplog.messages if "events wait until" in line]) == 1
    assert any("events were dropped while" in line for line in caplog.messages)
    stage.publish_event("afterwards", uid="z")
    await stage.pass_time(1)
    assert stage.counts()["afterwards"] == 1


async def test_an_answer_that_is_lost_is_asked_for_again_and_counts_once(stage: EventStage) -> None:
    await stage.pass_time(2)
    stage.api.lose_answers(1)
    stage.publish_event()
    await stage.pass_time(1)
    stage.publish_event()
    await stage.pass_time(10)
    assert stage.counts() == {"m": 2}
    assert [method for method, _ in stage.api.requests] == ["POST", "POST", "PATCH"]


async def test_an_event_that_never_gets_through_is_given_up(
    stage: EventStage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.pass_time(2)
    stage.api.down()
    stage.publish_event("first", uid="1")
    stage.publish_event("second", uid="2")
    await stage.pass_time(4 + 10 * 8 - 1)
    assert not any("given up" in line for line in caplog.messages)
    await stage.pass_time(8)
    stage.api.up()
    await stage.pass_time(9)
    assert stage.counts() == {"second": 1}
    assert any("given up" in line for line in caplog.messages)


@pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (422, "Invalid"), (500, "InternalError")])
async def test_what_the_api_server_refuses_is_dropped_and_logged_once(
    stage: EventStage, caplog: pytest.LogCaptureFixture, code: int, reason: str
) -> None:
    await stage.pass_time(2)
    stage.api.refuse(0, code, reason=reason)
    _publish_many(stage, 0, 5)
    await stage.pass_time(60)
    assert len(stage.api.requests) == 5
    stage.api.up()
    stage.publish_event("afterwards")
    await stage.pass_time(2)
    assert stage.counts() == {"afterwards": 1}
    assert len([line for line in caplog.messages if "refused" in line]) == 1


async def test_an_api_server_that_asks_for_time_gets_it(stage: EventStage) -> None:
    await stage.pass_time(2)
    stage.api.refuse(1, 429, retry_after=25)
    _publish_many(stage, 0, 4)
    await stage.pass_time(24)
    assert stage.events() == [] and len(stage.api.requests) == 1
    await stage.pass_time(2)
    assert stage.total == 4


@pytest.mark.parametrize("namespace", ["going", "gone"])
async def test_a_namespace_that_goes_away_drops_events_quietly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, namespace: str
) -> None:
    caplog.set_level(logging.INFO)
    async with event_stage(tmp_path) as stage:
        going = stage.api.put("/api/v1/namespaces/going", {"metadata": {"finalizers": ["a/b"]}})
        stage.api.delete(f"/api/v1/namespaces/{going['metadata']['name']}")
        stage.publish_event(namespace=namespace)
        await stage.pass_time(3)
        assert [path for _, path in stage.api.requests] == [paths.events(namespace)]
        assert stage.events(namespace) == []
    assert not caplog.messages


async def test_odd_events_disturb_no_others(stage: EventStage) -> None:
    await stage.pass_time(2)
    stage.publish_event("", name="", namespace="", uid="", kind="", type="", reason="")
    stage.publish_event("x" * 2**20, name="No Name", time="nonsense", field_path="\n")
    stage.publish_event("fine", time="2262-12-31T00:00:00+14:00")
    stage.sink.offer(
        "status", "²", KubeEvent(type="Normal", reason="R", message="own", kind="Node", name="n1"), is_new=True
    )
    await stage.pass_time(2)
    assert {"x" * 2**20, "fine", "own"} <= stage.counts().keys()


def _publish_many(stage: EventStage, first: int, end: int) -> None:
    """Each of another pod, so that none is spam or combined."""
    for number in range(first, end):
        stage.publish_event(f"m{number}", uid=str(number))
