"""What of a pod acts while a feature gate is off: as in the kubelet, by hand from pods.md 0.2, 3.2, 5.3, 6.3, 9.4."""

from typing import Any

import pytest

from services.podsync.core.admission.node_view import MachineFacts
from services.podsync.core.admission.resize_verdict import decide_resize
from services.podsync.core.admission.taken import taken_by
from services.podsync.core.admission.verdict import admit
from services.podsync.core.placement.pod_placement import NOT_PLACED
from services.podsync.core.pod.gated_fields import POD_GATES, gates_off, without_gated_fields
from shared.config.gate_releases import EVERY_GATE
from shared.model.frozen_copy import replace
from tests.unit.podsync.admission.test_admission import FACTS, a_view
from tests.unit.podsync.play import Play, a_container, a_pod

ALL = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}]
AGAIN = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [88]}}]
FILE = {"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}}
RESTART_ALL = "RestartAllContainersOnContainerExits"


def ruled(rules: list[Any], policy: str = "Never") -> dict[str, Any]:
    return a_pod(containers=[a_container("c", restartPolicy=policy, restartPolicyRules=rules)])


def off(*gates: str) -> frozenset[str]:
    """As read from a configuration that sets these to false."""
    assert EVERY_GATE.issuperset(gates)
    return gates_off(dict.fromkeys(gates, False))


@pytest.mark.long
def test_a_pod_without_these_fields_stays_the_very_object(subtests: pytest.Subtests) -> None:
    for gates in [(), *((gate,) for gate in POD_GATES)]:
        with subtests.test(f"{gates!r:.80}"):
            pod = a_pod(initContainers=[a_container("s", restartPolicy="Always")])
            assert without_gated_fields(pod, off(*gates)) is pod


def test_every_field_acts_while_its_gate_is_on() -> None:
    pod = ruled(ALL) | {}
    pod["spec"] |= {"hostnameOverride": "h", "initContainers": [a_container("i", env=[FILE])]}
    assert without_gated_fields(pod, off()) is pod


def test_the_policy_of_the_pod_holds_without_container_restart_rules() -> None:
    gates = off("ContainerRestartRules", RESTART_ALL)
    play = Play(facts=MachineFacts(gates_off=gates))
    play.want(ruled(AGAIN) | {"spec": ruled(AGAIN)["spec"] | {"restartPolicy": "Always"}})
    play.exit("u1", 1)
    assert play.running("u1") == [("c", 1)]
    sidecars = without_gated_fields(a_pod(initContainers=[a_container("s", restartPolicy="Always")]), gates)
    assert sidecars["spec"]["initContainers"][0]["restartPolicy"] == "Always"


def test_a_record_of_a_process_with_other_gates_is_read_without_the_fields() -> None:
    play = Play()
    play.want(
        ruled(AGAIN, policy="OnFailure") | {"spec": ruled(AGAIN, "OnFailure")["spec"] | {"restartPolicy": "Never"}}
    )
    play.facts = MachineFacts(gates_off=off("ContainerRestartRules", RESTART_ALL))
    play.wanted.clear()
    play.sources_complete = False  # the record is all there is
    play.restart()
    play.exit("u1", 88)
    assert play.running("u1") == []


def test_a_rule_for_all_containers_restarts_its_own_where_nothing_is_declared() -> None:
    without = without_gated_fields(ruled(ALL), off(RESTART_ALL, "NodeDeclaredFeatures"))
    assert without["spec"]["containers"][0]["restartPolicyRules"] == AGAIN


@pytest.mark.parametrize(
    ("gates", "reason"),
    [
        ((), ""),
        ((RESTART_ALL,), "PodFeatureUnsupported"),
        ((RESTART_ALL, "ContainerRestartRules"), "PodFeatureUnsupported"),
        ((RESTART_ALL, "NodeDeclaredFeatures"), ""),
    ],
)
def test_a_node_that_declares_its_features_rejects_a_pod_that_needs_another(
    gates: tuple[str, ...], reason: str
) -> None:
    play = Play(facts=MachineFacts(gates_off=off(*gates))).wanting(ruled(ALL))
    tracked = play.core.tracked["u1"]
    assert tracked.saved.rejected == reason
    if reason:
        assert tracked.saved.rejected_message == f"Pod requires node features that are not available: {RESTART_ALL}"


@pytest.mark.parametrize("gates", [(), ("PodLevelResources",)])
def test_resources_of_the_pod_need_their_gate(gates: tuple[str, ...]) -> None:
    pod = a_pod(resources={"requests": {"cpu": "1"}})
    facts = replace(FACTS, gates_off=off(*gates))
    given = admit(pod, "Pending", a_view(facts=facts), taken_by(()))
    expected = ("PodLevelResourcesNotSupported", "PodLevelResources feature gate is disabled") if gates else ("", "")
    assert (given.reason, given.message) == expected


def test_the_host_name_and_variables_of_files_are_left_out() -> None:
    pod = a_pod(hostnameOverride="h", containers=[a_container("c", env=[{"name": "B", "value": "1"}, FILE])])
    without = without_gated_fields(pod, off("HostnameOverride", "EnvFiles"))["spec"]
    assert "hostnameOverride" not in without
    assert without["containers"][0]["env"] == [{"name": "B", "value": "1"}, {"name": "A", "value": ""}]


@pytest.mark.parametrize("gates", [(), ("PodReadyToStartContainersCondition",)])
def test_the_condition_of_the_sandbox_is_shown_with_its_gate(gates: tuple[str, ...]) -> None:
    play = Play(facts=MachineFacts(gates_off=off(*gates))).wanting(a_pod())
    shown = [condition["type"] for condition in play.statuses["u1"].status["conditions"]]
    assert ("PodReadyToStartContainers" in shown) is not bool(gates)


@pytest.mark.parametrize(("policy", "refused"), [({}, True), ({"restartPolicy": "Always"}, False)])
def test_a_plain_init_container_is_resized_with_its_gate(policy: dict[str, str], refused: bool) -> None:
    def with_cpu(cpu: str) -> dict[str, Any]:
        return a_pod(initContainers=[a_container("i", resources={"requests": {"cpu": cpu}}, **policy)])

    def reason(*gates: str) -> tuple[str, str]:
        view = a_view(facts=replace(FACTS, gates_off=off(*gates)))
        before = with_cpu("100m")
        decided = decide_resize(with_cpu("200m"), before, "Running", view, taken_by((before,)), NOT_PLACED)
        return decided.reason, decided.message

    gate = "InPlacePodVerticalScalingInitContainers"
    assert reason() == ("", "")
    assert reason(gate) == (("Infeasible", f"{gate} is disabled") if refused else ("", ""))
