"""When the API object of a pod may go."""

from typing import Any

import pytest

from bus.messages.podsync import AdmittedPod, PodState
from services.status.core.pod_status_deletion import may_be_deleted


def pod(phase: Any = "Failed", **metadata: Any) -> Any:
    return {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", **metadata}, "status": {"phase": phase}}


def admitted(state: PodState) -> AdmittedPod:
    return AdmittedPod(uid="u", name="web", namespace="default", state=state, source="api")


FINISHED = admitted(PodState.FINISHED)


def test_only_a_finished_pod_with_its_end_in_the_api(subtests: pytest.Subtests) -> None:
    for thing, known, complete, may in [
        (pod(), FINISHED, True, True),
        (pod("Succeeded"), FINISHED, True, True),
        (pod(), None, True, True),
        (pod(), FINISHED, False, False),
        (pod(), None, False, False),
        (pod(), admitted(PodState.TERMINATED), True, False),
        (pod(), admitted(PodState.SYNC), True, False),
        (pod("Running"), FINISHED, True, False),
        (pod("Pending"), None, True, False),
        (pod(deletionTimestamp=None), FINISHED, True, False),
        (pod(annotations={"kubernetes.io/config.mirror": "h"}), FINISHED, True, False),
        (pod(annotations=5), FINISHED, True, True),
        (pod(annotations=["kubernetes.io/config.mirror"]), FINISHED, True, True),
        (pod(["Failed"]), FINISHED, True, False),
        ({"metadata": [], "status": 5}, None, True, False),
        ({}, None, True, False),
    ]:
        with subtests.test(f"{thing!r:.80}"):
            assert may_be_deleted(thing, known, admitted_is_all=complete) is may
