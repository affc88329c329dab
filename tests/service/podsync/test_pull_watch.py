"""The pulls in progress are watched beside the pulls: published, written into stories, bounded, and over with them."""

import asyncio
from pathlib import Path

from bus.messages.event import KubeEvent
from bus.messages.podsync import ImagePull
from bus.messages.streams import PODS_PULLS
from services.podsync.adapters.story import StoryFiles
from services.podsync.controllers.pull_watch import PullWatch
from shared.model.objects import Object
from shared.story.files import read_story
from shared.story.lines import Kind
from tests.fakes.content import FakeContent
from tests.fakes.memory_bus import MemoryNetwork
from tests.fakes.runtime import FakeRuntime
from tests.fakes.virtual_time import on_virtual_time, pass_time, virtual_clock

MEBIBYTE = 1 << 20
IMAGE = "r.example/app:1"


def pod(uid: str = "u1") -> Object:
    spec = {"containers": [{"name": "main", "image": IMAGE}]}
    return {"metadata": {"name": "web", "namespace": "shop", "uid": uid, "resourceVersion": "7"}, "spec": spec}


class Stage:
    """A PullWatch over a content store of the test."""

    def __init__(self, directory: Path) -> None:
        clock = virtual_clock()
        self.network = MemoryNetwork(clock)
        self.clock, self.content, self.events = clock, FakeContent(), list[KubeEvent]()
        self.runtime = FakeRuntime(clock)
        self.runtime.content = self.content
        self.stories = StoryFiles(directory)
        self.directory = directory
        self.stream = self.network.bus("podsync").own(PODS_PULLS)
        self.watch = PullWatch(self.runtime, clock, self.stream, self.stories, self.events.append)

    def item(self, uid: str = "u1") -> ImagePull:
        found = self.stream.get(uid)
        assert found is not None
        return found

    async def pass_time(self, seconds: float) -> None:
        await pass_time(self.network, seconds)

    def has_manifest(self) -> None:
        """A manifest of two layers, the first of which is there already."""
        self.content.add_manifest("r.example", "app", "m", {"a": MEBIBYTE, "b": 3 * MEBIBYTE}, self.clock.wall())
        self.content.complete.add("a")


@on_virtual_time
async def test_a_pull_is_published_while_it_lasts(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    with stage.watch.watched(pod(), "main", IMAGE):
        await stage.pass_time(1.0)
        assert stage.content.requests == []  # most pulls end before the first poll
        await stage.pass_time(1.5)
        assert (stage.item().total, stage.item().seconds) == (0, 2.0)
        stage.has_manifest()
        stage.content.fetched["b"] = MEBIBYTE
        await stage.pass_time(2.0)
        assert (stage.item().arrived, stage.item().total, stage.item().layers) == (2 * MEBIBYTE, 4 * MEBIBYTE, 2)
        stage.content.fetched["b"] = 2 * MEBIBYTE
        await stage.pass_time(2.0)
        assert (stage.item().arrived, stage.item().rate, stage.item().idle) == (3 * MEBIBYTE, MEBIBYTE // 2, 0.0)
        await stage.pass_time(40.0)
        assert stage.item().idle == 40.0
    assert stage.stream.keys() == ()
    number = len(stage.content.requests)
    await stage.pass_time(60.0)
    assert (len(stage.content.requests), stage.content.closed) == (number, 1)


@on_virtual_time
async def test_one_request_serves_all_pulls_and_a_pod_that_joins_shows_the_same(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.has_manifest()
    with stage.watch.watched(pod("u1"), "main", IMAGE):
        await stage.pass_time(5.0)
        with stage.watch.watched(pod("u2"), "main", IMAGE), stage.watch.watched(pod("u3"), "", "r.example/other:1"):
            stage.content.requests.clear()
            await stage.pass_time(2.0)
            assert stage.content.requests.count("ingests") == 1
            assert (stage.item("u2").total, stage.item("u3").total) == (4 * MEBIBYTE, 0)
        assert stage.stream.keys() == ("u1",)


@on_virtual_time
async def test_a_pull_that_begins_during_a_poll_is_shown_by_the_next(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.has_manifest()
    with stage.watch.watched(pod("u1"), "main", IMAGE):
        held = stage.content.held["has"] = asyncio.Event()
        await stage.pass_time(3.0)
        assert stage.content.requests[-1] == "has"
        with stage.watch.watched(pod("u2"), "main", "r.example/other:1"):
            held.set()
            await stage.pass_time(0.5)
            assert stage.stream.keys() == ("u1",)
            await stage.pass_time(2.0)
            assert sorted(stage.stream.keys()) == ["u1", "u2"]


@on_virtual_time
async def test_a_runtime_without_a_content_store_is_asked_once_per_connection(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.content.failure = "Unimplemented"
    with stage.watch.watched(pod(), "main", IMAGE):
        await stage.pass_time(300.0)
        assert (stage.content.requests, stage.stream.keys()) == (["ingests"], ())
    stage.content.failure = ""  # another runtime came in its place
    with stage.watch.watched(pod(), "main", IMAGE):
        await stage.pass_time(3.0)
        assert stage.stream.keys() == ("u1",)


@on_virtual_time
async def test_a_store_that_hangs_or_fails_withdraws_the_progress_and_is_tried_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.has_manifest()
    with stage.watch.watched(pod(), "main", IMAGE):
        await stage.pass_time(3.0)
        assert stage.stream.keys() == ("u1",)
        stage.content.hangs = True
        await stage.pass_time(7.0)
        assert stage.stream.keys() == ()
        stage.content.hangs, stage.content.failure = False, "Unavailable"
        await stage.pass_time(7.0)
        assert stage.stream.keys() == ()
        stage.content.failure = ""
        await stage.pass_time(7.0)
        assert stage.item().total == 4 * MEBIBYTE


@on_virtual_time
async def test_events_come_after_1_2_4_minutes_and_lines_of_the_story_once_more_after_10_s(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.has_manifest()
    with stage.watch.watched(pod(), "main", IMAGE):
        await stage.pass_time(59.0)
        assert stage.events == []
        await stage.pass_time(3600.0)
    assert [event.reason for event in stage.events] == ["PullProgress"] * 6  # 1, 2, 4, 8, 16, 32 min
    first = stage.events[0]
    assert (first.type, first.namespace, first.name, first.uid, first.resource_version, first.annotations) == (
        "Normal", "shop", "web", "u1", "7", (),
    )  # fmt: skip
    assert first.field_path == "spec.containers{main}"
    assert first.message == (f'Pulling image "{IMAGE}" since 60s: 1.0 MiB of 4.0 MiB, 2 layers, no bytes for 58s')
    await asyncio.to_thread(stage.stories.close)
    lines = [line for line in read_story(tmp_path, "u1").lines if line["what"] == Kind.PULL]
    assert len(lines) == 7


@on_virtual_time
async def test_a_service_that_ends_ends_the_polls(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    with stage.watch.watched(pod(), "main", IMAGE):
        await stage.pass_time(3.0)
        await stage.watch.close()
        assert (stage.content.closed, stage.stream.keys()) == (1, ())
