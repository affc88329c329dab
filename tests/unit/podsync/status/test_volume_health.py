"""`volumeHealth` of a pod's status: what is shown, and that what did not change is written once."""

from typing import Any

import pytest

from bus.messages.podsync import PodState
from bus.messages.volume import MountedVolume, MountedVolumes, VolumeHealth, VolumeState
from services.podsync.core.status.volume_health import volume_health
from shared.time.timestamps import rfc3339
from tests.unit.podsync.status.status_shapes import a_record, spec, status_now

LOST = VolumeHealth(status="DataLoss", reason="BadBlocks", message="2 blocks")
SLOW = VolumeHealth(status="Degraded", reason="HighLatency")


def volumes(**health: tuple[VolumeHealth, ...] | None) -> MountedVolumes:
    found = {name: MountedVolume(state=VolumeState.MOUNTED, health=each) for name, each in health.items()}
    return MountedVolumes(uid="u", volumes=found)


def test_the_volumes_with_adverse_conditions_are_shown_since_when_they_have_these() -> None:
    first = volume_health(volumes(v=(SLOW,), w=()), {}, over=False, now=100.0)
    at = rfc3339(100.0)
    slow = {"status": "Degraded", "reason": "HighLatency"}
    assert first == [{"name": "v", "healthConditions": [slow], "lastTransitionTime": at}]
    shown = {"volumeHealth": first}
    assert volume_health(volumes(v=(SLOW,)), shown, over=False, now=200.0) == first
    other = VolumeHealth(status="Degraded", reason="HighLatency", message="40 s")
    (changed,) = volume_health(volumes(v=(other,)), shown, over=False, now=200.0)
    assert changed == {"name": "v", "healthConditions": [slow | {"message": "40 s"}], "lastTransitionTime": at}
    lost = {"status": "DataLoss", "reason": "BadBlocks", "message": "2 blocks"}
    (both,) = volume_health(volumes(v=(LOST, SLOW)), shown, over=False, now=300.0)
    assert both == {"name": "v", "healthConditions": [lost, slow], "lastTransitionTime": rfc3339(300.0)}


@pytest.mark.parametrize(("now", "over"), [(None, True), (volumes(), True), (volumes(v=()), False)])
def test_without_an_adverse_condition_there_is_no_entry(now: MountedVolumes | None, *, over: bool) -> None:
    shown = {"volumeHealth": volume_health(volumes(v=(SLOW,)), {}, over=False, now=1.0)}
    assert volume_health(now, shown, over=over, now=2.0) == []


def test_a_volume_whose_health_is_not_read_yet_keeps_its_entry() -> None:
    shown = {"volumeHealth": volume_health(volumes(v=(SLOW,)), {}, over=False, now=1.0)}
    for now in (volumes(v=None, w=None), volumes(other=None)):  # the latter as long as no pod is known
        assert volume_health(now, shown, over=False, now=2.0) == shown["volumeHealth"]


@pytest.mark.parametrize(("state", "kept"), [(PodState.SYNC, True), (PodState.TERMINATED, False)])
def test_after_a_start_of_podsync_a_pod_that_has_volumes_keeps_its_entries_until_they_are_known(
    state: PodState, *, kept: bool
) -> None:
    health = volume_health(volumes(v=(SLOW,)), {}, over=False, now=1.0)
    tracked = a_record(spec("c"), state=state, status={"volumeHealth": health})
    assert status_now(tracked).get("volumeHealth") == (health if kept else None)


@pytest.mark.parametrize(
    "odd", [7, [7], [{"name": 7}], [{"name": "v", "healthConditions": [7], "lastTransitionTime": 7}]]
)
def test_an_odd_status_is_replaced(odd: Any) -> None:
    assert len(volume_health(volumes(v=(SLOW,)), {"volumeHealth": odd}, over=False, now=1.0)) == 1
