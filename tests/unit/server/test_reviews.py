"""Tokens in requests, questions to the API server, and how long its answers hold."""

import base64

import pytest

from services.server.controllers.node_page import MAX_PAGES
from services.server.controllers.reviews import (
    MAX_ACCESS_REVIEWS,
    MAX_ACCESS_REVIEWS_OF_ADDRESS,
    MAX_TOKEN_REVIEWS,
    MAX_TOKEN_REVIEWS_OF_ADDRESS,
)
from services.server.core.access.authentication import User
from services.server.core.access.authorization import Attributes
from services.server.core.access.bearer import MAX_TOKEN_BYTES, BearerError, header_token, protocol_token, without_token
from services.server.core.access.reviews import (
    ExpiringCache,
    PendingReviews,
    ReviewError,
    TooManyReviewsError,
    access_spec,
    allowed,
    cacheable,
    token_user,
)
from services.server.core.listening.shares import Shares
from services.server.core.routes import MAX_STREAMS

JANE = User("jane", ("dev",), "u1", {"scopes": ("a", "b")})
PREFIX = "base64url.bearer.authorization.k8s.io."
SECRET = PREFIX + base64.urlsafe_b64encode(b"s3cret?>").decode().rstrip("=")


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer abc", "abc"),
        (" Bearer abc def", "abc"),
        ("Bearer", ""),
        ("Bearer  abc", ""),
        ("Basic abc", ""),
        ("", ""),
    ],
)
def test_the_token_of_a_header(header: str, token: str) -> None:
    assert header_token(header) == token


@pytest.mark.parametrize("token", ["a" * (MAX_TOKEN_BYTES + 1), "t\udcff", "t\u00e9", "t\0", "t\x7f"])
def test_a_long_token_and_one_that_is_not_ascii_are_refused(token: str) -> None:
    with pytest.raises(BearerError):
        header_token(f"Bearer {token}")
    encoded = base64.urlsafe_b64encode(token.encode("utf-8", "surrogateescape")).decode().rstrip("=")
    with pytest.raises(BearerError):
        protocol_token([PREFIX + encoded, "v4.channel.k8s.io"])


def test_the_longest_token_is_taken() -> None:
    assert header_token("Bearer " + "a" * MAX_TOKEN_BYTES) == "a" * MAX_TOKEN_BYTES


def test_the_token_of_a_websocket() -> None:
    assert protocol_token(["v4.channel.k8s.io"]) == ""
    assert protocol_token([SECRET, "v4.channel.k8s.io"]) == "s3cret?>"


@pytest.mark.parametrize("protocols", [[SECRET], [SECRET, SECRET, "x"], [PREFIX + "!", "x"], [SECRET + "=", "x"]])
def test_a_websocket_token_in_a_bad_form_is_refused_and_not_shown(protocols: list[str]) -> None:
    with pytest.raises(BearerError) as refused:
        protocol_token(protocols)
    assert "czNj" not in str(refused.value)


def test_the_token_is_taken_out() -> None:
    assert without_token(f"{SECRET}, v4.channel.k8s.io") == "v4.channel.k8s.io"
    assert without_token("a, b") == "a, b"
    assert without_token(SECRET) == ""


def test_whose_token_it_is() -> None:
    user = {"username": "jane", "uid": "u1", "groups": ["dev"], "extra": {"scopes": ["a", "b"]}}
    found = token_user({"authenticated": True, "user": user})
    assert found == User("jane", ("dev", "system:authenticated"), "u1", {"scopes": ("a", "b")})
    assert token_user({"authenticated": False}) is None
    assert token_user({}) is None


@pytest.mark.parametrize("status", [{"error": "expired"}, {"authenticated": True}, {"authenticated": True, "user": 1}])
def test_a_token_review_that_decides_nothing(status: dict[str, object]) -> None:
    with pytest.raises(ReviewError):
        token_user(status)


def test_the_question_of_access() -> None:
    assert access_spec(Attributes(JANE, "get", "proxy", "node-1")) == {
        "resourceAttributes": {
            "verb": "get",
            "version": "v1",
            "resource": "nodes",
            "subresource": "proxy",
            "name": "node-1",
        },
        "user": "jane",
        "groups": ["dev"],
        "extra": {"scopes": ["a", "b"]},
        "uid": "u1",
    }
    assert "verb" not in access_spec(Attributes(User("x"), "", "proxy", "n"))["resourceAttributes"]


def test_the_answer_of_access() -> None:
    assert allowed({"allowed": True})
    assert not allowed({"allowed": False, "denied": True})
    assert not allowed({})
    with pytest.raises(ReviewError, match="both allow and deny"):
        allowed({"allowed": True, "denied": True})


def test_what_a_client_made_long_is_not_kept() -> None:
    assert cacheable(Attributes(JANE, "get", "proxy", "n"))
    assert not cacheable(Attributes(User("x" * 10_000), "get", "proxy", "n"))


def test_answers_expire_and_the_longest_unused_go_first() -> None:
    cache: ExpiringCache[str, int] = ExpiringCache(2)
    cache.put("a", 1, until=10)
    cache.put("b", 2, until=10)
    assert cache.get("a", 9.9) == 1
    cache.put("c", 3, until=10)
    assert (cache.get("b", 9), cache.get("a", 9), cache.get("c", 9)) == (None, 1, 3)
    assert cache.get("a", 10) is None
    assert len(cache) == 1


def begun(pending: PendingReviews, address: str) -> int:
    """How many reviews the address gets when it begins all that it may."""
    number = 0
    try:
        while True:
            pending.begin(address)
            number += 1
    except TooManyReviewsError:
        return number


@pytest.mark.parametrize(
    ("limit", "of_address", "numbers"),
    [
        (MAX_TOKEN_REVIEWS, MAX_TOKEN_REVIEWS_OF_ADDRESS, [16, 16, 16, 16, 16, 8, 4, 2, 1, 1, 0]),
        (MAX_ACCESS_REVIEWS, MAX_ACCESS_REVIEWS_OF_ADDRESS, [48, 24, 12, 6, 3, 2, 1, 0]),
    ],
)
def test_addresses_that_begin_all_the_reviews_they_may_leave_some_to_the_next(
    limit: int, of_address: int, numbers: list[int]
) -> None:
    pending = PendingReviews(limit, of_address)
    assert [begun(pending, f"10.0.0.{number}") for number in range(len(numbers))] == numbers


def test_claimants_that_take_all_the_places_they_may_leave_some_to_the_next() -> None:
    for limit, numbers in ((MAX_STREAMS, [2048, 1024, 512, 256]), (MAX_PAGES, [32, 16, 8, 4, 2, 1, 1, 0])):
        shares = Shares(limit)
        taken = []
        for claimant in map(str, range(len(numbers))):
            while shares.take(claimant):
                pass
            taken.append(shares.taken_by(claimant))
        assert taken == numbers and shares.total == sum(numbers) <= limit


def test_reviews_that_end_make_room_for_others() -> None:
    pending = PendingReviews(4, 2)
    assert [begun(pending, address) for address in "abcd"] == [2, 1, 1, 0]
    pending.end("a")
    assert [begun(pending, address) for address in "abd"] == [0, 0, 1]
