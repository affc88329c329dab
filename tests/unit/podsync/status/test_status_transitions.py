"""What may be shown of a change, and the containers of a pod that is over, by hand from pods.md 9.5, 9.6."""

from typing import Any

import pytest

from bus.messages.podsync import PodState
from services.podsync.core.pod.saved import SavedContainer
from services.podsync.core.status.status_transitions import illegally_restarted, withheld
from shared.model.frozen_copy import replace
from shared.model.runtime import Container
from tests.unit.podsync.status.status_shapes import (
    ChangingRecord,
    a_record,
    ended,
    instance,
    running,
    see,
    shown,
    sidecar,
    spec,
    status_now,
    waiting,
)

Json = dict[str, Any]
RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
ALL = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}
LOST = "The container could not be located when the pod was terminated"


class TestRevived:
    @pytest.mark.parametrize(
        ("policy", "container", "code", "legal"),
        [
            ("Always", spec("c"), 0, True),
            ("OnFailure", spec("c"), 1, True),
            ("OnFailure", spec("c"), 0, False),
            ("Never", spec("c"), 1, False),
            ("Never", spec("c"), 0, False),
            ("Never", spec("c", restartPolicy="Always"), 0, True),
            ("Never", spec("c", restartPolicy="Never", restartPolicyRules=[RULE]), 42, True),
            ("Never", spec("c", restartPolicy="Never", restartPolicyRules=[RULE]), 1, False),
            ("Never", spec("c", restartPolicy="Never", restartPolicyRules=[ALL]), 1, True),
        ],
    )
    def test_a_regular_container(self, policy: str, container: Json, code: int, legal: bool) -> None:
        record = a_record(container, policy=policy, status={"containerStatuses": [ended("c", code)]})
        for now in (running("c"), waiting("c")):
            assert illegally_restarted(record.now, {"containerStatuses": [now]}) == ("" if legal else "c")

    @pytest.mark.parametrize(
        ("policy", "container", "code", "legal"),
        [
            ("Never", sidecar("i"), 1, True),
            ("Never", spec("i"), 1, False),
            ("OnFailure", spec("i"), 1, True),
            ("OnFailure", spec("i"), 0, False),
        ],
    )
    def test_an_init_container(self, policy: str, container: Json, code: int, legal: bool) -> None:
        before = {"initContainerStatuses": [ended("i", code)]}
        record = a_record(spec("c"), init=(container,), policy=policy, status=before)
        assert illegally_restarted(record.now, {"initContainerStatuses": [running("i")]}) == ("" if legal else "i")

    def test_an_end_that_stays_one_is_no_revival(self) -> None:
        record = a_record(spec("c"), policy="Never", status={"containerStatuses": [ended("c")]})
        assert illegally_restarted(record.now, {"containerStatuses": [ended("c")]}) == ""

    def test_the_whole_update_is_dropped(self) -> None:
        before = {"phase": "Running", "containerStatuses": [ended("c", 1)]}
        record = a_record(spec("c"), policy="Never", status=before)
        now = {"phase": "Running", "containerStatuses": [running("c")], "podIP": "10.1.0.9"}
        assert withheld(record.now, now) is record.status

    def test_a_replaced_container_passes(self) -> None:
        record = see(a_record(spec("c"), policy="Never"), instance("c"))
        status_now(record)
        record.saved = replace(record.saved, containers={"c": SavedContainer(replacing="c-0")})
        status_now(see(record, instance("c", "EXITED", code=137)))
        record.saved = replace(record.saved, containers={})
        status_now(see(record, instance("c", "EXITED", code=137), instance("c", attempt=1)))
        assert "running" in shown(record.status, "c")["state"]


class TestTerminalPhase:
    def a_finished_pod(self, state: PodState) -> ChangingRecord:
        record = see(a_record(spec("c"), policy="Never"), instance("c"))
        status_now(record)
        record.saved = replace(record.saved, state=state)
        return see(record, instance("c", "EXITED"))

    @pytest.mark.parametrize("state", [PodState.SYNC, PodState.TERMINATING])
    def test_it_is_withheld_while_anything_may_run(self, state: PodState) -> None:
        record = self.a_finished_pod(state)
        assert status_now(record)["phase"] == "Succeeded"
        assert record.status["phase"] == "Running"
        assert "terminated" in shown(record.status, "c")["state"]

    @pytest.mark.parametrize(
        ("state", "api"), [(PodState.TERMINATED, ""), (PodState.FINISHED, ""), (PodState.SYNC, "Succeeded")]
    )
    def test_it_is_shown_afterwards_and_where_the_api_server_has_it_already(self, state: PodState, api: str) -> None:
        record = self.a_finished_pod(state)
        record.api_status = {"phase": api} if api else {}
        status_now(record)
        assert record.status["phase"] == "Succeeded"


class TestOver:
    def over(self, record: ChangingRecord) -> Json:
        record.saved = replace(record.saved, state=PodState.TERMINATED)
        return status_now(record)

    def states(self, status: Json) -> dict[str, Any]:
        every = [*status.get("initContainerStatuses", ()), *status["containerStatuses"]]
        return {s["name"]: (s["state"].get("terminated") or {}).get("exitCode") for s in every}

    def test_a_container_that_never_started_has_an_end(self) -> None:
        status = self.over(a_record(spec("c")))
        assert shown(status, "c")["state"]["terminated"] == {
            "exitCode": 137,
            "reason": "ContainerStatusUnknown",
            "message": LOST,
            "startedAt": None,
            "finishedAt": None,
        }
        assert status["phase"] == "Failed"

    def test_a_pod_that_never_initialised_shows_its_containers_waiting(self) -> None:
        record = see(a_record(spec("c"), init=(spec("i"),), policy="Never"), instance("i", "EXITED", code=3))
        status = self.over(record)
        assert self.states(status) == {"i": 3, "c": None}
        assert shown(status, "c")["state"] == {"waiting": {"reason": "PodInitializing"}}

    @pytest.mark.parametrize(
        ("regular", "inits", "instances", "states"),
        [
            ("cd", "", [instance("c", "EXITED")], {"c": 0, "d": 137}),
            ("c", "ijk", [instance("i", "EXITED"), instance("j", "EXITED", code=1)],
             {"i": 0, "j": 1, "k": None, "c": None}),
            ("c", "ij", [], {"i": 137, "j": None, "c": None}),
            ("c", "ij", [instance("j", "EXITED")], {"i": 137, "j": 0, "c": 137}),
            ("c", "i", [instance("i", "EXITED")], {"i": 0, "c": 137}),
        ],
        ids=["an end that is known stays", "init containers after the last that started wait",
             "the first init container has an end in any case", "one is missing before one that started",
             "the last init container done means initialised"],
    )  # fmt: skip
    def test_the_states_at_the_end(
        self, regular: str, inits: str, instances: list[Container], states: dict[str, int | None]
    ) -> None:
        record = a_record(*map(spec, regular), init=tuple(map(spec, inits)))
        assert self.states(self.over(see(record, *instances))) == states

    def test_a_container_that_was_left_waiting_after_a_run_means_initialised(self) -> None:
        record = a_record(spec("c"), spec("d"), init=(spec("i"),))
        record.status = {
            "initContainerStatuses": [waiting("i")],
            "containerStatuses": [waiting("c", last=1), waiting("d")],
        }
        assert self.states(self.over(record)) == {"i": 137, "c": 137, "d": 137}

    @pytest.mark.parametrize(
        ("source", "codes", "phase"),
        [
            ("api", (0, 0), "Succeeded"),
            ("api", (0, 137), "Failed"),
            ("api", (None, 0), "Failed"),
            ("file", (None, 0), "Pending"),
        ],
    )
    def test_the_phase_of_a_deleted_pod(self, source: str, codes: tuple[int | None, ...], phase: str) -> None:
        ends = [instance(n, "EXITED", code=c) for n, c in zip("cd", codes, strict=True) if c is not None]
        record = see(a_record(spec("c"), spec("d"), source=source, deleted=True), *ends)
        assert self.over(record)["phase"] == phase

    def test_ephemeral_containers_are_left_as_they_are(self) -> None:
        status = self.over(see(a_record(spec("c"), ephemeral=(spec("e"),)), instance("c", "EXITED")))
        assert shown(status, "e")["state"] == {"waiting": {"reason": "ContainerCreating"}}
