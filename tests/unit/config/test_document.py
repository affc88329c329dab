"""A configuration file is read as the kubelet reads it; what is no document is one line with its place."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.config.decoding import decode
from shared.config.document import read_documents
from shared.config.durations import format_duration, parse_duration, parse_nanoseconds
from shared.config.field_table import FIELDS
from shared.config.fields import schema_tree
from shared.config.findings import ERROR, Findings
from shared.config.spelling import closest
from tests.unit.examples import examples

SCHEMA = schema_tree(FIELDS)


def lines_of(text: str, *, any_case: bool = False) -> list[str]:
    """Errors, and what is ignored, in one file."""
    findings = Findings(default_place="f.yaml")
    for document in read_documents(text, "f.yaml", findings):
        decode(document.data, SCHEMA, document.places, findings, any_case=any_case)
    return [finding.line for finding in findings.found]


def data_of(text: str) -> dict[str, Any]:
    findings = Findings()
    [document] = read_documents(text, "f.yaml", findings)
    assert not findings.found
    return document.data


def test_a_good_document_has_no_findings() -> None:
    text = "port: 10250\nauthentication: {webhook: {enabled: false, cacheTTL: 2m}}\nfeatureGates: {A: true}"
    assert lines_of(text) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("staticPodPth: x", 'f.yaml:1:1: staticPodPth: unknown key, ignored (did you mean "staticPodPath"?)'),
        ("StaticPodPath: x", 'f.yaml:1:1: StaticPodPath: unknown key, ignored (did you mean "staticPodPath"?)'),
        ("zzz: x", "f.yaml:1:1: zzz: unknown key, ignored (remove it)"),
        (
            "port: 1\nauthentication:\n  webhook:\n    enable: x",
            'f.yaml:4:5: authentication.webhook.enable: unknown key, ignored (did you mean "enabled"?)',
        ),
        (
            "registerWithTaints:\n- key: a\n  effekt: b",
            'f.yaml:3:3: registerWithTaints[0].effekt: unknown key, ignored (did you mean "effect"?)',
        ),
    ],
)
def test_an_unknown_key_is_ignored_and_reported(text: str, line: str) -> None:
    assert lines_of(text) == [line]
    findings = Findings()
    [document] = read_documents(text, "f.yaml", findings)
    decode(document.data, SCHEMA, document.places, findings)
    assert findings.lines == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('port: "1"', 'f.yaml:1:1: port: is "1", must be a 32-bit whole number (write a number without quotes)'),
        ("port: 1.5", "f.yaml:1:1: port: is 1.5, must be a 32-bit whole number (write a number without quotes)"),
        ("port: 2147483648", "f.yaml:1:1: port: is 2147483648, must be a 32-bit whole number (write a number"),
        ("clusterDomain: 10", "f.yaml:1:1: clusterDomain: is 10, must be a string (put it in quotes)"),
        ("clusterDomain: yes", "f.yaml:1:1: clusterDomain: is true, must be a string (put it in quotes)"),
        ("clusterDNS: 10.0.0.1", 'f.yaml:1:1: clusterDNS: is "10.0.0.1", must be a list (write'),
        ("logging: 3", "f.yaml:1:1: logging: is 3, must be a mapping (its keys are format, flush"),
        ("runOnce: maybe", 'f.yaml:1:1: runOnce: is "maybe", must be true or false (write true'),
        ("runOnce: 1", "f.yaml:1:1: runOnce: is 1, must be true or false (write true"),
        ("logging: {verbosity: -1}", "f.yaml:1:11: logging.verbosity: is -1, must be a whole number from 0"),
        ("logging: {options: {json: {infoBufferSize: x}}}", "f.yaml:1:28: logging.options.json.infoBufferSize: is "),
    ],
)
def test_a_wrong_type_is_an_error_with_place_key_and_remedy(text: str, line: str) -> None:
    findings = Findings()
    [document] = read_documents(text, "f.yaml", findings)
    decode(document.data, SCHEMA, document.places, findings)
    [found] = findings.lines
    assert found.startswith(line) and found.endswith(")")


@pytest.mark.parametrize("value", ["10", '"10"', '"1 minute"', '""', "true", "[1s]"])
def test_a_bad_duration_is_refused(value: str) -> None:
    [line] = lines_of(f"syncFrequency: {value}")
    assert line.startswith("f.yaml:1:1: syncFrequency: is ") and "duration" in line


def test_a_key_given_twice_has_its_last_value_and_both_places() -> None:
    findings = Findings()
    [document] = read_documents("port: 1\nport: 2", "f.yaml", findings)
    assert document.data == {"port": 2}
    assert document.repeated == [("port", "f.yaml:2:1", "f.yaml:1:1")]
    assert not findings.found


@pytest.mark.parametrize("amount", ["0.5", "1.5e9", "1073741824", '"1.5Gi"', "1100m"])
def test_a_number_without_quotes_is_a_quantity_also_with_a_fraction(amount: str) -> None:
    assert lines_of(f"reservedMemory: [{{numaNode: 0, limits: {{memory: {amount}}}}}]") == []


def test_all_problems_are_found_at_once() -> None:
    assert len(lines_of("port: x\nmaxPods: y\nnope: 1\nregisterWithTaints: [{key: a, effekt: b}]")) == 4


def test_a_scalar_has_the_value_that_the_kubelet_gives_it(subtests: pytest.Subtests) -> None:
    for text, value in [
        *((word, True) for word in ("yes", "Yes", "on", "ON", "y", "Y", "true", "TRUE")),
        *((word, False) for word in ("no", "No", "off", "OFF", "n", "N", "false", "False")),
        *((word, None) for word in ("", "~", "null", "NULL")),
        ('"yes"', "yes"),
        ("yES", "yES"),
        ("017", 15),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b11", 3),
        ("1_000", 1000),
        ("-5", -5),
        ("08", 8.0),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1e999", "1e999"),
        ("12:30:45", "12:30:45"),
        ("2020-01-01", "2020-01-01"),
        ("!!str 5", "5"),
        ('!!int "5"', 5),
        ("!!float 5", 5.0),
        ("!own 5", "5"),
        ("|\n  5\n", "5\n"),
    ]:
        with subtests.test(text):
            found = data_of(f"a: {text}")["a"]
            assert (type(found), found) == (type(value), value)


def test_a_key_is_a_string_whatever_it_looks_like() -> None:
    assert list(data_of("1: a\nyes: b\n1.5: c\n'd': d")) == ["1", "true", "1.5", "d"]
    assert lines_of("~: a") == ["f.yaml:1:1: has a key that is not a string (remove it)"]
    assert lines_of("[a]: 1") == ["f.yaml:1:1: has a key that is not a string (remove it)"]


def test_a_whole_number_may_be_written_as_a_fraction() -> None:
    findings = Findings()
    assert decode({"maxPods": 110.0}, SCHEMA, {}, findings).data == {"maxPods": 110}
    assert not findings.found


@pytest.mark.parametrize("value", [".inf", "-.Inf", ".nan"])
def test_what_is_no_number_in_json_is_refused(value: str) -> None:
    [line] = lines_of(f"memoryThrottlingFactor: {value}")
    assert "which is no number JSON knows" in line


@pytest.mark.parametrize(
    "text", ["a: [1", "\tx: 1", "a: b: c", "%", "a: *nothing", "\x00", "- 1", "text", "a: {<<: 5}", "a: !!int x"]
)
def test_what_is_no_mapping_is_one_line_and_no_traceback(text: str) -> None:
    findings = Findings()
    read_documents(text, "f.yaml", findings)
    assert len(findings.lines) == 1


def bomb(first: str, level: str) -> str:
    """Fifteen levels, each naming the one before eight times."""
    levels = [level.format(i=i, inner=", ".join([f"*a{i - 1}"] * 8)) for i in range(1, 15)]
    return "\n".join([first, *levels])


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        bomb("a0: &a0 [x]", "a{i}: &a{i} [{inner}]"),
        bomb("a0: &a0 {k: x}", "a{i}: &a{i} {{<<: [{inner}]}}"),
        bomb("a0: &a0 " + "x" * 30_000, "a{i}: &a{i} [{inner}]"),
        "a: [" + "x," * 30_000 + "]",
        "".join(f"k{i}: 1\n" for i in range(12_000)),
    ],
)
def test_what_holds_too_much_is_refused_where_it_does(text: str) -> None:
    [line] = lines_of(text)
    assert line.startswith("f.yaml:") and line.split(":")[1].isdecimal()
    assert "holds more than 20000 values or 400000 characters, aliases expanded" in line


def test_documents_without_end_are_refused() -> None:
    assert lines_of("---\n" * 1000) == ["f.yaml:21:1: holds more than 20 documents (remove some)"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: " + "[" * 60 + "]" * 60, "is nested deeper than 50 levels"),
        ("\n" + "[" * 20_000, "is nested deeper than 50 levels"),
        (
            "a0: &a0 [x]\n" + "\n".join(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 2000)),
            "is nested deeper than 50 levels",
        ),
        ("a: &a {<<: *a}", 'contains itself by the alias "a"'),
        ("a: &a\n  b: [*a]", 'contains itself by the alias "a"'),
    ],
)
def test_what_is_nested_too_deeply_is_refused_with_its_place(text: str, why: str) -> None:
    [line] = lines_of(text)
    assert line.startswith("f.yaml:") and line.split(":")[1].isdecimal() and why in line


def test_plain_aliases_and_merges_are_read() -> None:
    text = "b: &b {x: 1, w: 2}\na: {<<: *b, w: 3}\nc: [*b]\nd: {w: 4, <<: [*b, {z: 5}]}"
    inner = {"x": 1, "w": 2}
    assert data_of(text) == {"b": inner, "a": {"x": 1, "w": 3}, "c": [inner], "d": {"x": 1, "z": 5, "w": 4}}


def test_an_alias_means_what_its_name_meant_before_it() -> None:
    assert data_of("a: &x 1\nb: &y [*x]\nc: &x 2\nd: *y\ne: *x") == {"a": 1, "b": [1], "c": 2, "d": [1], "e": 2}


@pytest.mark.parametrize("value", ["a\\0b", "\\ud800"])
def test_text_that_no_path_can_carry_is_refused(value: str) -> None:
    for text in (f'podLogsDir: "/{value}"', f'"{value}": 1'):
        findings = Findings()
        read_documents(text, "f.yaml", findings)
        [line] = findings.lines
        assert line.startswith("f.yaml:1:") and "\0" not in line


def test_a_key_without_end_is_refused() -> None:
    assert lines_of("? " + "k" * 5000 + "\n: 1") == ["f.yaml:1:3: has a key that has 5000 characters (remove it)"]


def test_header_values_are_masked_and_their_lines_are_secret() -> None:
    assert "hunter2" not in " ".join(lines_of("staticPodURLHeader: {Authorization: hunter2}"))
    [document] = read_documents("port: 1\nstaticPodURLHeader:\n  A:\n  - b\nmaxPods: 1", "f", Findings())
    assert document.secret_lines == [(2, 4)]


def test_null_counts_as_not_given() -> None:
    assert lines_of("port: null\nlogging: ~") == []


def test_null_inside_a_list_or_map_is_the_zero_of_its_type() -> None:
    decoded = decode({"clusterDNS": [None], "featureGates": {"A": None}}, SCHEMA, {}, Findings())
    assert decoded.data == {"clusterDNS": [""], "featureGates": {"A": False}}


@pytest.mark.parametrize("text", ['{"port": 10250, "maxPods": 5}', '{\n\t"port": 10250,\n\t"maxPods": 5\n}\n'])
def test_json_is_read_too(text: str) -> None:
    assert data_of(text) == {"port": 10250, "maxPods": 5}


@pytest.mark.parametrize(
    ("text", "data", "line"),
    [
        ("MaxPods: 5", {"maxPods": 5}, 'f.yaml:1:1: MaxPods: is read as maxPods (write it as "maxPods")'),
        (
            "maxpods: 5\nmaxPods: 6",
            {"maxPods": 6},
            'f.yaml:1:1: maxpods: unknown key, ignored, for maxPods is set (write it as "maxPods")',
        ),
        (
            "Logging: {Verbosity: 3, format: json}\nlogging: {format: text}",
            {"logging": {"verbosity": 3, "format": "text"}},
            'f.yaml:1:1: Logging: is read as logging (write it as "logging")',
        ),
    ],
)
def test_in_drop_ins_the_case_of_keys_matters_less(text: str, data: dict[str, Any], line: str) -> None:
    findings = Findings()
    [document] = read_documents(text, "f.yaml", findings)
    assert decode(document.data, SCHEMA, document.places, findings, any_case=True).data == data
    assert findings.found[0].line == line and not findings.lines


@given(st.text(max_size=80))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    lines_of(text)


@settings(max_examples=examples(200))
@given(st.text(alphabet="ab01:-[]{}&*<,!|>'\"#%? \n\t", max_size=60))
def test_no_syntax_makes_the_reader_fail(text: str) -> None:
    lines_of(text, any_case=True)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["1s", "5Mi", "0"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*SCHEMA, "key", "A", "enabled", "Mode"]) | st.text(max_size=3), inner)
    ),
    max_leaves=6,
)


@pytest.mark.long
@settings(max_examples=examples(60))
@given(st.dictionaries(st.sampled_from([*SCHEMA, "Port", "x"]), _JSON, max_size=5), st.booleans())
def test_no_structure_makes_the_decoder_fail(data: dict[str, Any], any_case: bool) -> None:
    findings = Findings()
    decoded = decode(data, SCHEMA, {}, findings, any_case=any_case)
    again = Findings()
    assert decode(decoded.data, SCHEMA, {}, again).data == decoded.data
    assert not again.found  # what came out is in the table's own form


def test_findings_have_an_end_and_an_error_is_never_lost_among_them() -> None:
    findings = Findings()
    for number in range(200):
        findings.add("", f"remark {number}", severity="warning")
    findings.add("port", "is bad\nin two lines \x1b[31m")
    assert len(findings.found) == 101 and findings.found[-1].severity == ERROR
    assert findings.lines == ["port: is bad\\nin two lines \\x1b[31m"]


def test_the_closest_name_ignores_case() -> None:
    assert closest("PORT", ["address", "port"]) == "port"
    assert closest("quite-different", ["address", "port"]) == ""


def test_durations_are_read_and_printed_as_go_does(subtests: pytest.Subtests) -> None:
    for text, seconds, printed in [
        ("1m30s", 90, "1m30s"),
        ("100ms", 0.1, "100ms"),
        ("0", 0, "0s"),
        ("-1h", -3600, "-1h0m0s"),
        ("1.5s", 1.5, "1.5s"),
        (".5s", 0.5, "500ms"),
        ("2us", 2e-6, "2µs"),
        ("60s", 60, "1m0s"),
        ("1500µs", 0.0015, "1.5ms"),
        ("3600.5s", 3600.5, "1h0m0.5s"),
        ("1ns", 1e-9, "1ns"),
        ("1.s", 1, "1s"),
    ]:
        with subtests.test(text):
            assert parse_duration(text) == pytest.approx(seconds)
            assert format_duration(parse_nanoseconds(text)) == printed


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_a_printed_duration_is_the_same_when_read(nanoseconds: int) -> None:
    assert parse_nanoseconds(format_duration(nanoseconds)) == nanoseconds


@pytest.mark.parametrize("text", ["", "5", "s", "1d", "1 s", "--1s", "1s2", "3000000h", ".s", "٣s", "1h" * 500])
def test_what_go_refuses_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)
