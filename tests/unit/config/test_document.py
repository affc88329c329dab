"""A configuration file's mistakes each become one line that names place, key and remedy."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.document import check_fields, closest, read_documents
from shared.config.durations import parse_duration
from shared.config.fields import KUBELET_CONFIGURATION, WITH_EFFECT
from shared.config.findings import Findings
from shared.config.rules import value_of


def lines_of(text: str) -> list[str]:
    findings = Findings(default_place="f.yaml")
    for document in read_documents(text, "f.yaml", findings):
        findings.places = document.places
        check_fields(document.data, KUBELET_CONFIGURATION, findings)
    return findings.lines


def test_a_good_document_has_no_findings() -> None:
    assert (
        lines_of("port: 10250\nauthentication: {webhook: {enabled: false, cacheTTL: 2m}}\nfeatureGates: {A: true}")
        == []
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("staticPodPth: x", 'f.yaml:1:1: staticPodPth: unknown key (did you mean "staticPodPath"?)'),
        ("StaticPodPath: x", 'f.yaml:1:1: StaticPodPath: unknown key (did you mean "staticPodPath"?)'),
        ("zzz: x", "f.yaml:1:1: zzz: unknown key (remove it)"),
        (
            "port: 1\nauthentication:\n  webhook:\n    enable: x",
            'f.yaml:4:5: authentication.webhook.enable: unknown key (did you mean "enabled"?)',
        ),
        ('port: "1"', 'f.yaml:1:1: port: is "1", must be a 32-bit whole number (write a number without quotes)'),
        ("clusterDomain: 10", "f.yaml:1:1: clusterDomain: is 10, must be a string (put it in quotes)"),
        ("clusterDNS: 10.0.0.1", 'f.yaml:1:1: clusterDNS: is "10.0.0.1", must be a list (write'),
        ("logging: 3", "f.yaml:1:1: logging: is 3, must be a mapping (its keys are format, flush"),
        ("runOnce: maybe", 'f.yaml:1:1: runOnce: is "maybe", must be true or false (write true'),
        ("port: 1\nport: 2", "f.yaml:2:1: port: is given twice, first at f.yaml:1:1 (remove one of them)"),
    ],
)
def test_a_mistake_is_one_line_with_place_key_and_remedy(text: str, line: str) -> None:
    [found] = lines_of(text)
    assert found.startswith(line) and found.endswith(")")


@pytest.mark.parametrize("value", ["10", '"10"', '"1 minute"', '""', "true"])
def test_a_bad_duration_is_refused(value: str) -> None:
    [line] = lines_of(f"syncFrequency: {value}")
    assert line.startswith("f.yaml:1:1: syncFrequency: is ") and "duration" in line


def test_all_problems_are_found_at_once() -> None:
    assert len(lines_of("port: x\nmaxPods: y\nnope: 1\nregisterWithTaints: [{key: a, effekt: b}]")) == 4


@pytest.mark.parametrize(
    "text", ["a: [1", "\tx: 1", "a: b: c", "%", "a: *nobody", "\x00", "--- &a [*a]", "- 1", "text"]
)
def test_what_is_no_mapping_is_one_line_and_no_traceback(text: str) -> None:
    assert len(lines_of(text)) == 1


def bomb(first: str, level: str) -> str:
    """Fifteen levels, each naming the one before eight times."""
    levels = [level.format(i=i, inner=", ".join([f"*a{i - 1}"] * 8)) for i in range(1, 15)]
    return "\n".join([first, *levels])


@pytest.mark.parametrize(
    "text",
    [
        bomb("a0: &a0 [x]", "a{i}: &a{i} [{inner}]"),
        bomb("a0: &a0 {k: x}", "a{i}: &a{i} {{<<: [{inner}]}}"),
        bomb("a0: &a0 " + "x" * 30_000, "a{i}: &a{i} [{inner}]"),
    ],
)
def test_aliases_that_expand_without_bound_are_refused_where_they_do(text: str) -> None:
    [line] = lines_of(text)
    assert line.startswith("f.yaml:") and line.split(":")[1].isdecimal()
    assert "holds more than 200000 values and characters, aliases expanded" in line


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 60 + "]" * 60,
        "\n" + "[" * 20_000,
        "a0: &a0 [x]\n" + "\n".join(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 2000)),
        "a: &a {<<: *a}",
        "a: &a\n  b: [*a]",
    ],
)
def test_what_is_nested_too_deeply_is_refused_where_it_stands(text: str) -> None:
    [line] = lines_of(text)
    assert line.startswith("f.yaml:") and line.split(":")[1].isdecimal() and "is nested too deeply" in line


def test_plain_aliases_and_merges_are_read() -> None:
    assert lines_of("evictionHard: &e {memory.available: 1Mi}\nevictionMinimumReclaim: {<<: *e}") == []


@pytest.mark.parametrize("value", ["a\\0b", "\\ud800"])
def test_text_that_no_path_can_carry_is_refused(value: str) -> None:
    [line] = lines_of(f'podLogsDir: "/{value}"')
    assert line.startswith("f.yaml:1:13: podLogsDir: holds ") and line.endswith("(remove it)") and "\0" not in line
    [line] = lines_of(f'"{value}": 1')
    assert line.startswith("f.yaml:1:1: has a key that holds ")


def test_a_key_without_end_is_refused() -> None:
    assert lines_of("? " + "k" * 5000 + "\n: 1") == ["f.yaml:1:3: has a key that has 5000 characters (remove it)"]


def test_an_empty_file_says_what_belongs_there() -> None:
    assert lines_of(" \n") == ["f.yaml: is empty (write a KubeletConfiguration into it, or leave out --config)"]


def test_header_values_are_masked() -> None:
    assert "hunter2" not in " ".join(lines_of("staticPodURLHeader: {Authorization: hunter2}"))


def test_null_counts_as_not_given() -> None:
    assert lines_of("port: null\nlogging: ~") == []


def test_json_is_read_too() -> None:
    assert lines_of('{"port": 10250, "maxPods": 5}') == []


@given(st.text(max_size=80))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    lines_of(text)


def test_the_closest_name_ignores_case() -> None:
    assert closest("PORT", ["address", "port"]) == "port"
    assert closest("quite-different", ["address", "port"]) == ""


def test_every_key_with_effect_exists() -> None:
    unknown: list[Any] = [key for key in WITH_EFFECT if value_of(KUBELET_CONFIGURATION, key) is None]
    assert unknown == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1m30s", 90), ("100ms", 0.1), ("0", 0), ("-1h", -3600), ("1.5s", 1.5), (".5s", 0.5), ("2us", 2e-6)],
)
def test_durations_read_as_go_reads_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "1d", "1 s", "--1s", "1s2", "3000000h"])
def test_what_go_refuses_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)
