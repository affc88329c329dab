"""What a pod does and waits for, from the streams about it."""

from typing import Any

import pytest

from services.report.pod_rows import PodFacts, one_line, pod_row
from shared.model.conditions import SHUTDOWN_MESSAGE

RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
POD = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}}


def container(name: str, state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "state": state, **more}


def test_a_pod_that_waits_for_a_pull_shows_how_far_it_is() -> None:
    status = {"phase": "Pending", "containerStatuses": [container("a", waiting("ContainerCreating"))]}
    pull = {"image": "app:1", "arrived": 5, "total": 10, "layers": 2, "rate": 3}
    shown = row(status, pull=pull)
    assert shown == ("ContainerCreating", "pulling image app:1: 5 B of 10 B, 2 layers, 3 B/s")


@pytest.mark.parametrize(
    ("running", "volumes", "waits_for"),
    [
        (("a", "b"), "mounted", "the end of a, b: the machine shuts down"),
        ((), "unmounting", "the unmounting of data: the machine shuts down"),
        ((), "mounted", "the next boot: the machine shuts down"),
    ],
)
def test_a_pod_that_stops_for_a_shutdown_of_the_machine_shows_what_is_left_of_it(
    running: tuple[str, ...], volumes: str, waits_for: str
) -> None:
    target = {"type": "DisruptionTarget", "status": "True", "message": SHUTDOWN_MESSAGE}
    status = {"phase": "Running", "containerStatuses": READY_PAIR, "conditions": [target]}
    runtime = {"containers": [{"name": name, "state": "RUNNING"} for name in running]}
    mounted = {"volumes": {"data": {"state": volumes, "error": ""}}}
    assert row(status, runtime=runtime, volumes=mounted)[1] == waits_for


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def row(status: dict[str, Any], waits_for: str = "", **facts: Any) -> tuple[str, str]:
    """State and what it waits for. `waits_for`: that of the item of `pods.status`."""
    desired = {"uid": "u", "source": "api", "pod": facts.pop("pod", POD)}
    item = {"status": status, "waits_for": waits_for} if status else {}
    found = pod_row(PodFacts(uid="u", desired=desired, status=item, **facts))
    return found.state, found.waits_for


READY_PAIR = [container(name, RUNNING, ready=True, started=True) for name in "ab"]


@pytest.mark.parametrize(
    ("status", "state", "waits_for"),
    [
        ({}, "Pending", "its admission"),
        ({"phase": "Pending"}, "Pending", "its start"),
        ({"phase": "Running", "containerStatuses": READY_PAIR}, "Running", ""),
        (
            {"phase": "Pending", "containerStatuses": [container("a", waiting("ErrImagePull", "no such image"))]},
            "ErrImagePull",
            "a: ErrImagePull (no such image)",
        ),
        (
            {"phase": "Running", "containerStatuses": [container("a", RUNNING, ready=False, started=True)]},
            "Running",
            "the readiness of a",
        ),
        (
            {"phase": "Running", "containerStatuses": [container("a", RUNNING, ready=False, started=False)]},
            "Running",
            "the startup of a",
        ),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [container("i", RUNNING), container("j", waiting("PodInitializing"))],
                "containerStatuses": [container("a", waiting("PodInitializing"))],
            },
            "Init:0/2",
            "the end of the init container i",
        ),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [container("i", waiting("CrashLoopBackOff", "back-off 10s"))],
            },
            "Init:CrashLoopBackOff",
            "i: CrashLoopBackOff (back-off 10s)",
        ),
        (
            {
                "phase": "Succeeded",
                "containerStatuses": [container("a", {"terminated": {"exitCode": 0, "reason": "Completed"}})],
            },
            "Completed",
            "",
        ),
        (
            {"phase": "Failed", "containerStatuses": [container("a", {"terminated": {"exitCode": 3}})]},
            "ExitCode:3",
            "",
        ),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted", ""),
    ],
)
def test_state_and_reason_follow_from_the_status(status: dict[str, Any], state: str, waits_for: str) -> None:
    assert row(status) == (state, waits_for)


def test_a_volume_that_fails_is_named_before_the_container_that_waits_for_it() -> None:
    status = {"phase": "Pending", "containerStatuses": [container("a", waiting("ContainerCreating"))]}
    volumes = {"volumes": {"ok": {"state": "mounted"}, "s": {"state": "error", "error": "no such\nsecret"}}}
    assert row(status, volumes=volumes) == ("ContainerCreating", "volume s: no such secret")
    pending = {"volumes": {"v": {"state": "pending"}}}
    assert row(status, volumes=pending)[1] == "the mounting of v"


def test_a_pod_without_a_sandbox_waits_for_what_its_condition_says() -> None:
    text = "the pod waits for resource claims: gpu (ResourceClaim web-gpu), not prepared since 2030-01-01T00:00:00Z: no"
    condition = {"type": "PodReadyToStartContainers", "status": "False", "reason": "ResourceClaimNotPrepared"}
    status = {"phase": "Pending", "containerStatuses": [container("a", waiting("ContainerCreating"))]}
    assert row({**status, "conditions": [{**condition, "message": text}]}) == (
        "ContainerCreating",
        text.removeprefix("the pod waits for "),
    )
    assert row({**status, "conditions": [{"type": "PodReadyToStartContainers", "status": "False"}]})[1] != ""


def test_a_volume_that_is_never_mounted_is_named_once() -> None:
    volumes = {"volumes": {"v": {"state": "error", "error": "no plugin", "unsupported": True}}}
    condition = {"type": "PodReadyToStartContainers", "status": "False", "reason": "VolumePluginNotSupported"}
    status = {"phase": "Pending", "containerStatuses": [container("a", waiting("ContainerCreating"))]}
    shown = {**status, "conditions": [{**condition, "message": "the pod waits for volume v: no plugin"}]}
    assert row(shown, volumes=volumes) == ("ContainerCreating", "volume v: no plugin")


def test_a_pod_that_waits_for_its_turn_to_start_says_so_before_its_container_does() -> None:
    status = {"phase": "Pending", "containerStatuses": [container("a", waiting("ContainerCreating"))]}
    assert row(status, waits_for="its turn to start") == ("ContainerCreating", "its turn to start")


def test_a_rejected_pod_waits_for_nothing_and_shows_the_reason() -> None:
    status = {"phase": "Failed", "reason": "OutOfcpu", "message": "no room"}
    assert row(status, admitted={"rejected": "OutOfcpu", "state": "sync"}) == (
        "OutOfcpu",
        "nothing: it is rejected (no room)",
    )


def test_a_pod_that_the_api_server_has_not_confirmed_has_the_record_as_its_source() -> None:
    desired = {"uid": "u", "source": "api", "pod": POD, "recorded": "2026-01-01T00:00:00Z"}
    assert pod_row(PodFacts(uid="u", desired=desired)).source == "record"
    assert pod_row(PodFacts(uid="u", desired={**desired, "recorded": ""})).source == "api"


def test_a_pod_that_ends_waits_for_containers_then_for_volumes_then_for_its_removal() -> None:
    status = {"phase": "Running", "containerStatuses": READY_PAIR}
    ending = {"state": "terminating", "grace_seconds": 30}
    runtime = {"containers": [{"name": "a", "state": "RUNNING"}, {"name": "b", "state": "EXITED"}]}
    assert row(status, admitted=ending, runtime=runtime) == ("Terminating", "the end of a (grace period 30 s)")
    volumes = {"volumes": {"v": {"state": "unmounting"}}}
    assert row(status, admitted={"state": "terminated"}, volumes=volumes)[1] == "the unmounting of v"
    assert row(status, admitted={"state": "terminated"})[1] == "its removal"


def test_without_podsync_a_row_shows_what_the_runtime_has() -> None:
    runtime = {"name": "web", "namespace": "shop", "containers": [{"name": "a", "state": "RUNNING"}]}
    found = pod_row(PodFacts(uid="u", runtime=runtime, status_known=False))
    assert (found.namespace, found.name, found.source, found.state, found.ready) == (
        "shop",
        "web",
        "runtime",
        "Running",
        1,
    )
    unknown = pod_row(PodFacts(uid="u", desired={"pod": POD}, status_known=False))
    assert (unknown.state, unknown.waits_for) == ("Unknown", "podsync, which does not answer")


def test_without_podsync_the_restarts_are_those_of_the_newest_instances() -> None:
    instances = [
        {"name": "a", "state": "RUNNING", "restart_count": 3},
        {"name": "a", "state": "EXITED", "restart_count": 2},
        {"name": "b", "state": "RUNNING"},
        {"name": "init", "state": "EXITED", "restart_count": 1},
    ]
    runtime = {"name": "web", "namespace": "shop", "containers": instances}
    assert pod_row(PodFacts(uid="u", runtime=runtime, status_known=False)).restarts == 4


def test_text_of_a_pod_is_one_line_without_control_characters_and_bounded() -> None:
    assert one_line("a\n b\x1b[31m\ud800") == "a b\\x1b[31m\\ud800"
    assert len(one_line("x" * 10_000)) == 300
