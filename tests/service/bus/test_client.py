"""A command asks running services without being one: answers, refusals, silence, and what each service follows."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bus.client import Client, Question, Refusal
from bus.manifest import new_manifest, prepare_run_dir
from bus.messages.followed import Followed, GetFollowed
from bus.messages.manifest import Manifest
from bus.messages.snapshot import GetSnapshot, Snapshot
from bus.messages.sources import DesiredPod
from bus.messages.streams import PODS_DESIRED
from bus.process_bus import ProcessBus
from tests.support.waits.deadline import WAIT_SECONDS

FOLLOWED = {service: Question(service, GetFollowed(), Followed) for service in ("sources", "podsync", "volume")}
PODS = Question("sources", GetSnapshot(stream="pods.desired"), Snapshot)
FOREIGN = Question("sources", GetSnapshot(stream="pods.status"), Snapshot)


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    prepare_run_dir(tmp_path / "run")
    return new_manifest(tmp_path / "run")


@pytest.fixture
async def services(manifest: Manifest) -> AsyncIterator[dict[str, ProcessBus]]:
    """sources with three pods, and podsync that follows them."""
    sources, podsync = ProcessBus("sources", manifest), ProcessBus("podsync", manifest)
    pods = sources.own(PODS_DESIRED)
    for number in range(3):
        pods.put(str(number), DesiredPod(uid=str(number), source="file", pod={}))
    pods.mark_complete()
    followed = podsync.follow(PODS_DESIRED)
    await sources.start()
    await podsync.start()
    sources.trouble("disk", "the disk is full")
    async with asyncio.timeout(WAIT_SECONDS):
        while not followed.complete:
            await asyncio.sleep(0.01)
    running = {"sources": sources, "podsync": podsync}
    yield running
    for bus in running.values():
        await bus.stop()


async def ask(manifest: Manifest, *questions: Question, timeout: float = WAIT_SECONDS, beats_of: Any = ()) -> Any:
    """The answers and the beats, from a thread, while the services answer on this loop."""

    def run() -> Any:
        with Client(manifest) as client:
            return client.ask(questions, timeout, beats_of), dict(client.beats)

    return await asyncio.to_thread(run)


async def test_answers_refusals_and_beats_arrive_together(manifest: Manifest, services: dict[str, ProcessBus]) -> None:
    answers, beats = await ask(manifest, PODS, FOREIGN, FOLLOWED["sources"], beats_of=("sources", "podsync"))
    assert sorted(answers[PODS].entries) == ["0", "1", "2"] and answers[PODS].complete
    assert answers[FOREIGN] == Refusal("sources does not own the stream pods.status")
    assert answers[FOLLOWED["sources"]] == Followed(incarnation=services["sources"].incarnation)
    assert beats["sources"].troubles == ("the disk is full",)
    assert beats["podsync"].incarnation == services["podsync"].incarnation


async def test_a_service_reports_what_it_follows_and_whose_beats_it_received(
    manifest: Manifest, services: dict[str, ProcessBus]
) -> None:
    answers, _ = await ask(manifest, FOLLOWED["podsync"])
    followed = answers[FOLLOWED["podsync"]]
    copy = followed.streams["pods.desired"]
    assert (copy.incarnation, copy.items) == (services["sources"].incarnation, 3)
    assert copy.complete and not copy.stale
    assert set(followed.beats) == {"sources"}


async def test_a_service_that_does_not_run_is_absent_and_the_others_answer(
    manifest: Manifest, services: dict[str, ProcessBus]
) -> None:
    # Within these seconds the others have to answer, also where the machine is busy.
    answers, beats = await ask(manifest, *FOLLOWED.values(), timeout=4.0)
    assert set(answers) == {FOLLOWED["sources"], FOLLOWED["podsync"]}
    assert "volume" not in beats


async def test_the_next_beat_of_another_incarnation_is_waited_for(
    manifest: Manifest, services: dict[str, ProcessBus]
) -> None:
    before = services["podsync"].incarnation

    def wait() -> Any:
        with Client(manifest) as client:
            return client.wait_for_beat(
                lambda beat: beat.service == "podsync" and beat.incarnation != before, WAIT_SECONDS
            )

    waiting = asyncio.create_task(asyncio.to_thread(wait))
    await services["podsync"].stop()
    services["podsync"] = ProcessBus("podsync", manifest)
    await services["podsync"].start()
    assert (await waiting).incarnation == services["podsync"].incarnation
