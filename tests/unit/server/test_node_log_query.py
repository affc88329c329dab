"""Queries of /logs/: which are refused with which text, and what journalctl is called with."""

import gc
import time
from urllib.parse import urlencode

import pytest

from services.server.core.logs.node_log_query import (
    MAX_PATTERN_CHARACTERS,
    MAX_SERVICE_CHARACTERS,
    NodeLogQuery,
    NodeLogQueryError,
    parse_node_log_query,
)


def parse(*pairs: tuple[str, str]) -> NodeLogQuery | None:
    return parse_node_log_query(urlencode(pairs))


def refused(*pairs: tuple[str, str]) -> tuple[int, str]:
    with pytest.raises(NodeLogQueryError) as error:
        parse(*pairs)
    return error.value.status, str(error.value)


KUBELET = ("query", "kubelet")
BAD_X, BAD_Y = (f'"{text}": strconv.Atoi: parsing "{text}": invalid syntax' for text in "xy")


def test_no_parameters_are_no_query() -> None:
    assert parse() is parse(("other", "1")) is parse(("sinceTime", "")) is None


def test_the_journal_is_asked_for_units_and_options() -> None:
    query = parse(
        KUBELET,
        ("query", "containerd"),
        ("sinceTime", "2024-03-04T05:06:07.123456789+02:00"),
        ("untilTime", "2024-03-04T15:06:07Z"),
        ("boot", "-1"),
        ("tailLines", "0"),
        ("pattern", "a b"),
    )
    assert query is not None
    assert query.journal_command() == [
        *("journalctl", "--utc", "--no-pager", "--output=short-precise"),
        *("--since=2024-3-4 5:6:7", "--until=2024-3-4 15:6:7", "--pager-end", "--lines=0"),
        *("--unit=kubelet", "--unit=containerd", "--grep=a b", "--boot", "-1"),
    ]


def test_a_value_with_a_slash_is_a_file() -> None:
    assert parse(("query", "/a.log")) == NodeLogQuery(file="/a.log")
    assert parse(("query", "dir\\a.log")) == NodeLogQuery(file="dir\\a.log")
    assert parse(("query", "a.log")) == NodeLogQuery(services=("a.log",))


def test_a_bad_query_is_refused_with_the_kubelets_text(subtests: pytest.Subtests) -> None:
    for pairs, status, body in [
        ([("query", " ")], 400, 'query: Invalid value: [" "]: query cannot be empty'),
        ([KUBELET, ("sinceTime", "x")], 400, 'sinceTime: Invalid value: "x": invalid time format'),
        ([KUBELET, ("untilTime", "2024-03-04")], 400, 'untilTime: Invalid value: "2024-03-04": invalid time format'),
        (
            [KUBELET, ("untilTime", "2024-13-04T00:00:00Z")],
            400,
            'untilTime: Invalid value: "2024-13-04T00:00:00Z": invalid time format',
        ),
        (
            [KUBELET, ("boot", "x"), ("tailLines", "y")],
            400,
            f"[boot: Invalid value: {BAD_X}, tailLines: Invalid value: {BAD_Y}]",
        ),
        ([("tailLines", "5")], 406, "query: Required value: cannot be empty with options"),
        (
            [KUBELET, ("query", "/a")],
            406,
            'query: Invalid value: "[/a], [kubelet]": cannot specify a file and service',
        ),
        (
            [("query", "/a"), ("query", "/b")],
            406,
            'query: Invalid value: ["/a","/b"]: cannot specify more than one file',
        ),
        ([("query", "/a"), ("boot", "0")], 406, 'query: Invalid value: ["/a"]: cannot specify file with options'),
        ([("query", each) for each in "abcde"], 406, "query: Too many: 5: must have at most 4 items"),
        ([("query", "a;b")], 406, 'query: Invalid value: "a;b": input contains unsupported characters'),
        ([KUBELET, ("boot", "1")], 406, "boot: Invalid value: 1: must be less than 1"),
        (
            [KUBELET, ("tailLines", "100001")],
            406,
            "tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive",
        ),
        (
            [KUBELET, ("sinceTime", "2024-01-02T00:00:00Z"), ("untilTime", "2024-01-01T00:00:00Z")],
            406,
            "untilTime: Invalid value: 2024-01-01 00:00:00 +0000 UTC: must be after `sinceTime`",
        ),
    ]:
        with subtests.test(f"{pairs!r:.80}"):
            assert refused(*pairs) == (status, body)


@pytest.mark.parametrize("pattern", ["(", "(" * 4000, "x" * (MAX_PATTERN_CHARACTERS + 1), "a\0b", "x{99999999999}"])
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str) -> None:
    status, body = refused(KUBELET, ("pattern", pattern))
    assert (status, body.startswith("pattern: Invalid value: ")) == (406, True)


@pytest.mark.long
@pytest.mark.parametrize(
    "part", ["[\u0100-\uffff]", "(?i:[\u0100-\uffff])", "[^\u0100-\uffff]", "[à-ɏͰ-Ͽ]", "(?:[ā-ﬀ]|a)?"]
)
def test_a_pattern_within_the_limit_is_checked_in_milliseconds(part: str) -> None:
    pattern = part * (MAX_PATTERN_CHARACTERS // len(part))
    gc.disable()  # a collection looks at what all tests of this process have left
    try:
        begin = time.thread_time()
        query = parse(KUBELET, ("pattern", pattern))
        took = time.thread_time() - begin
    finally:
        gc.enable()
    assert took < 0.25
    assert query is not None and query.pattern == pattern


def test_a_service_may_have_256_characters() -> None:
    assert parse(("query", "a" * MAX_SERVICE_CHARACTERS))
    assert refused(("query", "a" * (MAX_SERVICE_CHARACTERS + 1)))[1].endswith("length must be less than 256")
