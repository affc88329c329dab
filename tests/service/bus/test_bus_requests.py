"""What every bus promises of requests: the same tests on the bus of tests and on the bus of real processes."""

import asyncio
import logging
from dataclasses import dataclass, make_dataclass

import pytest

from bus import codec
from bus.endpoint import Endpoint
from bus.interface import NoAnswerError, RequestRefusedError
from bus.messages.snapshot import GetSnapshot, Snapshot
from bus.messages.streams import VOLUMES_MOUNTED
from tests.service.bus.harness import Harness, world

__all__ = ["world"]


@dataclass(frozen=True, kw_only=True)
class Echo:
    text: str


@dataclass(frozen=True, kw_only=True)
class Echoed:
    text: str


class TestRequests:
    async def test_a_question_is_answered(self, world: Harness) -> None:
        asker = await self.asking(world)
        assert await asker.ask("podsync", Echo(text="ü"), Echoed) == Echoed(text="ü")

    async def test_many_questions_at_once_get_each_its_own_answer(self, world: Harness) -> None:
        asker = await self.asking(world)
        answers = await asyncio.gather(*(asker.ask("podsync", Echo(text=str(n)), Echoed) for n in range(50)))
        assert [answer.text for answer in answers] == [str(n) for n in range(50)]

    async def test_a_refusal_is_the_other_sides_one_line(self, world: Harness) -> None:
        asker = await self.asking(world)
        with pytest.raises(RequestRefusedError, match=r"^nothing to echo$"):
            await asker.ask("podsync", Echo(text=""), Echoed)

    async def test_a_snapshot_of_a_stream_it_does_not_own_is_refused(self, world: Harness) -> None:
        asker = await self.asking(world)
        with pytest.raises(RequestRefusedError, match=r"^podsync does not own the stream pods\.desired$"):
            await asker.ask("podsync", GetSnapshot(stream="pods.desired"), Snapshot)

    async def test_a_request_without_an_answer_names_service_type_and_seconds(self, world: Harness) -> None:
        asker = await self.asking(world)
        asking = asyncio.create_task(asker.ask("volume", Echo(text=""), Echoed, timeout=0.3))
        await world.pass_time(0.3)
        with pytest.raises(NoAnswerError, match=r"^volume did not answer Echo within 0\.3 s$"):
            await asking

    async def test_a_slow_answer_is_too_late_but_holds_up_no_other(self, world: Harness) -> None:
        asker = await self.asking(world)
        slow = asyncio.create_task(asker.ask("podsync", Echo(text="slow"), Echoed, timeout=0.3))
        assert await asker.ask("podsync", Echo(text="fast"), Echoed) == Echoed(text="fast")
        await world.pass_time(0.3)
        with pytest.raises(NoAnswerError, match=r"^podsync did not answer Echo within 0\.3 s$"):
            await slow

    async def test_a_question_asked_before_its_service_is_there_is_answered_when_it_comes(self, world: Harness) -> None:
        asker = await self.asking(world)
        asking = asyncio.create_task(asker.ask("volume", GetSnapshot(stream="volumes.mounted"), Snapshot))
        await asyncio.sleep(0)
        volume = world.bus("volume")
        volume.own(VOLUMES_MOUNTED)
        await volume.start()
        assert (await asking).stream == "volumes.mounted"

    async def test_a_question_under_way_at_a_kill_is_answered_by_the_next_process(self, world: Harness) -> None:
        asker = await self.asking(world)
        asked = asyncio.Event()

        async def never(_: Echo) -> Echoed:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        async def echo(request: Echo) -> Echoed:
            return Echoed(text=request.text)

        first, second = world.bus("volume"), None
        first.answer(Echo, never)
        await first.start()
        asking = asyncio.create_task(asker.ask("volume", Echo(text="again"), Echoed))
        await asyncio.wait_for(asked.wait(), 60)
        await world.kill(first)
        second = world.bus("volume")
        second.answer(Echo, echo)
        await second.start()
        assert await asking == Echoed(text="again")

    async def test_a_handler_is_cancelled_once_the_deadline_has_passed(self, world: Harness) -> None:
        asker = await self.asking(world)
        ended = asyncio.Event()

        async def never(_: Echo) -> Echoed:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError

        answerer = world.bus("volume")
        answerer.answer(Echo, never)
        await answerer.start()
        asking = asyncio.create_task(asker.ask("volume", Echo(text="x"), Echoed, timeout=1.0))
        await world.pass_time(2.5)
        with pytest.raises(NoAnswerError):
            await asking
        await world.until(ended.is_set)

    async def test_beyond_so_many_questions_of_a_type_under_way_the_next_fails_at_once(
        self, world: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("bus.endpoint.MAX_PENDING_REQUESTS", 2)
        asker = await self.asking(world)
        slow = [asyncio.create_task(asker.ask("podsync", Echo(text="slow"), Echoed, timeout=0.3)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(NoAnswerError, match=r"^podsync has 2 Echo of status to answer: no more are sent$"):
            await asker.ask("podsync", Echo(text="fast"), Echoed)
        with pytest.raises(RequestRefusedError):  # another type is answered
            await asker.ask("podsync", GetSnapshot(stream="pods.desired"), Snapshot)
        await world.pass_time(0.3)
        await asyncio.gather(*slow, return_exceptions=True)
        assert await asker.ask("podsync", Echo(text="fast"), Echoed) == Echoed(text="fast")

    async def test_a_question_over_the_cap_is_not_sent(self, world: Harness) -> None:
        asker = await self.asking(world)
        with pytest.raises(codec.MessageTooLargeError, match=r"^request Echo is too large"):
            await asker.ask("podsync", Echo(text="x" * codec.MAX_MESSAGE_BYTES), Echoed)

    async def test_an_answer_over_the_cap_is_a_refusal_and_logged(
        self, world: Harness, caplog: pytest.LogCaptureFixture
    ) -> None:
        asker = await self.asking(world)
        with caplog.at_level(logging.ERROR), pytest.raises(RequestRefusedError, match=r"^answer Echoed is too large"):
            await asker.ask("podsync", Echo(text="blow up"), Echoed)
        assert any("answer to Echo of status/" in message for message in caplog.messages)

    async def test_an_answer_of_another_type_is_no_answer(self, world: Harness) -> None:
        asker = await self.asking(world)
        with pytest.raises(NoAnswerError, match=r"^podsync answered Echo with a Echoed instead of a Snapshot$"):
            await asker.ask("podsync", Echo(text="a"), Snapshot)

    async def test_an_answer_that_does_not_decode_is_no_answer_and_counted(self, world: Harness) -> None:
        asker = await self.asking(world)
        of_another_version = make_dataclass("Echoed", [("text", int)], frozen=True)
        with pytest.raises(NoAnswerError, match=r"^podsync answered Echo with something that is not a Echoed: "):
            await asker.ask("podsync", Echo(text="a"), of_another_version)
        assert asker.drops.counts["answer"] == 1

    async def asking(self, world: Harness) -> Endpoint:
        """status, with a podsync that echoes."""

        async def echo(request: Echo) -> Echoed:
            if not request.text:
                raise RequestRefusedError("nothing to echo")
            if request.text == "slow":
                await asyncio.Event().wait()
            return Echoed(text="x" * codec.MAX_MESSAGE_BYTES if request.text == "blow up" else request.text)

        answerer, asker = world.bus("podsync"), world.bus("status")
        answerer.answer(Echo, echo)
        await answerer.start()
        await asker.start()
        return asker
