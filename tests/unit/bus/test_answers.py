"""A request is answered once however often it arrives, and every failure is one line."""

import asyncio
from dataclasses import dataclass

import pytest

from bus import codec
from bus.answers import RECENT_ANSWER_CAP, RECENT_ANSWERS, Answers
from bus.frames import AnswerHead, RequestHead
from bus.interface import RequestRefusedError


@dataclass(frozen=True, kw_only=True)
class Add:
    number: int


@dataclass(frozen=True, kw_only=True)
class Sum:
    total: int
    padding: str = ""


class Adder:
    """Counts how often it was really asked."""

    def __init__(self) -> None:
        self.total = 0
        self.padding = ""
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, request: Add) -> Sum:
        await self.gate.wait()
        if request.number < 0:
            raise RequestRefusedError("no\nnegative numbers")
        if request.number == 0:
            raise ZeroDivisionError("secret")
        self.total += request.number
        return Sum(total=self.total, padding=self.padding)


@pytest.fixture
def adder() -> Adder:
    return Adder()


@pytest.fixture
def answers(adder: Adder) -> Answers:
    answers = Answers("podsync")
    answers.register(Add, adder)
    return answers


def head(number: int = 1, client: str = "status/i", request: str = "Add") -> RequestHead:
    return RequestHead(v="1.0", client=client, id=number, type=request, deadline=1.0)


async def test_a_second_copy_gets_the_kept_answer(answers: Answers) -> None:
    first = await answers.answer(head(), b'{"number":2}')
    assert first == (AnswerHead(v="1.0", id=1, type="Sum"), b'{"total":2,"padding":""}')
    assert await answers.answer(head(), b'{"number":2}') == first


async def test_a_copy_of_a_request_under_way_waits_for_the_same_answer(answers: Answers, adder: Adder) -> None:
    adder.gate.clear()
    copies = [asyncio.create_task(answers.answer(head(), b'{"number":2}')) for _ in range(3)]
    await asyncio.sleep(0)
    adder.gate.set()
    assert len(set(await asyncio.gather(*copies))) == 1
    assert adder.total == 2


async def test_the_same_number_of_another_client_is_another_request(answers: Answers, adder: Adder) -> None:
    await answers.answer(head(), b'{"number":2}')
    await answers.answer(head(client="status/j"), b'{"number":2}')
    assert adder.total == 4


async def test_only_so_many_answers_are_kept(answers: Answers, adder: Adder) -> None:
    for number in range(RECENT_ANSWERS + 1):
        await answers.answer(head(number), b'{"number":1}')
    await answers.answer(head(RECENT_ANSWERS), b'{"number":1}')
    assert adder.total == RECENT_ANSWERS + 1
    await answers.answer(head(0), b'{"number":1}')
    assert adder.total == RECENT_ANSWERS + 2


async def test_a_large_answer_is_computed_again(answers: Answers, adder: Adder) -> None:
    adder.padding = "x" * RECENT_ANSWER_CAP
    await answers.answer(head(), b'{"number":1}')
    await answers.answer(head(), b'{"number":1}')
    assert adder.total == 2


@pytest.mark.parametrize(
    ("request_type", "body", "line"),
    [
        ("Multiply", b"{}", "podsync does not answer Multiply"),
        ("Add", b'{"number":"x"}', "not a Add: Expected `int`, got `str` - at `$.number`"),
        ("Add", b'{"number":-1}', "no negative numbers"),
        ("Add", b'{"number":0}', "podsync failed to answer Add: ZeroDivisionError"),
    ],
)
async def test_every_failure_is_answered_with_one_line(
    answers: Answers, request_type: str, body: bytes, line: str
) -> None:
    assert await answers.answer(head(request=request_type), body) == (AnswerHead(v="1.0", id=1, error=line), b"")


async def test_an_answer_over_the_cap_is_a_refusal(answers: Answers, adder: Adder) -> None:
    adder.padding = "x" * codec.MESSAGE_CAP
    answer, _ = await answers.answer(head(), b'{"number":1}')
    assert answer.error.startswith("answer Sum is too large for the bus: ")


async def test_what_is_under_way_at_the_end_is_given_up(answers: Answers, adder: Adder) -> None:
    adder.gate.clear()
    asking = asyncio.create_task(answers.answer(head(), b'{"number":1}'))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    answers.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


def test_a_request_type_has_one_handler(answers: Answers, adder: Adder) -> None:
    with pytest.raises(ValueError, match="podsync answers Add already"):
        answers.register(Add, adder)
