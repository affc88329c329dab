"""The conditions of a pod, row by row, by hand from pods.md 9.4, 5.7."""

from typing import Any

import pytest

from bus.messages.podsync import PodState
from services.podsync.core.status.conditions import conditions
from services.podsync.core.status.container_status import ContainerStatuses
from shared.model.frozen_copy import replace
from tests.unit.podsync.status.status_shapes import (
    NOW,
    ChangingRecord,
    a_record,
    a_sandbox,
    ended,
    instance,
    running,
    see,
    spec,
    specs_of,
    status_now,
    waiting,
)

Json = dict[str, Any]
C, INIT, NEXT = spec("c"), spec("i"), spec("j")
RULES = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}]


def of(
    record: ChangingRecord, phase: str = "Pending", *, init: tuple[Json, ...] = (), regular: tuple[Json, ...] = ()
) -> Json:
    """type -> (status, reason, message)."""
    found = conditions(record.now, ContainerStatuses(init=init, regular=regular), phase, now=NOW)
    return {c["type"]: (c["status"], c.get("reason", ""), c.get("message", "")) for c in found}


def was(kind: str, status: str = "True") -> Json:
    return {"conditions": [{"type": kind, "status": status, "lastTransitionTime": "2020-01-01T00:00:00Z"}]}


def done(name: str) -> Json:
    return ended(name, ready=True)


def incomplete(names: str, *, unknown: str = "") -> tuple[str, str, str]:
    return _not("ContainersNotInitialized", "incomplete", names, unknown)


def unready(names: str, *, unknown: str = "") -> tuple[str, str, str]:
    return _not("ContainersNotReady", "unready", names, unknown)


def _not(reason: str, word: str, names: str, unknown: str) -> tuple[str, str, str]:
    of_unknown = f"containers with unknown status: [{unknown}]" if unknown else ""
    of_others = f"containers with {word} status: [{names}]" if names else ""
    return "False", reason, of_unknown + (", " if unknown and names else "") + of_others


# Name, phase, statuses of init and regular containers, the condition; and the specs of the init containers where not
# each has a status.
INITIALIZED: tuple[tuple[Any, ...], ...] = (
    ("no init containers", "Pending", (), (waiting("c"),), ("True", "", "")),
    ("no init containers, over", "Succeeded", (), (ended("c"),), ("True", "PodCompleted", "")),
    ("no init containers, failed", "Failed", (), (ended("c", 1),), ("True", "", "")),
    ("nothing has a status", "Pending", (), (), ("False", "UnknownContainerStatuses", ""), (INIT,)),
    ("one waits", "Pending", (waiting("i"),), (waiting("c"),), incomplete("i")),
    ("two wait", "Pending", (waiting("i"), waiting("j")), (waiting("c"),), incomplete("i j")),
    ("the list shrinks", "Pending", (done("i"), running("j", ready=False)), (waiting("c"),), incomplete("j")),
    ("one has no status", "Pending", (done("i"),), (waiting("c"),), incomplete("", unknown="j"), (INIT, NEXT)),
    ("one of each", "Pending", (waiting("j"),), (waiting("c"),), incomplete("j", unknown="i"), (INIT, NEXT)),
    ("all are done", "Pending", (done("i"), done("j")), (waiting("c"),), ("True", "", "")),
    ("one failed for good", "Failed", (ended("i", 3),), (waiting("c"),), incomplete("i")),
    (
        "a regular container runs, whatever became of them",
        "Running",
        (waiting("i"),),
        (running("c"),),
        ("True", "", ""),
    ),
    ("a regular container has ended", "Running", (waiting("i"),), (ended("c", 1),), ("True", "", "")),
    (
        "a regular container waits after a run",
        "Pending",
        (running("i", ready=False),),
        (waiting("c", last=1),),
        incomplete("i"),
    ),
    ("succeeded", "Succeeded", (done("i"),), (ended("c"),), ("True", "PodCompleted", "")),
    (
        "a sidecar that runs and has not started",
        "Pending",
        (running("s", started=False),),
        (waiting("c"),),
        incomplete("s"),
    ),
    (
        "a sidecar that has started, ready or not",
        "Pending",
        (running("s", ready=False),),
        (waiting("c"),),
        ("True", "", ""),
    ),
    ("a sidecar, then a plain one", "Pending", (running("s"), waiting("i")), (waiting("c"),), incomplete("i")),
)


def test_initialized(subtests: pytest.Subtests) -> None:
    for name, phase, init, regular, wanted, *specs in INITIALIZED:
        with subtests.test(name):
            record = a_record(C, init=specs[0] if specs else specs_of(init))
            assert of(record, phase, init=init, regular=regular)["Initialized"] == wanted


def test_initialized_once_true_stays() -> None:
    record = a_record(C, init=(INIT,), status=was("Initialized"))
    assert of(record, init=(waiting("i"),), regular=(waiting("c"),))["Initialized"] == ("True", "", "")


READY: tuple[tuple[Any, ...], ...] = (
    ("nothing has a status", "Pending", (), (), ("False", "UnknownContainerStatuses", "")),
    ("it waits", "Pending", (), (waiting("c"), waiting("b")), unready("c b")),
    ("one of two is ready", "Running", (), (running("c"), running("b", ready=False)), unready("b")),
    ("one has no status", "Pending", (), (running("c"),), unready("", unknown="b")),
    ("one of each", "Pending", (), (waiting("c"),), unready("c", unknown="b")),
    ("all are ready", "Running", (), (running("c"), running("b")), ("True", "", "")),
    ("succeeded", "Succeeded", (), (ended("c"), ended("b")), ("False", "PodCompleted", "")),
    ("failed", "Failed", (), (ended("c", 1), ended("b")), ("False", "PodFailed", "")),
    ("plain init containers do not count", "Running", (waiting("i"),), (running("c"), running("b")), ("True", "", "")),
    ("a sidecar counts, and comes first", "Pending", (waiting("s"),), (waiting("c"), running("b")), unready("s c")),
    (
        "a sidecar that is not ready",
        "Running",
        (running("s", ready=False),),
        (running("c"), running("b")),
        unready("s"),
    ),
    ("a sidecar that is", "Running", (running("s"),), (running("c"), running("b")), ("True", "", "")),
)


def test_ready(subtests: pytest.Subtests) -> None:
    for name, phase, init, regular, wanted in READY:
        with subtests.test(name):
            found = of(a_record(C, spec("b"), init=specs_of(init)), phase, init=init, regular=regular)
            assert found["ContainersReady"] == wanted
            assert found["Ready"] == wanted


class TestReadinessGates:
    def given(self, *others: Json) -> ChangingRecord:
        gates = [{"conditionType": "example.com/a"}, {"conditionType": "example.com/b"}]
        record = a_record(C, more={"readinessGates": gates})
        record.api_status = {"phase": "Running", "conditions": list(others)}
        return record

    def test_none_exists(self) -> None:
        found = of(self.given(), "Running", regular=(running("c"),))
        assert found["ContainersReady"] == ("True", "", "")
        assert found["Ready"] == (
            "False",
            "ReadinessGatesNotReady",
            (
                'corresponding condition of pod readiness gate "example.com/a" does not exist., '
                'corresponding condition of pod readiness gate "example.com/b" does not exist.'
            ),
        )

    def test_one_is_not_true_and_then_both_are(self) -> None:
        text = 'the status of pod readiness gate "example.com/b" is not "True", but Unknown'
        for status, wanted in (("Unknown", ("False", "ReadinessGatesNotReady", text)), ("True", ("True", "", ""))):
            record = self.given(
                {"type": "example.com/a", "status": "True"}, {"type": "example.com/b", "status": status}
            )
            assert of(record, "Running", regular=(running("c"),))["Ready"] == wanted

    def test_containers_ready_comes_first(self) -> None:
        assert of(self.given(), "Running", regular=(running("c", ready=False),))["Ready"][1] == "ContainersNotReady"


class TestSandbox:
    @pytest.mark.parametrize(
        ("sandboxes", "wanted"),
        [
            ((), "False"),
            ((a_sandbox(),), "True"),
            ((a_sandbox(ready=False),), "False"),
            ((a_sandbox("s2", attempt=1), a_sandbox("s1", ready=False)), "True"),
        ],
    )
    def test_ready_to_start_containers_while_no_new_sandbox_is_needed(self, sandboxes: Any, wanted: str) -> None:
        record = see(a_record(C), sandboxes=sandboxes)
        assert of(record, regular=(waiting("c"),))["PodReadyToStartContainers"] == (wanted, "", "")

    @pytest.mark.parametrize("status", ["True", "False"])
    def test_before_the_first_look_it_is_as_it_was(self, status: str) -> None:
        record = a_record(C, status=was("PodReadyToStartContainers", status))
        record.observed = replace(record.observed, is_current=False)
        assert of(record, regular=(waiting("c"),))["PodReadyToStartContainers"][0] == status


class TestAllContainersRestarting:
    RULED = spec("c", restartPolicy="Never", restartPolicyRules=RULES)

    @pytest.mark.parametrize(
        ("container", "restarting", "phase", "regular", "wanted"),
        [
            (C, False, "Running", running("c"), None),
            (RULED, False, "Running", running("c"), ("False", "", "")),
            (RULED, True, "Running", ended("c", 88),
             ("True", "RestartAllContainersStarted", "container exited with restart policy rule")),
            (RULED, True, "Succeeded", ended("c", 1), ("False", "PodCompleted", "")),
            (RULED, True, "Failed", ended("c", 1), ("False", "PodFailed", "")),
        ],
        ids=["no such rule", "none restarts", "all restart", "over", "failed"],
    )  # fmt: skip
    def test_it_is_true_while_all_restart(
        self, container: Json, restarting: bool, phase: str, regular: Json, wanted: tuple[str, str, str] | None
    ) -> None:
        found = of(a_record(container, restarting_all=restarting), phase, regular=(regular,))
        assert found.get("AllContainersRestarting") == wanted

    def test_it_alone_has_no_generation(self) -> None:
        record = a_record(self.RULED, generation=3)
        found = conditions(record.now, ContainerStatuses(regular=(running("c"),)), "Running", now=NOW)
        assert {c["type"]: c.get("observedGeneration") for c in found} == {
            "PodReadyToStartContainers": 3,
            "Initialized": 3,
            "Ready": 3,
            "ContainersReady": 3,
            "PodScheduled": 3,
            "AllContainersRestarting": None,
        }


class TestTransitionTimes:
    def test_they_move_with_the_status_alone(self) -> None:
        record = see(a_record(C), instance("c"))
        status_now(record, now=NOW)
        see(record, instance("c", "EXITED", code=1))
        later = {c["type"]: c["lastTransitionTime"] for c in status_now(record, now=NOW + 60)["conditions"]}
        assert later["PodScheduled"] == later["Initialized"] == "2023-11-14T22:13:20Z"
        assert later["Ready"] == later["ContainersReady"] == "2023-11-14T22:14:20Z"

    def test_another_reason_moves_nothing(self) -> None:
        record = see(a_record(C, policy="Never"), instance("c", "EXITED", code=1))
        record.status = was("Ready", "False")
        found = {c["type"]: c for c in status_now(record)["conditions"]}
        assert found["Ready"]["reason"] == "PodFailed"
        assert found["Ready"]["lastTransitionTime"] == "2020-01-01T00:00:00Z"


class TestOthers:
    def test_conditions_of_others_stay_as_the_api_server_has_them(self) -> None:
        record = a_record(C)
        foreign = {"type": "example.com/mine", "status": "False", "reason": "R", "message": "m"}
        record.api_status = {"phase": "Pending", "conditions": [foreign, {"type": "Ready", "status": "True"}]}
        found = conditions(record.now, ContainerStatuses(regular=(waiting("c"),)), "Pending", now=NOW)
        assert foreign in found
        assert [c["status"] for c in found if c["type"] == "Ready"] == ["False"]

    @pytest.mark.parametrize(("state", "there"), [(PodState.TERMINATING, False), (PodState.TERMINATED, True)])
    def test_a_disruption_is_shown_with_the_end(self, state: PodState, there: bool) -> None:
        ending = {"reason": "Evicted", "message": "m", "disruption": "The node was low on resource: memory."}
        found = of(a_record(C, state=state, ending=ending), "Failed", regular=(ended("c", 137),))
        status = ("True", "TerminationByKubelet", "The node was low on resource: memory.")
        assert found.get("DisruptionTarget") == (status if there else None)

    def test_a_rejected_pod_has_none(self) -> None:
        record = a_record(C, rejected="OutOfcpu", rejected_message="no room", start_time="2023-11-14T22:13:20Z")
        assert status_now(record) == {
            "phase": "Failed",
            "reason": "OutOfcpu",
            "message": "Pod was rejected: no room",
            "startTime": "2023-11-14T22:13:20Z",
            "qosClass": "BestEffort",
        }


def test_an_own_condition_that_is_not_set_now_is_not_copied_from_the_api_server() -> None:
    record = a_record()
    record.api_status = {"conditions": [{"type": kind, "status": "True"} for kind in ("PodResizePending", "Mine")]}
    assert "PodResizePending" not in of(record)
    assert "Mine" in of(record)
