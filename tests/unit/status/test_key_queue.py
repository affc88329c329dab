"""Which key is next: in turn, once at a time, after its back-off, none while the API server does not answer."""

from services.status.core.key_queue import PROBES, RETRIES, KeyQueue


def queue(*keys: str, parallel: int = 2) -> KeyQueue:
    made = KeyQueue(parallel)
    for key in keys:
        made.add(key)
    return made


def test_keys_come_in_the_order_in_which_they_changed_and_no_more_than_the_limit() -> None:
    keys = queue("a", "b", "a", "c")
    assert [keys.take(0), keys.take(0), keys.take(0)] == ["a", "b", None]
    assert keys.wake_at() is None
    keys.done("a")
    assert [keys.take(0), keys.take(0)] == ["c", None]


def test_a_key_that_changes_while_under_way_comes_again_afterwards() -> None:
    keys = queue("a")
    assert keys.take(0) == "a"
    keys.add("a")
    assert keys.take(0) is None
    keys.done("a")
    assert keys.take(0) == "a"
    keys.done("a")
    assert keys.take(0) is None and keys.wake_at() is None


def test_a_refused_key_waits_longer_each_time_and_the_others_go_on() -> None:
    keys, now, waits = queue("a"), 0.0, []
    for _ in range(8):
        assert keys.take(now) == "a"
        keys.refused("a", now)
        keys.add("a")
        keys.add("b")
        assert keys.take(now) == "b"
        keys.done("b")
        again = keys.wake_at()
        assert again is not None and keys.take(again - 0.01) is None
        waits.append(again - now)
        now = again
    assert waits == [0.5, 1, 2, 4, 8, RETRIES.cap, RETRIES.cap, RETRIES.cap]


def test_without_answers_one_key_at_a_time_tries_and_all_follow_after_an_answer() -> None:
    keys, now = queue(*"abcd"), 100.0
    assert [keys.take(now), keys.take(now)] == ["a", "b"]
    keys.unanswered("a", now)
    keys.unanswered("b", now)
    tries = 0
    while now < 160:
        when = keys.wake_at()
        assert when is not None and when - now <= PROBES.cap
        now = when
        key = keys.take(now)
        if key is not None:
            assert keys.take(now) is None
            tries += 1
            keys.unanswered(key, now)
    assert 15 <= tries <= 30
    keys.done(_next(keys, now + PROBES.cap))
    assert len({keys.take(now + 2 * PROBES.cap), keys.take(now + 2 * PROBES.cap)} - {None}) == 2


def test_a_server_that_asks_to_be_left_alone_is() -> None:
    keys = queue("a", "b")
    assert keys.take(0) == "a"
    keys.unanswered("a", 0, retry_after=7)
    assert keys.wake_at() == 7
    assert keys.take(6.9) is None
    assert keys.take(7) is not None


def test_one_key_that_fails_the_server_does_not_keep_the_others_waiting() -> None:
    keys, now, failed, passed = queue("bad"), 0.0, 0, 0
    while now < 60:
        keys.add("good")
        key = keys.take(now)
        if key == "bad":
            failed += 1
            keys.unanswered(key, now)
        elif key:
            passed += 1
            keys.done(key)
        now += 0.25
    assert failed <= 25 and passed > 100


def _next(keys: KeyQueue, now: float) -> str:
    key = keys.take(now)
    assert key is not None
    return key
