"""A request is answered once however often it arrives, and every failure is one line."""

import asyncio
from dataclasses import dataclass

import pytest

from bus import codec
from bus.answers import MAX_KEPT_ANSWER_BYTES, MAX_KEPT_ANSWERS, MAX_KEPT_BYTES, Answer, Answers
from bus.frames import AnswerHead, RequestHead
from bus.interface import RequestRefusedError
from tests.fakes.memory_bus import ManualClock


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


class Caller:
    """Sends copies of requests and notes what comes back."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.got: list[Answer] = []

    def send(self, head: RequestHead, body: bytes | None = b'{"number":2}') -> None:
        self.answers.take(head, body, self.got.append)

    async def ask(self, head: RequestHead, body: bytes | None = b'{"number":2}') -> Answer:
        """The answer to this copy."""
        before = len(self.got)
        self.send(head, body)
        async with asyncio.timeout(60):
            while len(self.got) == before:
                await asyncio.sleep(0)
        return self.got[before]


@pytest.fixture
def adder() -> Adder:
    return Adder()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(monotonic=0.0)


@pytest.fixture
def answers(adder: Adder, clock: ManualClock) -> Answers:
    answers = Answers("podsync", clock)
    answers.register(Add, adder)
    return answers


@pytest.fixture
def caller(answers: Answers) -> Caller:
    return Caller(answers)


def head(number: int = 1, client: str = "status/i", request: str = "Add", deadline: float = 1.0) -> RequestHead:
    return RequestHead(v="2.0", client=client, id=number, type=request, deadline=deadline)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_second_copy_gets_the_kept_answer(caller: Caller) -> None:
    first = await caller.ask(head())
    assert first == (AnswerHead(v="2.9", id=1, type="Sum"), b'{"total":2,"padding":""}')
    assert await caller.ask(head()) == first
    assert await caller.ask(head(), None) == first


async def test_of_several_copies_under_way_the_newest_is_answered_once(caller: Caller, adder: Adder) -> None:
    adder.gate.clear()
    gone: list[Answer] = []
    caller.answers.take(head(), b'{"number":2}', gone.append)
    caller.send(head())
    caller.send(head(), None)
    await turns()
    adder.gate.set()
    await turns()
    assert len(caller.got) == 1
    assert not gone
    assert adder.total == 2


async def test_a_reminder_of_a_request_that_never_came_is_answered_with_unknown(caller: Caller, adder: Adder) -> None:
    assert await caller.ask(head(), None) == (AnswerHead(v="2.9", id=1, unknown=True), b"")
    assert (await caller.ask(head()))[1] == b'{"total":2,"padding":""}'
    assert adder.total == 2


async def test_the_same_number_of_another_client_is_another_request(caller: Caller, adder: Adder) -> None:
    await caller.ask(head())
    await caller.ask(head(client="status/j"))
    assert adder.total == 4


async def test_only_so_many_answers_are_kept(caller: Caller, adder: Adder) -> None:
    for number in range(MAX_KEPT_ANSWERS + 1):
        await caller.ask(head(number), b'{"number":1}')
    await caller.ask(head(MAX_KEPT_ANSWERS), b'{"number":1}')
    assert adder.total == MAX_KEPT_ANSWERS + 1
    assert (await caller.ask(head(0), None))[0].unknown


async def test_kept_answers_are_bounded_in_bytes(caller: Caller, adder: Adder) -> None:
    adder.padding = "x" * (MAX_KEPT_ANSWER_BYTES - 100)
    for number in range(MAX_KEPT_BYTES // MAX_KEPT_ANSWER_BYTES + 2):
        await caller.ask(head(number))
    assert (await caller.ask(head(0), None))[0].unknown
    assert not (await caller.ask(head(2), None))[0].unknown


async def test_a_large_answer_is_computed_again(caller: Caller, adder: Adder) -> None:
    adder.padding = "x" * MAX_KEPT_ANSWER_BYTES
    await caller.ask(head(), b'{"number":1}')
    await caller.ask(head(), b'{"number":1}')
    assert adder.total == 2


async def test_after_the_deadline_nothing_is_computed_kept_or_sent(
    caller: Caller, adder: Adder, clock: ManualClock
) -> None:
    await caller.ask(head(1))
    adder.gate.clear()
    caller.send(head(2))
    await turns()
    clock.advance(1.0)
    caller.answers.expire()
    adder.gate.set()
    await turns()
    assert adder.total == 2
    caller.send(head(1), None)
    caller.send(head(3))
    await turns()
    assert len(caller.got) == 1
    assert (await caller.ask(head(1, deadline=9.0), None))[0].unknown
    assert (await caller.ask(head(2, deadline=9.0), None))[0].unknown


async def test_beyond_so_many_requests_of_a_type_under_way_the_next_is_refused_at_once(
    caller: Caller, adder: Adder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bus.answers.MAX_PENDING_REQUESTS", 3)
    adder.gate.clear()
    for number in range(3):
        caller.send(head(number))
    assert (await caller.ask(head(3)))[0].error == "podsync has 3 Add under way and takes no more"
    adder.gate.set()
    await turns()
    assert (await caller.ask(head(4)))[0].error == ""


async def test_the_bodies_of_requests_under_way_are_bounded(
    caller: Caller, adder: Adder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bus.answers.MAX_PENDING_BYTES", 30)
    adder.gate.clear()
    caller.send(head(1))
    caller.send(head(2))
    assert (await caller.ask(head(3)))[0].error == "podsync has 2 Add under way and takes no more"


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
    caller: Caller, request_type: str, body: bytes, line: str
) -> None:
    assert await caller.ask(head(request=request_type), body) == (AnswerHead(v="2.9", id=1, error=line), b"")


async def test_an_answer_over_the_cap_is_a_refusal(caller: Caller, adder: Adder) -> None:
    adder.padding = "x" * codec.MAX_MESSAGE_BYTES
    answer, _ = await caller.ask(head())
    assert answer.error.startswith("answer Sum is too large for the bus: ")


async def test_what_is_under_way_at_the_end_is_given_up(caller: Caller, adder: Adder) -> None:
    adder.gate.clear()
    caller.send(head())
    await turns()
    [task] = caller.answers.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not caller.got


def test_a_request_type_has_one_handler(answers: Answers, adder: Adder) -> None:
    with pytest.raises(ValueError, match="podsync answers Add already"):
        answers.register(Add, adder)
