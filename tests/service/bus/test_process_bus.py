"""What only the bus of real processes has: a lock, sockets with a mode, lost requests, latency."""

import asyncio
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import zmq
import zmq.asyncio

from bus import codec, frames
from bus.interface import NoAnswerError, RequestRefusedError
from bus.lock import ServiceLock
from bus.manifest import new_manifest, prepare_run_dir
from bus.messages.manifest import Manifest
from bus.messages.snapshot import GetSnapshot, Snapshot
from bus.messages.sources import DesiredPod
from bus.messages.streams import PODS_DESIRED
from bus.process_bus import ProcessBus
from shared.errors import OperatorError
from tests.support.agents.bus_client import ask_once
from tests.support.waits.deadline import WAIT_SECONDS

DESIRED = GetSnapshot(stream="pods.desired")


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    prepare_run_dir(tmp_path / "run")
    return new_manifest(tmp_path / "run")


@pytest.fixture
async def sources(manifest: Manifest) -> AsyncIterator[ProcessBus]:
    """A started owner of pods.desired."""
    bus = ProcessBus("sources", manifest)
    pods = bus.own(PODS_DESIRED)
    for number in range(100):
        pods.put(str(number), DesiredPod(uid=str(number), source="file", pod={"spec": "x" * 4096}))
    pods.mark_complete()
    await bus.start()
    yield bus
    await bus.stop()


async def test_a_second_process_of_a_service_is_refused_before_it_binds(
    manifest: Manifest, sources: ProcessBus
) -> None:
    with pytest.raises(OperatorError, match=r"locks/sources\.lock: sources is running already, as process \d+ \("):
        await ProcessBus("sources", manifest).start()
    assert (await ask_once(manifest, "sources", DESIRED, Snapshot)).incarnation == sources.incarnation


async def test_a_lock_that_is_given_is_kept_at_the_stop(manifest: Manifest) -> None:
    lock = ServiceLock(Path(manifest.run_dir), "podsync")
    assert lock.try_acquire()
    bus = ProcessBus("podsync", manifest, lock=lock)
    await bus.start()
    await bus.stop()
    assert lock.held
    lock.release()


async def test_no_other_user_may_connect_to_the_sockets(manifest: Manifest, sources: ProcessBus) -> None:
    for kind in ("pub", "req"):
        path = Path(manifest.addresses["sources"][kind].removeprefix("ipc://"))
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


async def test_a_bus_that_cannot_bind_reports_it_and_leaves_nothing_behind(manifest: Manifest) -> None:
    Path(manifest.run_dir, "bus").rmdir()
    with pytest.raises(OperatorError, match=r"ipc://.*podsync\.pub: cannot bind: "):
        await ProcessBus("podsync", manifest).start()
    lock = ServiceLock(Path(manifest.run_dir), "podsync")
    assert lock.try_acquire()
    lock.release()


async def test_following_a_service_without_an_address_is_a_mistake(manifest: Manifest, tmp_path: Path) -> None:
    bus = ProcessBus("podsync", new_manifest(tmp_path / "run", services=["podsync"]))
    bus.follow(PODS_DESIRED)
    with pytest.raises(ValueError, match=r"podsync follows \['sources'\], which the manifest does not list"):
        await bus.start()


async def test_a_fresh_follower_of_a_running_owner_has_everything_at_once(
    manifest: Manifest, sources: ProcessBus
) -> None:
    """Within 50 ms on an idle machine; the best of several, as a busy one delays some."""
    taken = []
    for _ in range(5):
        complete = asyncio.Event()
        bus = ProcessBus("podsync", manifest)
        pods = bus.follow(PODS_DESIRED, lambda _: complete.set() if pods.complete else None)  # noqa: B023
        began = time.monotonic()
        await bus.start()
        await asyncio.wait_for(complete.wait(), WAIT_SECONDS)
        taken.append(time.monotonic() - began)
        assert len(pods.state) == 100
        await bus.stop()
    assert min(taken) < 0.5, taken


async def test_a_put_is_on_the_wire_before_the_loop_turns(manifest: Manifest) -> None:
    owner = ProcessBus("sources", manifest)
    pods = owner.own(PODS_DESIRED)
    await owner.start()
    context = zmq.asyncio.Context()
    subscriber = context.socket(zmq.SUB)
    subscriber.subscribe(b"")
    subscriber.connect(manifest.addresses["sources"]["pub"])
    assert (await asyncio.wait_for(subscriber.recv_multipart(), WAIT_SECONDS))[0] == frames.BEATS_TOPIC
    pods.put("a", DesiredPod(uid="a", source="file", pod={}))
    blocking: zmq.Socket[bytes] = zmq.Socket.shadow(subscriber)  # from here on nothing of the loop runs
    topic, message = frames.BEATS_TOPIC, [b""]
    while topic == frames.BEATS_TOPIC and blocking.poll(5000):
        topic, *message = blocking.recv_multipart()
    assert frames.read_update([topic, *message]).key == "a"
    subscriber.close()
    context.term()
    await owner.stop()


async def test_a_request_that_was_swallowed_is_sent_again_once_the_next_process_asks_for_it(
    manifest: Manifest,
) -> None:
    """A ROUTER of the test's own plays a service that dies with the first copy in its hands."""
    asker = ProcessBus("podsync", manifest)
    await asker.start()
    asking = asyncio.create_task(asker.ask("sources", DESIRED, Snapshot))
    context = zmq.asyncio.Context()
    router = context.socket(zmq.ROUTER)
    router.setsockopt(zmq.LINGER, 0)
    router.bind(manifest.addresses["sources"]["req"])
    _, *swallowed = await asyncio.wait_for(router.recv_multipart(), WAIT_SECONDS)
    head, body = frames.read_request(swallowed)
    assert body is not None
    for _ in range(2):
        routing, *reminder = await asyncio.wait_for(router.recv_multipart(), WAIT_SECONDS)
        assert frames.read_request(reminder) == (head, None)
    unknown = frames.write_answer(frames.AnswerHead(v="2.0", id=head.id, unknown=True), b"")
    for _ in range(5):  # as many as reminders waited for a restarted process
        await router.send_multipart([routing, *unknown])
    routing, *again = await asyncio.wait_for(router.recv_multipart(), WAIT_SECONDS)
    assert frames.read_request(again) == (head, body)
    routing, *reminder = await asyncio.wait_for(router.recv_multipart(), WAIT_SECONDS)
    assert frames.read_request(reminder) == (head, None)
    snapshot = codec.encode(Snapshot(stream="pods.desired", incarnation="i", number=0, complete=True, entries={}))
    answer = frames.write_answer(frames.AnswerHead(v="2.0", id=head.id, type="Snapshot"), snapshot)
    await router.send_multipart([routing, b"no head"])
    await router.send_multipart([routing, *answer])
    await router.send_multipart([routing, *answer])
    assert (await asking).incarnation == "i"
    assert asker.drops.counts["answer"] == 1
    router.close()
    context.term()
    await asker.stop()


async def test_requests_that_do_not_decode_or_are_overdue_are_not_answered(
    manifest: Manifest, sources: ProcessBus
) -> None:
    context = zmq.asyncio.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.setsockopt(zmq.LINGER, 0)
    dealer.connect(manifest.addresses["sources"]["req"])
    overdue = frames.RequestHead(v="2.0", client="x/i", id=1, type="GetSnapshot", deadline=time.monotonic() - 1)
    good = frames.RequestHead(v="2.0", client="x/i", id=2, type="GetSnapshot", deadline=time.monotonic() + WAIT_SECONDS)
    await dealer.send_multipart([b"\xff", b"{}"])
    await dealer.send_multipart([b"alone"])
    await dealer.send_multipart(frames.write_request(overdue, codec.encode(DESIRED)))
    await dealer.send_multipart(frames.write_request(good, codec.encode(DESIRED)))
    head, _ = frames.read_answer(await asyncio.wait_for(dealer.recv_multipart(), WAIT_SECONDS))
    assert head.id == 2
    assert sources.drops.counts["request"] == 2
    dealer.close()
    context.term()


async def test_an_answer_to_a_client_that_is_gone_is_counted(manifest: Manifest) -> None:
    gate, asked, sources = asyncio.Event(), asyncio.Event(), ProcessBus("sources", manifest)

    async def wait(_: DesiredPod) -> DesiredPod:
        asked.set()
        await gate.wait()
        return DesiredPod(uid="", source="", pod={})

    sources.answer(DesiredPod, wait)
    await sources.start()
    asker = ProcessBus("podsync", manifest)
    await asker.start()
    asking = asyncio.create_task(asker.ask("sources", DesiredPod(uid="", source="", pod={}), DesiredPod))
    await asyncio.wait_for(asked.wait(), WAIT_SECONDS)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await asker.stop()
    probe = time.monotonic() + WAIT_SECONDS
    with pytest.raises(RequestRefusedError):  # the hang-up came before this on the same I/O thread
        await ask_once(manifest, "sources", DESIRED, Snapshot)
    gate.set()
    while not sources.drops.counts["answer"] and time.monotonic() < probe:
        await asyncio.sleep(0)
    assert sources.drops.counts["answer"] == 1
    await sources.stop()


async def test_questions_under_way_end_with_the_bus(manifest: Manifest) -> None:
    asker = ProcessBus("podsync", manifest)
    await asker.start()
    asking = asyncio.create_task(asker.ask("sources", DESIRED, Snapshot))
    await asyncio.sleep(0)
    await asker.stop()
    with pytest.raises(NoAnswerError, match="the bus was stopped before the answer came"):
        await asking
    with pytest.raises(NoAnswerError, match="podsync did not ask sources for GetSnapshot: its bus is stopped"):
        await asker.ask("sources", DESIRED, Snapshot)


async def test_a_service_that_is_not_in_the_manifest_cannot_be_asked(manifest: Manifest) -> None:
    with pytest.raises(NoAnswerError, match="unknown is not in the manifest of addresses"):
        await ask_once(manifest, "unknown", DESIRED, Snapshot)
