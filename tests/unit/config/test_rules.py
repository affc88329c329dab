"""Every rule of a configuration: one value that breaks it with its line, and its neighbour that does not."""

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.config.durations import format_duration
from shared.config.field_table import FIELDS
from shared.config.fields import Field
from shared.config.findings import ERROR, Findings
from shared.config.gate_table import GATES
from shared.config.rules import check_clients, check_rules
from shared.model.schema import ListOf, MapOf, Scalar, Schema
from tests.unit.config.rule_checks import DEFAULT_GATES, effective, found, warned
from tests.unit.examples import examples

HARD = "evictionHard"


def test_the_defaults_break_no_rule_and_give_no_warning() -> None:
    assert warned({}) == []


def test_nothing_at_all_breaks_no_rule() -> None:
    findings = Findings()
    check_rules({}, DEFAULT_GATES, findings)
    assert findings.lines == []


# Ranges and choices, for each field that has them.

RANGED = [field for field in FIELDS if (field.low, field.high) != (None, None)]
CHOOSING = [field for field in FIELDS if field.choices]
LASTING = (Scalar.DURATION, Scalar.DURATION_OR_NANOSECONDS)
LIMITS = {"INT32": (-(2**31), 2**31 - 1), "INT64": (-(2**63), 2**63 - 1), "UINT32": (0, 2**32 - 1)}
COMPANIONS: dict[str, dict[str, Any]] = {  # what else must be so for a limit of the key to be reached alone
    "imageGCHighThresholdPercent": {"imageGCLowThresholdPercent": -1},
    "imageGCLowThresholdPercent": {"imageGCHighThresholdPercent": 101},
    "imageMaximumGCAge": {"imageMinimumGCAge": "0s"},
    "maxParallelImagePulls": {"serializeImagePulls": False},
}


def written(field: Field, limit: float, steps: int) -> Any:
    """The value some of the smallest steps from a limit of the field."""
    if field.schema in LASTING:
        return format_duration(round(limit * 1e9) + steps)
    if field.schema is Scalar.FLOAT64:
        return limit + steps / 100
    return int(limit) + steps


def range_cases() -> list[tuple[Field, Any, bool]]:
    cases = []
    for field in RANGED:
        for limit, outward in ((field.low, -1), (field.high, 1)):
            if limit is None:
                continue
            for steps, good in ((outward, False), (0, True), (-outward, True)):
                value = written(field, limit, steps)
                lowest, highest = LIMITS.get(getattr(field.schema, "name", ""), (-(2**70), 2**70))
                if isinstance(value, int) and not lowest <= value <= highest:
                    continue
                cases.append((field, value, good))
    return cases


def is_reported(key: str, lines: list[str]) -> bool:
    return any(line.startswith(f"{key}: is ") and "must be " in line for line in lines)


@pytest.mark.long
def test_a_range_holds_its_limits_and_refuses_what_is_next_to_them(subtests: pytest.Subtests) -> None:
    for field, value, good in range_cases():
        with subtests.test(f"{field.key}={value}"):
            also_refused = {
                ("memoryThrottlingFactor", 0),  # above 0, which a range cannot express
                ("nodeStatusUpdateFrequency", "0s"),
                ("runtimeRequestTimeout", "0s"),
                ("userNamespaces.idsPerPod", 65537),
                ("userNamespaces.idsPerPod", 4294967294),
                ("userNamespaces.idsPerPod", 4294967295),
            }
            in_milliseconds = field.key.startswith("crashLoopBackOff.") and value == "5m0.000000001s"
            expected = (good or in_milliseconds) and (field.key, value) not in also_refused
            changes: dict[str, Any] = {field.key: value, **COMPANIONS.get(field.key, {})}
            lines = found(changes)
            assert is_reported(field.key, lines) is not expected, lines


def test_each_choice_is_taken_and_no_other(subtests: pytest.Subtests) -> None:
    for field in CHOOSING:
        with subtests.test(field.key):
            findings = Findings()
            for choice in field.choices:
                data = effective({field.key: choice})
                check_rules(data, {**DEFAULT_GATES, "MemoryQoS": True}, findings)
                check_clients(data, findings)
                assert not [line for line in findings.lines if "must be one of" in line]
            data = effective({field.key: field.choices[0].swapcase()})
            check_rules(data, DEFAULT_GATES, findings)
            check_clients(data, findings)
            what = (
                f'{field.key}: is "{field.choices[0].swapcase()}", must be one of {", ".join(field.choices)} (names are'
            )
            assert [line for line in findings.lines if line.startswith(what)]


def test_the_empty_choice_is_taken_where_it_is_the_default(subtests: pytest.Subtests) -> None:
    for field in CHOOSING:
        with subtests.test(field.key):
            findings = Findings()
            check_rules(data := effective({field.key: ""}), DEFAULT_GATES, findings)
            check_clients(data, findings)
            assert is_reported(field.key, findings.lines) is (field.default != "")


# How a line names what is wrong, and what is only reported.


def test_a_line_about_a_flag_names_the_part_that_is_wrong() -> None:
    findings = Findings(places={HARD: "--eviction-hard", "tlsCipherSuites": "--tls-cipher-suites"})
    data = effective({HARD: {"memory.free": "1", "nodefs.available": "x"}, "tlsCipherSuites": ["A"]})
    check_rules(data, DEFAULT_GATES, findings)
    assert [line.partition(" (")[0] for line in findings.lines] == [
        '--tls-cipher-suites: [0]: "A" is not a cipher suite',
        '--eviction-hard: "memory.free" is not an eviction signal',
        '--eviction-hard: nodefs.available: is "x", must be a positive quantity or a percentage',
    ]


def test_a_line_has_the_place_of_the_item_or_of_what_is_around_it() -> None:
    places = {"reservedMemory": "f:1:1", "reservedMemory[1].limits": "f:7:3", "evictionHard.pid.available": "f:9:9"}
    findings = Findings(places=places)
    bad = {"limits": {"cpu": "1"}}
    check_rules(effective({"reservedMemory": [bad, bad], HARD: {"pid.available": "x"}}), DEFAULT_GATES, findings)
    assert [line.split(" ")[0] for line in findings.lines] == ["f:1:1:", "f:7:3:", "f:9:9:"]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"clusterDNS": ["10.0.0.1", "dns", "010.0.0.2"]},
            'clusterDNS[1]: is "dns", which is no IP address, and is',
        ),
        (
            {"tlsCipherSuites": ["TLS_RSA_WITH_RC4_128_SHA"]},
            "tlsCipherSuites[0]: TLS_RSA_WITH_RC4_128_SHA is an insec",
        ),
        (
            {"tlsCipherSuites": ["TLS_AES_128_GCM_SHA256"], "tlsMinVersion": "VersionTLS13"},
            "tlsCipherSuites: is ignored with tlsMinVersion VersionTLS13",
        ),
        (
            {"kubeletCgroups": "/a", "kubeReservedCgroup": "/b"},
            "kubeletCgroups: is /a, outside of kubeReservedCgroup /b",
        ),
        (
            {"topologyManagerPolicyOptions": {"x": "y"}},
            "topologyManagerPolicyOptions: is ignored while topologyMana",
        ),
        (
            {"cpuManagerReconcilePeriod": "-1s"},
            "cpuManagerReconcilePeriod: is negative: a cpuset that the runt",
        ),
        (
            {HARD: {"containerfs.available": "5%"}},
            f"{HARD}.containerfs.available: has no effect: the threshold fol",
        ),
    ],
)
def test_what_the_kubelet_only_logs_is_a_warning(changes: dict[str, Any], line: str) -> None:
    [warning] = warned(changes)
    assert warning.startswith(line)


@pytest.mark.parametrize(
    "changes",
    [
        {"kubeletCgroups": "/b/k", "kubeReservedCgroup": "/b"},
        {"fileCheckFrequency": "1ms", "syncFrequency": "999ms", "runtimeRequestTimeout": "1ns"},
        {"maxOpenFiles": 10, "podPidsLimit": -2, "evictionMaxPodGracePeriod": -1, "volumeStatsAggPeriod": "-1s"},
        {"authentication.webhook.cacheTTL": "-1s", "streamingConnectionIdleTimeout": "-1s"},
        {"contentType": "application/json", "staticPodURL": "x", "podCIDR": "x", "clusterDomain": "-"},
        {"enforceNodeAllocatable": None, "evictionHard": None},
    ],
)
def test_what_the_kubelet_takes_is_taken(changes: dict[str, Any]) -> None:
    assert warned(changes) == []


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"kubeAPIBurst": 0},
            "kubeAPIBurst: is 0 while kubeAPIQPS is not: no request could be sent (leave it out for 100)",
        ),
        ({"kubeAPIBurst": 0, "kubeAPIQPS": 0}, ""),
        ({"kubeAPIBurst": 1}, ""),
        (
            {"configMapAndSecretChangeDetectionStrategy": "watch"},
            'configMapAndSecretChangeDetectionStrategy: is "watch", must be one of Get, Cache, Watch (names are',
        ),
    ],
)
def test_what_only_a_member_of_a_cluster_needs(changes: dict[str, Any], line: str) -> None:
    assert found(changes) == []
    findings = Findings()
    check_clients(effective(changes), findings)
    assert [found[: len(line)] for found in findings.lines] == ([line] if line else [])


# A value of the right type is checked, at once and without a traceback.

TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["0", "5%", "-1", "1Gi", "true", "none", "Static", "static", "pods", "0-3", "[", "a/*", "::", "/"]),
    st.sampled_from([choice for field in CHOOSING for choice in field.choices]),
)
NAMES = st.one_of(
    st.sampled_from(["memory", "cpu", "memory.available", "full-pcpus-only", "max-allowable-numa-nodes"]), TEXTS
)
SCALARS: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.BOOLEAN: st.booleans(),
    Scalar.INT32: st.integers(-(2**31), 2**31 - 1) | st.sampled_from([-1, 0, 1, 100]),
    Scalar.INT64: st.integers(-(2**63), 2**63 - 1),
    Scalar.UINT32: st.integers(0, 2**32 - 1),
    Scalar.FLOAT64: st.floats() | st.integers(-5, 5),
    Scalar.STRING: TEXTS,
    Scalar.DURATION: st.integers(-(2**63) + 1, 2**63 - 1).map(format_duration) | st.sampled_from(["0", "1s", "-1ms"]),
    Scalar.DURATION_OR_NANOSECONDS: st.integers(-(2**62), 2**62),
    Scalar.QUANTITY: st.integers() | TEXTS,
}


def well_typed(schema: Schema) -> st.SearchStrategy[Any]:
    if isinstance(schema, ListOf):
        return st.lists(well_typed(schema.item), max_size=3)
    if isinstance(schema, MapOf):
        return st.dictionaries(NAMES, st.none() | well_typed(schema.value), max_size=3)
    if isinstance(schema, dict):
        return st.fixed_dictionaries({}, optional={name: well_typed(item) for name, item in schema.items()})
    return SCALARS[schema]


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    fields = draw(st.lists(st.sampled_from(FIELDS), max_size=8, unique_by=lambda field: field.key))
    return {field.key: draw(well_typed(field.schema)) for field in fields}


@pytest.mark.long
@settings(max_examples=examples(150), deadline=None)
@given(documents(), st.booleans())
def test_no_well_typed_document_breaks_the_rules_themselves(changes: dict[str, Any], gates: bool) -> None:
    findings = Findings()
    data = effective({key: value for key, value in changes.items() if value is not None})
    check_rules(data, dict.fromkeys(GATES, gates), findings)
    check_clients(data, findings)
    assert all("\n" not in finding.line for finding in findings.found)
    assert all(finding.remedy for finding in findings.found if finding.severity == ERROR)


def test_rules_are_checked_at_once_however_long_the_values() -> None:
    many = {f"n{index}": "x" for index in range(1000)}
    data = effective({
        "evictionHard": many, "systemReserved": many, "cpuManagerPolicyOptions": many, "cpuManagerPolicy": "static",
        "tlsCipherSuites": list(many), "clusterDNS": list(many), "enforceNodeAllocatable": list(many),
        "allowedUnsafeSysctls": ["a" * 100_000, "a." * 50_000, "-" * 100_000],
        "defaultPodSysctls": {"a" * 100_000: "1", "a." * 50_000: "1", "-/" * 50_000: "1"},
        "preloadedImagesVerificationAllowlist": ["a" * 100_000 + "!", "a-" * 50_000],
        "imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages",
        "containerLogMaxSize": "9" * 100_000, "reservedSystemCPUs": "0-99999," * 10,
        "registerWithTaints": [{"key": "a." * 10_000 + "/", "effect": "x"}],
    })  # fmt: skip
    findings, began = Findings(), time.process_time()
    check_rules(data, DEFAULT_GATES, findings)
    assert len(findings.lines) == 100
    assert time.process_time() - began < 2.0
