"""Reviews over the bus: what is asked of status, how often, and what happens when it does not answer."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bus.messages.status import ReviewAccess, Reviewed, ReviewToken
from services.server.controllers.reviews import (
    MAX_TOKEN_REVIEWS,
    MAX_TOKEN_REVIEWS_OF_ADDRESS,
    TIMEOUT_SECONDS,
    Reviews,
)
from services.server.core.access.authentication import User
from services.server.core.access.authorization import Attributes
from services.server.core.access.reviews import ReviewError, TooManyReviewsError
from tests.fakes.memory_bus import MemoryNetwork
from tests.service.server.running import configuration

QUESTION = Attributes(User("jane"), "get", "proxy", "node-1")
CLIENT = "10.0.0.1"
GOOD = {"authenticated": True, "user": {"username": "jane"}}


class ApiServer:
    """status, with the answers of the test."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.asked: list[ReviewToken | ReviewAccess] = []
        self.answer = Reviewed(status=GOOD)
        self.bus = network.bus("status")
        self.bus.answer(ReviewToken, self._review)
        self.bus.answer(ReviewAccess, self._review)

    async def _review(self, question: Any) -> Reviewed:
        self.asked.append(question)
        await asyncio.sleep(0)
        return self.answer


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    api = ApiServer(MemoryNetwork())
    await api.bus.start()
    yield api
    if "status" in api.network._buses:
        await api.bus.stop()


@pytest.fixture
async def reviews(api: ApiServer, tmp_path: Path) -> AsyncIterator[Reviews]:
    bus = api.network.bus("server")
    reviews = Reviews(bus, api.network.clock, configuration(tmp_path))
    await bus.start()
    yield reviews
    await reviews.close()
    await bus.stop()


async def test_a_token_is_asked_once_and_again_when_its_answer_is_old(api: ApiServer, reviews: Reviews) -> None:
    for _ in range(2):
        user = await reviews.user_of("t", CLIENT)
        assert user is not None
        assert (user.name, user.groups) == ("jane", ("system:authenticated",))
    assert api.asked == [ReviewToken(token="t")]
    api.network.clock.advance(120)
    await reviews.user_of("t", CLIENT)
    assert len(api.asked) == 2


async def test_a_clean_no_is_kept_an_error_is_not(api: ApiServer, reviews: Reviews) -> None:
    api.answer = Reviewed(status={"authenticated": False})
    assert [await reviews.user_of("t", CLIENT), await reviews.user_of("t", CLIENT)] == [None, None]
    assert len(api.asked) == 1
    api.answer = Reviewed(status={"authenticated": False, "error": "expired"})
    for _ in range(2):
        with pytest.raises(ReviewError, match="expired"):
            await reviews.user_of("other", CLIENT)
    assert len(api.asked) == 3


async def test_equal_questions_at_once_are_one(api: ApiServer, reviews: Reviews) -> None:
    api.answer = Reviewed(status={"allowed": True})
    assert await asyncio.gather(*(reviews.allows(QUESTION, CLIENT) for _ in range(10))) == [True] * 10
    assert len(api.asked) == 1


async def test_a_client_that_leaves_does_not_take_the_answer_along(api: ApiServer, reviews: Reviews) -> None:
    first = asyncio.create_task(reviews.user_of("t", CLIENT))
    second = asyncio.create_task(reviews.user_of("t", CLIENT))
    await asyncio.sleep(0)
    first.cancel()
    assert await second is not None


async def test_so_many_tokens_are_under_review_and_the_next_fails_at_once(api: ApiServer, reviews: Reviews) -> None:
    asked = [
        asyncio.create_task(reviews.user_of(f"{number}", f"10.0.0.{number}")) for number in range(MAX_TOKEN_REVIEWS)
    ]
    await asyncio.sleep(0)
    with pytest.raises(
        TooManyReviewsError, match=f"^{MAX_TOKEN_REVIEWS} reviews are under way, 0 of them for 10.0.1.1$"
    ):
        await reviews.user_of("one more", "10.0.1.1")
    same = asyncio.create_task(reviews.user_of("0", "10.0.1.1"))  # is under review already
    assert None not in await asyncio.gather(*asked, same)
    assert await reviews.user_of("one more", "10.0.1.1") is not None
    assert len(api.asked) == MAX_TOKEN_REVIEWS + 1


async def test_one_address_does_not_take_the_reviews_of_others(api: ApiServer, reviews: Reviews) -> None:
    asked = [
        asyncio.create_task(reviews.user_of(f"{number}", CLIENT)) for number in range(MAX_TOKEN_REVIEWS_OF_ADDRESS)
    ]
    await asyncio.sleep(0)
    refusal = (
        f"^{MAX_TOKEN_REVIEWS_OF_ADDRESS} reviews are under way, {MAX_TOKEN_REVIEWS_OF_ADDRESS} of them for {CLIENT}$"
    )
    with pytest.raises(TooManyReviewsError, match=refusal):
        await reviews.user_of("one more", CLIENT)
    assert await reviews.user_of("one more", "10.0.1.1") is not None
    await asyncio.gather(*asked)


async def test_yes_holds_longer_than_no(api: ApiServer, reviews: Reviews) -> None:
    for status, holds in (({"allowed": True}, 300.0), ({"allowed": False}, 30.0)):
        api.asked.clear()
        api.answer = Reviewed(status=status)
        question = Attributes(User(str(holds)), "get", "proxy", "node-1")
        await reviews.allows(question, CLIENT)
        api.network.clock.advance(holds - 1)
        assert await reviews.allows(question, CLIENT) is status["allowed"]
        assert len(api.asked) == 1
        api.network.clock.advance(1)
        await reviews.allows(question, CLIENT)
        assert len(api.asked) == 2


async def test_what_could_not_be_decided_is_asked_again(api: ApiServer, reviews: Reviews) -> None:
    for answer in (Reviewed(status={}, error="no route"), Reviewed(status={"allowed": True, "denied": True})):
        api.answer = answer
        with pytest.raises(ReviewError):
            await reviews.allows(QUESTION, CLIENT)
    api.answer = Reviewed(status={"allowed": True})
    assert await reviews.allows(QUESTION, CLIENT)


async def test_without_status_the_client_gets_an_error_in_time(api: ApiServer, reviews: Reviews) -> None:
    api.network.kill("status")
    asked = asyncio.create_task(reviews.allows(QUESTION, CLIENT))
    await api.network.advance(TIMEOUT_SECONDS - 1)
    assert not asked.done()
    await api.network.advance(2)
    with pytest.raises(ReviewError, match="status did not answer ReviewAccess within 30 s"):
        await asked


async def test_answers_from_before_a_suspension_of_the_machine_do_not_count(api: ApiServer, reviews: Reviews) -> None:
    """The token may have ended, and rights may have been taken away, while the time of the answers did not pass."""
    assert await reviews.user_of("token", CLIENT) is not None
    api.answer = Reviewed(status={"allowed": True})
    assert await reviews.allows(QUESTION, CLIENT)
    reviews.forget()
    api.answer = Reviewed(status={"authenticated": False})
    assert await reviews.user_of("token", CLIENT) is None
    api.answer = Reviewed(status={"allowed": False})
    assert not await reviews.allows(QUESTION, CLIENT)
