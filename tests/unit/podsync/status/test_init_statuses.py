"""The statuses of init containers and sidecars, by hand from pods.md 9.2, 5.7, 7.1."""

import pytest

from services.podsync.core.pod.observed_in_runtime import Observed
from shared.model.frozen_copy import replace
from shared.model.probes import ProbeResult
from tests.unit.podsync.status.status_shapes import (
    a_record,
    a_sandbox,
    instance,
    probed,
    see,
    shown,
    sidecar,
    spec,
    status_now,
    waits,
)

LOST = "The container could not be located when the pod was deleted.  The container used to be Running"
UNSEEN = (
    "Unable to get init container status from container runtime and pod has been initialized, "
    "treat it as exited normally"
)
PROBE = {"exec": {"command": ["true"]}}
PURGED = "The container is removed because RestartAllContainers in place"
RULES = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}]


def names(status: dict, field: str) -> list[str]:  # type: ignore[type-arg]
    return [s["name"] for s in status.get(field) or ()]


class TestBeforeTheFirstStart:
    def test_every_container_has_a_status_from_the_first_on(self) -> None:
        status = status_now(a_record(spec("c"), init=(spec("i"), sidecar("s"))))
        assert names(status, "initContainerStatuses") == ["i", "s"]
        assert names(status, "containerStatuses") == ["c"]

    def test_init_containers_are_in_the_order_of_the_spec_and_regular_ones_by_name(self) -> None:
        status = status_now(a_record(spec("z"), spec("a"), init=(spec("z-first"), spec("a-second"))))
        assert names(status, "initContainerStatuses") == ["z-first", "a-second"]
        assert names(status, "containerStatuses") == ["a", "z"]

    def test_all_wait_for_the_pod_to_initialise(self) -> None:
        status = status_now(a_record(spec("c"), init=(spec("i"), sidecar("s"))))
        for name in ("c", "i", "s"):
            assert shown(status, name)["state"] == {"waiting": {"reason": "PodInitializing"}}, name

    def test_the_second_one_waits_for_the_pod_to_initialise_until_it_runs(self) -> None:
        first, record = instance("a", "EXITED"), a_record(spec("c"), init=(spec("a"), spec("b")))
        for second in ([], [instance("b", "CREATED")]):
            status = status_now(see(record, first, *second))
            assert shown(status, "b")["state"] == {"waiting": {"reason": "PodInitializing"}}
        assert "running" in shown(status_now(see(record, first, instance("b"))), "b")["state"]

    def test_without_init_containers_a_container_is_being_created(self) -> None:
        status = status_now(a_record(spec("c")))
        assert shown(status, "c")["state"] == {"waiting": {"reason": "ContainerCreating"}}
        assert "initContainerStatuses" not in status

    def test_a_status_whole(self) -> None:
        assert shown(status_now(a_record(spec("c"), init=(spec("i"),))), "i") == {
            "name": "i",
            "image": "i:1",
            "imageID": "",
            "state": {"waiting": {"reason": "PodInitializing"}},
            "lastState": {},
            "ready": False,
            "started": False,
            "restartCount": 0,
        }


class TestPlainInitContainers:
    def test_one_that_runs_has_started_and_is_not_ready(self) -> None:
        shows = shown(status_now(see(a_record(spec("c"), init=(spec("i"),)), instance("i"))), "i")
        assert shows["state"] == {"running": {"startedAt": "2023-11-14T22:13:20Z"}}
        assert (shows["ready"], shows["started"]) == (False, True)

    def test_one_that_has_done_its_work_is_ready_and_not_started(self) -> None:
        shows = shown(status_now(see(a_record(spec("c"), init=(spec("i"),)), instance("i", "EXITED"))), "i")
        assert shows["state"]["terminated"] == {
            "exitCode": 0,
            "reason": "Completed",
            "startedAt": "2023-11-14T22:13:20Z",
            "finishedAt": "2023-11-14T22:13:25Z",
            "containerID": "containerd://i-0",
        }
        assert (shows["ready"], shows["started"]) == (True, False)
        assert (shows["image"], shows["imageID"]) == ("docker.io/library/i:1", "sha256:i")

    def test_one_that_failed_and_waits_shows_both(self) -> None:
        record = see(a_record(spec("c"), init=(spec("i"),)), instance("i", "EXITED", code=3))
        waits(record, "i", "CrashLoopBackOff", "back-off 10s")
        shows = shown(status_now(record), "i")
        assert shows["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
        assert shows["lastState"]["terminated"]["exitCode"] == 3

    def test_one_that_succeeded_waits_for_nothing(self) -> None:
        record = see(a_record(spec("c"), init=(spec("i"),)), instance("i", "EXITED"))
        waits(record, "i", "CrashLoopBackOff", "of an earlier failure")
        shows = shown(status_now(record), "i")
        assert "terminated" in shows["state"] and shows["ready"] is True

    def test_one_that_will_not_be_tried_again_keeps_its_end(self) -> None:
        record = see(a_record(spec("c"), init=(spec("i"),), policy="Never"), instance("i", "EXITED", code=3))
        waits(record, "i", "CrashLoopBackOff", "b")
        shows = shown(status_now(record), "i")
        assert "terminated" in shows["state"] and shows["ready"] is False

    def test_two_runs_show_the_newest_and_the_one_before(self) -> None:
        runs = instance("i", "EXITED", code=3), instance("i", "RUNNING", attempt=1)
        shows = shown(status_now(see(a_record(spec("c"), init=(spec("i"),)), *runs)), "i")
        assert shows["containerID"] == "containerd://i-1"
        assert (shows["restartCount"], shows["lastState"]["terminated"]["exitCode"]) == (1, 3)


class TestLostInitContainers:
    def test_one_the_runtime_has_lost_has_done_its_work_where_the_containers_after_it_are_there(self) -> None:
        record = see(a_record(spec("c"), init=(spec("i"),)), instance("c"))
        shows = shown(status_now(record), "i")
        assert shows["state"]["terminated"] == {
            "exitCode": 0,
            "reason": "Completed",
            "message": UNSEEN,
            "startedAt": None,
            "finishedAt": None,
        }
        assert shows["ready"] is True

    @pytest.mark.parametrize(("state", "done"), [("CREATED", True), ("EXITED", True), ("UNKNOWN", False)])
    def test_a_container_after_it_counts_where_the_runtime_knows_its_state(self, state: str, done: bool) -> None:
        shows = shown(status_now(see(a_record(spec("c"), init=(spec("i"),)), instance("c", state))), "i")
        assert ("terminated" in shows["state"]) is done

    def test_what_it_showed_of_its_end_stays(self) -> None:
        record = see(a_record(spec("c"), init=(spec("i"),)), instance("i", "EXITED"))
        before = shown(status_now(record), "i")
        assert shown(status_now(see(record, instance("c"))), "i") == before

    def test_a_sidecar_that_is_gone_is_not_taken_for_done(self) -> None:
        record = see(a_record(spec("c"), init=(sidecar("s"),)), instance("c"))
        assert shown(status_now(record), "s")["state"] == {"waiting": {"reason": "PodInitializing"}}

    def test_a_container_of_an_older_sandbox_does_not_count_for_the_init_containers_of_this_one(self) -> None:
        record = a_record(spec("c"), init=(spec("i"),))
        sandboxes = (a_sandbox("s2", attempt=1), a_sandbox("s1", ready=False))
        see(record, instance("c", "EXITED", code=137), sandboxes=sandboxes)
        assert shown(status_now(record), "i")["state"] == {"waiting": {"reason": "PodInitializing"}}

    def test_one_that_vanished_while_it_ran_is_not_pending_again(self) -> None:
        record = see(a_record(spec("c"), init=(spec("i"),)), instance("i"))
        status_now(record)
        shows = shown(status_now(see(record)), "i")
        assert shows["state"] == {"waiting": {"reason": "PodInitializing"}}
        assert shows["lastState"]["terminated"]["message"] == LOST
        assert shows["restartCount"] == 1


class TestSidecars:
    def test_one_without_probes_is_started_and_ready_once_it_runs(self) -> None:
        shows = shown(status_now(see(a_record(spec("c"), init=(sidecar("s"),)), instance("s"))), "s")
        assert (shows["started"], shows["ready"]) == (True, True)

    def test_one_with_a_startup_probe_waits_for_it(self) -> None:
        record = see(a_record(spec("c"), init=(sidecar("s", startupProbe=PROBE),)), instance("s"))
        assert shown(status_now(record), "s")["started"] is False
        probed(record, "s", startup=ProbeResult.SUCCESS)
        shows = shown(status_now(record), "s")
        assert (shows["started"], shows["ready"]) == (True, True)

    def test_readiness_follows_its_readiness_probe(self) -> None:
        record = see(a_record(spec("c"), init=(sidecar("s", readinessProbe=PROBE),)), instance("s"))
        shows = shown(status_now(record), "s")
        assert (shows["started"], shows["ready"]) == (True, False)
        probed(record, "s", readiness=ProbeResult.SUCCESS)
        assert shown(status_now(record), "s")["ready"] is True

    def test_one_that_has_ended_is_neither(self) -> None:
        shows = shown(status_now(see(a_record(spec("c"), init=(sidecar("s"),)), instance("s", "EXITED"))), "s")
        assert (shows["started"], shows["ready"]) == (False, False)

    def test_one_that_ended_well_waits_for_its_next_start_like_any(self) -> None:
        record = see(a_record(spec("c"), init=(sidecar("s"),), policy="Never"), instance("s", "EXITED"))
        waits(record, "s", "CrashLoopBackOff", "b")
        assert shown(status_now(record), "s")["state"]["waiting"]["reason"] == "CrashLoopBackOff"


class TestAllRestart:
    def test_a_removed_one_has_its_reason_and_counts_as_a_restart(self) -> None:
        record = a_record(spec("c", restartPolicy="Never", restartPolicyRules=RULES), init=(spec("i"),), policy="Never")
        see(record, instance("i", "EXITED"), instance("c", "EXITED", code=88))
        status_now(record)
        record.saved = replace(record.saved, restarting_all=True)
        see(record, instance("c", "EXITED", code=88))
        status = status_now(record)
        shows = shown(status, "i")
        assert shows["state"] == {"waiting": {"reason": "RestartingAllContainers", "message": PURGED}}
        assert shows["lastState"]["terminated"]["exitCode"] == 137
        assert shows["lastState"]["terminated"]["reason"] == "RestartingAllContainers"
        assert shows["lastState"]["terminated"]["message"] == PURGED
        assert (shows["restartCount"], shows["ready"]) == (1, False)
        assert "containerID" not in shows
        assert "terminated" in shown(status, "c")["state"]

    def test_it_is_counted_once_and_the_next_run_goes_on_counting(self) -> None:
        record = a_record(spec("c", restartPolicy="Never", restartPolicyRules=RULES), policy="Never")
        see(record, instance("c", "EXITED", code=88))
        status_now(record)
        record.saved = replace(record.saved, restarting_all=True)
        see(record)
        first = status_now(record)
        assert status_now(record)["containerStatuses"] == first["containerStatuses"]
        record.saved = replace(record.saved, restarting_all=False)
        again = shown(status_now(record), "c")
        assert (again["restartCount"], again["state"]) == (1, {"waiting": {"reason": "ContainerCreating"}})
        runs = shown(status_now(see(record, instance("c", attempt=1))), "c")
        assert (runs["restartCount"], runs["ready"]) == (1, True)
        for shows in (again, runs):
            assert shows["lastState"]["terminated"]["reason"] == "RestartingAllContainers"

    def test_what_never_ran_was_not_taken_away(self) -> None:
        record = a_record(spec("c", restartPolicy="Never", restartPolicyRules=RULES), init=(spec("i"),), policy="Never")
        status_now(see(record, instance("i", "EXITED", code=88)))
        record.saved = replace(record.saved, restarting_all=True)
        shows = shown(status_now(see(record, instance("i", "EXITED", code=88))), "c")
        assert (shows["state"], shows["restartCount"]) == ({"waiting": {"reason": "PodInitializing"}}, 0)


def test_nothing_changes_before_a_restarted_podsync_has_observed_the_pod() -> None:
    record = see(a_record(spec("c"), init=(spec("i"), sidecar("s"))), *map(instance, ("s", "c")))
    before = status_now(record)
    record.observed = Observed()
    record.restored = True
    assert status_now(record, now=1_800_000_000.0) == before
