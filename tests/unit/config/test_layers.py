"""Defaults, file, drop-ins and flags are layers, and every value has the place that it came from."""

from functools import cache
from typing import Any

import pytest

from shared.config.decoding import decode
from shared.config.document import Document, read_documents
from shared.config.field_table import FIELDS
from shared.config.fields import UNSET, Field, FlagKind, schema_tree
from shared.config.findings import Findings
from shared.config.flag_text import value_text
from shared.config.flags import parse_flags
from shared.config.layers import (
    DefaultInputs,
    Layer,
    Layers,
    Origin,
    finish,
    lay_drop_ins,
    lay_file,
    lay_flags_only,
    lay_own_flags,
)
from shared.config.nested import put_value, value_of
from shared.model.schema import ListOf, MapOf, Scalar

EVERY_FIELD = pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.key)


def sample(field: Field) -> Any:
    """A value that is neither the default nor zero, in the form a file has it."""
    special: dict[str, Any] = {
        "registerWithTaints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        "shutdownGracePeriodByPodPriority": [{"priority": 1, "shutdownGracePeriodSeconds": 2}],
        "logging.vmodule": [{"filePattern": "f", "verbosity": 2}],
        "staticPodURLHeader": {"A": ["b"]},
        "featureGates": {"AllAlpha": False},
        "tlsCurvePreferences": [23],
        "qosReserved": {"memory": "5%"},
    }
    if field.key in special:
        return special[field.key]
    if field.flag_kind is FlagKind.IP:
        return "127.0.0.9"
    if field.choices:
        return next(choice for choice in field.choices if choice != field.default)
    if isinstance(field.schema, ListOf):
        return ["a"]
    if isinstance(field.schema, MapOf):
        return {"memory.available": "7Mi"} if field.flag_kind is FlagKind.THRESHOLDS else {"k": "7"}
    assert isinstance(field.schema, Scalar)
    return {
        Scalar.BOOLEAN: not field.default, Scalar.STRING: "/x", Scalar.DURATION: "7s",
        Scalar.DURATION_OR_NANOSECONDS: "7s", Scalar.QUANTITY: "7Mi", Scalar.FLOAT64: 0.5,
    }.get(field.schema, 7)  # fmt: skip


def zero(field: Field) -> Any:
    if isinstance(field.schema, ListOf):
        return []
    if isinstance(field.schema, MapOf):
        return {}
    assert isinstance(field.schema, Scalar)
    zeros = {
        Scalar.BOOLEAN: False,
        Scalar.STRING: "",
        Scalar.DURATION: "0s",
        Scalar.DURATION_OR_NANOSECONDS: "0s",
        Scalar.QUANTITY: "0",
    }
    return zeros.get(field.schema, 0)


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def nested(key: str, value: Any) -> dict[str, Any]:
    data: dict[str, Any] = {}
    put_value(data, key, value)
    return data


def document(data: dict[str, Any], place: str) -> Document:
    places: dict[str, str] = {}

    def note(inner: dict[str, Any], prefix: str) -> None:
        for name, value in inner.items():
            places[f"{prefix}{name}"] = place
            if isinstance(value, dict):
                note(value, f"{prefix}{name}.")

    note(data, "")
    return Document(data, places, place)


def file(data: dict[str, Any], facts: DefaultInputs | None = None) -> Layers:
    given = document(data, "/d/k.yaml:1:1")
    decoded = decode(given.data, schema_tree(FIELDS), given.places, Findings())
    return lay_file(decoded, "/d/k.yaml", facts or DefaultInputs())


@cache
def empty_file() -> Layers:
    """Of an empty file. Shared by many tests, which add layers to it."""
    return file({})


@cache
def empty_drop_ins() -> Layers:
    return dropped(empty_file())


@cache
def no_file() -> Layers:
    return lay_flags_only(DefaultInputs())


def dropped(base: Layers, *patches: dict[str, Any]) -> Layers:
    findings = Findings()
    drop_ins = [document(patch, f"/c/{index}.conf:1:1") for index, patch in enumerate(patches)]
    layers = lay_drop_ins(base, drop_ins, findings)
    assert not findings.lines
    return layers


def flagged(layers: Layers, *arguments: str) -> Layers:
    flags = parse_flags(list(arguments))
    lay_own_flags(layers, flags.fields, flags.places)
    return layers


@pytest.mark.long
@pytest.mark.share(4)
@EVERY_FIELD
def test_what_is_not_given_has_the_default_of_the_table(field: Field) -> None:
    for layers in (empty_file(), empty_drop_ins()):
        assert value_of(layers.data, field.key) == plain(field.default)
        if field.default is not None:
            assert layers.origins[field.key] == Origin(Layer.DEFAULT)
    layers = no_file()
    wanted = None if field.key == "evictionHard" else field.flags_only_default
    assert value_of(layers.data, field.key) == plain(wanted)


@pytest.mark.long
@pytest.mark.share(4)
@EVERY_FIELD
def test_each_field_can_be_given_in_the_file(field: Field) -> None:
    layers = file(nested(field.key, sample(field)))
    value = value_of(layers.data, field.key)
    assert value == ("/x" if value == "/x" else sample(field))
    assert layers.origins[field.key] == Origin(Layer.FILE, "/d/k.yaml:1:1")
    assert layers.given_keys() == [field.key]


@pytest.mark.long
@pytest.mark.share(4)
@EVERY_FIELD
def test_each_field_can_be_given_in_a_drop_in_which_wins_over_the_file(field: Field) -> None:
    for base in (empty_file(), file(nested(field.key, sample(field))), no_file()):
        layers = dropped(base, nested(field.key, zero(field)), nested(field.key, sample(field)))
        value, wanted = value_of(layers.data, field.key), sample(field)
        assert value == wanted or (field.key == "evictionHard" and value.items() >= wanted.items())
        where = [layers.origins[field.key]]
        where += [layers.origins[f"{field.key}.{name}"] for name in wanted] if isinstance(wanted, dict) else []
        assert Origin(Layer.DROP_IN, "/c/1.conf:1:1") in where


@pytest.mark.long
@pytest.mark.share(4)
@pytest.mark.parametrize("field", [field for field in FIELDS if field.flag], ids=lambda field: field.key)
def test_each_flag_wins_over_everything(field: Field) -> None:
    assert field.flag_kind is not None
    text = value_text(field.flag_kind, sample(field))
    argument = f"--{field.flag}={text.strip('[]') if field.flag_kind is FlagKind.STRINGS else text}"
    for layers in (file(nested(field.key, zero(field))), dropped(empty_file(), nested(field.key, zero(field)))):
        flagged(layers, argument)
        assert value_of(layers.data, field.key) == sample(field)
        assert str(layers.origins[field.key]) == f"--{field.flag}"
        assert layers.places[field.key] == f"--{field.flag}"


@pytest.mark.long
@pytest.mark.share(4)
@EVERY_FIELD
def test_an_explicit_zero_is_kept_or_is_the_default_by_the_table(field: Field) -> None:
    wanted = field.default if field.zero == UNSET else zero(field)
    layers = file(nested(field.key, zero(field)))
    assert value_of(layers.data, field.key) == plain(wanted)
    reason = str(layers.origins[field.key])
    if field.zero == UNSET and zero(field) != field.default:
        assert reason.startswith("default, /d/k.yaml:1:1 gives ")
    else:
        assert reason == "/d/k.yaml:1:1"


@pytest.mark.long
@pytest.mark.share(4)
@EVERY_FIELD
def test_null_in_a_drop_in_brings_back_the_default_of_the_file(field: Field) -> None:
    layers = dropped(file(nested(field.key, sample(field))), nested(field.key, None))
    wanted = {"evictionHard": None, "nodeStatusReportFrequency": "10s"}.get(field.key, plain(field.default))
    assert value_of(layers.data, field.key) == wanted


@pytest.mark.parametrize(
    ("given", "report", "reason"),
    [
        ({}, "5m0s", "default"),
        ({"nodeStatusUpdateFrequency": "7s"}, "7s", "default, as nodeStatusUpdateFrequency"),
        ({"nodeStatusUpdateFrequency": "0s"}, "5m0s", "default"),
        ({"nodeStatusUpdateFrequency": "7s", "nodeStatusReportFrequency": "1m"}, "1m", "/d/k.yaml:1:1"),
    ],
)
def test_the_report_frequency_follows_the_update_frequency(given: dict[str, Any], report: str, reason: str) -> None:
    layers = file(given)
    assert layers.data["nodeStatusReportFrequency"] == report
    assert str(layers.origins["nodeStatusReportFrequency"]) == reason
    assert dropped(layers, {"nodeStatusUpdateFrequency": "9s"}).data["nodeStatusReportFrequency"] == report


def test_pulls_are_parallel_where_the_file_gives_their_number() -> None:
    layers = file({"maxParallelImagePulls": 3})
    assert layers.data["serializeImagePulls"] is False
    assert str(layers.origins["serializeImagePulls"]) == "default, maxParallelImagePulls is 3"
    assert file({"maxParallelImagePulls": 1}).data["serializeImagePulls"] is True
    assert dropped(file({}), {"maxParallelImagePulls": 3}).data["serializeImagePulls"] is True  # was decided before
    late = dropped(file({}), {"maxParallelImagePulls": 3, "serializeImagePulls": None})
    assert late.data["serializeImagePulls"] is False


@pytest.mark.parametrize("limit", [-1, -2, -100])
def test_any_negative_limit_of_processes_is_minus_one(limit: int) -> None:
    layers = file({"podPidsLimit": limit})
    finish(layers)
    assert layers.data["podPidsLimit"] == -1 and layers.origins["podPidsLimit"].place


def test_cgroup_v1_is_not_refused_where_it_is_not_set() -> None:
    facts = DefaultInputs(cgroup_v1=True)
    assert file({}, facts).data["failCgroupV1"] is False
    assert "cgroup v1" in str(file({}, facts).origins["failCgroupV1"])
    assert file({"failCgroupV1": True}, facts).data["failCgroupV1"] is True
    assert lay_flags_only(facts).data["failCgroupV1"] is False


def test_a_default_that_needs_a_gate_is_unset_without_it() -> None:
    key = "crashLoopBackOff.maxContainerRestartPeriod"
    facts = DefaultInputs(gates_of=lambda given: {"KubeletCrashLoopBackOffMax": True, **given})
    assert value_of(file({}, facts).data, key) == "5m0s"
    assert value_of(file({"featureGates": {"KubeletCrashLoopBackOffMax": False}}, facts).data, key) is None
    of_flags = DefaultInputs(gates_of=facts.gates_of, flag_gates={"KubeletCrashLoopBackOffMax": False})
    assert value_of(file({}, of_flags).data, key) is None


def test_places_may_bring_defaults_of_their_own() -> None:
    facts = DefaultInputs(defaults={"podLogsDir": ("/h/log", "BULKHEAD_HOME is set")})
    assert file({}, facts).data["podLogsDir"] == "/h/log"
    assert str(file({}, facts).origins["podLogsDir"]) == "default, BULKHEAD_HOME is set"
    assert file({"podLogsDir": "/x"}, facts).data["podLogsDir"] == "/x"


@pytest.mark.parametrize(
    "key", ["staticPodPath", "authentication.x509.clientCAFile", "tlsCertFile", "tlsPrivateKeyFile", "resolvConf",
            "volumePluginDir", "podLogsDir"],
)  # fmt: skip
def test_relative_paths_begin_at_the_file_but_not_in_drop_ins_and_flags(key: str) -> None:
    assert value_of(file(nested(key, "a/../b")).data, key) == "/d/b"
    assert value_of(dropped(file({}), nested(key, "a/b")).data, key) == "a/b"


def test_eviction_thresholds_are_those_of_the_file_or_the_defaults() -> None:
    assert file({"evictionHard": {}}).data["evictionHard"] == {}
    assert file({"evictionHard": {"pid.available": "5%"}}).data["evictionHard"] == {"pid.available": "5%"}
    merged = file({"evictionHard": {"nodefs.available": "5%"}, "mergeDefaultEvictionSettings": True})
    assert merged.data["evictionHard"]["nodefs.available"] == "5%" and len(merged.data["evictionHard"]) == 5
    assert merged.origins["evictionHard.nodefs.available"].layer is Layer.FILE
    assert "mergeDefault" in str(merged.origins["evictionHard.memory.available"])


def test_feature_gates_of_flags_win_one_by_one() -> None:
    layers = flagged(file({"featureGates": {"A": True, "B": True}}), "--feature-gates=B=false,C=true")
    assert layers.data["featureGates"] == {"A": True, "B": False, "C": True}
    assert layers.origins["featureGates.A"].layer is Layer.FILE
    assert layers.origins["featureGates.B"].layer is layers.origins["featureGates.C"].layer is Layer.FLAG


def test_a_map_flag_replaces_the_map_of_the_file_with_all_its_origins() -> None:
    layers = flagged(file({"systemReserved": {"cpu": "1", "pid": "9"}}), "--system-reserved=cpu=2")
    assert layers.data["systemReserved"] == {"cpu": "2"}
    assert [key for key in layers.origins if key.startswith("systemReserved.")] == ["systemReserved.cpu"]


def test_patterns_of_files_by_flag_follow_those_of_the_file() -> None:
    layers = file({"logging": {"vmodule": [{"filePattern": "a", "verbosity": 1}]}})
    flagged(layers, "--vmodule=b=2", "--vmodule=c=3")
    patterns = [(item["filePattern"], item["verbosity"]) for item in value_of(layers.data, "logging.vmodule")]
    assert patterns == [("a", 1), ("b", 2), ("c", 3)]


def test_a_zero_by_flag_is_a_zero() -> None:
    assert flagged(lay_flags_only(DefaultInputs()), "--port=0").data["port"] == 0


def test_what_is_written_inside_an_empty_object_stays_there() -> None:
    assert file({"tracing": {}}).data["tracing"] == {}
    assert "tracing" not in file({}).data


def merged(base: str, *patches: str) -> Layers:
    [given] = read_documents(base, "/d/k.yaml", Findings())
    layers = lay_file(decode(given.data, schema_tree(FIELDS), given.places, Findings()), "/d/k.yaml", DefaultInputs())
    drop_ins = [read_documents(patch, f"/c/{n}.conf", Findings())[0] for n, patch in enumerate(patches)]
    return lay_drop_ins(layers, drop_ins, Findings())


def test_drop_ins_merge_as_json_merge_patches(subtests: pytest.Subtests) -> None:
    for base, patches, key, value, origin in [
        ("maxPods: 5", ["maxPods: 6", "maxPods: 7"], "maxPods", 7, "/c/1.conf:1:1"),
        ("maxPods: 5", ["maxPods: 6", "maxPods: null"], "maxPods", 110, "default"),
        ("maxPods: 5", ["maxPods: 0"], "maxPods", 110, "default, /c/0.conf:1:1 gives 0"),
        ("maxPods: 5", ["MaxPods: 6"], "maxPods", 5, "/d/k.yaml:1:1"),
        ("port: 1", ["StaticPodPath: /m"], "staticPodPath", "/m", "/c/0.conf:1:1"),
        ("port: 1", ["Authorization: {Mode: AlwaysAllow}"], "authorization.mode", "Webhook", "default"),
        ("clusterDNS: [a, b]", ["clusterDNS: [c]"], "clusterDNS", ["c"], "/c/0.conf:1:1"),
        ("clusterDNS: [a, b]", ["clusterDNS: []"], "clusterDNS", [], "/c/0.conf:1:1"),
        ("logging: {format: json}", ["logging: {verbosity: 3}"], "logging.format", "json", "/d/k.yaml:1:11"),
        ("enforceNodeAllocatable: []", ["port: 1"], "enforceNodeAllocatable", ["pods"], "default"),
        ("enforceNodeAllocatable: []", [], "enforceNodeAllocatable", ["pods"], "default"),
        ("port: 1", ["enforceNodeAllocatable: []"], "enforceNodeAllocatable", [], "/c/0.conf:1:1"),
        ("resolvConf: ''", ["port: 1"], "resolvConf", "", "/d/k.yaml:1:1"),
        ("healthzPort: 0", ["port: 1"], "healthzPort", 0, "/d/k.yaml:1:1"),
        ("evictionHard: {}", ["port: 1"], "evictionHard", None, ""),
        ("evictionHard: {}", ["evictionHard: {pid.available: 5%}"], "evictionHard", {"pid.available": "5%"}, None),
        ("mergeDefaultEvictionSettings: true", ["evictionHard: null"], "evictionHard", None, ""),
        ("featureGates: {A: true}", ["featureGates: {B: true}"], "featureGates", {"A": True, "B": True}, None),
        ("featureGates: {A: true}", ["featureGates: {A: null}"], "featureGates", {}, None),
        (
            "systemReserved: {cpu: '1'}",
            ["systemReserved: {pid: '5'}", "systemReserved: {cpu: null}"],
            "systemReserved",
            {"pid": "5"},
            None,
        ),
    ]:
        with subtests.test(base):
            layers = merged(base, *patches)
            assert value_of(layers.data, key) == value
            if origin is not None:
                assert str(layers.origins.get(key, "")) == origin


def test_eviction_thresholds_of_drop_ins_are_merged_one_by_one() -> None:
    patch = "evictionHard: {memory.available: 1Gi, nodefs.available: null}\nmergeDefaultEvictionSettings: true"
    layers = merged("port: 1", patch)
    assert layers.data["evictionHard"] == {
        "memory.available": "1Gi", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%",
    }  # fmt: skip
    assert str(layers.origins["evictionHard.memory.available"]) == "/c/0.conf:1:16"
    assert str(layers.origins["evictionHard.imagefs.available"]) == "default"
    assert "evictionHard.nodefs.available" not in layers.origins


def test_without_a_file_drop_ins_stand_on_the_legacy_defaults() -> None:
    layers = dropped(lay_flags_only(DefaultInputs()), {"maxPods": 5})
    assert value_of(layers.data, "authorization.mode") == "AlwaysAllow"
    assert (layers.data["readOnlyPort"], layers.data.get("evictionHard")) == (10255, None)
    assert dropped(lay_flags_only(DefaultInputs()), {"readOnlyPort": None}).data["readOnlyPort"] == 0


def test_a_type_is_checked_once_all_drop_ins_are_merged() -> None:
    findings = Findings()
    wrong, right = document({"maxPods": "x"}, "/c/0.conf:1:1"), document({"maxPods": 5}, "/c/1.conf:1:1")
    assert lay_drop_ins(file({}), [wrong, right], findings).data["maxPods"] == 5 and not findings.lines
    lay_drop_ins(file({}), [right, wrong], findings)
    assert findings.lines[0].startswith('/c/0.conf:1:1: maxPods: is "x", must be a 32-bit whole number')
