"""The status of one container from start to end, by hand from pods.md 9.2, 9.3, 7.1."""

from typing import Any

import pytest

from bus.messages.pleg import ProbeResults, RuntimeHandler
from services.podsync.core.pod.progress import InstanceFacts
from services.podsync.core.pod.saved import SavedContainer
from shared.model.frozen_copy import replace
from shared.model.probes import ProbeResult
from shared.model.runtime import Container
from tests.unit.podsync.status.status_shapes import (
    a_record,
    a_sandbox,
    instance,
    probed,
    see,
    shown,
    spec,
    status_now,
    waits,
)

PROBE = {"exec": {"command": ["true"]}}
NOT_FOUND = "The container could not be located when the pod was "


def of(record: Any, name: str = "c") -> dict[str, Any]:
    return shown(status_now(record), name)


class TestStates:
    @pytest.mark.parametrize(
        ("state", "shows"),
        [
            ("RUNNING", {"running": {"startedAt": "2023-11-14T22:13:20Z"}}),
            ("UNKNOWN", {"waiting": {}}),
        ],
    )
    def test_the_state_of_the_runtime(self, state: str, shows: dict[str, Any]) -> None:
        assert of(see(a_record(spec("c")), instance("c", state)))["state"] == shows

    @pytest.mark.parametrize(
        "waiting", [{"reason": "ContainerCreating"}, {"reason": "RunContainerError", "message": "no such file"}]
    )
    def test_one_that_is_created_keeps_the_reason_that_it_waits_for(self, waiting: dict[str, Any]) -> None:
        shown_before = {"containerStatuses": [{"name": "c", "state": {"waiting": waiting}, "lastState": {}}]}
        record = see(a_record(spec("c"), status=shown_before), instance("c", "CREATED"))
        assert of(record)["state"] == {"waiting": waiting}
        assert "running" in of(see(record, instance("c")))["state"]

    def test_one_that_is_created_after_a_run_waits_to_be_created(self) -> None:
        record = see(a_record(spec("c")), instance("c", "EXITED", code=7))
        status_now(record)
        shows = of(see(record, instance("c", "EXITED", code=7), instance("c", "CREATED", attempt=1)))
        assert shows["state"] == {"waiting": {"reason": "ContainerCreating"}}
        assert (shows["lastState"]["terminated"]["exitCode"], shows["restartCount"]) == (7, 1)

    @pytest.mark.parametrize(("code", "reason"), [(0, "Completed"), (1, "Error"), (137, "OOMKilled")])
    def test_the_reason_of_an_end_is_the_runtimes(self, code: int, reason: str) -> None:
        ended = of(see(a_record(spec("c")), instance("c", "EXITED", code=code, reason=reason)))["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (code, reason)
        assert "message" not in ended

    def test_a_running_one_that_is_not_known_any_more_has_ended(self) -> None:
        record = see(a_record(spec("c")), instance("c"))
        status_now(record)
        shows = of(see(record, instance("c", "UNKNOWN")))
        assert shows["state"]["terminated"]["message"] == NOT_FOUND + "terminated"
        assert (shows["state"]["terminated"]["exitCode"], shows["restartCount"]) == (137, 1)
        assert of(record) == shows  # once shown, it stays

    def test_one_that_vanished_while_it_ran(self) -> None:
        record = see(a_record(spec("c")), instance("c"))
        status_now(record)
        shows = of(see(record))
        assert shows["state"] == {"waiting": {"reason": "ContainerCreating"}}
        assert shows["lastState"]["terminated"]["message"] == (NOT_FOUND + "deleted.  The container used to be Running")
        assert shows["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
        assert shows["restartCount"] == 1
        assert of(record)["restartCount"] == 1

    def test_one_that_vanished_while_it_ran_again_keeps_the_end_of_the_run_before(self) -> None:
        record = see(a_record(spec("c")), instance("c", "EXITED", code=7), instance("c", attempt=1))
        before = of(record)
        shows = of(see(record))
        assert shows["state"] == {"waiting": {"reason": "ContainerCreating"}}
        assert (shows["lastState"], shows["restartCount"]) == (before["lastState"], 1)

    def test_one_that_vanished_from_a_pod_that_is_deleted_was_not_restarted(self) -> None:
        record = see(a_record(spec("c")), instance("c"))
        status_now(record)
        record.saved = replace(record.saved, deleted=True)
        assert of(see(record))["restartCount"] == 0

    def test_an_end_stays_when_the_instance_goes(self) -> None:
        record = see(a_record(spec("c"), policy="Never"), instance("c", "EXITED", code=4))
        before = of(record)
        assert of(see(record)) == before


class TestCounts:
    def test_the_count_is_the_instances_and_never_falls(self) -> None:
        record = see(a_record(spec("c")), instance("c", attempt=3))
        assert of(record)["restartCount"] == 3
        assert of(see(record, instance("c", attempt=3, restart_count=1)))["restartCount"] == 3

    @pytest.mark.parametrize("on_the_way", [(), (instance("c", "CREATED", attempt=1, restart_count=0),)])
    def test_a_run_after_a_shown_end_counts_though_the_runtime_has_lost_the_number(self, on_the_way: Any) -> None:
        record = see(a_record(spec("c")), instance("c", "EXITED", code=7, restart_count=4))
        assert of(record)["restartCount"] == 4
        for created in on_the_way:
            of(see(record, created))
        for _ in range(2):
            assert of(see(record, instance("c", attempt=1, restart_count=0)))["restartCount"] == 5

    def test_the_last_state_is_that_of_the_run_before(self) -> None:
        record = see(a_record(spec("c")), instance("c", "EXITED", code=7), instance("c", attempt=1))
        assert of(record)["lastState"]["terminated"]["exitCode"] == 7

    def test_where_that_run_is_removed_its_published_state_stays(self) -> None:
        record = see(a_record(spec("c")), instance("c", "EXITED", code=7))
        status_now(record)
        for _ in range(2):
            assert of(see(record, instance("c", attempt=1)))["lastState"]["terminated"]["exitCode"] == 7


class TestWaitingReasons:
    def test_the_reason_moves_the_end_to_the_last_state(self) -> None:
        record = see(a_record(spec("c")), instance("c", "EXITED", code=7))
        waits(record, "c", "CrashLoopBackOff", "back-off 10s restarting failed container=c pod=web_default(u1)")
        shows = of(record)
        assert shows["state"]["waiting"]["message"].startswith("back-off 10s")
        assert shows["lastState"]["terminated"]["exitCode"] == 7

    @pytest.mark.parametrize(("policy", "code"), [("Never", 0), ("Never", 1), ("OnFailure", 0)])
    def test_one_that_will_not_start_again_keeps_its_end(self, policy: str, code: int) -> None:
        record = see(a_record(spec("c"), policy=policy), instance("c", "EXITED", code=code))
        waits(record, "c", "CrashLoopBackOff", "")
        assert "terminated" in of(record)["state"]

    @pytest.mark.parametrize(
        ("found", "deleted", "state"),
        [(instance("c"), False, "running"), (instance("c", "EXITED", code=1), True, "terminated")],
        ids=["it runs", "its pod is deleted"],
    )
    def test_one_that_runs_or_whose_pod_is_deleted_waits_for_nothing(
        self, found: Container, deleted: bool, state: str
    ) -> None:
        record = see(a_record(spec("c")), found)
        record.saved.pod["metadata"] |= {"deletionTimestamp": "2030-01-01T00:00:00Z"} if deleted else {}
        waits(record, "c", "ErrImagePull", "of before")
        assert state in of(record)["state"]

    def test_one_that_never_started(self) -> None:
        record = a_record(spec("c"))
        waits(record, "c", "ErrImagePull", "not found")
        shows = of(record)
        assert shows["state"] == {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
        assert (shows["image"], shows["imageID"]) == ("c:1", "")
        assert "containerID" not in shows


class TestReplaced:
    @pytest.mark.parametrize(("policy", "state"), [("Never", "waiting"), ("Always", "terminated")])
    def test_one_we_ended_to_start_another_shows_no_end_it_could_not_leave(self, policy: str, state: str) -> None:
        record = see(a_record(spec("c"), policy=policy), instance("c", "EXITED", code=137))
        record.saved = replace(record.saved, containers={"c": SavedContainer(replacing="c-0")})
        shows = of(record)
        assert list(shows["state"]) == [state]
        if state == "waiting":
            assert shows["state"]["waiting"] == {"reason": "ContainerCreating"}
            assert shows["lastState"]["terminated"]["exitCode"] == 137


class TestStartedAndReady:
    @pytest.mark.parametrize("state", ["RUNNING", "CREATED", "EXITED", "UNKNOWN"])
    def test_without_probes_one_that_runs_is_both_and_any_other_neither(self, state: str) -> None:
        shows = of(see(a_record(spec("c")), instance("c", state)))
        assert (shows["started"], shows["ready"]) == (state == "RUNNING",) * 2

    @pytest.mark.parametrize(
        ("found", "started", "ready"),
        [
            ({}, False, False),
            ({"startup": "failure"}, False, False),
            ({"startup": "success"}, True, False),
            ({"startup": "success", "readiness": "failure"}, True, False),
            ({"startup": "success", "readiness": "success"}, True, True),
            ({"readiness": "success"}, False, False),
        ],
    )
    def test_by_its_probes(self, found: dict[str, str], started: bool, ready: bool) -> None:
        record = see(a_record(spec("c", startupProbe=PROBE, readinessProbe=PROBE)), instance("c"))
        probed(record, "c", **{kind: ProbeResult(result) for kind, result in found.items()})
        shows = of(record)
        assert (shows["started"], shows["ready"]) == (started, ready)

    def test_what_was_shown_of_the_same_instance_holds_until_there_is_a_result(self) -> None:
        record = see(a_record(spec("c", startupProbe=PROBE, readinessProbe=PROBE)), instance("c"))
        record.instance_facts = {
            "c-0": InstanceFacts(
                probes=ProbeResults(
                    pod_uid="u1", container="c", startup=ProbeResult.SUCCESS, readiness=ProbeResult.SUCCESS
                )
            )
        }
        before = of(record)
        record.instance_facts = {}
        assert of(record) == before
        shows = of(see(record, instance("c", attempt=1)))
        assert (shows["started"], shows["ready"]) == (False, False)


class TestTerminationMessages:
    def test_the_runtimes_words_come_before_the_files(self) -> None:
        record = see(a_record(spec("c")), instance("c", "EXITED", message="oom", termination_message="bye"))
        assert of(record)["state"]["terminated"]["message"] == "oom: bye"

    def test_what_was_read_once_stays_when_the_file_goes(self) -> None:
        record = see(a_record(spec("c"), policy="Never"), instance("c", "EXITED", termination_message="bye"))
        status_now(record)
        assert of(see(record, instance("c", "EXITED")))["state"]["terminated"]["message"] == "bye"

    def test_so_does_that_of_one_that_waits_for_a_restart(self) -> None:
        record = see(a_record(spec("c")), instance("c", "EXITED", code=1, termination_message="bye"))
        waits(record, "c", "CrashLoopBackOff", "")
        status_now(record)
        assert of(see(record, instance("c", "EXITED", code=1)))["lastState"]["terminated"]["message"] == "bye"

    def test_all_containers_together_have_12288_bytes(self) -> None:
        long = "x" * 4096
        every = [spec(f"c{i}") for i in range(6)]
        record = see(
            a_record(*every[:4], init=(every[4],), ephemeral=(every[5],), policy="Never"),
            *(instance(c["name"], "EXITED", termination_message=long) for c in every),
        )
        status = status_now(record)
        for container in every:
            assert len(shown(status, container["name"])["state"]["terminated"]["message"]) == 2048

    def test_three_containers_keep_all_of_4096_bytes(self) -> None:
        every = [spec(f"c{i}") for i in range(3)]
        ends = [instance(c["name"], "EXITED", termination_message="x" * 4096) for c in every]
        assert len(of(see(a_record(*every, policy="Never"), *ends), "c0")["state"]["terminated"]["message"]) == 4096

    def test_it_is_cut_between_characters_by_bytes_and_in_the_last_state_too(self) -> None:
        every = [spec(f"c{i}") for i in range(5)]
        ends = [instance(c["name"], "EXITED", code=1, termination_message="é" * 2000) for c in every]
        record = see(a_record(*every), *ends, instance("c0", attempt=1))
        status = status_now(record)
        limit = 12288 // 5
        cut = shown(status, "c1")["state"]["terminated"]["message"]
        assert limit - 2 < len(cut.encode()) <= limit
        assert shown(status, "c0")["lastState"]["terminated"]["message"] == cut


class TestSpecParts:
    def test_mounts(self) -> None:
        mounts = [
            {"name": "data", "mountPath": "/data"},
            {"name": "image", "mountPath": "/img", "subPath": "a"},
            {"name": "ro", "mountPath": "/ro", "readOnly": True},
            {"name": "deep", "mountPath": "/deep", "readOnly": True, "recursiveReadOnly": "Enabled"},
            {"name": "off", "mountPath": "/off", "readOnly": True, "recursiveReadOnly": "Disabled"},
        ]
        assert of(a_record(spec("c", volumeMounts=mounts)))["volumeMounts"] == [
            {"name": "data", "mountPath": "/data"},
            {"name": "image", "mountPath": "/img"},
            {"name": "ro", "mountPath": "/ro", "readOnly": True, "recursiveReadOnly": "Disabled"},
            {"name": "deep", "mountPath": "/deep", "readOnly": True, "recursiveReadOnly": "Enabled"},
            {"name": "off", "mountPath": "/off", "readOnly": True, "recursiveReadOnly": "Disabled"},
        ]

    @pytest.mark.parametrize("handler", ["", "kata"])
    def test_a_mount_that_is_recursive_where_possible_shows_whether_it_is(self, handler: str) -> None:
        mounts = [{"name": "v", "mountPath": "/v", "readOnly": True, "recursiveReadOnly": "IfPossible"}]
        record = a_record(spec("c", volumeMounts=mounts), more={"runtimeClassName": handler} if handler else {})
        sandbox = replace(a_sandbox(), runtime_handler=handler)
        see(record, instance("c"), sandboxes=(sandbox,))
        for supports, shows in ((True, "Enabled"), (False, "Disabled")):
            handlers = (RuntimeHandler(name=handler, recursive_read_only_mounts=supports), RuntimeHandler(name="other"))
            [mount] = shown(status_now(record, handlers=handlers), "c")["volumeMounts"]
            assert mount["recursiveReadOnly"] == shows
        assert of(record)["volumeMounts"][0]["recursiveReadOnly"] == "Disabled"  # handlers are not reported

    def test_resources_once_there_is_an_instance(self) -> None:
        given = {"requests": {"cpu": "0.25", "memory": "64Mi"}, "limits": {"cpu": "1000m"}}
        record = a_record(spec("c", resources=given), spec("d"))
        assert "resources" not in of(record)
        see(record, instance("c"), instance("d"))
        shows = of(record)
        assert shows["resources"] == {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"cpu": "1"}}
        assert shows["allocatedResources"] == {"cpu": "250m", "memory": "64Mi"}
        assert of(record, "d")["resources"] == {}
        assert "allocatedResources" not in of(record, "d")

    def test_the_user_where_the_runtime_reports_it(self) -> None:
        shows = of(see(a_record(spec("c")), instance("c", user=(1000, 2000, (2000, 3000)))))
        assert shows["user"] == {"linux": {"uid": 1000, "gid": 2000, "supplementalGroups": [2000, 3000]}}
