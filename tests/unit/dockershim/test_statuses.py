"""Docker's answers as CRI's statuses."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cri_api.v1 import api_pb2

from services.dockershim.adapters.statuses import container_status, nanoseconds_of

CREATED = "2026-11-29T11:52:57.123456789Z"
IMAGE = {"Id": "sha256:1", "RepoTags": ["busybox:1"], "RepoDigests": ["busybox@sha256:2"]}


@pytest.mark.parametrize(
    ("text", "offset", "nanoseconds"),
    [
        ("2026-11-29T11:52:57Z", 0, 0),
        ("2026-11-29T11:52:57.5Z", 0, 500_000_000),
        (CREATED, 0, 123_456_789),
        ("2026-11-29T13:52:57.25+02:00", 0, 250_000_000),
        ("2026-11-29T09:22:57.000000001-02:30", 0, 1),
        ("2026-11-29T13:52:57+02:00", 0, 0),
    ],
)
def test_times_of_docker(text: str, offset: int, nanoseconds: int) -> None:
    moment = datetime(2026, 11, 29, 11, 52, 57, tzinfo=UTC) + timedelta(seconds=offset)
    assert nanoseconds_of(text) == int(moment.timestamp()) * 10**9 + nanoseconds


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "", "soon", "2026-13-01T00:00:00Z", "2026-11-29T11:52:57.xZ"])
def test_no_time_is_zero(text: str) -> None:
    assert nanoseconds_of(text) == 0


def inspected(**state: Any) -> dict[str, Any]:
    known = {
        "Status": "exited", "Running": False, "ExitCode": 0, "Error": "", "OOMKilled": False, "Pid": 0,
        "StartedAt": CREATED, "FinishedAt": CREATED,
    }  # fmt: skip
    return {
        "Id": "1",
        "Name": "/k8s_c_web_default_u-1_3",
        "Created": CREATED,
        "Image": "sha256:1",
        "Config": {
            "Image": "sha256:1",
            "Labels": {"io.kubernetes.container.logpath": "/l", "a": "b", "io.bulkhead.labels": "a"},
        },
        "Mounts": [],
        "State": {**known, **state},
    }


ZERO = "0001-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("state", "number", "reason"),
    [
        ({"Status": "created", "StartedAt": ZERO, "FinishedAt": ZERO}, api_pb2.CONTAINER_CREATED, ""),
        ({"Status": "running", "Running": True, "FinishedAt": ZERO}, api_pb2.CONTAINER_RUNNING, ""),
        ({"Status": "paused", "Running": True, "FinishedAt": ZERO}, api_pb2.CONTAINER_RUNNING, ""),
        ({}, api_pb2.CONTAINER_EXITED, "Completed"),
        ({"ExitCode": 3}, api_pb2.CONTAINER_EXITED, "Error"),
        ({"ExitCode": 137, "OOMKilled": True}, api_pb2.CONTAINER_EXITED, "OOMKilled"),
        (
            {"Status": "created", "ExitCode": 127, "Error": "no such file", "StartedAt": ZERO, "FinishedAt": ZERO},
            api_pb2.CONTAINER_EXITED,
            "ContainerCannotRun",
        ),
    ],
)
def test_the_state_of_a_container_and_the_reason_of_its_end(state: dict[str, Any], number: int, reason: str) -> None:
    status = container_status(inspected(**state), IMAGE)
    assert (status.state, status.reason, status.message) == (number, reason, state.get("Error", ""))
    assert (status.metadata.name, status.metadata.attempt, status.log_path) == ("c", 3, "/l")
    assert dict(status.labels) == {"a": "b"} and status.image_ref == "busybox@sha256:2"
    if number == api_pb2.CONTAINER_EXITED:
        assert status.exit_code == state.get("ExitCode", 0) and status.finished_at == nanoseconds_of(CREATED)


def test_a_container_of_somebody_else_has_no_status() -> None:
    assert container_status({**inspected(), "Name": "/mine"}, IMAGE) is None


@pytest.mark.parametrize(
    ("image", "shown", "reference"),
    [
        ({"RepoTags": ["web:1", "web:2"], "RepoDigests": ["web@sha256:2"]}, "web:1", "web@sha256:2"),
        ({"RepoTags": ["<none>:<none>"], "RepoDigests": ["<none>@<none>"]}, "sha256:1", "sha256:1"),
        ({"RepoTags": None, "RepoDigests": None}, "sha256:1", "sha256:1"),
        ({}, "sha256:1", "sha256:1"),
    ],
)
def test_a_container_shows_the_name_of_its_image_and_not_the_id_it_was_made_from(
    image: dict[str, Any], shown: str, reference: str
) -> None:
    status = container_status(inspected(), image)
    assert (status.image.image, status.image_ref, status.image_id) == (shown, reference, "sha256:1")
