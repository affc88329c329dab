"""What we stop ourselves so that it starts again is no end of the pod, whatever code it ends with (pods.md 5.3, 5.7);
and what is started is made from the image its spec names by then."""

from dataclasses import dataclass

import pytest

from services.podsync.core.pod.events import CallFailed
from services.podsync.core.pod.instructions import CreateContainer
from shared.model.frozen_copy import replace
from shared.model.runtime import ContainerState, SandboxState
from tests.unit.podsync.play import Play, a_container, a_pod

RULES = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}]


@dataclass
class PlayOfStops(Play):
    """Containers that are stopped end with this code."""

    code: int = 0

    def _change(self, uid: str, container_id: str, state: ContainerState) -> None:
        super()._change(uid, container_id, state)
        for i, c in enumerate(self.containers[uid]):
            if c.id == container_id and state is ContainerState.EXITED:
                self.containers[uid][i] = replace(c, exit_code=self.code)

    def lose_sandbox(self) -> None:
        """Its pause process dies; the containers run on."""
        self.sandboxes["u1"][-1] = replace(self.sandboxes["u1"][-1], state=SandboxState.NOTREADY)
        self.observe("u1")


@pytest.mark.parametrize("code", [0, 137])
@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_a_sidecar_that_restarts_all_does_not_end_the_pod(policy: str, code: int) -> None:
    play = PlayOfStops(code=code)
    sidecar = a_container("s", restartPolicy="Always", restartPolicyRules=RULES)
    play.want(a_pod(initContainers=[sidecar], restartPolicy=policy))
    play.exit("u1", 88, "s")
    assert sorted(play.running("u1")) == [("c", 1), ("s", 1)]
    assert play.statuses["u1"].status["phase"] == "Running"


def test_nor_does_it_while_a_plain_init_container_runs() -> None:
    play = PlayOfStops(code=137)
    sidecar = a_container("s", restartPolicy="Always", restartPolicyRules=RULES)
    play.want(a_pod(initContainers=[sidecar, a_container("i")], restartPolicy="Never"))
    play.exit("u1", 88, "s")
    assert sorted(play.running("u1")) == [("i", 1), ("s", 1)]


def test_a_container_that_ends_well_when_its_sandbox_is_replaced_runs_again() -> None:
    play = PlayOfStops(code=0)
    play.want(a_pod(restartPolicy="OnFailure"))
    play.lose_sandbox()
    assert play.running("u1") == [("c", 1)]
    assert play.statuses["u1"].status["phase"] == "Running"


@pytest.mark.parametrize("state", [ContainerState.RUNNING, ContainerState.UNKNOWN])
def test_it_does_so_too_when_an_earlier_instance_of_it_ended_well(state: ContainerState) -> None:
    play = PlayOfStops(code=0)
    play.want(a_pod(restartPolicy="OnFailure"))
    play.lose_sandbox()
    play.containers["u1"] = [
        replace(c, state=state) if c.state is ContainerState.RUNNING else c for c in play.containers["u1"]
    ]
    play.lose_sandbox()
    play.later(15)
    assert play.running("u1") == [("c", 2)]
    assert play.statuses["u1"].status["phase"] == "Running"


def test_a_container_that_ended_well_by_itself_is_not_run_again_in_a_new_sandbox() -> None:
    play = PlayOfStops(code=0)
    play.want(a_pod(containers=[a_container("c"), a_container("d")], restartPolicy="OnFailure"))
    play.exit("u1", 0)
    play.lose_sandbox()
    play.later(15)
    assert play.running("u1") == [("d", 1)]


@pytest.mark.parametrize("ends", [1, 2])
def test_one_whose_rule_restarts_it_after_it_ended_well_goes_on_in_a_new_sandbox(ends: int) -> None:
    play = PlayOfStops(code=0)
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [0]}}]
    play.want(a_pod(containers=[a_container("c", restartPolicy="OnFailure", restartPolicyRules=rules)]))
    for _ in range(ends):
        play.exit("u1", 0)  # after the second time it waits for its back-off
    play.lose_sandbox()
    play.later(30)
    assert play.running("u1") == [("c", 2)]


def test_a_container_that_itself_never_restarts_runs_again_in_a_new_sandbox() -> None:
    play = PlayOfStops(code=143)
    play.want(a_pod(containers=[a_container("c", restartPolicy="Never"), a_container("d")]))
    play.lose_sandbox()
    assert sorted(play.running("u1")) == [("c", 1), ("d", 1)]


def test_an_init_container_stopped_with_its_sandbox_has_not_failed() -> None:
    play = PlayOfStops(code=143)
    play.want(a_pod(initContainers=[a_container("i", restartPolicy="Never")]))
    play.lose_sandbox()
    assert play.running("u1") == [("i", 1)]


def test_a_pod_that_never_restarts_ends_with_its_sandbox() -> None:
    play = PlayOfStops(code=143)
    play.want(a_pod(restartPolicy="Never"))
    play.lose_sandbox()
    assert play.running("u1") == []
    assert play.statuses["u1"].status["phase"] == "Failed"


def test_the_end_of_one_whose_pod_is_deleted_before_it_runs_again_is_shown_unchanged() -> None:
    play = PlayOfStops(code=0, source="api")
    play.want(a_pod(restartPolicy="OnFailure"))
    play.hang.add("RunPodSandbox")
    play.lose_sandbox()
    pod = a_pod(restartPolicy="OnFailure")
    pod["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
    play.want(pod)
    play.happen(play.effect(play.calls[-1]))
    status = play.statuses["u1"].status
    assert status["phase"] == "Succeeded"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


@pytest.mark.share(4)
@pytest.mark.parametrize("step", range(1, 24))
def test_a_kill_at_any_step_of_that_changes_nothing_in_the_end(step: int) -> None:
    play = PlayOfStops(code=0, only_urgent=True)
    play.want(a_pod(restartPolicy="OnFailure"))
    play.kill_at, play.steps = step, 0
    play.lose_sandbox()
    play.later(2)
    assert play.running("u1") == [("c", 1)]


@pytest.mark.parametrize("call", ["InspectImage", "PullImage"])
def test_an_image_that_the_spec_names_no_longer_makes_no_container(call: str) -> None:
    play = Play(images={"newer:1"} | ({"old:1"} if call == "InspectImage" else set()), hang={call})
    play.want(a_pod(containers=[a_container("c", image="old:1")]))
    held = play.calls[-1]
    play.want(a_pod(containers=[a_container("c", image="newer:1")]))
    play.happen(play.effect(held))
    made = [call for call in play.calls if isinstance(call, CreateContainer)]
    assert [create.image.id for create in made] == ["sha256:newer:1"]
    assert play.running("u1") == [("c", 0)]


@pytest.mark.parametrize("is_performed", [False, True])
def test_nor_does_one_whose_creation_was_decided_before_the_spec_changed(is_performed: bool) -> None:
    play = Play(images={"old:1", "newer:1"}, hang={"CreateContainer"})
    play.want(a_pod(containers=[a_container("c", image="old:1")]))
    held = play.calls[-1]
    done = play.effect(held) if is_performed else None
    play.want(a_pod(containers=[a_container("c", image="newer:1")]))
    failed = CallFailed(uid="u1", call=held, completed_at=play.wall, code="", text="", description="")
    play.happen(done or replace(failed, interrupted=True))
    play.later(15)
    made = [call for call in play.calls if isinstance(call, CreateContainer)]
    assert [create.image.id for create in made] == ["sha256:old:1", "sha256:newer:1"]
    assert play.running("u1") == [("c", 1 if is_performed else 0)]
    assert play.log.count("KillContainer") == 0, "nothing of the old image was started"


def test_nor_does_one_found_before_the_spec_changed() -> None:
    play = Play(images={"busybox:1", "newer:1"}, fail_always={"PullImage": ("NotFound", "no such image")})
    mounts = [{"name": "v", "mountPath": "/v"}]
    volumes = [{"name": "v", "image": {"reference": "away:1"}}]
    play.want(a_pod(containers=[a_container("c", volumeMounts=mounts)], volumes=volumes))
    play.want(a_pod(containers=[a_container("c", image="newer:1", volumeMounts=mounts)], volumes=volumes))
    play.fail_always.clear()
    play.later(15)
    made = [call for call in play.calls if isinstance(call, CreateContainer)]
    assert [create.image.id for create in made] == ["sha256:newer:1"]
