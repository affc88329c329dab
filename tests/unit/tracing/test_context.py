"""The header that carries a span's identity, and which traces are sampled."""

import pytest

from shared.tracing.context import SpanContext, is_sampled, parse_traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize("sampled", [True, False])
def test_a_header_is_read_as_it_was_written(sampled: bool) -> None:
    context = SpanContext(TRACE, SPAN, sampled)
    assert parse_traceparent(context.traceparent) == context


def test_the_header_is_that_of_the_standard() -> None:
    assert SpanContext(TRACE, SPAN).traceparent == f"00-{TRACE}-{SPAN}-01"


def test_a_later_version_may_add_fields() -> None:
    assert parse_traceparent(f"cc-{TRACE}-{SPAN}-09-what-follows") == SpanContext(TRACE, SPAN, sampled=True)


def test_a_malformed_header_counts_as_absent(subtests: pytest.Subtests) -> None:
    for text in [
        "",
        "00",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0g",
        f"00-{TRACE}-{SPAN}-01\n",
        f"01-{TRACE}-{SPAN}-01-{'x' * 1000}",
        f"00-{TRACE}-{SPAN[:-1]}\u0663-01",
    ]:
        with subtests.test(text):
            assert parse_traceparent(text) is None


def test_the_rate_is_a_share_of_the_traces() -> None:
    lowest, middle, highest = "0" * 32, "0" * 16 + "8" + "0" * 15, "f" * 32
    assert [is_sampled(one, 0) for one in (lowest, middle, highest)] == [False, False, False]
    assert [is_sampled(one, 500_000) for one in (lowest, middle, highest)] == [True, False, False]
    assert [is_sampled(one, 1_000_000) for one in (lowest, middle, highest)] == [True, True, True]
