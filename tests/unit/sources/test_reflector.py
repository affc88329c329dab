"""List, watch, resume, back off: what a reflector asks next after everything that may happen to a request."""

from typing import Any

import pytest

from services.sources.core.api_objects import read_list
from services.sources.core.reflector import (
    ANSWER_TIMEOUT_SECONDS,
    FROM_CACHE,
    MAX_BUSY_WATCHES,
    MAX_PROMPT_PAUSE_SECONDS,
    MAX_PROMPT_PROBE_PAUSE_SECONDS,
    MAX_REFUSED_SECONDS,
    NEWEST,
    ListAll,
    Pause,
    Reflector,
    Step,
    WatchAll,
    WatchFrom,
)
from shared.kube.interface import (
    ApiError,
    ApiMalformedError,
    ApiStatusError,
    ApiUnansweredError,
    ApiUnreachableError,
)

GONE = ApiStatusError(410, "Expired", "too old resource version")
FORBIDDEN = ApiStatusError(403, "Forbidden", "no relationship found")
BROKEN = ApiStatusError(500, "InternalError", "etcd")
AWAY = ApiUnreachableError("connection refused")
LATE = ApiUnansweredError("no answer in time")
FUTURE = ApiStatusError(504, "Timeout", "Timeout: Too large resource version: 7, current: 3", retry_after=1.0)
INVALID = ApiStatusError(400, "BadRequest", "invalid resource version")
THROTTLED = ApiStatusError(429, "TooManyRequests", "slow", retry_after=1.0)


def watching(version: str = "7", **config: Any) -> Reflector:
    reflector = Reflector(**config)
    reflector.next_step(0.0)
    reflector.listed(version)
    return reflector


def steps(reflector: Reflector) -> list[Step]:
    """The next steps up to one that asks the API server."""
    found = [reflector.next_step(0.0)]
    while isinstance(found[-1], Pause):
        found.append(reflector.next_step(0.0))
    return found


def test_it_lists_first_and_then_watches_from_the_lists_version() -> None:
    reflector = Reflector()
    first = reflector.next_step(0.0)
    reflector.listed("7")
    assert (first, reflector.next_step(0.0)) == (ListAll(FROM_CACHE), WatchFrom("7", 300.0))


def test_watches_last_five_to_ten_minutes_by_chance() -> None:
    assert watching().next_step(0.5) == WatchFrom("7", 450.0)
    assert watching(shortest_watch=1800.0).next_step(0.5) == WatchFrom("7", 2700.0)


def test_a_watch_that_ends_or_breaks_is_resumed_at_the_last_object_or_bookmark() -> None:
    reflector = watching()
    reflector.saw("9")
    reflector.saw("")  # an object without a version
    reflector.watch_ended(lasted=300.0, events=2, now=300.0, chance=0.0)
    assert steps(reflector) == [WatchFrom("9", 300.0)]
    reflector.watch_failed(AWAY, now=301.0, chance=0.0, opened=True)
    assert steps(reflector) == [Pause(0.8), WatchFrom("9", 300.0)]


def test_a_watch_that_ends_at_once_without_an_event_is_not_repeated_at_once() -> None:
    reflector = watching()
    reflector.watch_ended(lasted=0.1, events=0, now=0.0, chance=0.0)
    assert steps(reflector) == [Pause(0.8), WatchFrom("7", 300.0)]


def test_an_expired_version_lists_again_at_once_but_not_twice_in_a_row() -> None:
    reflector = watching()
    reflector.saw("9")
    reflector.watch_failed(GONE, now=0.0, chance=0.0)
    assert steps(reflector) == [ListAll("9")]
    reflector.listed("12")
    reflector.watch_failed(GONE, now=0.1, chance=0.0)
    assert steps(reflector) == [Pause(0.8), ListAll("12")]


@pytest.mark.parametrize("error", [GONE, FUTURE, INVALID], ids=["expired", "too large", "invalid"])
def test_a_list_that_the_cache_cannot_answer_reads_the_newest_state_at_once_and_then_after_pauses(
    error: ApiStatusError,
) -> None:
    reflector = Reflector(oldest="9")
    assert steps(reflector) == [ListAll("9")]
    reflector.list_failed(error, now=0.0, chance=0.0)
    assert steps(reflector) == [ListAll(NEWEST)]
    reflector.list_failed(error, now=0.0, chance=0.0)
    first, *_, last = steps(reflector)
    assert isinstance(first, Pause) and last == ListAll(NEWEST)
    reflector.listed("12")
    reflector.watch_failed(GONE, now=0.1, chance=0.0)
    assert steps(reflector)[-1] == ListAll("12"), "the cache is asked again once it may have got there"


@pytest.mark.parametrize("error", [AWAY, LATE, BROKEN, THROTTLED], ids=lambda error: error.__class__.__name__)
def test_a_list_that_fails_otherwise_is_no_reason_to_read_the_newest_state(error: ApiStatusError) -> None:
    reflector = Reflector(oldest="9")
    reflector.list_failed(error, now=0.0, chance=0.0)
    assert steps(reflector)[-1] == ListAll("9")


def test_pauses_double_up_to_thirty_seconds_and_lie_between_half_and_all_of_it() -> None:
    reflector = Reflector()
    low: list[float] = []
    high: list[float] = []
    for now in range(8):
        reflector.list_failed(AWAY, now=float(now), chance=0.0 if now % 2 else 0.999)
        pause = reflector.next_step(0.0)
        assert isinstance(pause, Pause) and pause.interruptible
        (low if now % 2 else high).append(pause.seconds)
    assert low == [1.6, 6.4, 15.0, 15.0]
    assert high == pytest.approx([1.6, 6.4, 25.6, 30.0], rel=0.001)


def test_what_everything_waits_for_never_pauses_for_more_than_three_seconds() -> None:
    reflector = Reflector(longest_pause=MAX_PROMPT_PAUSE_SECONDS)
    for now in range(20):
        reflector.list_failed(AWAY, now=float(now), chance=0.999)
        pause = reflector.next_step(0.0)
        assert isinstance(pause, Pause) and pause.seconds <= 3.0


def test_an_answer_that_takes_long_gets_more_time_the_next_time() -> None:
    reflector, probe = Reflector(), Reflector(longest_answer_timeout=ANSWER_TIMEOUT_SECONDS)
    given = []
    for now in range(5):
        for each in (reflector, probe):
            each.list_failed(LATE, now=float(now), chance=0.0)
        given.append(reflector.answer_timeout)
    assert (given, probe.answer_timeout) == ([10.0, 20.0, 40.0, 60.0, 60.0], 5.0)
    reflector.listed("7")
    for error in (AWAY, BROKEN, THROTTLED):
        reflector.watch_failed(error, now=9.0, chance=0.0)
    assert reflector.answer_timeout == 5.0
    reflector.watch_failed(LATE, now=9.0, chance=0.0)
    assert reflector.answer_timeout == 10.0
    reflector.watch_opened()
    assert reflector.answer_timeout == 5.0


def test_two_healthy_minutes_make_pauses_short_again() -> None:
    reflector = watching()
    for now in range(6):
        reflector.watch_failed(AWAY, now=float(now), chance=0.0)
    steps(reflector)
    reflector.watch_failed(AWAY, now=5.0 + 121.0, chance=0.0)
    assert steps(reflector)[0] == Pause(0.8)


def test_retry_after_is_waited_for_in_full_whatever_else_happens() -> None:
    reflector = watching()
    reflector.watch_failed(ApiStatusError(429, "TooManyRequests", "slow", retry_after=7.0), now=0.0, chance=0.0)
    assert steps(reflector) == [Pause(7.0, interruptible=False), WatchFrom("7", 300.0)]


def test_a_403_is_tried_again_within_moments_at_first() -> None:
    reflector = Reflector()
    seconds = []
    for now in range(4):
        reflector.list_failed(FORBIDDEN, now=float(now), chance=0.0)
        pause = reflector.next_step(0.0)
        assert isinstance(pause, Pause)
        seconds.append(pause.seconds)
    assert seconds == [0.1, 0.2, 0.4, 0.8]


def test_throttling_lengthens_the_pause_and_never_lists() -> None:
    reflector = watching()
    pauses = []
    for now in range(6):
        reflector.watch_failed(THROTTLED, now=float(now), chance=0.0)
        first, *_, last = steps(reflector)
        assert isinstance(first, Pause) and last == WatchFrom("7", 300.0)
        pauses.append(first.seconds)
    assert pauses == [1.0, 1.6, 3.2, 6.4, 12.8, 15.0]


@pytest.mark.parametrize("error", [AWAY, LATE, BROKEN, THROTTLED], ids=lambda error: error.__class__.__name__)
@pytest.mark.parametrize("opened", [False, True])
def test_neither_an_outage_nor_a_slow_or_busy_server_lists(error: ApiStatusError, opened: bool) -> None:
    reflector = watching()
    for now in range(20):
        reflector.watch_failed(error, now=float(now), chance=0.0, opened=opened)
        assert steps(reflector)[-1] == WatchFrom("7", 300.0)


def test_a_version_that_is_refused_twice_is_given_up() -> None:
    reflector = watching()
    reflector.watch_failed(INVALID, now=0.0, chance=0.0)
    assert steps(reflector)[-1] == WatchFrom("7", 300.0)
    reflector.watch_failed(INVALID, now=1.0, chance=0.0)
    assert steps(reflector)[-1] == ListAll(NEWEST)


def test_a_version_that_the_api_server_has_not_reached_is_given_up() -> None:
    reflector = watching()
    reflector.watch_failed(FUTURE, now=0.0, chance=0.0)
    assert steps(reflector) == [Pause(1.0, interruptible=False), ListAll(NEWEST)]


def test_a_version_that_meets_nothing_but_5xx_is_given_up_after_minutes() -> None:
    reflector = watching()
    for now in (0.0, 20.0, MAX_REFUSED_SECONDS - 1):
        reflector.watch_failed(BROKEN, now=now, chance=0.0)
        assert steps(reflector)[-1] == WatchFrom("7", 300.0)
    reflector.watch_failed(BROKEN, now=MAX_REFUSED_SECONDS, chance=0.0)
    assert steps(reflector)[-1] == ListAll(NEWEST)


def test_an_event_that_cannot_be_read_is_not_met_again() -> None:
    reflector = watching()
    reflector.watch_failed(ApiMalformedError("not JSON"), now=0.0, chance=0.0, opened=True)
    assert steps(reflector)[-1] == ListAll("7")


def test_the_store_is_compared_by_the_one_list_that_follows_a_break_or_an_early_end() -> None:
    def compared() -> Reflector:
        return watching(probes=True)

    for opened in (False, True):
        broken = compared()
        broken.watch_failed(AWAY, now=0.0, chance=0.0, opened=opened)
        assert steps(broken)[-1] == ListAll(NEWEST)
    for error in (LATE, BROKEN, THROTTLED):
        slow = compared()
        slow.watch_failed(error, now=0.0, chance=0.0)
        assert steps(slow)[-1] == WatchFrom("7", 300.0)
    early, as_agreed = compared(), compared()
    for reflector, lasted in ((early, 290.0), (as_agreed, 299.0)):
        reflector.next_step(0.0)
        reflector.watch_ended(lasted=lasted, events=1, now=300.0, chance=0.0)
    assert (steps(early), steps(as_agreed)) == ([ListAll(NEWEST)], [WatchFrom("7", 300.0)])


UNKNOWN = ApiStatusError(422, "Invalid", "sendInitialEvents is forbidden for watch")


def test_a_list_from_the_cache_is_the_beginning_of_a_watch_and_a_quorum_read_is_not() -> None:
    reflector = Reflector(streams=True)
    assert reflector.next_step(0.5) == WatchAll(FROM_CACHE, 450.0)
    reflector.listed("7")
    reflector.watch_ended(lasted=450.0, events=0, now=450.0, chance=0.0)
    assert steps(reflector) == [WatchFrom("7", 300.0)]
    reflector.watch_failed(GONE, now=451.0, chance=0.0)
    assert steps(reflector) == [WatchAll("7", 300.0)]
    for quorum in (Reflector(streams=True, oldest=NEWEST), Reflector(streams=True, probes=True)):
        assert steps(quorum) == [ListAll(NEWEST)]
    reflector.went_back()
    assert steps(reflector) == [ListAll(NEWEST)]


@pytest.mark.parametrize("error", [UNKNOWN, INVALID, ApiMalformedError("stalled")], ids=["unknown", "invalid", "stall"])
def test_a_watch_that_does_not_begin_with_all_objects_is_followed_by_a_list_at_once(error: ApiError) -> None:
    reflector = Reflector(streams=True, oldest="9")
    reflector.next_step(0.0)
    assert reflector.list_failed(error, now=0.0, chance=0.0)
    assert steps(reflector) == [ListAll("9")]
    reflector.list_failed(BROKEN, now=0.0, chance=0.0)
    assert steps(reflector)[-1] == ListAll("9")
    reflector.listed("12")
    reflector.watch_failed(GONE, now=1.0, chance=0.0)
    assert steps(reflector)[-1] == WatchAll("12", 300.0)


@pytest.mark.parametrize("error", [AWAY, LATE, FORBIDDEN], ids=["away", "late", "forbidden"])
def test_it_is_followed_by_a_list_after_a_pause_where_only_watches_may_fail(error: ApiError) -> None:
    reflector = Reflector(streams=True)
    reflector.next_step(0.0)
    assert not reflector.list_failed(error, now=0.0, chance=0.0)
    first, last = steps(reflector)
    assert isinstance(first, Pause) and last == ListAll(FROM_CACHE)
    reflector.woken()
    assert steps(reflector) == [WatchAll(FROM_CACHE, 300.0)], "the API server was away, for all requests"


@pytest.mark.parametrize("error", [BROKEN, THROTTLED], ids=["broken", "throttled"])
def test_a_busy_api_server_is_not_made_to_answer_with_a_list(error: ApiError) -> None:
    reflector = Reflector(streams=True)
    reflector.next_step(0.0)
    reflector.list_failed(error, now=0.0, chance=0.0)
    assert steps(reflector)[-1] == WatchAll(FROM_CACHE, 300.0)


@pytest.mark.parametrize("error", [GONE, FUTURE], ids=["expired", "too large"])
def test_a_version_that_the_cache_does_not_have_is_answered_by_a_list_of_the_newest_state(error: ApiError) -> None:
    reflector = Reflector(streams=True, oldest="9")
    reflector.next_step(0.0)
    assert reflector.list_failed(error, now=0.0, chance=0.0)
    assert steps(reflector) == [ListAll(NEWEST)]


def test_a_store_that_went_back_is_listed() -> None:
    reflector = watching()
    reflector.went_back()
    assert steps(reflector) == [ListAll(NEWEST)]


def test_a_version_that_goes_back_is_of_another_history() -> None:
    reflector = watching()
    reflector.saw("9")
    reflector.saw("3")
    assert steps(reflector) == [ListAll(NEWEST)]


NO_LISTS: list[dict[str, object]] = [
    {},
    {"items": []},
    {"metadata": {}, "items": []},
    {"metadata": "x", "items": []},
    {"metadata": {"resourceVersion": 1}, "items": []},
    {"metadata": {"resourceVersion": "1"}},
    {"metadata": {"resourceVersion": "1"}, "items": {}},
    {"kind": "Status", "metadata": {"resourceVersion": "1"}, "items": None},
]


@pytest.mark.parametrize("answer", NO_LISTS, ids=str)
def test_what_is_no_list_is_not_taken_for_an_empty_one(answer: dict[str, object]) -> None:
    assert read_list(answer) is None


def test_an_empty_list_may_be_written_as_null() -> None:
    assert read_list({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": None}) == ([], "1")


def test_the_probe_of_an_outage_has_growing_pauses_until_it_is_answered() -> None:
    reflector = Reflector(longest_pause=MAX_PROMPT_PAUSE_SECONDS, probes=True)
    for _ in range(2):
        paused = []
        for now in range(0, 500, 100):
            reflector.list_failed(AWAY, now=now, chance=0.5)
            paused.append(steps(reflector)[0])
        assert paused == [Pause(3.0), Pause(9.0), Pause(27.0), Pause(54.0), Pause(54.0)]
        reflector.listed("7")
    reflector.went_back()
    reflector.list_failed(LATE, now=900.0, chance=0.999)
    pause = steps(reflector)[0]
    assert isinstance(pause, Pause) and pause.seconds <= MAX_PROMPT_PAUSE_SECONDS, "a slow answer is no outage"


def test_a_node_that_may_run_pods_from_a_record_is_at_most_five_seconds_from_its_next_probe() -> None:
    reflector = Reflector(longest_pause=MAX_PROMPT_PAUSE_SECONDS, probes=True, prompt=True)
    for error, least in ((AWAY, 2.5), (BROKEN, 0.8)):
        for number in range(20):
            reflector.list_failed(error, now=5.0 * number, chance=number % 10 / 10)
            pause = steps(reflector)[0]
            assert isinstance(pause, Pause) and least <= pause.seconds <= MAX_PROMPT_PROBE_PAUSE_SECONDS == 5.0
    reflector.prompt = False
    reflector.list_failed(AWAY, now=900.0, chance=0.0)
    assert steps(reflector)[0] == Pause(36.0), "as any node"


def test_where_only_a_watch_with_all_objects_fails_as_if_the_server_was_busy_a_list_follows() -> None:
    reflector = Reflector(streams=True)
    for _ in range(MAX_BUSY_WATCHES + 1):
        assert steps(reflector)[-1] == WatchAll(FROM_CACHE, 300.0)
        assert not reflector.list_failed(BROKEN, now=0.0, chance=0.0)
    assert steps(reflector)[-1] == ListAll(FROM_CACHE)
    reflector.listed("7")
    assert steps(reflector) == [WatchFrom("7", 300.0)]
