"""What the SLI of pod startup counts (pods.md D)."""

from typing import Any

import pytest

from services.podsync.core.pod.startup_duration import covered, has_started, init_runs, is_stateful
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState

RUNNING = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}


@pytest.mark.parametrize(
    ("entries", "started"),
    [
        ([], False),
        ([RUNNING], True),
        ([RUNNING, {"state": {"waiting": {"reason": "ContainerCreating"}}}], False),
        ([{"state": {"running": {"startedAt": None}}}], False),
        ([{"state": {"terminated": {"exitCode": 0}}}], False),
        ([{}], False),
    ],
)
def test_a_pod_has_started_once_each_container_is_shown_running(entries: list[Any], started: bool) -> None:
    assert has_started({"containerStatuses": entries}) is started
    assert not has_started({})


@pytest.mark.parametrize(
    ("source", "stateful"),
    [
        ({"secret": {}}, False),
        ({"configMap": {}}, False),
        ({"downwardAPI": {}}, False),
        ({"emptyDir": {}}, False),
        ({"projected": {}}, False),
        ({"image": {}}, False),
        ({"ephemeral": {}}, False),
        ({"csi": {"volumeAttributes": {"csi.storage.k8s.io/ephemeral": "true"}}}, False),
        ({"csi": {"driver": "d"}}, True),
        ({"persistentVolumeClaim": {"claimName": "c"}}, True),
        ({"hostPath": {"path": "/"}}, True),
        ({"nfs": {}}, True),
    ],
)
def test_a_pod_with_a_volume_that_outlives_it_has_state(source: dict[str, Any], stateful: bool) -> None:
    assert is_stateful({"spec": {"volumes": [{"name": "e", "emptyDir": {}}, {"name": "v", **source}]}}) is stateful
    assert not is_stateful({"spec": {}})


def test_only_ended_init_containers_count_as_runs() -> None:
    def instance(name: str, started: int, finished: int) -> Container:
        state = ContainerState.EXITED if finished else ContainerState.RUNNING
        found = Container(id=name, name=name, attempt=0, sandbox_id="s", state=state, created_at=0)
        return replace(found, started_at=started * 10**9, finished_at=finished * 10**9)

    pod = {"spec": {"initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}], "containers": []}}
    found = [instance("i", 3, 7), instance("i", 9, 0), instance("s", 1, 2), instance("c", 1, 2), instance("i", 0, 4)]
    assert init_runs(pod, found) == [(3.0, 7.0)]


@pytest.mark.parametrize(
    ("intervals", "seconds"),
    [
        ([], 0.0),
        ([(1.0, 3.0)], 2.0),
        ([(5.0, 6.0), (1.0, 3.0)], 3.0),
        ([(1.0, 3.0), (2.0, 4.0)], 3.0),
        ([(1.0, 9.0), (2.0, 4.0), (8.0, 10.0)], 9.0),
    ],
)
def test_time_that_two_intervals_share_counts_once(intervals: list[tuple[float, float]], seconds: float) -> None:
    assert covered(intervals) == seconds
