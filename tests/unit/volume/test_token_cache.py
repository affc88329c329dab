"""When a token is renewed, and what happens when that fails."""

import math

import pytest

from services.volume.core.files.token_cache import CachedToken, TokenCache, TokenError, TokenKey
from shared.model.frozen_copy import replace

HOUR, DAY = 3600, 24 * 3600
KEY = TokenKey("shop", "builder", (), HOUR, "web", "u1")
T0 = 1_700_000_000.0  # wall
EXPIRES = "2023-11-14T23:13:20Z"  # T0 and an hour


def issued(key: TokenKey = KEY, expires: str = EXPIRES, lifetime: int = 0) -> TokenCache:
    cache = TokenCache()
    cache.issued(key, "jwt", expires, lifetime, now=100.0)
    return cache


@pytest.mark.parametrize(
    ("seconds", "age", "jitter", "needed"),
    [
        (HOUR, 0, 9, False),
        (HOUR, 2869, 9, False),
        (HOUR, 2872, 9, True),
        (HOUR, 2879, 0, False),
        (HOUR, 2881, 0, True),
        (7 * DAY, DAY - 1, 0, False),
        (7 * DAY, DAY + 1, 0, True),
        (7 * DAY, DAY - 8, 9, True),
        (None, 30 * DAY, 0, False),
    ],
)
@pytest.mark.parametrize("clock", ["wall", "monotonic"])
def test_renewal_at_four_fifths_or_a_day_by_either_clock(
    seconds: int | None, age: float, jitter: float, needed: bool, clock: str
) -> None:
    token = CachedToken("jwt", T0 + (seconds or 0), 0.0, seconds)
    wall, now = (T0 + age, 0.0) if clock == "wall" else (T0, float(age))
    assert token.needs_refresh(wall=wall, now=now, jitter=jitter) is needed


def test_the_next_look_is_when_the_renewal_is_due() -> None:
    assert CachedToken("jwt", T0 + HOUR, 100.0, HOUR).refresh_at(5.0) == 100 + 2880 - 5
    assert CachedToken("jwt", T0 + HOUR, 100.0, 10).refresh_at(9.0) == 100 + 8 - 1
    assert CachedToken("jwt", T0 + HOUR, 100.0, None).refresh_at(5.0) == math.inf


def test_a_token_whose_lifetime_was_shortened_is_renewed_once_in_that_lifetime() -> None:
    cache = issued(expires="2023-11-14T22:23:20Z", lifetime=600)  # T0 and ten minutes, where an hour was asked for
    assert cache.fresh(KEY, wall=T0 + 1, now=101.0, jitter=9.0) is not None
    assert cache.fresh(KEY, wall=T0 + 470, now=570.0, jitter=9.0) is not None
    assert cache.fresh(KEY, wall=T0 + 472, now=572.0, jitter=9.0) is None
    assert cache.issued(KEY, "jwt", "2023-11-14T22:23:20Z", 600, now=100.0).refresh_at(9.0) == 100 + 471


def test_a_good_token_is_used_without_asking() -> None:
    cached = issued().fresh(KEY, wall=T0 + 10, now=110.0, jitter=0.0)
    assert cached is not None
    assert cached.token == "jwt"
    assert issued().fresh(KEY, wall=T0 + 3000, now=3100.0, jitter=0.0) is None


@pytest.mark.parametrize(
    "other",
    [
        TokenKey("shop", "builder", ("vault",), HOUR, "web", "u1"),
        TokenKey("shop", "builder", (), HOUR, "web", "u2"),
        TokenKey("shop", "builder", (), 2 * HOUR, "web", "u1"),
        TokenKey("shop", "other", (), HOUR, "web", "u1"),
    ],
)
def test_tokens_of_others_are_not_taken(other: TokenKey) -> None:
    assert issued().fresh(other, wall=T0, now=100.0, jitter=0.0) is None


def test_a_failed_renewal_keeps_the_old_token_until_it_has_expired() -> None:
    cache = issued()
    assert cache.after_failure(KEY, "away", wall=T0 + HOUR - 1).token == "jwt"
    with pytest.raises(TokenError) as expired:
        cache.after_failure(KEY, "away", wall=T0 + HOUR + 1)
    assert str(expired.value) == (
        'token "builder"/"shop"/[]string(nil)/3600/v1.BoundObjectReference{Kind:"Pod", APIVersion:"v1", Name:"web", '
        'UID:"u1"} expired and refresh failed: away'
    )


def test_a_first_request_that_fails() -> None:
    with pytest.raises(TokenError, match=r"^failed to fetch token: away$"):
        TokenCache().after_failure(KEY, "away", wall=T0)


@pytest.mark.parametrize("expires", ["", "tomorrow", "2023-11-14 23:13:20"])
def test_an_expiration_that_cannot_be_read_leaves_the_age_to_decide(expires: str) -> None:
    cache = issued(expires=expires)
    assert cache.fresh(KEY, wall=T0, now=101.0, jitter=0.0) is not None
    assert cache.fresh(KEY, wall=T0, now=100.0 + 2881, jitter=0.0) is None


def test_the_tokens_of_a_pod_are_forgotten_with_it() -> None:
    cache = issued()
    cache.forget("u2")
    assert len(cache) == 1
    cache.forget("u1")
    assert len(cache) == 0


def test_a_request_names_the_pod_and_only_what_was_asked_for() -> None:
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u1"}
    assert KEY.request == {"boundObjectRef": bound, "expirationSeconds": HOUR}
    vault = TokenKey("shop", "builder", ("vault",), None, "web", "u1")
    assert vault.request == {"boundObjectRef": bound, "audiences": ["vault"]}


def test_a_token_is_in_no_repr() -> None:
    assert "jwt" not in repr(issued())


def test_a_token_requested_without_a_lifetime_is_renewed_in_that_of_the_answer() -> None:
    cache, key = TokenCache(), replace(KEY, seconds=None)
    cache.issued(key, "jwt", "2023-11-14T23:13:20Z", HOUR, now=100.0)  # T0 and an hour
    assert cache.fresh(key, wall=T0 + 2870, now=2970.0, jitter=0.0) is not None
    assert cache.fresh(key, wall=T0 + 2881, now=2981.0, jitter=0.0) is None
