"""The YAML reader: limits that count what aliases expand to, and where each key is."""

import pytest

from shared.yaml_reader.reader import MAX_TAG_DIRECTIVES, Limits, Marks, Reader, UnreadableError, parse, read_documents

LIMITS = Limits(depth=4, values=50, characters=200)


class MarkingReader(Reader):
    keeps_marks = True


def marks_of(text: str) -> Marks:
    events = parse(text)
    next(events), next(events)  # the starts of the stream and of the document
    reader = MarkingReader(LIMITS)
    reader.read(events)
    return reader.marks


def test_every_document_of_a_text_is_read() -> None:
    assert list(read_documents("a: 1\n---\n[b, ~]\n---\n", LIMITS)) == [{"a": 1}, ["b", None], None]


def test_an_alias_is_the_newest_value_of_its_anchor() -> None:
    assert list(read_documents("[&a 1, *a, &a 2, *a]", LIMITS)) == [[1, 1, 2, 2]]
    assert list(read_documents("[&a [1, &a 2], *a]", LIMITS)) == [[[1, 2], 2]]


@pytest.mark.parametrize(
    ("text", "why", "line"),
    [
        ("[[[[[x]]]]]", "is nested deeper than 4 levels", 1),
        ("- &a [[x]]\n- &b [*a]\n- [*b]\n", "is nested deeper than 4 levels", 3),
        ("- " + "\n- ".join("x" * 60), "holds more than 50 values", 50),
        ("- &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n- [*a, *a]\n- [*a, *a, *a]\n", "holds more than 50 values", 3),
        ("- &a " + "x" * 90 + "\n- *a\n- *a\n", "or 200 characters", 3),
        ("- 1\n- &a {b: *a}\n", 'contains itself by the alias "a"', 2),
        ("- 1\n- *none\n", 'unknown anchor "none"', 2),
        ("- 1\n- {[]: 1}\n", "a key must be a string, a number or a boolean", 2),
        ("- 1\n- {<<: 1}\n", "<< takes a mapping, or a list of them", 2),
        ("- 1\n- !!int one\n", "is not of the type in its tag: int", 2),
        ("- 1\n- .inf\n", "is no number that JSON has", 2),
    ],
)
def test_what_cannot_be_read_is_one_line_with_its_position(text: str, why: str, line: int) -> None:
    with pytest.raises(UnreadableError) as refused:
        list(read_documents(text, LIMITS))
    assert why in refused.value.why
    assert refused.value.position is not None and refused.value.position[0] == line


def test_a_number_beyond_64_bits_is_floating_point_or_a_string_as_in_go(subtests: pytest.Subtests) -> None:
    for scalar, value in [
        ("0xffffffffffffffff", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ("18446744073709551616", 2.0**64),
        ("0x10000000000000000", "0x10000000000000000"),
        ("-0x" + "f" * 257, "-0x" + "f" * 257),
        ("0b" + "1" * 65, "0b" + "1" * 65),
        ("0o7" + "7" * 342, "0o7" + "7" * 342),
        ("0" + "7" * 30, float("7" * 30)),
        ("0" + "7" * 350, "0" + "7" * 350),
        ("9" * 310, "9" * 310),
        ("-1" + "_0" * 150, -1e150),
        ("9" * 100_000, "9" * 100_000),
        ("1e400", "1e400"),
    ]:
        with subtests.test(str(scalar)[:24]):
            # strconv.ParseInt with base 0, then ParseFloat of what has decimal digits alone, then the text itself
            limits = Limits(depth=4, values=50, characters=300_000)
            [[read]] = read_documents(f"- {scalar}", limits)
            assert read == value and type(read) is type(value)
            if len(scalar) < 1000:  # YAML's limit for a key
                [pair] = read_documents(f"{scalar}: x", limits)
                assert list(pair) == [f"{value:g}" if isinstance(value, float) else str(value)]


@pytest.mark.parametrize("tag", ["int", "float", "bool", "null", "binary"])
def test_a_number_that_is_too_large_does_not_fit_a_tag(tag: str) -> None:
    with pytest.raises(UnreadableError, match="line 1: '0xf"):
        list(read_documents(f"!!{tag} 0x{'f' * 257}", Limits(depth=4, values=50, characters=1000)))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_tag_directives_without_end_are_refused_before_the_parser_compares_them(encoding: str) -> None:
    limits = Limits(depth=4, values=50, characters=1000)
    few = "".join(f"%TAG !a{number}! x:\n" for number in range(MAX_TAG_DIRECTIVES))
    for text in (few, few.replace("\n", "\r\n"), few.replace("\n", "\x85")):
        assert list(read_documents(f"{text}--- a\n".encode(encoding), limits)) == ["a"]
        with pytest.raises(UnreadableError, match="100 %TAG directives"):
            list(read_documents(f"{text}%TAG !more! x:\n--- a\n".encode(encoding), limits))


def test_every_key_has_its_position() -> None:
    marks = marks_of("a: 1\nb:\n- c: 2\n  d: {e: 3}\n")
    assert marks.keys == {"a": (1, 1), "b": (2, 1)}
    first = marks.inner["b"].inner[0]
    assert isinstance(first, Marks) and first.keys == {"c": (3, 3), "d": (4, 3)}
    assert first.inner["d"].keys == {"e": (4, 7)}


def test_keys_of_an_alias_and_of_a_merge_are_where_they_are_written() -> None:
    marks = marks_of("a: &a {x: 1, z: 2}\nb: *a\nc: {<<: *a, z: 3}\n")
    assert marks.inner["b"].keys == {"x": (1, 8), "z": (1, 14)}
    assert marks.inner["c"].keys == {"x": (1, 8), "z": (3, 13)}


def test_of_a_key_given_twice_the_later_value_and_position_hold() -> None:
    [document] = read_documents("a: {x: 1}\na: 2\n", LIMITS)
    assert document == {"a": 2}
    marks = marks_of("a: {x: 1}\na: 2\n")
    assert marks == Marks(keys={"a": (2, 1)})
