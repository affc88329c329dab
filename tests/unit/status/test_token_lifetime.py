"""How long an issued token is good for, by what the API server answered."""

import base64
from typing import Any

import orjson
import pytest

from services.status.core.token_lifetime import token_lifetime

EXPIRES = "2023-11-14T23:13:20Z"
ISSUED = 1_700_000_000  # an hour before


def jwt(**claims: Any) -> str:
    payload = base64.urlsafe_b64encode(orjson.dumps(claims)).rstrip(b"=").decode()
    return f"e30.{payload}.c2ln"


def answer(token: str, seconds: Any = 7200, expires: str = EXPIRES) -> dict[str, Any]:
    return {"spec": {"expirationSeconds": seconds}, "status": {"token": token, "expirationTimestamp": expires}}


def test_the_tokens_own_issue_counts() -> None:
    assert token_lifetime(answer(jwt(iat=ISSUED, exp=ISSUED + 10**8))) == 3600
    assert token_lifetime(answer(jwt(iat=ISSUED + 3000))) == 600


@pytest.mark.parametrize("token", ["opaque", "a.b", "a.%.c", "a.e30.c", jwt(iat="soon"), jwt(iat=True), "a" * 20_000])
def test_without_it_the_answers_own_seconds_count(token: str) -> None:
    assert token_lifetime(answer(token, 600)) == 600


@pytest.mark.parametrize("seconds", [None, "600", True, 0, -5, 10**12])
def test_what_makes_no_sense_is_unknown(seconds: Any) -> None:
    assert token_lifetime(answer("opaque", seconds)) == 0
    assert token_lifetime({"spec": None, "status": 3}) == 0
    assert token_lifetime(answer(jwt(iat=ISSUED + 9999))) == 0
    assert token_lifetime(answer(jwt(iat=ISSUED), expires="soon")) == 7200
