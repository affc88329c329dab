"""Log files decoded: bytes in, bytes out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.server.core.logs import log_format
from services.server.core.logs.log_format import LogDecoder, LogFilter, UnsupportedLogFormatError, find_tail_start

T = b"2024-01-01T00:00:0%d.5Z"
LOG = (
    T % 1 + b" stdout F one\n"
    + T % 2 + b" stderr F two\n"
    + T % 3 + b" stdout P thr\n"
    + T % 4 + b" stdout F ee\n"
    + T % 5 + b" stdout F \n"
)  # fmt: skip
SECOND = 1_000_000_000
EPOCH = 1704067200 * SECOND  # 2024-01-01T00:00:00Z


def decode(data: bytes, wanted: LogFilter | None = None, block: int = 1 << 20) -> bytes:
    decoder = LogDecoder(wanted or LogFilter())
    output = [decoder.feed(data[start : start + block]) for start in range(0, len(data), block)]
    return b"".join(output) + decoder.finish()


def test_lines_lose_their_prefix_and_fragments_join() -> None:
    assert decode(LOG) == b"one\ntwo\nthree\n\n"


@given(st.integers(min_value=1, max_value=len(LOG)), st.booleans())
def test_blocks_may_end_anywhere(block: int, timestamps: bool) -> None:
    wanted = LogFilter(timestamps=timestamps)
    assert decode(LOG, wanted, block) == decode(LOG, wanted)


def test_timestamps_have_nine_digits_and_stand_at_the_start_of_logical_lines_only() -> None:
    assert decode(LOG, LogFilter(timestamps=True)) == (
        b"2024-01-01T00:00:01.500000000Z one\n"
        b"2024-01-01T00:00:02.500000000Z two\n"
        b"2024-01-01T00:00:03.500000000Z three\n"
        b"2024-01-01T00:00:05.500000000Z \n"
    )


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"2024-01-01T00:00:00Z", b"2024-01-01T00:00:00.000000000Z"),
        (b"2024-01-01T00:00:00.123456789+02:00", b"2024-01-01T00:00:00.123456789+02:00"),
        (b"2024-01-01T00:00:00.1+00:00", b"2024-01-01T00:00:00.100000000Z"),
        (b"2024-01-01T00:00:00-07:00", b"2024-01-01T00:00:00.000000000-07:00"),
    ],
)
def test_timestamps_keep_their_zone(written: bytes, shown: bytes) -> None:
    assert decode(written + b" stdout F x\n", LogFilter(timestamps=True)) == shown + b" x\n"


def test_older_lines_are_left_out_and_the_limit_itself_is_not_older() -> None:
    assert decode(LOG, LogFilter(since=EPOCH + 25 * SECOND // 10)) == b"two\nthree\n\n"


def test_an_impossible_date_is_older_than_anything() -> None:
    assert decode(b"2024-13-01T00:00:00Z stdout F x\n" + LOG, LogFilter(since=0)) == b"one\ntwo\nthree\n\n"


def test_the_byte_limit_cuts_exactly(subtests: pytest.Subtests) -> None:
    for limit in range(1, 20):
        with subtests.test(str(limit)):
            assert decode(LOG, LogFilter(limit_bytes=limit)) == b"one\ntwo\nthree\n\n"[:limit]


def test_the_byte_limit_counts_timestamps_and_ends_the_reading() -> None:
    decoder = LogDecoder(LogFilter(limit_bytes=33, timestamps=True))
    assert decoder.feed(LOG) == b"2024-01-01T00:00:01.500000000Z on"
    assert decoder.finished


def test_one_stream_neither_shows_nor_counts_the_other() -> None:
    assert decode(LOG, LogFilter(stream="Stderr")) == b"two\n"
    assert decode(LOG, LogFilter(stream="Stdout", limit_bytes=5)) == b"one\nt"


def test_a_line_count_ends_the_reading_and_counts_fragments() -> None:
    assert decode(LOG, LogFilter(lines=3)) == b"one\ntwo\nthr"
    assert LogDecoder(LogFilter(lines=0)).finished


def test_lines_left_out_by_time_count_against_the_line_count() -> None:
    assert decode(LOG, LogFilter(lines=2, since=EPOCH + 2 * SECOND)) == b"two\n"


def test_bad_lines_are_skipped() -> None:
    bad = b"garbage\n2024-01-01T00:00:01Z stdout\n2024-01-01T00:00:01Z other F x\n\n"
    assert decode(LOG + bad + LOG) == decode(LOG) * 2


def test_an_unterminated_last_line_is_shown_when_reading_ends() -> None:
    decoder = LogDecoder(LogFilter())
    assert decoder.feed(LOG + T % 6 + b" stdout F en") == b"one\ntwo\nthree\n\n"
    assert decoder.finish() == b"en"


def test_rotation_drops_the_beginning_of_a_line_that_was_never_finished() -> None:
    decoder = LogDecoder(LogFilter())
    decoder.feed(LOG + T % 6 + b" stdout F en")
    decoder.restart()
    assert decoder.feed(T % 7 + b" stdout F new\n") == b"new\n"


def test_tags_after_the_first_are_for_the_future() -> None:
    assert decode(T % 1 + b" stdout P:x a\n" + T % 2 + b" stdout F:y b\n") == b"ab\n"


def test_docker_json_is_known_too() -> None:
    log = b'{"log":"one\\n","stream":"stdout","time":"2024-01-01T00:00:01.5Z"}\nnot json\n[]\n'
    assert decode(log) == b"one\n"
    assert decode(log, LogFilter(timestamps=True)) == b"2024-01-01T00:00:01.500000000Z one\n"


def test_an_unknown_format_is_an_error_that_quotes_nothing_of_the_file() -> None:
    with pytest.raises(UnsupportedLogFormatError) as unsupported:
        decode(b"root:x:0:0\xff\nworld\n")
    assert str(unsupported.value) == (
        "failed to get parse function: unsupported log format: a first line of 12 bytes, neither CRI nor JSON"
    )


def test_a_line_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_format, "MAX_LINE_BYTES", 100)
    assert decode(LOG + T % 6 + b" stdout F " + b"x" * 1000 + b"\n" + LOG, block=64) == decode(LOG) * 2


@given(st.binary(max_size=300))
def test_no_content_breaks_the_decoder(data: bytes) -> None:
    decode(LOG + data + b"\n", block=7)


@pytest.mark.parametrize("block", [1, 3, 64, 1 << 16])
@pytest.mark.parametrize(
    ("data", "lines", "start"),
    [
        (b"a\nb\nc\n", 0, 6),
        (b"a\nb\nc\n", 1, 4),
        (b"a\nb\nc\n", 3, 0),
        (b"a\nb\nc\n", 9, 0),
        (b"a\nb\nc", 1, 2),  # an unterminated last line does not count
        (b"a\nb\nc", 0, 4),
        (b"", 5, 0),
        (b"abc", 0, 0),
    ],
)
def test_the_tail_is_found_from_the_end(data: bytes, lines: int, start: int, block: int) -> None:
    assert find_tail_start(lambda offset, length: data[offset : offset + length], len(data), lines, block) == start


def test_the_tail_of_a_long_file_reads_its_end_only() -> None:
    data, read = b"line\n" * 100_000, []

    def read_at(offset: int, length: int) -> bytes:
        read.append(length)
        return data[offset : offset + length]

    assert find_tail_start(read_at, len(data), 10) == len(data) - 50
    assert len(read) == 1
