"""The statuses of ephemeral containers, by hand from pods.md 9.2, F.14, F.18."""

from services.podsync.core.pod.api_baseline import valid_status
from shared.model.frozen_copy import replace
from tests.unit.podsync.status.status_shapes import a_record, instance, see, shown, spec, status_now, waits

DEBUG = spec("debug")


def test_one_that_was_not_started_yet() -> None:
    status = status_now(see(a_record(spec("c"), ephemeral=(DEBUG,)), instance("c")))
    assert shown(status, "debug") == {
        "name": "debug",
        "image": "debug:1",
        "imageID": "",
        "state": {"waiting": {"reason": "ContainerCreating"}},
        "lastState": {},
        "ready": False,
        "restartCount": 0,
    }


def test_in_a_pod_with_init_containers_it_waits_for_the_pod_to_initialise() -> None:
    status = status_now(a_record(spec("c"), init=(spec("i"),), ephemeral=(DEBUG,)))
    assert shown(status, "debug")["state"] == {"waiting": {"reason": "PodInitializing"}}


def test_they_are_in_the_order_of_their_names() -> None:
    status = status_now(a_record(spec("c"), ephemeral=(spec("z"), spec("a"))))
    assert [s["name"] for s in status["ephemeralContainerStatuses"]] == ["a", "z"]


def test_one_that_runs_is_never_ready_and_has_no_started() -> None:
    shows = shown(status_now(see(a_record(spec("c"), ephemeral=(DEBUG,)), instance("c"), instance("debug"))), "debug")
    assert "running" in shows["state"]
    assert shows["ready"] is False
    assert "started" not in shows
    assert shows["containerID"] == "containerd://debug-0"


def test_one_that_has_ended_keeps_its_end() -> None:
    record = see(a_record(spec("c"), ephemeral=(DEBUG,)), instance("c"), instance("debug", "EXITED", code=2))
    waits(record, "debug", "CrashLoopBackOff", "never")
    shows = shown(status_now(record), "debug")
    assert shows["state"]["terminated"]["exitCode"] == 2
    assert "started" not in shows


def test_one_whose_image_cannot_be_pulled_shows_it() -> None:
    record = see(a_record(spec("c"), ephemeral=(DEBUG,)), instance("c"))
    waits(record, "debug", "ErrImagePull", "not found")
    shows = shown(status_now(record), "debug")
    assert shows["state"] == {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    assert "started" not in shows


def test_one_that_could_not_be_started_shows_it() -> None:
    failed = instance("debug", "EXITED", code=128, started_at=0, reason="StartError")
    record = see(a_record(spec("c"), ephemeral=(DEBUG,)), instance("c"), failed)
    waits(record, "debug", "RunContainerError", "no such file")
    shows = shown(status_now(record), "debug")
    assert shows["state"]["waiting"]["reason"] == "RunContainerError"
    assert shows["lastState"]["terminated"]["exitCode"] == 128


def test_it_counts_neither_for_the_phase_nor_for_the_conditions() -> None:
    record = see(a_record(spec("c"), ephemeral=(DEBUG,)), instance("c"), instance("debug", "EXITED", code=1))
    status = status_now(record)
    assert status["phase"] == "Running"
    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "True"


def test_a_pod_without_any_has_no_list() -> None:
    assert "ephemeralContainerStatuses" not in status_now(a_record(spec("c")))


def test_going_on_from_the_api_servers_status_adds_no_started() -> None:
    given = {"ephemeralContainerStatuses": [{"name": "debug", "state": {"running": {}}}]}
    record = a_record(spec("c"), ephemeral=(DEBUG,), status=valid_status(given))
    record.observed = replace(record.observed, is_current=False)
    assert "started" not in shown(status_now(record), "debug")


def test_a_lost_one_is_shown_as_lost_and_not_started_again() -> None:
    record = see(a_record(spec("c"), ephemeral=(DEBUG,)), instance("c"), instance("debug"))
    status_now(record)
    shows = shown(status_now(see(record, instance("c"))), "debug")
    assert shows["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
