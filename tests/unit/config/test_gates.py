"""Feature gates, here those of 1.36: which there are, what each is in the end, and what cannot be asked of them."""

import pytest

from shared.config.findings import Findings
from shared.config.gate_table import GATES, REMOVED_GATES, Stage
from shared.config.gates import declared_features, resolve_gates

DEFAULTS = {name: gate.default for name, gate in GATES.items()}


def settled(given: dict[str, bool]) -> tuple[dict[str, bool], list[str], list[str]]:
    """Values that are not the defaults, problems, remarks."""
    findings = Findings(places={"featureGates": "f:1:1"})
    values, remarks = resolve_gates(given, findings, release="1.36")
    assert values.keys() == GATES.keys()
    return {name: value for name, value in values.items() if value != DEFAULTS[name]}, findings.lines, remarks


def of(stage: Stage) -> set[str]:
    return {name for name, gate in GATES.items() if gate.stage is stage}


def test_the_table_is_whole_and_consistent() -> None:
    assert len(GATES) == 243
    assert not REMOVED_GATES & GATES.keys()
    for name, gate in GATES.items():
        assert not gate.locked or gate.stage in (Stage.GA, Stage.DEPRECATED), name
        assert all(needed in GATES for needed in gate.needs), name
        assert gate.stage is not Stage.GA or gate.default, name
        assert gate.stage is not Stage.ALPHA or not gate.default, name


@pytest.mark.parametrize(
    ("name", "stage", "default", "locked"),
    [
        ("AllAlpha", Stage.ALL, False, False),
        ("MemoryQoS", Stage.ALPHA, False, False),
        ("GracefulNodeShutdown", Stage.BETA, True, False),
        ("SELinuxMount", Stage.BETA, False, False),
        ("CustomCPUCFSQuotaPeriod", Stage.GA, True, False),
        ("SidecarContainers", Stage.GA, True, True),
        ("KubeletPodResourcesListUseActivePods", Stage.DEPRECATED, True, False),
        ("AllowDNSOnlyNodeCSR", Stage.DEPRECATED, False, False),
        ("DisableNodeKubeProxyVersion", Stage.DEPRECATED, True, True),
        ("GitRepoVolumeDriver", Stage.DEPRECATED, False, True),
        ("WinDSR", Stage.GA, True, True),
    ],
)
def test_a_gate_of_each_sort(name: str, stage: Stage, default: bool, locked: bool) -> None:
    gate = GATES[name]
    assert (gate.stage, gate.default, gate.locked) == (stage, default, locked)


def test_nothing_given_is_the_default_of_all() -> None:
    assert settled({}) == ({}, [], [])


def test_a_whole_stage_is_switched_but_for_what_is_explicit() -> None:
    changed, problems, remarks = settled({"AllAlpha": True, "MemoryQoS": False})
    assert changed.keys() == of(Stage.ALPHA) - {"MemoryQoS"} | {"AllAlpha"}
    assert (problems, remarks) == ([], [])
    changed, problems, _ = settled({"AllBeta": True, "SELinuxMount": False})
    assert changed.keys() == {name for name in of(Stage.BETA) if not DEFAULTS[name]} - {"SELinuxMount"} | {"AllBeta"}
    assert problems == []
    changed, problems, _ = settled({"AllBeta": False, "GracefulNodeShutdown": True})
    assert "GracefulNodeShutdown" not in changed
    assert changed.keys() == {name for name in of(Stage.BETA) if DEFAULTS[name]} - {"GracefulNodeShutdown"}
    assert problems == []
    assert settled({"AllAlpha": True, "AllBeta": True})[1] == []


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"Nonsense": True}, "unrecognized feature gate: Nonsense (this release does not know it; leave it out)"),
        ({"MemoryQos": True}, "unrecognized feature gate: MemoryQos (did you mean MemoryQoS?)"),
        (
            {"EphemeralContainers": True},
            "unrecognized feature gate: EphemeralContainers (it was removed; leave it out)",
        ),
        ({"CSIMigrationvSphereComplete": True}, "unrecognized feature gate: CSIMigrationvSphereComplete (it was remov"),
        (
            {"SidecarContainers": False},
            "cannot set feature gate SidecarContainers to false: it is locked to true (leave it out)",
        ),
        ({"GitRepoVolumeDriver": True}, "cannot set feature gate GitRepoVolumeDriver to true: it is locked to false"),
        (
            {"ResourceHealthStatusMessage": True, "ResourceHealthStatus": False},
            "ResourceHealthStatusMessage is enabled, but depends on feature gate ResourceHealthStatus, which is disabl",
        ),
        (
            {"GangScheduling": True},
            "GangScheduling is enabled, but depends on feature gate GenericWorkload, which is disabled (enable Generic",
        ),
        (
            {"ClusterTrustBundleProjection": True},
            "ClusterTrustBundleProjection is enabled, but depends on feature gate ClusterTrustBundle, which is disabl",
        ),
    ],
)
def test_what_cannot_be_asked_of_a_gate_is_one_line(given: dict[str, bool], line: str) -> None:
    changed, [problem], _ = settled(given)
    assert problem.removeprefix("f:1:1: featureGates.").partition(": ")[2].startswith(line)
    assert not changed.keys() & {"SidecarContainers", "GitRepoVolumeDriver"}, "a lock holds"


def test_a_gate_that_others_need_is_reported_for_each_of_them() -> None:
    _, problems, _ = settled({"GracefulNodeShutdown": False})
    assert [problem.partition(" (")[0] for problem in problems] == [
        f"f:1:1: featureGates.GracefulNodeShutdown: {name} is enabled, but depends on feature gate "
        "GracefulNodeShutdown, which is disabled"
        for name in ("GracefulNodeShutdownBasedOnPodPriority", "WindowsGracefulNodeShutdown")
    ]
    off = {"GracefulNodeShutdown", "GracefulNodeShutdownBasedOnPodPriority", "WindowsGracefulNodeShutdown"}
    assert settled(dict.fromkeys(off, False)) == (dict.fromkeys(off, False), [], [])


def test_a_stage_that_others_need_is_reported() -> None:
    _, problems, _ = settled({"AllBeta": False, "UserNamespacesHostNetworkSupport": True})
    [problem] = problems
    assert problem.startswith("f:1:1: featureGates.UserNamespacesHostNetworkSupport: UserNamespacesHostNetworkSupport")
    _, problems, _ = settled({"AllBeta": False, "AllAlpha": True})
    assert {problem.split(": ")[1] for problem in problems} == {"featureGates.AllBeta"}


def test_every_dependency_is_checked(subtests: pytest.Subtests) -> None:
    for name in [name for name, gate in GATES.items() if gate.needs]:
        with subtests.test(name):
            for needed in GATES[name].needs:
                findings = Findings()
                resolve_gates({name: True, needed: False}, findings)
                wanted = f"{name} is enabled, but depends on feature gate {needed}, which is disabled"
                locked = f"cannot set feature gate {needed} to false: it is locked to true"
                assert any(wanted in line or locked in line for line in findings.lines)


def test_what_will_go_is_remarked_where_it_was_set() -> None:
    given = {"SidecarContainers": True, "AllowDNSOnlyNodeCSR": True, "MemoryQoS": True, "AllBeta": False}
    places = {"featureGates.SidecarContainers": "f:3:1", "featureGates.AllowDNSOnlyNodeCSR": "--feature-gates"}
    _, remarks = resolve_gates(given, Findings(), lambda key: places.get(key, ""), "1.36")
    assert remarks == [
        "f:3:1: featureGates.SidecarContainers: is generally available and will go in a later release (leave it out)",
        "--feature-gates: AllowDNSOnlyNodeCSR is deprecated and will go in a later release (leave it out)",
    ]


def test_a_line_has_the_place_of_the_gate_and_a_flag_its_own_name() -> None:
    findings = Findings()
    places = {"featureGates.A": "--feature-gates", "featureGates.B": "f:2:2"}
    resolve_gates({"A": True, "B": True}, findings, places.__getitem__)
    assert [line.partition(" (")[0] for line in findings.lines] == [
        "--feature-gates: unrecognized feature gate: A",
        "f:2:2: featureGates.B: unrecognized feature gate: B",
    ]


def test_a_node_declares_the_features_that_are_built_and_whose_gates_are_on() -> None:
    built = (
        "ExtendWebSocketsToKubelet",
        "InPlacePodLevelResourcesVerticalScaling",
        "InPlacePodVerticalScalingInitContainers",
        "RestartAllContainersOnContainerExits",
    )
    assert declared_features({}) == declared_features(DEFAULTS) == built
    assert declared_features(DEFAULTS | {"ContainerRestartRules": False}) == built[:3]
    assert declared_features(DEFAULTS | {"ExtendWebSocketsToKubelet": False}) == built[1:]
    assert declared_features(DEFAULTS | {"UserNamespacesHostNetworkSupport": True}) == built
    assert declared_features({"NodeDeclaredFeatures": False}) is None
