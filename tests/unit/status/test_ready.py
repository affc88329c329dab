"""The table of node.md 1.7, line by line: why a node is not Ready, with which text, and when it is reported."""

import re
from pathlib import Path
from typing import Any

import pytest

from bus.messages.pleg import NodeObserved
from services.status.core.ready import (
    MAIN_LOOPS,
    LastBeat,
    NotReady,
    ReadyInputs,
    message,
    not_ready_reasons,
    reportable,
    turned_at,
)
from shared.model.frozen_copy import replace

NOW = 10_000.0
WELL = NodeObserved(
    observed_at=NOW,
    runtime_reachable=True,
    runtime_ready=True,
    network_ready=True,
    network_message="",
    cpus=2,
    memory_capacity=1,
    nodefs_capacity=1,
)
GIVEN = ReadyInputs(
    now=NOW,
    awake_since=NOW - 1000,
    observed=WELL,
    runtime_good_at=NOW,
    pleg_active_at=NOW - 1,
    last_beats={"podsync": LastBeat(NOW - 1, NOW - 1), "volume": LastBeat(NOW)},
    processes=("podsync", "volume"),
    max_pods=110,
)


def texts(**changed: Any) -> list[str]:
    return [reason.text for reason in not_ready_reasons(replace(GIVEN, **changed))]


def observed(**changed: Any) -> NodeObserved:
    return replace(WELL, **changed)


def test_a_well_node_is_ready() -> None:
    assert texts() == []
    assert message([]) == "kubelet is posting ready status"


def test_a_runtime_that_was_never_well_has_not_been_checked() -> None:
    assert texts(runtime_good_at=None) == ["container runtime status check may not have completed yet"]


@pytest.mark.parametrize(("ago", "expected"), [(30.0, []), (30.1, ["container runtime is down"])])
def test_a_runtime_is_down_after_thirty_seconds(ago: float, expected: list[str]) -> None:
    assert texts(runtime_good_at=NOW - ago, observed=observed(runtime_reachable=False)) == expected


def test_pleg_that_never_listed_has_yet_to_be_successful() -> None:
    assert texts(pleg_active_at=None) == ["PLEG is not healthy: pleg has yet to be successful"]


@pytest.mark.parametrize(
    ("ago", "expected"),
    [
        (180.0, []),
        (185.5, ["PLEG is not healthy: pleg was last seen active 3m5.5s ago; threshold is 3m0s"]),
    ],
)
def test_pleg_is_unhealthy_after_three_minutes(ago: float, expected: list[str]) -> None:
    assert texts(pleg_active_at=NOW - ago) == expected


def test_the_message_of_a_runtime_that_is_not_ready_is_quoted() -> None:
    seen = observed(runtime_ready=False, runtime_message="reason:Starting message:not yet")
    expected = "container runtime not ready: RuntimeReady=false reason:Starting message:not yet"
    assert texts(observed=seen) == [expected]
    assert texts(observed=replace(seen, runtime_message=expected)) == [expected]


def test_a_network_that_is_not_ready_is_quoted() -> None:
    inner = "reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"
    expected = f"container runtime network not ready: NetworkReady=false {inner}"
    assert texts(observed=observed(network_ready=False, network_message=inner)) == [expected]
    assert texts(observed=observed(network_ready=False, network_message=expected)) == [expected]


def test_a_network_without_a_report_is_unknown() -> None:
    assert texts(observed=None) == ["network state unknown"]
    seen = observed(network_ready=False, network_message="network state unknown")
    assert texts(observed=seen) == ["network state unknown"]


def test_missing_capacities_are_listed() -> None:
    seen = observed(cpus=-1, memory_capacity=-1, nodefs_capacity=-1)
    expected = "missing node capacity for resources: cpu, memory, pods, ephemeral-storage"
    assert texts(observed=seen, max_pods=0) == [expected]
    assert texts(observed=observed(memory_capacity=-1)) == ["missing node capacity for resources: memory"]


def test_a_node_whose_machine_shuts_down_is_not_ready() -> None:
    assert texts(shuts_down=True) == ["node is shutting down"]


@pytest.mark.parametrize(("ago", "absent"), [(30.0, False), (31.0, True)])
def test_a_process_without_beats_is_named_after_thirty_seconds(ago: float, absent: bool) -> None:
    last_beats = {**GIVEN.last_beats, "podsync": LastBeat(NOW - ago)}
    expected = "podsync is not healthy: podsync was last seen active 31s ago; threshold is 30s"
    assert texts(last_beats=last_beats) == ([expected] if absent else [])


def test_a_process_that_beats_but_stands_still_is_named() -> None:
    last_beats = {**GIVEN.last_beats, "volume": LastBeat(NOW, turned_at=NOW - 60)}
    assert texts(last_beats=last_beats) == [
        "volume is not healthy: volume was last seen active 1m0s ago; threshold is 30s"
    ]


def test_a_process_without_any_beat_is_named_thirty_seconds_after_our_own_start() -> None:
    last_beats = {"volume": LastBeat(NOW)}
    assert texts(last_beats=last_beats, awake_since=NOW - 29) == []
    assert texts(last_beats=last_beats) == ["podsync is not healthy: podsync has yet to report"]


def test_several_reasons_stand_in_brackets_in_the_kubelets_order() -> None:
    reasons = not_ready_reasons(
        replace(
            GIVEN,
            runtime_good_at=NOW - 31,
            pleg_active_at=None,
            shuts_down=True,
            observed=observed(
                runtime_ready=False, runtime_message="r", network_ready=False, network_message="n", cpus=-1
            ),
        )
    )
    assert message(reasons) == (
        "[container runtime is down, PLEG is not healthy: pleg has yet to be successful, "
        "container runtime not ready: RuntimeReady=false r, "
        "container runtime network not ready: NetworkReady=false n, node is shutting down, "
        "missing node capacity for resources: cpu]"
    )
    assert message([NotReady("a"), NotReady("b"), NotReady("a")]) == "[a, b]"
    assert message([NotReady("a"), NotReady("a")]) == "a"


@pytest.mark.parametrize(
    "changed", [{"observed": None}, {"pleg_active_at": None}, {"runtime_good_at": None}], ids=lambda c: next(iter(c))
)
def test_missing_reports_are_no_reason_in_the_first_thirty_seconds(changed: dict[str, Any]) -> None:
    young = replace(GIVEN, awake_since=NOW - 30, **changed)
    assert reportable(not_ready_reasons(young)) is None
    old = replace(young, awake_since=NOW - 31)
    assert reportable(not_ready_reasons(old)) == not_ready_reasons(old) != []


@pytest.mark.parametrize(
    ("threshold", "changed"),
    [
        (30, {"last_beats": {**GIVEN.last_beats, "volume": LastBeat(NOW - 1000)}}),
        (30, {"last_beats": {**GIVEN.last_beats, "volume": LastBeat(NOW, turned_at=NOW - 1000)}}),
        (30, {"runtime_good_at": NOW - 1000, "observed": replace(WELL, runtime_reachable=False)}),
        (180, {"pleg_active_at": NOW - 1000}),
    ],
    ids=["process", "loop", "runtime", "pleg"],
)
def test_silence_is_not_reported_before_its_threshold_has_passed_in_which_we_listened(
    threshold: float, changed: dict[str, Any]
) -> None:
    just_woken = replace(GIVEN, awake_since=NOW - threshold, **changed)
    assert reportable(not_ready_reasons(just_woken)) is None
    awake = replace(just_woken, awake_since=NOW - threshold - 1)
    assert reportable(not_ready_reasons(awake)) == not_ready_reasons(awake) != []


def test_a_fact_is_reported_at_once_and_without_what_is_presumed() -> None:
    unready = observed(network_ready=False, network_message="reason:X message:Y")
    last_beats = {**GIVEN.last_beats, "volume": LastBeat(NOW - 60)}
    (reported,) = (
        reportable(not_ready_reasons(replace(GIVEN, awake_since=NOW, observed=unready, last_beats=last_beats))) or []
    )
    assert reported.text == "container runtime network not ready: NetworkReady=false reason:X message:Y"


def test_a_well_node_is_ready_at_once() -> None:
    assert reportable(not_ready_reasons(replace(GIVEN, awake_since=NOW))) == []


def test_the_main_loop_alone_decides_whether_a_process_hangs() -> None:
    assert turned_at("bootstrap", {"reload": 5.0, "kubeconfig": 9.0}) == 5.0
    assert turned_at("bootstrap", {"kubeconfig": 1.0}) is None
    assert turned_at("unknown", {"": 1.0, "loop": 1.0}) is None


@pytest.mark.parametrize("service", sorted(MAIN_LOOPS))
def test_every_service_reports_the_progress_of_its_main_loop(service: str) -> None:
    modules = (Path(__file__).parents[3] / "services" / service).rglob("*.py")
    source = "\n".join(path.read_text() for path in modules)
    names = {*re.findall(r'progress\("([^"]+)"\)', source)}
    if "progress(LOOP)" in source:
        names |= {*re.findall(r'^LOOP = "([^"]+)"', source, re.MULTILINE)}
    assert MAIN_LOOPS[service] in names
