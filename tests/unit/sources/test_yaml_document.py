"""A manifest's bytes become the JSON values the Go kubelet's decoder would see, or one line with the reason."""

import pytest

from services.sources.core.yaml_document import MAX_BYTES, MAX_VALUES, UnreadableManifestError, read_document


def test_a_scalar_means_what_it_means_to_the_kubelet(subtests: pytest.Subtests) -> None:
    for text, value in [
        ("yes", True),
        ("Off", False),
        ("y", True),
        ("~", None),
        ("", None),
        ("0777", 511),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", 1000),
        ("-12", -12),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("12:30:45", "12:30:45"),  # no sexagesimal numbers, as in Go
        ("2001-12-14", "2001-12-14"),  # no timestamps
        ("08", 8.0),  # no octal number, so a float
        ("1.2.3", "1.2.3"),
        ("100m", "100m"),
        ("'yes'", "yes"),
        ('"1"', "1"),
        ("!!str 1", "1"),
        ("!!int '7'", 7),
        ("18446744073709551616", 18446744073709551616.0),
        ("=", "="),
        ("1e999", "1e999"),  # too large for a number, so text
        ("9" * 5000, "9" * 5000),
    ]:
        with subtests.test(text):
            read = read_document(f"a: {text}\n".encode())["a"]
            assert (read, type(read)) == (value, type(value))


def test_keys_become_strings_and_a_later_duplicate_wins() -> None:
    assert read_document(b"80: a\ntrue: b\n80: c\n1.5: d\n") == {"80": "c", "true": "b", "1.5": "d"}


def test_anchors_and_merge_keys_are_expanded() -> None:
    text = b"base: &b {a: 1, c: 2}\nsum:\n  <<: *b\n  a: 3\nlist: [*b, '<<']\nboth:\n  <<: [{x: 1}, {x: 2, z: 3}]\n"
    document = read_document(text)
    assert document["sum"] == {"a": 3, "c": 2}
    assert document["list"] == [{"a": 1, "c": 2}, "<<"]
    assert document["both"] == {"x": 1, "z": 3}


def test_json_is_read_even_with_tabs() -> None:
    assert read_document(b'{\n\t"a": [1, 2.5, null, "x"]\n}') == {"a": [1, 2.5, None, "x"]}


def test_empty_further_documents_are_passed_over() -> None:
    assert read_document(b"---\na: 1\n---\n# nothing\n") == {"a": 1}


def test_what_is_no_single_document_is_refused_in_one_line(subtests: pytest.Subtests) -> None:
    for content, reason in [
        (b"", "the file is empty"),
        (b"  \n", "the file is empty"),
        (b"# only a comment\n", "the file holds no document"),
        (b"a: 1\n---\nb: 2\n", "2 YAML documents in one file"),
        (b"a: [1, 2\n", "not YAML: line 2"),
        (b"a: b: c\n", "not YAML: line 1"),
        (b"a: *nothing\n", 'unknown anchor "nothing"'),
        (b"a: *" + b"x" * 1_000_000, f'unknown anchor "{"x" * 80}"'),
        (b"a: &x [*x]\n", 'contains itself by the alias "x"'),
        (b"a: .nan\n", "line 1: .nan is no number that JSON has"),
        (b"a: !!binary aGk=\n", "!!binary"),
        (b"? [a, b]\n: c\n", "a key must be a string, a number or a boolean"),
        (b"<<: 1\n", "<< takes a mapping"),
        (b"\xff\xfe\x00\x01\x02", "not YAML"),
        (b"x" * (MAX_BYTES + 1), "larger than the 10 MiB"),
        (b'{"a":[' + b"1," * MAX_VALUES + b"1]}", f"holds more than {MAX_VALUES} values"),
        (b"[" * 200_000, "nested deeper than 100 levels"),
        (b'{"a":' + b"[" * 500 + b"]" * 500 + b"}", "nested deeper than 100 levels"),
    ]:
        with subtests.test(f"{content!r:.80}"):
            with pytest.raises(UnreadableManifestError, match=reason) as refused:
                read_document(content)
            assert "\n" not in str(refused.value)


def test_aliases_that_expand_without_end_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(UnreadableManifestError, match="aliases expanded"):
        read_document("\n".join(lines).encode())
