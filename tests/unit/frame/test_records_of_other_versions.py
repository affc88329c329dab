"""Records outlive an upgrade and a rollback: those of the last release are read here, and this version's there.

What the last release wrote, and how it reads, is kept in `tests/records/last_release/`.
"""

import asyncio
import copy
import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from bus.memory import ManualClock
from bus.messages.podsync import PodState
from services.podsync.adapters.steady_clock import SteadyClock
from services.podsync.core.eviction.pressure_conditions import read_transitions
from services.podsync.core.pod.allocation import Allocation, PendingResize, ResizeInProgress
from services.podsync.core.pod.record import PodRecord
from services.podsync.core.pod.saved import Attempts, CrashBackoff, ImageBackoff, Saved, SavedContainer
from services.podsync.core.pod.saved_record import persisted, restore
from services.sources.core import first_seen, manifest_records
from services.status.adapters.agent_record import AGENT, AgentFacts, AgentRecord
from services.status.core.node_conditions import is_condition
from shared.boot_id import boot_id
from shared.checkpoint import Checkpoint
from tests.records.last_release import readers

RECORDED = Path(__file__).parents[2] / "records" / "last_release"
POD = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
    "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "busybox:1"}]},
}


def recorded(name: str, tmp_path: Path) -> dict[str, Any]:
    """The data of a file that the last release wrote, through this version's checkpoint."""
    directory = tmp_path / name
    directory.mkdir(exist_ok=True)
    (directory / "record.json").write_bytes((RECORDED / f"{name}.json").read_bytes())
    (data,) = Checkpoint(directory, tmp_path / "fallback").load_all().values()
    return data


def written(data: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """What the last release finds in a file of this version's checkpoint."""
    Checkpoint(tmp_path / "new", tmp_path / "fallback").save("key", data)
    key, _, found = readers.envelope(json.loads((tmp_path / "new" / "key.json").read_bytes()))
    assert key == "key"
    return found


def full_record() -> PodRecord:
    """A record in which no saved field has its default."""
    backoff = CrashBackoff(key="k", seconds=20.0, updated=11.0, instance="i1")
    pull = ImageBackoff(seconds=10.0, updated=9.0, message="ErrImagePull: no")
    wanted = Allocation(containers={"c": {"limits": {"cpu": "2"}}}, pod={"limits": {"cpu": "3"}})
    saved = replace(
        Saved(**samples(Saved())),
        allocation=Allocation(containers={"c": {"limits": {"cpu": "1"}}}, pod={}),
        actuated={"c": {"requests": {"cpu": "1"}}},
        pending_resize=PendingResize(
            generation=3, wanted=wanted, decided=True, reason="Deferred", message="no room", since=8.0
        ),
        resize=ResizeInProgress(generation=2, cgroup_written=True, error="no"),
        state=PodState.TERMINATING,
        admission_decided=False,
        pod=POD,
        pre_stops={"i1": 12.5},
        containers={"c": replace(SavedContainer(**samples(SavedContainer())), crash_backoff=backoff)},
        image_backoff={"busybox:1": pull},
    )
    attempts = Attempts(sandbox=3, containers={"c": 3})
    return PodRecord(uid="u1", name="web", namespace="shop", saved=saved, attempts=attempts, status={"c": "i1"})


def of_both(recorded_pod: dict[str, Any]) -> dict[str, Any]:
    """A pod's record of the last release without what no version reads."""
    return {name: value for name, value in recorded_pod.items() if name != "planned"}


def samples(part: Saved | SavedContainer) -> dict[str, Any]:
    """A value of its type for each field."""
    of: dict[type, Any] = {str: "text", bool: True, int: 3, float: 1.5, tuple: ("u2",), dict: {"c": "i1"}}
    return {field.name: of.get(type(getattr(part, field.name))) for field in fields(part)}


def test_a_pod_of_the_last_release_is_the_same_here(tmp_path: Path) -> None:
    data = of_both(recorded("pod", tmp_path))
    again = persisted(restore(recorded("pod", tmp_path)))
    assert {name: again[name] for name in data} == data
    untouched = persisted(PodRecord(uid="u1", name="web", namespace="shop"))
    assert {name: again[name] for name in again.keys() - data.keys()} == {
        name: untouched[name] for name in again.keys() - data.keys()
    }


def test_the_last_release_understands_the_pods_of_this_version(tmp_path: Path) -> None:
    ours = json.loads(json.dumps(persisted(full_record())))
    theirs = readers.pod(written(ours, tmp_path))
    assert theirs.keys() == of_both(readers.POD_FIELDS).keys()
    assert {name: ours[name] for name in theirs} == theirs


def test_manifests_are_understood_in_both_directions(tmp_path: Path) -> None:
    data = recorded("manifest", tmp_path)
    assert manifest_records.decode(data, "/m", node_name="n1") == (data["pod"], "/m")
    assert readers.manifest(written(manifest_records.encode(POD, "/m"), tmp_path)) == POD


def test_first_seen_times_are_understood_in_both_directions(tmp_path: Path) -> None:
    seen = {"u1": "2026-01-02T03:04:05Z"}
    assert first_seen.decode(recorded("first-seen", tmp_path)) == seen
    assert first_seen.resource_version(recorded("first-seen", tmp_path)) == "", "the pods are listed by a quorum read"
    assert readers.first_seen(written(first_seen.encode(seen, "17"), tmp_path)) == seen


def test_conditions_are_understood_in_both_directions(tmp_path: Path) -> None:
    found = recorded("node-conditions", tmp_path)["conditions"]
    assert found and all(is_condition(condition) for condition in found)
    assert readers.conditions(written({"conditions": found}, tmp_path)) == found


def test_the_start_of_the_agent_is_understood_in_both_directions(tmp_path: Path) -> None:
    records = Checkpoint(tmp_path / "status", tmp_path / "fallback")
    records.save(AGENT, recorded("agent", tmp_path))
    agent = AgentRecord(records, "b/12/345")
    assert asyncio.run(agent.load())
    assert agent.facts == AgentFacts(generation="b/12/345", unschedulable=True)
    facts = AgentFacts(generation="g", registered=True, unschedulable=True, allocatable={"x/r": ("1",)})
    assert readers.agent(written(asdict(facts), tmp_path), "g") is True


def test_clock_and_pressure_are_those_of_the_last_release(tmp_path: Path) -> None:
    transitions = read_transitions(recorded("pressure", tmp_path))
    assert transitions == {"MemoryPressure": ("False", 1767300000.5)}
    last = {**recorded("boot", tmp_path), "machine": boot_id()}
    clock = SteadyClock(ManualClock(), Checkpoint(tmp_path / "boot", tmp_path / "fallback"), last)
    assert (clock.boot, clock.machine_started) == (8, False)


@pytest.mark.parametrize("place", [(), ("crash_backoff", "c"), ("image_backoff", "busybox:1")])
def test_a_field_that_is_not_known_drops_nothing(place: tuple[str, ...]) -> None:
    data = persisted(full_record())
    ours = copy.deepcopy(data)
    spot = ours
    for name in place:
        spot = spot[name]
    spot["of_a_newer_version"] = {"a": 1}
    assert persisted(restore(ours)) == data


def test_an_unknown_backoff_begins_again_and_the_pod_is_kept() -> None:
    data = persisted(full_record())
    odd: list[Any] = [None, {}, {"key": "k"}, {"key": "k", "seconds": "soon", "updated": 1.0, "instance": "i"}]
    data["crash_backoff"] |= {f"odd{number}": entry for number, entry in enumerate(odd)}
    assert list(restore(data).saved.containers) == ["c"]


def test_records_within_records_of_a_newer_version_count_as_far_as_they_are_understood() -> None:
    newer = {"version": 2, "more": 1}
    assert manifest_records.decode({**newer, "pod": POD}, "/m", node_name="n1") == (POD, "/m")
    assert manifest_records.decode({**newer, "pods": []}, "/m", node_name="n1") is None
    assert manifest_records.is_newer({**newer, "pods": []}) and not manifest_records.is_newer({"version": 1})
    assert first_seen.decode({**newer, "pods": {"u": "t"}}) == {"u": "t"}
    assert first_seen.is_newer({**newer, "by_uid": {}}) and not first_seen.is_newer({**newer, "pods": {}})
    assert not first_seen.is_newer(None)
