"""What becomes of the pods of a run once, and when the run is complete."""

from typing import Any

import pytest

from bus.messages.podsync import PodStatus
from bus.messages.sources import DesiredPod
from services.bootstrap.core.run_once import MAX_START_SECONDS, advance, progress
from shared.model.frozen_copy import replace
from shared.model.run_once import Outcome, PodResult, RunOnceRecord

BEGUN = RunOnceRecord(generation="boot/17/1", began=100.0)
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def desired(name: str, policy: str = "Never") -> DesiredPod:
    pod = {"metadata": {"namespace": "default", "name": name}, "spec": {"restartPolicy": policy}}
    return DesiredPod(uid=name, source="file", pod=pod)


def status(name: str, **fields: Any) -> PodStatus:
    return PodStatus(uid=name, name=name, namespace="default", version=(1, 1), status=fields)


def look(
    pod: DesiredPod, fields: dict[str, Any], *, after: float = 1.0, record: RunOnceRecord = BEGUN
) -> RunOnceRecord:
    return advance(record, [pod], {pod.uid: status(pod.uid, **fields)}, (), record.began + after)


@pytest.mark.parametrize(
    ("policy", "fields", "outcome", "message"),
    [
        ("Never", {}, Outcome.WAITING, ""),
        ("Never", {"phase": "Running"}, Outcome.RUNNING, ""),
        ("Never", READY, Outcome.RUNNING, ""),
        ("OnFailure", {"phase": "Succeeded"}, Outcome.SUCCEEDED, ""),
        ("Always", {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}, Outcome.RUNNING, ""),
        ("Always", READY, Outcome.READY, ""),
        (
            "Never",
            {
                "phase": "Failed",
                "containerStatuses": [
                    {"name": "a", "state": {"terminated": {"exitCode": 0}}},
                    {"name": "b", "state": {"terminated": {"exitCode": 3}}},
                ],
            },
            Outcome.FAILED,
            "container b ended with exit code 3",
        ),
        (
            "Always",
            {"phase": "Failed", "reason": "OutOfcpu", "message": "no room"},
            Outcome.FAILED,
            "OutOfcpu: no room",
        ),
        (
            "Never",
            {
                "phase": "Pending",
                "containerStatuses": [{"name": "a", "state": {"waiting": {"reason": "ErrImagePull"}}}],
            },
            Outcome.WAITING,
            "container a waits: ErrImagePull",
        ),
    ],
)
def test_the_outcome_follows_from_phase_and_restart_policy(
    policy: str, fields: dict[str, Any], outcome: Outcome, message: str
) -> None:
    [found] = look(desired("a", policy), fields).pods
    assert (found.outcome, found.message) == (outcome, message)


@pytest.mark.parametrize(
    ("policy", "fields", "outcome"),
    [
        ("Never", {"phase": "Pending"}, Outcome.FAILED),
        ("Never", {"phase": "Running"}, Outcome.RUNNING),
        ("Always", {"phase": "Running"}, Outcome.FAILED),
        ("Always", READY, Outcome.READY),
    ],
)
def test_a_pod_has_a_limited_time_to_start_and_none_to_end(
    policy: str, fields: dict[str, Any], outcome: Outcome
) -> None:
    pod = desired("a", policy)
    assert look(pod, fields, after=MAX_START_SECONDS - 1).pods[0].outcome is not Outcome.FAILED
    assert look(pod, fields, after=MAX_START_SECONDS).pods[0].outcome is outcome


def test_a_run_is_complete_when_each_pod_is_done_and_fails_with_one_pod() -> None:
    pods = [desired("b"), desired("a", "Always")]
    begun = advance(BEGUN, pods, {"a": status("a", **READY)}, (), 101.0)
    assert [(pod.name, pod.outcome) for pod in begun.pods] == [("a", Outcome.READY), ("b", Outcome.WAITING)]
    assert not begun.complete and begun.failed
    done = advance(begun, pods, {"b": status("b", phase="Succeeded")}, (), 102.0)
    assert done.complete and not done.failed
    assert done.pods[0].outcome is Outcome.READY, "what is final stays"
    failed = advance(begun, pods, {"b": status("b", phase="Failed")}, (), 102.0)
    assert failed.complete and failed.failed


def test_a_run_without_pods_succeeds_and_with_a_bad_manifest_fails() -> None:
    empty = advance(BEGUN, [], {}, (), 101.0)
    assert empty.complete and not empty.failed
    bad = advance(BEGUN, [], {}, ("/m/a.yaml: invalid pod",), 101.0)
    assert bad.complete and bad.failed


def test_progress_has_one_line_for_each_change() -> None:
    first = look(desired("a"), {"phase": "Running"})
    assert progress(BEGUN, first) == ("run once: default/a is Running; 0 of 1 pods are done",)
    assert progress(first, first) == ()
    problem = "/m/b.yaml: invalid pod"
    done = replace(look(desired("a"), {"phase": "Succeeded"}, record=first), problems=(problem,))
    assert progress(first, done) == ("run once: default/a is Succeeded; 1 of 1 pods are done", f"run once: {problem}")


def test_a_message_of_a_container_is_bounded() -> None:
    [found] = look(desired("a"), {"phase": "Failed", "message": "x" * 5000}).pods
    assert found == PodResult(namespace="default", name="a", uid="a", outcome=Outcome.FAILED, message="x" * 1024)
