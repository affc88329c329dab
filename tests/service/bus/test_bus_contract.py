"""What every bus promises: the same tests on the bus of tests and on the bus of real processes."""

import asyncio
from typing import Any
from unittest.mock import patch

import pytest

from bus import codec
from bus.endpoint import Endpoint
from bus.frames import BEATS_TOPIC, topic_of
from bus.interface import Change, Deleted, Freshness, Put
from bus.messages.beat import Beat
from bus.messages.snapshot import GetSnapshot, Snapshot
from bus.messages.sources import DesiredPod
from bus.messages.streams import NODE_IMAGES, PODS_ADMITTED, PODS_DESIRED
from bus.stream import StreamOwner
from tests.service.bus.harness import Harness, world

__all__ = ["world"]


def pod(uid: str, **spec: Any) -> DesiredPod:
    return DesiredPod(uid=uid, source="file", pod={"spec": spec})


class Follower:
    """A service that follows pods.desired and keeps each change."""

    def __init__(self, world: Harness, service: str = "podsync") -> None:
        self.bus: Endpoint = world.bus(service)
        self.changes: list[Change[DesiredPod]] = []
        self.stream = self.bus.follow(PODS_DESIRED, self.changes.append)

    def freshness(self) -> tuple[bool, bool]:
        return self.stream.complete, self.stream.stale


class TestStreams:
    async def test_a_late_joiner_gets_everything_that_was_put_before(self, world: Harness) -> None:
        owner = world.bus("sources")
        pods = owner.own(PODS_DESIRED)
        pods.put("a", pod("a"))
        await owner.start()
        pods.put("b", pod("b"))
        pods.mark_complete()
        follower = Follower(world)
        await follower.bus.start()
        await world.until(lambda: follower.stream.complete)
        assert dict(follower.stream.state) == {"a": pod("a"), "b": pod("b")}
        assert follower.changes[-1] == Freshness(complete=True, stale=False)

    async def test_a_follower_that_was_there_first_gets_it_too(self, world: Harness) -> None:
        follower = Follower(world)
        await follower.bus.start()
        assert follower.freshness() == (False, True)
        owner = world.bus("sources")
        pods = owner.own(PODS_DESIRED)
        await owner.start()
        pods.put("a", pod("a"))
        await world.until(lambda: "a" in follower.stream.state)
        assert follower.freshness() == (False, False)

    async def test_parts_of_a_process_share_one_replica_and_one_copy_of_each_value(self, world: Harness) -> None:
        owner = world.bus("sources")
        pods = owner.own(PODS_DESIRED)
        ledger = owner._ledgers[PODS_DESIRED.name]
        pods.put("a", pod("a"))
        pods.mark_complete()
        await owner.start()
        follower = Follower(world)
        second = list[Change[DesiredPod]]()
        assert follower.bus.follow(PODS_DESIRED, second.append) is follower.stream
        with patch.object(ledger, "snapshot", wraps=ledger.snapshot) as snapshot:
            await follower.bus.start()
            await world.until(lambda: follower.stream.complete)
            pods.put("b", pod("b"))
            await world.until(lambda: "b" in follower.stream.state)
        assert snapshot.call_count == 1
        assert second == follower.changes and len(second) >= 3
        values = [
            (one.value, other.value)
            for one, other in zip(follower.changes, second, strict=True)
            if isinstance(one, Put) and isinstance(other, Put)
        ]
        assert len(values) == 2 and all(one is other for one, other in values)

    async def test_changes_are_passed_on_in_order_with_their_cause(self, world: Harness) -> None:
        _, pods, follower = await self.joined(world)
        pods.put("a", pod("a"), "file web.yaml")
        pods.put("a", pod("a"), "the same once more")
        pods.put("a", pod("a", v=2), "file web.yaml changed")
        pods.delete("a", "file web.yaml removed")
        pods.delete("a", "a second time")
        pods.put("b", pod("b"), "last")
        await world.until(lambda: "b" in follower.stream.state)
        assert [change for change in follower.changes if not isinstance(change, Freshness)] == [
            Put("a", pod("a"), "file web.yaml"),
            Put("a", pod("a", v=2), "file web.yaml changed"),
            Deleted("a", "file web.yaml removed"),
            Put("b", pod("b"), "last"),
        ]
        assert (pods.get("a"), pods.get("b"), pods.keys()) == (None, pod("b"), ("b",))

    async def test_complete_reaches_present_followers(self, world: Harness) -> None:
        _, pods, follower = await self.joined(world)
        pods.mark_complete()
        await world.until(lambda: follower.stream.complete)
        assert follower.changes[-1] == Freshness(complete=True, stale=False)

    async def test_a_restarted_owner_takes_nothing_away_until_it_is_complete(self, world: Harness) -> None:
        owner, pods, follower = await self.joined(world)
        pods.put("stays", pod("stays"))
        pods.put("goes", pod("goes"))
        pods.mark_complete()
        await world.until(lambda: follower.stream.complete)
        await world.kill(owner)
        del follower.changes[:]

        again = world.bus("sources")
        pods = again.own(PODS_DESIRED)
        pods.put("stays", pod("stays"))
        await again.start()
        await world.until(lambda: not follower.stream.complete)
        pods.put("new", pod("new"))
        await world.until(lambda: "new" in follower.stream.state)
        assert set(follower.stream.state) == {"stays", "goes", "new"}
        pods.mark_complete()
        await world.until(lambda: follower.stream.complete)
        assert set(follower.stream.state) == {"stays", "new"}
        assert [change.key for change in follower.changes if isinstance(change, Deleted)] == ["goes"]
        assert [change for change in follower.changes if isinstance(change, Freshness)] == [
            Freshness(complete=False, stale=False),
            Freshness(complete=True, stale=False),
        ]

    async def test_a_restarted_follower_begins_with_the_snapshot(self, world: Harness) -> None:
        _, pods, follower = await self.joined(world)
        pods.put("a", pod("a"))
        await world.until(lambda: "a" in follower.stream.state)
        await world.kill(follower.bus)
        pods.put("b", pod("b"))
        again = Follower(world)
        await again.bus.start()
        await world.until(lambda: len(again.stream.state) == 2)

    async def test_a_follower_that_fails_ends_neither_the_bus_nor_its_neighbours(
        self, world: Harness, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(_: Change[DesiredPod]) -> None:
            raise ZeroDivisionError

        owner = world.bus("sources")
        pods = owner.own(PODS_DESIRED)
        await owner.start()
        follower = Follower(world)
        failing = follower.bus.follow(PODS_DESIRED, fail)
        await follower.bus.start()
        pods.put("a", pod("a"))
        await world.until(lambda: "a" in follower.stream.state and "a" in failing.state)
        assert "bus: the follower of pods.desired failed on a Put" in caplog.messages

    async def test_a_value_over_the_cap_is_refused_logged_and_changes_nothing(
        self, world: Harness, caplog: pytest.LogCaptureFixture
    ) -> None:
        _, pods, follower = await self.joined(world)
        pods.put("a", pod("a"))
        with pytest.raises(codec.MessageTooLargeError, match=r"^pods\.desired a is too large for the bus: "):
            pods.put("a", pod("a", blob="x" * codec.MAX_MESSAGE_BYTES))
        pods.put("b", pod("b"))
        await world.until(lambda: "b" in follower.stream.state)
        assert follower.stream.state["a"] == pods.get("a") == pod("a")
        assert any(message.startswith("bus: not published: pods.desired a is too large") for message in caplog.messages)

    @pytest.mark.long
    @pytest.mark.share(2)
    async def test_a_snapshot_may_be_larger_than_any_one_message(self, world: Harness) -> None:
        owner = world.bus("sources")
        pods = owner.own(PODS_DESIRED)
        for uid in ("a", "b", "c"):
            pods.put(uid, pod(uid, blob="x" * (codec.MAX_MESSAGE_BYTES // 2)))
        await owner.start()
        follower = Follower(world)
        await follower.bus.start()
        await world.until(lambda: len(follower.stream.state) == 3)

    async def test_frames_that_do_not_decode_are_counted_and_dropped(
        self, world: Harness, caplog: pytest.LogCaptureFixture
    ) -> None:
        owner, pods, follower = await self.joined(world)
        pods.put("a", pod("a"))
        await world.until(lambda: "a" in follower.stream.state)
        topic = topic_of("pods.desired")
        for message in (
            (topic, b"\xff", b""),
            (topic, b'{"v":"2.0"}', b"{}"),
            (topic,),
            (BEATS_TOPIC, b"[]"),
            (BEATS_TOPIC, b"{}", b"{}"),
        ):
            world.publish_raw(owner, follower.bus, message)
        pods.put("b", pod("b"))
        await world.until(lambda: "b" in follower.stream.state)
        assert follower.bus.drops.counts["frame"] == 5
        assert len([message for message in caplog.messages if "dropped a frame" in message]) == 1

    async def test_a_value_that_does_not_decode_costs_only_itself(self, world: Harness) -> None:
        _, pods, follower = await self.joined(world)
        pods.put("a", pod("a"))
        await world.until(lambda: "a" in follower.stream.state)
        wrong: Any = DesiredPod(uid="a", source="file", pod="not an object")  # type: ignore[arg-type]
        pods.put("a", wrong)
        pods.put("b", pod("b"))
        await world.until(lambda: "b" in follower.stream.state)
        assert follower.stream.state["a"] == pod("a")
        assert follower.bus.drops.counts["value"] == 1
        assert follower.bus.drops.counts["snapshot again"] == 0

    async def test_a_refreshed_value_sends_nothing_and_is_in_the_next_snapshot(self, world: Harness) -> None:
        _, pods, follower = await self.joined(world)
        pods.put("a", pod("a"))
        await world.until(lambda: "a" in follower.stream.state)
        newer = DesiredPod(uid="a", source="api", pod={"status": "newer"})
        pods.refresh("a", newer)
        pods.refresh("unknown", newer)
        pods.put("b", pod("b"))
        await world.until(lambda: "b" in follower.stream.state)
        assert follower.stream.state["a"] == pod("a") and pods.get("a") == newer
        late = Follower(world, "volume")
        await late.bus.start()
        await world.until(lambda: "b" in late.stream.state)
        assert dict(late.stream.state) == {"a": newer, "b": pod("b")}

    async def test_an_owner_of_another_major_version_makes_the_stream_stale_and_a_trouble(self, world: Harness) -> None:
        owner, pods, follower = await self.joined(world)
        pods.put("a", pod("a"))
        await world.until(lambda: "a" in follower.stream.state)
        del follower.changes[:]
        world.publish_raw(owner, follower.bus, (topic_of("pods.desired"), b'{"v":"3.0"}', b"{}"))
        # It is stale until the owner's next beat, which we speak; that may come at once.
        await world.until(lambda: Freshness(complete=False, stale=True) in follower.changes)
        assert "a" in follower.stream.state
        await world.until(lambda: not follower.stream.stale)
        foreign = codec.encode(Beat(service="sources", incarnation="x", protocol="3.0", pid=1, sent_at=0.0))
        world.publish_raw(owner, follower.bus, (BEATS_TOPIC, foreign))
        await world.until(lambda: follower.stream.stale)
        ours = codec.PROTOCOL_VERSION
        troubles = follower.bus._present_beat().troubles
        assert troubles == (f"sources speaks bus protocol 3.0 and podsync {ours}: restart the older one",)

    async def test_only_the_owner_owns_and_only_once(self, world: Harness) -> None:
        bus = world.bus("sources")
        bus.own(PODS_DESIRED)
        with pytest.raises(ValueError, match=r"pods\.desired is owned already"):
            bus.own(PODS_DESIRED)
        with pytest.raises(ValueError, match=r"pods\.admitted is owned by podsync, not by sources"):
            bus.own(PODS_ADMITTED)

    async def test_streams_are_named_before_the_start(self, world: Harness) -> None:
        bus = world.bus("pleg")
        with pytest.raises(RuntimeError, match="pleg asked podsync before its bus was started"):
            await bus.ask("podsync", GetSnapshot(stream="pods.status"), Snapshot)
        await bus.start()
        with pytest.raises(RuntimeError, match="pleg called own after its bus was started"):
            bus.own(NODE_IMAGES)

    async def joined(self, world: Harness) -> tuple[Endpoint, StreamOwner[DesiredPod], Follower]:
        """An owner and a follower that is in step with it."""
        owner = world.bus("sources")
        pods = owner.own(PODS_DESIRED)
        await owner.start()
        follower = Follower(world)
        await follower.bus.start()
        await world.until(lambda: not follower.stream.stale)
        return owner, pods, follower


class TestBeats:
    async def test_a_new_subscriber_gets_a_beat_with_progress_and_troubles(self, world: Harness) -> None:
        received: list[Beat] = []
        server = world.bus("server")
        server.on_beat(received.append)
        await server.start()
        owner = world.bus("sources")
        pods = owner.own(PODS_DESIRED)
        pods.put("a", pod("a"))
        owner.progress("scan")
        owner.trouble("dir", "cannot read /etc/manifests")
        await owner.start()
        await world.until(lambda: any(beat.service == "sources" for beat in received))
        beat = next(beat for beat in received if beat.service == "sources")
        assert beat.incarnation == owner.incarnation
        assert beat.streams == {"pods.desired": 1}
        assert set(beat.progress) == {"scan"}
        assert beat.troubles == ("cannot read /etc/manifests",)

    async def test_a_new_trouble_does_not_wait_for_the_next_second(self, world: Harness) -> None:
        received: list[Beat] = []
        server = world.bus("server")
        server.on_beat(received.append)
        await server.start()
        owner = world.bus("sources")
        await owner.start()
        await world.until(lambda: any(beat.service == "sources" for beat in received))
        owner.trouble("dir", "cannot read /etc/manifests")
        await asyncio.sleep(0)
        at_once = owner.clock.monotonic()  # the end of that turn of the loop, however long it took
        # The newest beat may be another one by then: all services send one at the next full second.
        await world.until(lambda: any(beat.troubles for beat in received))
        shown = next(beat for beat in received if beat.troubles)
        assert shown.service == "sources" and shown.sent_at <= at_once

    async def test_a_callback_that_fails_is_logged(self, world: Harness, caplog: pytest.LogCaptureFixture) -> None:
        def fail(_: Beat) -> None:
            raise ZeroDivisionError

        server = world.bus("server")
        server.on_beat(fail)
        await server.start()
        await world.until(lambda: "bus: a callback for beats failed on the beat of server" in caplog.messages)
