"""What a log request's query means, and how a bad one is refused."""

from typing import Any

import pytest

from services.server.core.logs.log_query import (
    LogQuery,
    LogQueryError,
    check_stream_gate,
    parse_log_query,
    parse_rfc3339,
)


def test_nothing_given_asks_for_everything() -> None:
    assert parse_log_query("") == LogQuery()


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("follow=true", {"follow": True}),
        ("follow=", {"follow": True}),
        ("follow", {"follow": True}),
        ("follow=no", {"follow": True}),
        ("follow=0&previous=FALSE", {}),
        ("follow=false&follow=true", {}),  # the first value wins
        ("timestamps=1", {"timestamps": True}),
        ("tailLines=10", {"tail_lines": 10}),
        ("tailLines=%2B5", {"tail_lines": 5}),
        ("tailLines=10&tail=3", {"tail_lines": 3}),
        ("tailLines=10&tail=all", {}),
        ("tail=", {}),
        ("limitBytes=9223372036854775807", {"limit_bytes": 9223372036854775807}),
        ("sinceTime=", {}),
        ("sinceTime=null", {}),
        ("sinceTime=1970-01-01T00:00:01.5Z", {"since_time": 1_500_000_000}),
        ("stream=Stderr", {"stream": "Stderr"}),
        ("stream=All&tailLines=2", {"tail_lines": 2}),
        ("pretty=true&container=x&insecureSkipTLSVerifyBackend=true", {}),
        ("follow=%zz&a;b=c&&=", {}),  # what does not decode is dropped, as Go drops it
    ],
)
def test_parameters_are_read_as_go_reads_them(raw: str, expected: dict[str, Any]) -> None:
    assert parse_log_query(raw) == LogQuery(**expected)


def test_what_cannot_be_decoded_is_400(subtests: pytest.Subtests) -> None:
    for raw in [
        "tailLines=x",
        "tailLines=",
        "tailLines=1_0",
        "tailLines=%201",
        "tailLines=9223372036854775808",
        "tail=x",
        "limitBytes=1.5",
        "sinceSeconds=abc",
        "sinceTime=yesterday",
        "sinceTime=2024-13-01T00:00:00Z",
        "tailLines=" + "9" * 5000,
        "sinceTime=2024-01-01",
    ]:
        with subtests.test(raw):
            with pytest.raises(LogQueryError) as refused:
                parse_log_query(raw)
            assert (refused.value.status, str(refused.value)) == (400, '{"message": "Unable to decode query."}')


@pytest.mark.parametrize(
    "raw",
    [
        "tailLines=-1", "limitBytes=0", "sinceSeconds=0", "sinceSeconds=1&sinceTime=2024-01-01T00:00:00Z",
        "stream=stdout", "stream=Stdout&tailLines=1",
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_422(raw: str) -> None:
    with pytest.raises(LogQueryError) as refused:
        parse_log_query(raw)
    assert (refused.value.status, str(refused.value)) == (422, '{"message": "Invalid request."}')


def test_one_stream_needs_its_feature_gate() -> None:
    check_stream_gate(LogQuery(stream="Stdout"), split_streams=True)
    check_stream_gate(LogQuery(), split_streams=False)
    with pytest.raises(LogQueryError, match='unable to return the given log stream: "Stdout"'):
        check_stream_gate(LogQuery(stream="Stdout"), split_streams=False)


def test_relative_time_counts_from_now() -> None:
    assert parse_log_query("sinceSeconds=10").since(100.0) == 90_000_000_000
    assert parse_log_query("sinceTime=1970-01-01T00:01:00Z").since(100.0) == 60_000_000_000
    assert parse_log_query("").since(100.0) is None


def test_times_keep_every_nanosecond_and_their_zone() -> None:
    assert parse_rfc3339("1970-01-01T02:00:00.123456789+02:00") == 123_456_789
    assert parse_rfc3339("1969-12-31T23:00:00-01:00") == 0
    assert parse_rfc3339("1969-12-31T23:59:59.5Z") == -500_000_000
