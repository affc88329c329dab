"""Pods while the machine shuts down and after it: they stop within the time they have, and start again in place
(node.md 3; docs/differences.md says where this differs)."""

from dataclasses import dataclass
from typing import Any

import pytest

from bus.messages.podsync import PodState
from bus.messages.volume import MountedVolume, MountedVolumes, VolumeState
from services.podsync.core.pod.events import NodeShutdownChanged, PodEvicted, PodStopped, VolumesChanged
from services.podsync.core.pod.instructions import KillPod
from services.podsync.core.pod.published_items import mounted_volumes
from services.podsync.core.shutdown.remaining import count_by_group, remaining_pods
from services.podsync.core.shutdown.sequence import RunningPod
from shared.model.conditions import SHUTDOWN_MESSAGE
from shared.model.frozen_copy import replace
from shared.model.runtime import ContainerState, SandboxState
from shared.model.shutdown_groups import Group
from tests.unit.podsync.play import Play, a_container, a_pod, every_step

GROUPS = (Group(priority=0, seconds=20.0), Group(priority=100, seconds=10.0))
STEP = {"exec": {"command": ["true"]}}
RULES = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [137]}}]


@dataclass
class PlayOfShutdowns(Play):
    """Containers that are stopped end with this code."""

    machine: str = "b1"
    code: int = 0

    def _change(self, uid: str, container_id: str, state: ContainerState) -> None:
        super()._change(uid, container_id, state)
        for i, c in enumerate(self.containers[uid]):
            if c.id == container_id and state is ContainerState.EXITED:
                self.containers[uid][i] = replace(c, exit_code=self.code)

    def shut_down(self, uid: str = "u1", grace: int = 20) -> None:
        """The machine shuts down, and it is the turn of the pod."""
        self.handle(NodeShutdownChanged(in_progress=True))
        self.handle(PodStopped(uid=uid, grace_seconds=grace))
        self.run()

    def boot_again(self) -> None:
        """The machine boots: nothing runs, and no network of a sandbox is left."""
        self.machine = "b2"
        for uid in self.containers:
            self.containers[uid] = [
                replace(c, state=ContainerState.EXITED, exit_code=255)
                if c.state in (ContainerState.RUNNING, ContainerState.UNKNOWN)
                else c
                for c in self.containers[uid]
            ]
            self.sandboxes[uid] = [replace(s, state=SandboxState.NOTREADY) for s in self.sandboxes[uid]]
        self.start()
        self.run()

    def conditions(self, uid: str = "u1") -> dict[str, tuple[str, str, str]]:
        """Status, reason and message of each condition."""
        shown = self.statuses[uid].status["conditions"]
        return {c["type"]: (c["status"], c.get("reason", ""), c.get("message", "")) for c in shown}

    def phase(self, uid: str = "u1") -> str:
        return str(self.statuses[uid].status["phase"])

    def left(self) -> list[str]:
        """The pods of which something is left."""
        return [pod.uid for pod in self.remaining()]

    def remaining(self) -> list[RunningPod]:
        return remaining_pods(self.core.tracked.values(), GROUPS, volumes_known=True, now=self.wall)


@pytest.mark.long
@pytest.mark.parametrize("code", [0, 137, 143])
@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
def test_a_pod_stops_and_runs_again_after_the_boot_whatever_its_restart_policy_is(policy: str, code: int) -> None:
    play = PlayOfShutdowns(code=code, source="api")
    play.want(a_pod(restartPolicy=policy))
    play.shut_down()
    assert (play.running("u1"), play.phase(), play.left()) == ([], "Running", [])
    assert play.core.tracked["u1"].saved.state is PodState.SYNC
    play.boot_again()
    assert (play.running("u1"), play.phase()) == ([("c", 1)], "Running")
    assert play.statuses["u1"].status["containerStatuses"][0]["restartCount"] == 1


@pytest.mark.long
@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
def test_it_initializes_again_after_the_boot(policy: str) -> None:
    play = PlayOfShutdowns(source="api")
    play.want(a_pod(restartPolicy=policy, initContainers=[a_container("i"), a_container("s", restartPolicy="Always")]))
    play.exit("u1", 0, "i")
    play.later(5)
    assert sorted(play.running("u1")) == [("c", 0), ("s", 0)]
    play.shut_down()
    assert (play.running("u1"), play.phase()) == ([], "Running")
    play.boot_again()
    assert play.running("u1") == [("i", 1)]
    play.exit("u1", 0, "i")
    play.later(15)
    assert sorted(play.running("u1")) == [("c", 1), ("s", 1)]


def test_a_container_that_ended_for_good_before_does_not_run_again() -> None:
    play = PlayOfShutdowns(source="api")
    play.want(a_pod(restartPolicy="Never", containers=[a_container("c"), a_container("d")]))
    play.exit("u1", 3, "d")
    play.shut_down()
    play.boot_again()
    play.later(30)
    assert (play.running("u1"), play.phase()) == ([("c", 1)], "Running")


def test_a_pod_that_was_not_stopped_in_time_runs_again_as_well() -> None:
    play = PlayOfShutdowns(source="api", deaf=True)
    play.want(a_pod(restartPolicy="Never"))
    play.shut_down()
    assert (play.running("u1"), play.left()) == ([("c", 0)], ["u1"])
    play.deaf = False
    play.boot_again()
    assert (play.running("u1"), play.phase()) == ([("c", 1)], "Running")


def test_a_pod_that_completed_before_its_turn_has_succeeded() -> None:
    play = PlayOfShutdowns(source="api")
    play.want(a_pod(restartPolicy="Never"))
    play.exit("u1", 0)
    play.shut_down()
    play.boot_again()
    assert (play.running("u1"), play.phase()) == ([], "Succeeded")


def test_its_deadline_counts_while_the_machine_is_off() -> None:
    play = PlayOfShutdowns(source="api")
    play.want(a_pod(activeDeadlineSeconds=100))
    play.shut_down()
    play.wall += 200
    play.boot_again()
    assert (play.running("u1"), play.phase()) == ([], "Failed")
    assert play.statuses["u1"].status["reason"] == "DeadlineExceeded"


def test_the_status_shows_the_shutdown_until_the_pod_starts_again() -> None:
    play = PlayOfShutdowns(source="api")
    play.want(a_pod())
    play.shut_down()
    shown = ("True", "TerminationByKubelet", "Pod was terminated in response to imminent node shutdown.")
    assert play.conditions()["DisruptionTarget"] == shown
    assert play.conditions()["Ready"] == ("False", "TerminationByKubelet", SHUTDOWN_MESSAGE)
    play.boot_again()
    assert "DisruptionTarget" not in play.conditions()
    assert play.conditions()["Ready"][0] == "True"


def test_it_does_not_keep_what_the_api_server_has_of_the_shutdown() -> None:
    play = PlayOfShutdowns(source="api")
    pod = a_pod()
    play.want(pod)
    play.shut_down()
    play.wanted["u1"] = pod | {"status": play.statuses["u1"].status}
    play.boot_again()
    assert "DisruptionTarget" not in play.conditions()


@pytest.mark.parametrize(("own", "of_group", "given"), [(30, 20, 20), (5, 20, 5), (30, 0, 2), (0, 20, 2)])
def test_its_grace_is_the_smaller_of_its_own_and_that_of_the_group(own: int, of_group: int, given: int) -> None:
    play = PlayOfShutdowns()
    play.want(a_pod(terminationGracePeriodSeconds=own))
    play.shut_down(grace=of_group)
    assert play.stops == [given]


def test_no_pod_is_admitted_meanwhile() -> None:
    play = PlayOfShutdowns(source="api")
    play.handle(NodeShutdownChanged(in_progress=True))
    play.want(a_pod())
    status = play.statuses["u1"].status
    assert (status["phase"], status["reason"]) == ("Failed", "NodeShutdown")
    assert status["message"] == "Pod was rejected: Pod was rejected as the node is shutting down."
    assert play.running("u1") == []


def test_a_static_pod_that_was_rejected_meanwhile_runs_after_the_boot() -> None:
    play = PlayOfShutdowns(agent_start="a1")
    play.handle(NodeShutdownChanged(in_progress=True))
    play.want(a_pod())
    assert play.statuses["u1"].status["reason"] == "NodeShutdown"
    play.agent_start = "a2"
    play.boot_again()
    assert play.running("u1") == [("c", 0)]


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("source", ["api", "file"])
def test_no_pod_is_rejected_before_it_is_known_whether_the_shutdown_goes_on(source: str, *, goes_on: bool) -> None:
    play = PlayOfShutdowns(source=source)
    play.handle(NodeShutdownChanged(in_progress=True, is_confirmed=False))
    play.want(a_pod())
    assert (play.running("u1"), "u1" in play.statuses) == ([], False)
    play.happen(NodeShutdownChanged(in_progress=goes_on))
    assert (play.running("u1"), play.phase()) == (([], "Failed") if goes_on else ([("c", 0)], "Running"))


def test_a_static_pod_that_was_rejected_meanwhile_runs_after_a_cancellation() -> None:
    play = PlayOfShutdowns(agent_start="a1")
    play.handle(NodeShutdownChanged(in_progress=True))
    play.want(a_pod())
    assert play.statuses["u1"].status["reason"] == "NodeShutdown"
    play.happen(NodeShutdownChanged(in_progress=False))
    assert (play.running("u1"), play.phase()) == ([("c", 0)], "Running")


def test_a_cancelled_shutdown_lets_stopped_pods_start_again() -> None:
    play = PlayOfShutdowns(source="api")
    play.want(a_pod(restartPolicy="Never"))
    play.shut_down()
    play.happen(NodeShutdownChanged(in_progress=False))
    assert (play.running("u1"), play.phase()) == ([("c", 1)], "Running")
    assert "DisruptionTarget" not in play.conditions()
    play.want(a_pod("u2", "other"))
    assert play.running("u2") == [("c", 0)]


def test_a_pod_that_is_deleted_while_it_is_stopped_ends() -> None:
    play = PlayOfShutdowns(source="api")
    pod = a_pod()
    play.want(pod)
    play.shut_down()
    deleted = {"deletionTimestamp": "2030-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
    play.want(pod | {"metadata": pod["metadata"] | deleted})
    assert play.core.tracked["u1"].saved.state is PodState.FINISHED
    play.boot_again()
    assert play.running("u1") == []


def test_a_pod_that_is_being_deleted_gets_no_more_than_the_time_of_its_group() -> None:
    play = PlayOfShutdowns(source="api", hang={"KillPod"})
    pod = a_pod(terminationGracePeriodSeconds=600)
    play.want(pod)
    deleted = {"deletionTimestamp": "2030-01-01T00:00:00Z", "deletionGracePeriodSeconds": 600}
    play.want(pod | {"metadata": pod["metadata"] | deleted})
    assert play.stops == []
    play.shut_down()
    assert play.stops == [20]


@pytest.mark.parametrize(("elapsed", "given"), [(0, [(20, True)]), (100, [(20, True)]), (579, [(20, True)]), (590, [])])
def test_its_time_counts_from_the_shutdown_and_not_from_its_deletion(
    elapsed: float, given: list[tuple[int, bool]]
) -> None:
    play = PlayOfShutdowns(source="api", hang={"KillPod"}, deaf=True)
    pod = a_pod(terminationGracePeriodSeconds=600, containers=[a_container("c", lifecycle={"preStop": STEP})])
    play.want(pod)
    deleted = {"deletionTimestamp": "2030-01-01T00:00:00Z", "deletionGracePeriodSeconds": 600}
    play.want(pod | {"metadata": pod["metadata"] | deleted})
    play.later(elapsed)
    assert [left.stops for left in play.remaining()] == [not given]
    play.shut_down()
    kills = [call for call in play.calls if isinstance(call, KillPod)][1:2]
    assert [(stop.grace_seconds, stop.pre_stop) for kill in kills for stop in kill.containers] == given
    for _ in range(3):
        assert [left.stops for left in play.remaining()] == [True]
        play.wall += 0.7


def test_an_image_pull_does_not_delay_the_stop() -> None:
    play = PlayOfShutdowns(source="api", images=set(), hang={"PullImage"})
    play.want(a_pod())
    play.shut_down()
    assert "InterruptCall PullImage" in play.log
    assert play.left() == []
    assert all(s.state is SandboxState.NOTREADY for s in play.sandboxes["u1"])


def test_an_eviction_does_not_end_a_pod_that_stops_for_the_shutdown() -> None:
    play = PlayOfShutdowns(source="api")
    play.want(a_pod())
    play.shut_down()
    play.handle(PodEvicted(uid="u1", message="low", grace_seconds=1))
    play.boot_again()
    assert (play.running("u1"), play.phase()) == ([("c", 1)], "Running")


def test_an_exit_that_restarts_all_containers_is_none_where_the_shutdown_caused_it() -> None:
    play = PlayOfShutdowns(source="api", code=137)
    play.want(
        a_pod(restartPolicy="Never", containers=[a_container("c", restartPolicy="Never", restartPolicyRules=RULES)])
    )
    play.shut_down()
    play.boot_again()
    play.later(5)
    assert (play.running("u1"), play.phase()) == ([("c", 1)], "Running")


def mounted(*names: str) -> MountedVolumes:
    return MountedVolumes(uid="u1", volumes={name: MountedVolume(state=VolumeState.MOUNTED) for name in names})


def test_volumes_are_unmounted_after_the_stop_but_those_whose_content_would_be_lost() -> None:
    volumes = [{"name": "scratch", "emptyDir": {}}, {"name": "data", "persistentVolumeClaim": {"claimName": "d"}}]
    volumes += [{"name": "inline", "csi": {"driver": "d"}}, {"name": "settings", "configMap": {"name": "m"}}]
    mounts = [{"name": str(volume["name"]), "mountPath": f"/{volume['name']}"} for volume in volumes]
    play = PlayOfShutdowns(source="api")
    every = mounted("scratch", "data", "inline", "settings")
    play.handle(VolumesChanged(uid="u1", volumes=every))
    play.want(a_pod(volumes=volumes, containers=[a_container("c", volumeMounts=mounts)]))
    assert play.running("u1") == [("c", 0)]
    play.shut_down()
    assert play.published["u1"].volumes.volumes == ("scratch", "inline")
    assert play.left() == ["u1"]
    play.handle(VolumesChanged(uid="u1", volumes=mounted("scratch", "inline")))
    assert play.left() == []
    play.boot_again()
    assert mounted_volumes(play.core.tracked["u1"].saved) == ("scratch", "data", "inline", "settings")
    assert play.running("u1") == []
    play.happen(VolumesChanged(uid="u1", volumes=every))
    assert play.running("u1") == [("c", 1)]


def test_a_pod_stops_before_its_volumes_and_its_probes_end() -> None:
    probe = {"exec": {"command": ["true"]}}
    play = PlayOfShutdowns(source="api", hang={"KillPod"})
    play.want(a_pod(containers=[a_container("c", readinessProbe=probe)]))
    play.shut_down()
    probes = play.published["u1"].probes
    assert probes is not None and probes.terminating
    play.restart()
    assert play.published["u1"].probes is None


def test_the_groups_count_the_pods_of_which_something_is_left() -> None:
    play = PlayOfShutdowns(source="api", deaf=True)
    for number, priority in enumerate((None, 5, 100)):
        play.want(a_pod(f"u{number}", f"web{number}", **({} if priority is None else {"priority": priority})))
    found = count_by_group(GROUPS, play.remaining())
    assert [(group.priority, group.seconds, group.pods) for group in found] == [(0, 20.0, 2), (100, 10.0, 1)]


def play_to_the_boot(**given: Any) -> PlayOfShutdowns:
    """A pod with init containers and a sidecar through a shutdown; what was told before a kill is told again."""
    play = PlayOfShutdowns(source="api", code=143, **given)
    play.want(a_pod(restartPolicy="Never", initContainers=[a_container("s", restartPolicy="Always")]))
    for _ in range(3):
        play.shut_down()
    play.kill_at = -1
    play.shut_down()
    return play


@pytest.mark.long
@pytest.mark.parametrize("step", every_step(36))
def test_a_kill_at_any_step_ends_as_without_it(step: int) -> None:
    play = play_to_the_boot(kill_at=step)
    assert (play.running("u1"), play.left()) == ([], [])
    play.boot_again()
    play.later(15)
    assert (play.phase(), {name for name, _ in play.running("u1")}) == ("Running", {"s", "c"})
