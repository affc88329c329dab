"""Tables fit into the terminal; a file gets complete lines and no colours."""

import pytest

from services.cli.terminal.table import Paint, duration, paint, screen, shorten_text, size, table

HEADER = ["NAME", "STATUS", "WAITS FOR"]
ROWS = [["web", "Running", ""], ["a-name-of-some-length", "ImagePullBackOff", "a: " + "x" * 200]]


def test_columns_are_aligned_and_whole_without_a_terminal() -> None:
    lines = table(HEADER, ROWS)
    assert lines[0].index("STATUS") == lines[1].index("Running") == lines[2].index("ImagePullBackOff")
    assert lines[2].endswith("x" * 200) and lines[1] == lines[1].rstrip()


def test_control_characters_of_a_cell_are_shown_as_escapes() -> None:
    assert table(["NAME"], [["<script>\x1b[2J\x1b]0;x\x07\u202e"]])[1] == "<script>\\x1b[2J\\x1b]0;x\\x07\\u202e"


@pytest.mark.parametrize("width", [10, 40, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for wraps in (False, True):
        assert max(len(line) for line in table(HEADER, ROWS, width, wraps=wraps)) <= width


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_word_of_a_sentence_in_the_last_column_is_cut(width: int) -> None:
    sentence = "the image cannot be pulled: registry.test answers 401 Unauthorized (name a Secret in imagePullSecrets)"
    shown = table(HEADER, [["web-1", "Pending", sentence], ["web-2", "Running", ""]], width, wraps=True)
    assert " ".join(" ".join(shown[1:-1]).split()).endswith(sentence)
    assert shown[-1].split() == ["web-2", "Running"]


def test_at_40_columns_every_column_is_still_there() -> None:
    lines = table(HEADER, ROWS, 40)
    assert lines[0].split() == ["NAME", "STATUS", "WAITS", "FOR"]
    assert lines[2].startswith("a-name") and "Image" in lines[2] and lines[2].endswith("~")


def test_a_screen_keeps_the_first_lines_and_counts_the_missing_ones() -> None:
    lines = [f"line {number}" for number in range(30)]
    shown = screen(lines, 24).removeprefix("\x1b[H\x1b[2J").split("\n")
    assert len(shown) == 23 and shown[:22] == lines[:22]
    assert shown[-1] == "8 more lines (all are shown without -w)"
    assert screen(lines, 31).endswith("\nline 29") and screen(lines, 30).endswith(
        "\n2 more lines (all are shown without -w)"
    )


def test_a_short_text_is_not_marked() -> None:
    assert (shorten_text("abc", 3), shorten_text("abcd", 3), shorten_text("abcd", 0)) == ("abc", "ab~", "abcd")


@pytest.mark.parametrize(
    ("number", "text"), [(None, "-"), (0, "0 B"), (1536, "1.5 KiB"), (23 << 20, "23 MiB"), (5 << 40, "5120 GiB")]
)
def test_sizes_have_a_unit(number: int | None, text: str) -> None:
    assert size(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.04, "0.0s"), (-1, "0.0s"), (59, "59s"), (600, "10m"), (86_400, "24h"), (1e6, "12d")],
)
def test_durations_have_a_unit(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_there_is_no_colour_without_a_terminal() -> None:
    assert paint().bad("x") == Paint(False).good("x") == "x"
    assert Paint(True).bad("x") == "\x1b[1;31mx\x1b[0m"
