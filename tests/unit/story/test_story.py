"""The story of a pod: what is worth a line, how lines read, and why a container was restarted."""

from pathlib import Path
from typing import Any

import pytest

from bus.messages.event import KubeEvent
from bus.messages.pleg import ProbeResults
from bus.messages.volume import MountedVolume, MountedVolumes, VolumeState
from services.podsync.adapters.story import StoryFiles, uid_of
from services.podsync.core.pod.call_results import ImagePulled
from services.podsync.core.pod.events import (
    CallDone,
    CallFailed,
    Event,
    PodDesired,
    ProbesChanged,
    VolumesChanged,
)
from services.podsync.core.pod.instructions import (
    ContainerStop,
    Instruction,
    KillContainer,
    LookAtPod,
    PullImage,
    RecordEvent,
    RunPostStartHook,
    StartContainer,
)
from services.podsync.core.story import StoryLines
from shared.model.probes import ProbeResult
from shared.model.runtime import ContainerState
from shared.story.restarts import restarts
from shared.story.sentences import sentence
from shared.story.text import node_data, node_text
from tests.unit.story.stories import POD, explain, instance, killing, lines_of, observed, sentences, started


def test_the_story_of_a_pod_goes_from_its_source_to_its_start() -> None:
    volumes = MountedVolumes(uid="u1", volumes={"v": MountedVolume(state=VolumeState.MOUNTED)})
    pull = PullImage(uid="u1", container="c", image="busybox:1", sandbox_attempt=0)
    assert sentences(
        PodDesired(uid="u1", source="api", pod=POD),
        VolumesChanged(uid="u1", volumes=volumes),
        CallDone(uid="u1", call=pull, completed_at=1.0, result=ImagePulled(image=None, took=2.5)),
        started(0),
    ) == [
        "seen for the first time, from api",
        "volume v is mounted",
        "image busybox:1 is pulled, after 2.50 s",
        "container c of attempt 0 is started",
    ]


def test_what_comes_twice_is_one_line_and_a_changed_definition_is_another() -> None:
    pod = PodDesired(uid="u1", source="file", pod=POD)
    other = PodDesired(uid="u1", source="file", pod=POD | {"spec": {"containers": [{"name": "c", "image": "x"}]}})
    same_with_status = PodDesired(uid="u1", source="file", pod=POD | {"status": {"phase": "Running"}})
    assert sentences(pod, pod, same_with_status, other) == [
        "seen for the first time, from file",
        "its definition changed, from file",
    ]


def test_a_pod_from_the_record_is_marked_until_the_api_server_has_it() -> None:
    recorded = PodDesired(uid="u1", source="api", pod=POD, recorded="2026-01-01T00:00:00Z")
    confirmed = PodDesired(uid="u1", source="api", pod=POD)
    assert sentences(recorded, recorded, confirmed, confirmed) == [
        "in the record of 2026-01-01T00:00:00Z, which counts while the API server does not answer",
        "seen for the first time, from api",
        "the API server has answered, and has it",
    ]


def test_a_deletion_names_its_grace_period() -> None:
    metadata = POD["metadata"] | {"deletionTimestamp": "t", "deletionGracePeriodSeconds": 5}  # type: ignore[operator]
    pod = PodDesired(uid="u1", source="api", pod=POD | {"metadata": metadata})
    assert sentences(pod, pod) == ["to be deleted, from api, with a grace period of 5 s"]


def test_looks_and_relists_are_no_part_of_a_story_unless_they_fail() -> None:
    look = LookAtPod(uid="u1")
    running = instance(0, ContainerState.RUNNING)
    failed = CallFailed(uid="u1", call=look, completed_at=1.0, code="Unavailable", text="gone", description="gone")
    assert lines_of(look, CallDone(uid="u1", call=look, completed_at=1.0), observed(running), observed(running)) == []
    assert sentences(failed) == ["looking at the pod in the runtime failed: gone"]


def test_an_exit_is_one_line_with_code_reason_and_how_long_it_ran() -> None:
    exited = instance(0, ContainerState.EXITED, 137, "OOMKilled")
    assert sentences(observed(exited), observed(exited)) == [
        "container c: attempt 0 ended with exit code 137 (OOMKilled) after 3.0 s"
    ]


def test_a_restart_by_itself_names_the_exit_and_the_back_off() -> None:
    back_off = KubeEvent(
        type="Warning",
        reason="BackOff",
        message="Back-off restarting failed container c in pod x",
        uid="u1",
        field_path="spec.containers{c}",
    )
    lines = lines_of(
        started(0), observed(instance(0, ContainerState.EXITED, 1, "Error")), RecordEvent(event=back_off), started(1)
    )
    (answer,) = restarts(lines)
    assert (answer.container, answer.attempt) == ("c", 1)
    assert answer.because == "attempt 0 ended with exit code 1 (Error) after 3.0 s"
    assert answer.waited == "10.0 s of back-off"


def test_a_restart_by_a_probe_names_the_probe_and_its_output() -> None:
    results = ProbeResults(pod_uid="u1", container="c", liveness=ProbeResult.FAILURE, failure="HTTP probe failed: 500")
    stop = ContainerStop(container="c", container_id="id0", grace_seconds=30)
    happened: list[Event | Instruction] = [
        started(0),
        ProbesChanged(container_id="id0", pod_uid="u1", results=results),
        killing("Container c failed liveness probe, will be restarted"),
        KillContainer(uid="u1", stop=stop),
        observed(instance(0, ContainerState.EXITED, 137)),
        started(1),
    ]
    assert sentences(*happened)[1:4] == [
        "the liveness probe of container c has failed: HTTP probe failed: 500",
        "event Killing: Container c failed liveness probe, will be restarted",
        "stopping container c, grace period 30 s",
    ]
    (answer,) = restarts(lines_of(*happened))
    assert answer.because == (
        "Container c failed liveness probe, will be restarted (HTTP probe failed: 500); attempt 0 ended with exit code "
        "137 after 3.0 s"
    )


def test_every_container_has_a_new_sandbox_as_the_cause_of_its_first_start_in_it() -> None:
    changed = KubeEvent(type="Normal", reason="SandboxChanged", message="Pod sandbox changed", uid="u1")
    init = StartContainer(uid="u1", container="init", container_id="i1", attempt=1)
    lines = lines_of(
        started(0),
        observed(instance(0, ContainerState.EXITED, 255, "Unknown")),
        RecordEvent(event=changed),
        CallDone(uid="u1", call=init, completed_at=1.0),
        started(1),
        observed(instance(1, ContainerState.EXITED, 1, "Error")),
        started(2),
    )
    recreated = "the pod's sandbox was gone and a new one was made"
    assert [(answer.container, answer.attempt, recreated in answer.because) for answer in restarts(lines)] == [
        ("init", 1, True),
        ("c", 1, True),
        ("c", 2, False),
    ]


def test_a_restart_whose_end_was_before_the_story_is_reported_as_that() -> None:
    (answer,) = restarts(lines_of(started(4)))
    assert answer.because.startswith("not known")


def test_a_pod_of_an_earlier_process_is_not_seen_for_the_first_time() -> None:
    story_lines = StoryLines(boot=2)
    story_lines.take_up("u1", name="web", namespace="shop", source="api")
    assert story_lines.describe("u1", PodDesired(uid="u1", source="api", pod=POD)) == []
    assert story_lines.describe("u1", started(1))[0] == {"what": "life", "boot": 2}


def test_a_restart_of_the_machine_is_in_the_story() -> None:
    line = StoryLines(boot=4, machine_started=True).describe("u1", started(1))[0]
    assert sentence(line) == "the machine was started again; start 4 of podsync, which observes the pods that there are"


def test_a_pod_that_restarts_for_months_is_remembered_in_the_same_space() -> None:
    story_lines = StoryLines(boot=1)
    results = ProbeResults(container="c", pod_uid="u1", readiness=ProbeResult.SUCCESS)
    for attempt in range(50):
        instances = [instance(n, ContainerState.EXITED) for n in range(max(0, attempt - 1), attempt)]
        story_lines.describe("u1", observed(*instances, instance(attempt, ContainerState.RUNNING)))
        story_lines.describe("u1", ProbesChanged(container_id=f"id{attempt}", pod_uid="u1", results=results))
        story_lines.describe("u1", ProbesChanged(container_id=f"id{attempt}", pod_uid="u1", results=None))
    remembered = story_lines._written["u1"]
    assert (len(remembered.containers), len(remembered.probes)) == (2, 0)


def test_what_has_no_sentence_costs_a_line_and_delays_no_action(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = StoryFiles(tmp_path / "bulkhead/podsync/stories")
    book.add("u1", 1.0, PodDesired(uid="u1", source="api", pod=POD))
    with monkeypatch.context() as mistaken:
        mistaken.setattr(StoryLines, "describe", None)
        book.add("u1", 2.0, killing("x"))
    book.add("u1", 3.0, started(0))
    book.close()
    assert "the story of pod u1 has a gap" in caplog.text
    assert "container c of attempt 0 is started" in explain(tmp_path, "web").stdout


def test_a_hook_that_failed_is_a_line_without_its_output() -> None:
    call = RunPostStartHook(uid="u1", container="c", container_id="id0")
    text, description = "exited with 1: hush", "exited with 1"
    failed = CallFailed(uid="u1", call=call, completed_at=1.0, code="", text=text, description=description)
    assert sentences(failed) == ["the postStart hook of container c failed: exited with 1"]


def test_what_a_probe_found_belongs_to_the_story_of_its_pod() -> None:
    changed = ProbesChanged(container_id="id0", pod_uid="u1", results=ProbeResults(pod_uid="u1", container="c"))
    assert uid_of(changed) == "u1"


@pytest.mark.parametrize(
    ("change", "last"),
    [
        ({}, "pods that had not stopped in time: web_default(u1)"),
        ({"unfinished": 5}, "2001-09-09"),
        ({"ended": 1e300}, "pods that had not stopped in time: web_default(u1)"),
        ({"began": 1e300}, "CONDITION  STATUS  SINCE  MESSAGE"),
    ],
)
def test_a_damaged_record_of_a_shutdown_leaves_the_rest_of_the_node_to_read(change: dict[str, Any], last: str) -> None:
    record = {"began": 1e9, "ended": 1e9 + 9, "signal": "PrepareForShutdown", "unfinished": ["web_default(u1)"]}
    assert node_text(node_data({}, shutdown=record | change))[-1].startswith(last)
