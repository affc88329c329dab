"""Each step towards the configuration that the Node names, from every state that a kill or an error can leave."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.bootstrap.core.config_source import SourceReference
from services.bootstrap.core.node_config import (
    MAX_TRIAL_STARTS,
    TRIAL_SECONDS,
    Checkpoints,
    Clear,
    Download,
    Evaluate,
    InForce,
    Promote,
    Reject,
    Rejection,
    Situation,
    Step,
    Wait,
    next_step,
)
from shared.model.config_source import ConfigSource
from shared.model.frozen_copy import replace


def source(name: str, version: str = "1") -> ConfigSource:
    return ConfigSource(
        namespace="ns", name=name, uid=f"uid-{name}", resource_version=version, kubelet_config_key="kubelet"
    )


A, A2, B = source("a"), source("a", "2"), source("b")
TO_A, TO_B = SourceReference("ns", "a", "kubelet"), SourceReference("ns", "b", "kubelet")
CRASHES = tuple(float(1001 + second) for second in range(MAX_TRIAL_STARTS + 1))
NONE, ON_A, GOOD_A = Checkpoints(), Checkpoints(assigned=A), Checkpoints(assigned=A, last_known_good=A)
A_AFTER_B = Checkpoints(assigned=A, last_known_good=B)
REJECTED = replace(A_AFTER_B, rejection=Rejection(A, "why"))
SYNCED_A = {"is_synced": True, "reference": TO_A, "version": "1"}
LOCAL, IN_A, IN_B = InForce(), InForce(A, 1000.0), InForce(B, 1000.0)


def step(checkpoints: Checkpoints, in_force: InForce = LOCAL, **more: Any) -> Step:
    """The next step, one second after the configuration came into force; all of it was evaluated."""
    return next_step(
        Situation(**{"now": 1001.0, "checkpoints": checkpoints, "in_force": in_force, "evaluated": checkpoints, **more})
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("given", "more", "expected"),
    [
        # Before the Node was read, nothing changes.
        (NONE, {}, Wait()),
        (GOOD_A, {"in_force": IN_A}, Wait()),
        # The Node names none.
        (NONE, {"is_synced": True}, Wait()),
        (GOOD_A, {"in_force": IN_A, "is_synced": True}, Clear()),
        (Checkpoints(last_known_good=A), {"is_synced": True}, Clear()),  # killed in the middle of Clear
        (NONE, {"in_force": IN_A, "is_synced": True, "evaluated": None}, Evaluate()),
        # The Node names one.
        (NONE, {"is_synced": True, "reference": TO_A}, Download(TO_A)),
        (NONE, {"is_synced": True, "reference": TO_A, "version": "1"}, Download(TO_A)),
        (ON_A, {**SYNCED_A, "evaluated": None}, Evaluate()),  # killed between the record and its evaluation
        (GOOD_A, {**SYNCED_A, "in_force": IN_A}, Wait()),
        (GOOD_A, {**SYNCED_A, "in_force": IN_A, "version": "2"}, Download(TO_A)),  # it was edited
        (GOOD_A, {**SYNCED_A, "in_force": IN_A, "version": ""}, Download(TO_A)),  # it is gone, or was not read
        (GOOD_A, {**SYNCED_A, "in_force": IN_A, "reference": TO_B}, Download(TO_B)),
        (replace(ON_A, assigned=A2), {**SYNCED_A, "version": "2", "in_force": IN_A, "evaluated": ON_A}, Evaluate()),
        # A failed step is held back, and the trial goes on.
        (NONE, {"is_synced": True, "reference": TO_A, "retry_at": 1011.0}, Wait(10.0)),
        (ON_A, {"in_force": IN_A, "is_synced": True, "retry_at": 1011.0}, Wait(10.0)),
        (ON_A, {"in_force": IN_A, "is_synced": True, "retry_at": 1001.0}, Clear()),
        # It was refused once: it is not evaluated again and again.
        (A_AFTER_B, {**SYNCED_A, "in_force": IN_B}, Wait()),
        (A_AFTER_B, SYNCED_A, Wait()),
        # The trial.
        (ON_A, {**SYNCED_A, "in_force": IN_A}, Wait(TRIAL_SECONDS - 1)),
        (ON_A, {**SYNCED_A, "in_force": IN_A, "now": 1000.0 + TRIAL_SECONDS}, Promote(A)),
        (ON_A, {"in_force": IN_A, "now": 1000.0 + TRIAL_SECONDS}, Promote(A)),  # the API server is away
        (ON_A, {**SYNCED_A, "version": "", "in_force": IN_A, "now": 1000.0 + TRIAL_SECONDS}, Promote(A)),
        (ON_A, {**SYNCED_A, "in_force": IN_A, "now": 2000.0, "retry_at": 2003.0}, Wait(3.0)),  # the disk is full
        # Crashes.
        (ON_A, {**SYNCED_A, "in_force": IN_A, "starts": {"pleg": CRASHES[1:]}}, Wait(TRIAL_SECONDS - 1)),
        (ON_A, {"in_force": InForce(A, 1001.5), "starts": {"pleg": CRASHES}}, Wait(TRIAL_SECONDS + 0.5)),
        (GOOD_A, {**SYNCED_A, "in_force": IN_A, "starts": {"pleg": CRASHES}}, Wait()),  # the trial is over
        (A_AFTER_B, {**SYNCED_A, "in_force": IN_B, "starts": {"pleg": CRASHES}}, Wait()),  # it is not on trial
        (REJECTED, {**SYNCED_A, "in_force": IN_A, "starts": {"pleg": CRASHES}, "evaluated": ON_A}, Evaluate()),
        (REJECTED, {**SYNCED_A, "in_force": IN_B}, Wait()),
        (REJECTED, {**SYNCED_A, "in_force": IN_B, "version": "2"}, Download(TO_A)),  # an edit is tried
        # The record of the assigned one cannot be read.
        (replace(NONE, is_damaged=True), {"is_synced": True}, Clear()),
        (replace(NONE, is_damaged=True), SYNCED_A, Download(TO_A)),
        (Checkpoints(last_known_good=B, is_damaged=True), {"in_force": IN_B}, Wait()),
    ],
)
def test_the_next_step(given: Checkpoints, more: dict[str, Any], expected: Step) -> None:
    assert step(given, **more) == expected


def test_a_service_that_crashes_on_trial_has_the_configuration_rejected() -> None:
    found = step(A_AFTER_B, IN_A, starts={"server": (1001.0,), "pleg": CRASHES}, retry_at=2000.0)
    error = f"failed to run config: pleg crashed {MAX_TRIAL_STARTS} times, see Kubelet log for details"
    assert found == Reject(Rejection(A, error))


@pytest.mark.parametrize(
    ("given", "candidates"),
    [
        (NONE, (None,)),
        (Checkpoints(last_known_good=B), (None,)),
        (ON_A, (A, None)),
        (GOOD_A, (A, None)),
        (A_AFTER_B, (A, B, None)),
        (REJECTED, (B, None)),
        (replace(GOOD_A, rejection=Rejection(A, "why")), (None,)),
        (replace(A_AFTER_B, rejection=Rejection(source("c"), "why")), (A, B, None)),
        (Checkpoints(last_known_good=B, is_damaged=True), (B, None)),
    ],
)
def test_the_candidates(given: Checkpoints, candidates: tuple[ConfigSource | None, ...]) -> None:
    assert given.candidates == candidates


SOURCES = st.sampled_from([None, A, A2, B])
CHECKPOINTS = st.builds(
    Checkpoints,
    SOURCES,
    SOURCES,
    st.sampled_from([None, Rejection(A, "why"), Rejection(B, "why")]),
    st.just(False),
)


@pytest.mark.long
@given(
    checkpoints=CHECKPOINTS,
    active=SOURCES,
    reference=st.sampled_from([None, TO_A, TO_B]),
    crashing=st.booleans(),
    now=st.sampled_from([1000.0, 1300.0, 1600.0, 3000.0]),
)
def test_the_steps_end_and_use_what_the_node_names_or_what_replaces_it(
    checkpoints: Checkpoints,
    active: ConfigSource | None,
    reference: SourceReference | None,
    crashing: bool,
    now: float,
) -> None:
    """From every state that a kill can leave, with an API server that has version 2 of `a` and 1 of `b`."""
    evaluated: Checkpoints | None = None
    in_force = InForce(active, 1000.0)
    for _ in range(8):
        found = next_step(
            Situation(
                now=now,
                checkpoints=checkpoints,
                in_force=in_force,
                evaluated=evaluated,
                is_synced=True,
                reference=reference,
                version={None: "", TO_A: "2", TO_B: "1"}[reference],
                starts={"status": CRASHES} if crashing else {},
            )
        )
        match found:
            case Reject(rejection):
                checkpoints = replace(checkpoints, rejection=rejection)
            case Clear():
                checkpoints = Checkpoints(rejection=checkpoints.rejection)
            case Download(named):
                checkpoints = replace(checkpoints, assigned=A2 if named == TO_A else B)
            case Promote(good):
                checkpoints = replace(checkpoints, last_known_good=good)
            case Evaluate():
                evaluated, crashing = checkpoints, False
                in_force = InForce(checkpoints.candidates[0], now)
            case Wait():
                break
    else:
        raise AssertionError("the steps do not end")
    assert in_force.source == checkpoints.candidates[0]
    assert checkpoints.assigned == {None: None, TO_A: A2, TO_B: B}[reference]
