"""Every rule of a pod's phase, row by row (pods.md 9.1): the statuses of its containers and the result."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from bus.messages.podsync import PodState
from services.podsync.core.pod.saved import SavedContainer
from services.podsync.core.status.container_status import ContainerStatuses
from services.podsync.core.status.phase import pod_phase
from shared.model.frozen_copy import replace
from tests.unit.podsync.status.status_shapes import (
    a_record,
    a_sandbox,
    ended,
    instance,
    running,
    see,
    sidecar,
    spec,
    specs_of,
    status_now,
    waiting,
)

Json = dict[str, Any]
C, D = spec("c"), spec("d")
INIT, S = spec("i"), sidecar("s")


def ruled(name: str, code: int, action: str = "Restart") -> Json:
    """A container that never restarts but where it exits with this code."""
    rule = {"action": action, "exitCodes": {"operator": "In", "values": [code]}}
    return spec(name, restartPolicy="Never", restartPolicyRules=[rule])


RULED, ALL, INIT_RULED = ruled("c", 42), ruled("c", 88, "RestartAllContainers"), ruled("i", 42)


def starting_sidecar() -> Json:
    return running("s", started=False)


def purged(name: str) -> Json:
    status = waiting(name, last=137, reason="RestartingAllContainers")
    status["lastState"]["terminated"]["reason"] = "RestartingAllContainers"
    return status


@dataclass(frozen=True)
class Row:
    """What is shown of the containers, under which spec, and the phase that follows."""

    name: str
    phase: str
    regular: tuple[Json, ...] = ()
    init: tuple[Json, ...] = ()
    policy: str = "Always"
    specs: tuple[Json, ...] = ()  # those of the regular statuses where none are named, and `c` where there are none
    init_specs: tuple[Json, ...] = ()  # those of the init statuses where none are named
    over: bool = False
    source: str = "api"
    instances: tuple[str, ...] = ()  # regular containers that have an instance in the sandbox
    record: dict[str, Any] = field(default_factory=dict)


ROWS = (
    # regular containers alone
    Row("a container that waits makes the pod Pending", "Pending", (waiting("c"),)),
    Row("a container without a status is not known", "Pending", ()),
    Row("a container with an empty state has not begun", "Pending", (waiting("c") | {"state": {}},)),
    Row("a container that runs makes it Running", "Running", (running("c"),)),
    Row("one of two still waits", "Pending", (running("c"), waiting("d"))),
    Row("one of two is not known", "Pending", (running("c"),), specs=(C, D)),
    Row("both run", "Running", (running("c"), running("d"))),
    Row("one runs, one has ended", "Running", (running("c"), ended("d")), policy="Never"),
    Row("one runs, one has failed for good", "Running", (running("c"), ended("d", 1)), policy="Never"),
    Row("ended well and will start again", "Running", (ended("c"),)),
    Row("failed and will start again", "Running", (ended("c", 1),)),
    Row("in crash-loop back-off it counts as stopped, not as waiting", "Running", (waiting("c", last=1),)),
    Row("back-off after an exit with 0 under Always", "Running", (waiting("c", last=0),)),
    Row("OnFailure, exit 0", "Succeeded", (ended("c"),), policy="OnFailure"),
    Row("OnFailure, exit 1", "Running", (ended("c", 1),), policy="OnFailure"),
    Row("OnFailure, waits after exit 1", "Running", (waiting("c", last=1),), policy="OnFailure"),
    Row("OnFailure, one well, one to be tried again", "Running", (ended("c"), ended("d", 1)), policy="OnFailure"),
    Row("OnFailure, both well", "Succeeded", (ended("c"), ended("d")), policy="OnFailure"),
    Row("Never, exit 0", "Succeeded", (ended("c"),), policy="Never"),
    Row("Never, exit 1", "Failed", (ended("c", 1),), policy="Never"),
    Row("Never, one of two failed", "Failed", (ended("c"), ended("d", 1)), policy="Never"),
    Row("Never, one well and one not known", "Pending", (ended("c"),), policy="Never", specs=(C, D)),
    Row(
        "Never, vanished after it had run: stopped, and never a success",
        "Failed",
        (waiting("c", last=0),),
        policy="Never",
    ),
    Row("Never, one well and one that has yet to start", "Pending", (ended("c"), waiting("d")), policy="Never"),
    # rules of containers
    Row("a rule restarts this exit code", "Running", (ended("c", 42),), policy="Never", specs=(RULED,)),
    Row("no rule names this exit code", "Failed", (ended("c", 1),), policy="Never", specs=(RULED,)),
    Row("the container's own policy counts before the pod's", "Failed", (ended("c", 1),), specs=(RULED,)),
    Row(
        "its own policy Always in a pod that never restarts",
        "Running",
        (ended("c", 1),),
        policy="Never",
        specs=(spec("c", restartPolicy="Always"),),
    ),
    Row("an exit that restarts all", "Running", (ended("c", 88),), policy="Never", specs=(ALL,)),
    Row("taken away so that all restart", "Running", (purged("c"),), policy="Never", specs=(ALL,)),
    # init containers
    Row("the init container waits", "Pending", (waiting("c"),), (waiting("i"),)),
    Row("the init container has no status", "Pending", (running("c"),), (), init_specs=(INIT,)),
    Row("the init container runs", "Pending", (waiting("c"),), (running("i"),)),
    Row("one init container is done, one to come", "Pending", (waiting("c"),), (ended("i"), waiting("j"))),
    Row("all init containers are done, the container waits", "Pending", (waiting("c"),), (ended("i"),)),
    Row("all are done and it runs", "Running", (running("c"),), (ended("i"),)),
    Row("an init container failed for good", "Failed", (waiting("c"),), (ended("i", 3),), policy="Never"),
    Row("failed for good, shown as waiting", "Failed", (waiting("c"),), (waiting("i", last=3),), policy="Never"),
    Row("failed and tried again, Always", "Pending", (waiting("c"),), (ended("i", 3),)),
    Row("failed and tried again, OnFailure", "Pending", (waiting("c"),), (waiting("i", last=3),), policy="OnFailure"),
    Row(
        "failed, and a rule of its own runs it again",
        "Pending",
        (waiting("c"),),
        (ended("i", 42),),
        policy="Never",
        init_specs=(INIT_RULED,),
    ),
    Row(
        "failed, and no rule of its own names the code",
        "Failed",
        (waiting("c"),),
        (ended("i", 1),),
        init_specs=(INIT_RULED,),
    ),
    Row("waits after a success: no reason to be Pending", "Running", (running("c"),), (waiting("i", last=0),)),
    Row("an init container runs again after a new sandbox", "Pending", (waiting("c", last=0),), (running("i"),)),
    Row(
        "the init container was taken away so that all restart",
        "Running",
        (purged("c"),),
        (purged("i"),),
        policy="Never",
        specs=(ALL,),
    ),
    # sidecars
    Row(
        "the sidecar has not started, nothing else has either",
        "Pending",
        (waiting("c", last=1),),
        (starting_sidecar(),),
    ),
    Row("the sidecar runs, the container waits", "Pending", (waiting("c"),), (running("s"),)),
    Row("the sidecar and the container run", "Running", (running("c"),), (running("s"),)),
    Row(
        "the sidecar starts again beside running containers",
        "Running",
        (running("c"),),
        (starting_sidecar(),),
        instances=("c",),
    ),
    Row(
        "it starts, and the containers are of an older sandbox",
        "Pending",
        (waiting("c", last=137),),
        (starting_sidecar(),),
    ),
    Row("the sidecar waits for its first start", "Pending", (running("c"),), (waiting("s"),), instances=("c",)),
    Row("the sidecar crashed and waits", "Running", (running("c"),), (waiting("s", last=1),)),
    Row("the sidecar has ended beside a running container", "Running", (running("c"),), (ended("s", 1),)),
    Row("no status of the sidecar: not known", "Pending", (running("c"),), (), init_specs=(S,)),
    Row("a sidecar that runs on keeps the pod Running", "Running", (ended("c"),), (running("s"),), policy="Never"),
    Row(
        "the containers are done and the sidecar has ended",
        "Succeeded",
        (ended("c"),),
        (ended("s", 137),),
        policy="Never",
    ),
    Row("a container failed and the sidecar has ended", "Failed", (ended("c", 1),), (ended("s"),), policy="Never"),
    Row("a sidecar never fails the pod", "Pending", (waiting("c"),), (ended("s", 1),), policy="Never"),
    Row(
        "first a sidecar, then an init container that failed",
        "Failed",
        (waiting("c"),),
        (running("s"), ended("i", 1)),
        policy="Never",
    ),
    # a pod that is over
    Row("over, all ended well, whatever the policy", "Succeeded", (ended("c"),), over=True),
    Row("over, one was killed", "Failed", (ended("c", 137),), over=True),
    Row("over, one well and one killed", "Failed", (ended("c"), ended("d", 143)), over=True),
    Row("over, one vanished", "Failed", (ended("c"), waiting("d", last=137)), over=True),
    Row("over before anything had started", "Failed", (waiting("c"),), over=True),
    Row("over while it initialised", "Failed", (waiting("c"),), (ended("i", 1),), over=True),
    Row("a static pod that has ended is not Succeeded", "Running", (ended("c"),), over=True, source="file"),
    Row("a static pod is never made to fail", "Pending", (waiting("c"),), over=True, source="file"),
    Row("a static pod that ended by itself", "Succeeded", (ended("c"),), policy="Never", over=True, source="file"),
    # the phase before
    Row("the API server's end counts", "Failed", (running("c"),), record={"api_status": {"phase": "Failed"}}),
    Row(
        "the API server's end counts before ours",
        "Succeeded",
        (ended("c", 1),),
        policy="Never",
        record={"api_status": {"phase": "Succeeded"}, "outcome": "Failed"},
    ),
    Row("our own end is never taken back", "Succeeded", (running("c"),), record={"outcome": "Succeeded"}),
    Row(
        "a phase from the API server meanwhile is not an end",
        "Running",
        (running("c"),),
        record={"api_status": {"phase": "Pending"}},
    ),
    Row(
        "a pod that we end has failed",
        "Failed",
        (running("c"),),
        record={"ending": {"reason": "Evicted", "message": "m"}},
    ),
)


def test_phase(subtests: pytest.Subtests) -> None:
    for row in ROWS:
        with subtests.test(row.name.replace(" ", "-")):
            fields = dict(row.record)
            api_status = fields.pop("api_status", {})
            specs, init = row.specs or specs_of(row.regular) or (C,), row.init_specs or specs_of(row.init)
            record = a_record(*specs, init=init, policy=row.policy, source=row.source, **fields)
            record.api_status = api_status
            see(record, *(instance(name) for name in row.instances))
            statuses = ContainerStatuses(init=row.init, regular=row.regular)
            assert pod_phase(record.now, statuses, over=row.over) == row.phase


def test_a_container_that_we_replace_under_never_is_no_end_of_the_pod() -> None:
    record = see(a_record(C, policy="Never"), instance("c", "EXITED", code=137))
    record.saved = replace(record.saved, containers={"c": SavedContainer(replacing="c-0")})
    assert pod_phase(record.now, ContainerStatuses(regular=(ended("c", 137),)), over=False) == "Running"


def test_a_container_that_is_created_again_and_not_started_yet_is_no_end_of_the_pod() -> None:
    record = see(a_record(C, policy="Never"), instance("c", "EXITED", code=137), instance("c", "CREATED", attempt=1))
    assert pod_phase(record.now, ContainerStatuses(regular=(waiting("c", last=137),)), over=False) == "Running"


def test_an_instance_of_an_older_sandbox_does_not_count_for_sidecars() -> None:
    sandboxes = (a_sandbox("s2", attempt=1), a_sandbox("s1", ready=False))
    record = see(a_record(C, init=(S,)), instance("c"), sandboxes=sandboxes)
    statuses = ContainerStatuses(init=(starting_sidecar(),), regular=(running("c"),))
    assert pod_phase(record.now, statuses, over=False) == "Pending"


class TestReasonOfThePhase:
    def test_it_stays_while_the_phase_does(self) -> None:
        record = see(a_record(C, status={"phase": "Running", "reason": "R", "message": "m"}), instance("c"))
        status = status_now(record)
        assert (status["phase"], status["reason"], status["message"]) == ("Running", "R", "m")

    def test_it_goes_with_the_phase(self) -> None:
        record = see(a_record(C, status={"phase": "Pending", "reason": "R", "message": "m"}), instance("c"))
        status = status_now(record)
        assert status["phase"] == "Running"
        assert "reason" not in status and "message" not in status

    def test_the_reason_of_an_eviction_is_shown_once_the_pod_has_failed(self) -> None:
        record = see(a_record(C, ending={"reason": "Evicted", "message": "full", "disruption": ""}), instance("c"))
        record.saved = replace(record.saved, state=PodState.TERMINATED)
        status = status_now(record)
        assert (status["phase"], status["reason"], status["message"]) == ("Failed", "Evicted", "full")
