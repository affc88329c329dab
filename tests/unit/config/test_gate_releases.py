"""The feature gates of each release that can be emulated are those of the reference, and a file chooses among them."""

import re
from pathlib import Path

import pytest

from shared.config.findings import Findings
from shared.config.gate_releases import EVERY_GATE, enabled, gates_of
from shared.config.gate_table import GATES, Gate, Stage
from shared.config.gates import declared_features, resolve_gates
from shared.version import KUBERNETES_VERSION, RELEASES
from tests.unit.config.resolving import ALONE, file_refusal, resolve

REFERENCE = Path(__file__).parents[3] / "docs/reference/config.md"
STAGES = {Stage.ALPHA: "A", Stage.BETA: "B", Stage.GA: "GA", Stage.DEPRECATED: "Dep", Stage.ALL: "All"}
OWN = ALONE + "---\napiVersion: bulkhead/v1alpha1\nkind: BulkheadConfiguration\n"


def state(gate: Gate | None) -> str:
    if gate is None:
        return "none"
    if gate.stage is Stage.REMOVED:
        return "gone"
    return f"{STAGES[gate.stage]}{'+' if gate.default else '-'}{'L' if gate.locked else ''}"


def section(number: str) -> str:
    return REFERENCE.read_text(encoding="utf-8").partition(f"### {number} ")[2].partition("\n#")[0]


def histories() -> dict[str, list[tuple[int, str]]]:
    """Return the minor versions in which a gate changed, and what it was from there on."""
    rows = re.findall(r"^\| (\w+) \| [^|]+ \| [^|]+ \| [^|]* \| (1\.[^|]+) \|$", section("3.7.1"), re.MULTILINE)
    return {
        name: [(int(minor), what) for minor, what in re.findall(r"1\.(\d+):((?:A|B|GA|Dep)[+-]L?)", text)]
        for name, text in rows
    }


@pytest.mark.parametrize("version", ["1.35", "1.36"])
def test_the_gates_of_a_release_have_the_history_of_the_reference(version: str) -> None:
    found = histories()
    assert len(found) > 100
    for name, changes in found.items():
        last = [what for minor, what in changes if minor <= int(version.removeprefix("1."))]
        assert state(gates_of(version).get(name)) == (last[-1] if last else "none"), name


def test_what_1_37_changes_is_what_the_reference_names() -> None:
    rows = dict(re.findall(r"^\| (\w+) \| ([^| ]+) \| [^|]*\|$", section("3.7.4"), re.MULTILINE))
    rows.pop("gate", None)
    changed = {name for name in EVERY_GATE if state(gates_of("1.37").get(name)) != state(GATES.get(name))}
    assert {name: state(gates_of("1.37").get(name)) for name in changed} == rows


@pytest.mark.parametrize("version", RELEASES)
def test_each_release_starts_without_a_gate_given(version: str) -> None:
    findings = Findings()
    values, remarks = resolve_gates({}, findings, release=version)
    assert (findings.lines, remarks) == ([], [])
    assert values == {name: gate.default for name, gate in gates_of(version).items()}
    for name, gate in gates_of(version).items():
        assert set(gate.needs) <= gates_of(version).keys(), name


def test_the_release_of_a_file_decides_the_gates(tmp_path: Path) -> None:
    plain = resolve(tmp_path, ALONE)
    oldest, older, newer = (resolve(tmp_path, f'{OWN}emulatedVersion: "{version}"\n') for version in RELEASES)
    assert plain.emulated_version == newer.emulated_version == KUBERNETES_VERSION == "1.37"
    assert plain.feature_gates == newer.feature_gates
    assert oldest.feature_gates.keys() == older.feature_gates.keys() == newer.feature_gates.keys()
    for name, values in {
        "ResourceHealthStatusMessage": (False, True, True),  # 1.35 has no such gate
        "ComponentFlagz": (False, True, True),
        "ClusterTrustBundleProjection": (False, False, True),
        "PreventStaticPodAPIReferences": (True, True, True),
        "EmptyDirVolumeMode": (False, False, False),
    }.items():
        found = tuple(enabled(config.feature_gates, name) for config in (oldest, older, newer))
        assert found == values, name
    assert declared_features(oldest.feature_gates) is None
    assert declared_features(newer.feature_gates) == declared_features(older.feature_gates)


def test_what_is_not_given_is_as_in_the_default_release() -> None:
    assert enabled({}, "MemoryQoS") and not gates_of("1.36")["MemoryQoS"].default
    assert not enabled({}, "DefaultPodSysctls")
    assert not enabled({}, "NoSuchGate")


@pytest.mark.parametrize("text", ['"1.34"', '"1.36.0"', '""', '"1.38"'])
def test_a_release_that_is_not_known_is_refused_with_those_that_are(tmp_path: Path, text: str) -> None:
    [line] = file_refusal(tmp_path, f"{OWN}emulatedVersion: {text}\n")
    assert line == (
        f':8:1: emulatedVersion: is {text}, must be 1.35, 1.36, 1.37 (choose one of them, or leave it out for "1.37")'
    )


def test_a_number_is_refused_for_it_does_not_name_each_release(tmp_path: Path) -> None:
    [line] = file_refusal(tmp_path, f"{OWN}emulatedVersion: 1.37\n")
    assert line.startswith(":8:1: emulatedVersion: ")


def test_a_gate_of_a_later_release_names_the_setting_that_gives_it(tmp_path: Path) -> None:
    gates = "featureGates: {DefaultPodSysctls: true}\n"
    own = OWN.removeprefix(ALONE)
    [line] = file_refusal(tmp_path, f'{ALONE}{gates}{own}emulatedVersion: "1.36"\n')
    assert line == (
        ":5:16: featureGates.DefaultPodSysctls: unrecognized feature gate: DefaultPodSysctls (Kubernetes 1.36 has no "
        'such gate; leave it out, or set emulatedVersion, such as "1.37")'
    )
    assert resolve(tmp_path, ALONE + gates).feature_gates["DefaultPodSysctls"]


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_removed_gate_is_accepted_with_its_last_value_alone(tmp_path: Path, value: str) -> None:
    text = f'{ALONE}featureGates: {{SidecarContainers: {value}}}\n{OWN.removeprefix(ALONE)}emulatedVersion: "1.37"\n'
    if value == "true":
        assert resolve(tmp_path, text).feature_gates["SidecarContainers"]
        return
    [line] = file_refusal(tmp_path, text)
    assert "cannot set feature gate SidecarContainers to false: it is locked to true" in line


def test_a_removed_gate_is_remarked_on() -> None:
    _, remarks = resolve_gates({"SidecarContainers": True}, Findings(), release="1.37")
    assert remarks == ["featureGates.SidecarContainers: was removed: the feature is always there (leave it out)"]


@pytest.mark.parametrize(("version", "factor"), [("1.36", 0.9), ("1.37", 0.0)])
def test_memory_is_throttled_by_default_before_1_37(tmp_path: Path, version: str, factor: float) -> None:
    own = f'{OWN.removeprefix(ALONE)}emulatedVersion: "{version}"\n'
    assert resolve(tmp_path, ALONE + own).memory_throttling_factor == factor
    assert resolve(tmp_path, f"{ALONE}memoryThrottlingFactor: 0.5\n{own}").memory_throttling_factor == 0.5


@pytest.mark.parametrize(("version", "previous"), [("1.35", "1.34"), ("1.37", "1.36")])
def test_hidden_metrics_are_those_of_the_release_before(tmp_path: Path, version: str, previous: str) -> None:
    own = f'{OWN.removeprefix(ALONE)}emulatedVersion: "{version}"\n'
    assert resolve(tmp_path, f'{ALONE}showHiddenMetricsForVersion: "{previous}"\n{own}').emulated_version == version
    [line] = file_refusal(tmp_path, f'{ALONE}showHiddenMetricsForVersion: "1.20"\n{own}')
    assert f"must be the release before this one, {previous}" in line
