"""A takeover: containers that run on CPUs of their own keep them until they have stopped; no other starts there."""

from services.podsync.core.placement.pod_placement import ContainerPlacement, PodPlacement
from shared.model.cpu_list import write_cpus
from shared.model.frozen_copy import replace
from tests.unit.podsync.play import Play
from tests.unit.podsync.sync.test_cpu_sets import a_play, cpus_of, guaranteed


def running_on(*cpus: int, name: str = "", static: bool = False) -> Play:
    """Return a play of which pod u1 runs on these CPUs by another agent, whose file says so. No source lists it."""
    play = a_play(listed=True).wanting(guaranteed("u1", len(cpus), name))
    container = play.containers["u1"][0].id
    play.resources[container]["cpuset_cpus"] = write_cpus(cpus)
    play.sandboxes["u1"] = [
        replace(sandbox, static_source="file" if static else "") for sandbox in play.sandboxes["u1"]
    ]
    play.disk.clear()
    del play.wanted["u1"]
    play.inherited = {"u1": PodPlacement(containers={"c": ContainerPlacement(cpus=frozenset(cpus))})}
    return play


def test_a_static_pod_under_a_new_uid_follows_the_one_of_the_earlier_agent_without_the_api_server() -> None:
    play = running_on(1, 2, 3, name="web", static=True)
    play.wanted["u2"] = guaranteed("u2", 3, "web")
    play.sources_complete = False
    play.hang = {"KillPod"}
    play.restart()
    assert play.core.tracked["u2"].saved.rejected == ""
    assert (cpus_of(play, "u1"), cpus_of(play, "u2")) == ("1-3", "none runs")
    play.restart()
    assert (cpus_of(play, "u1"), cpus_of(play, "u2")) == ("none runs", "1-3")


def test_a_static_pod_does_not_wait_until_the_api_server_lists_a_pod_that_does_not_run() -> None:
    placement = PodPlacement(containers={"c": ContainerPlacement(cpus=frozenset({1, 2, 3}))})
    play = a_play(inherited={"u1": placement}, listed=True, sources_complete=False).wanting(guaranteed("u2", 3))
    assert cpus_of(play, "u2") == "1-3"
    play.source = "api"
    play.want(guaranteed("u1", 3))
    assert play.core.tracked["u1"].saved.rejected == "UnexpectedAdmissionError"


def test_an_orphan_keeps_its_cpus_until_it_has_stopped_and_across_a_restart() -> None:
    play = running_on(1, 2)
    play.fail_always = {"KillPod": ("Unavailable", "hung")}
    play.restart()
    play.want(guaranteed("u2", 2))
    assert (cpus_of(play, "u1"), cpus_of(play, "u2")) == ("1-2", "none runs")
    play.inherited = {}
    play.restart()
    assert (cpus_of(play, "u1"), cpus_of(play, "u2")) == ("1-2", "none runs")
    play.fail_always = {}
    play.later(600)
    assert (cpus_of(play, "u1"), cpus_of(play, "u2")) == ("none runs", "1-2")


def test_no_cpu_of_an_orphan_is_free_before_the_runtime_has_listed_its_pods() -> None:
    play = running_on(1, 2)
    play.listed, play.source = False, "api"
    play.restart()
    play.want(guaranteed("u2", 2))
    assert (play.core.tracked["u2"].saved.rejected, cpus_of(play, "u2")) == ("", "none runs")
    play.listed = True
    play.restart()
    assert (cpus_of(play, "u1"), cpus_of(play, "u2")) == ("none runs", "1-2")


def test_a_rejected_pod_keeps_its_cpus_until_it_has_stopped() -> None:
    play = running_on(1, 2)
    pod = guaranteed("u1", 2)
    pod["spec"]["nodeSelector"] = {"no": "such"}
    play.wanted["u1"] = pod
    play.hang = {"KillPod"}
    play.restart()
    play.want(guaranteed("u2", 2))
    assert play.core.tracked["u1"].saved.rejected == "NodeAffinity"
    assert play.core.tracked["u2"].saved.rejected == ""
    assert (cpus_of(play, "u1"), cpus_of(play, "u2")) == ("1-2", "none runs")
    play.restart()
    assert (cpus_of(play, "u1"), cpus_of(play, "u2")) == ("none runs", "1-2")


def test_a_container_keeps_its_cpus_before_the_verdict_on_its_pod_and_after_a_kill_between_record_and_verdict() -> None:
    play = running_on(2, 3)
    play.wanted["u1"] = guaranteed("u1", 2)
    play.source, play.joins_cluster = "api", True
    play.restart()
    assert not play.disk["u1"]["admission_decided"]
    play.observe("u1")
    assert cpus_of(play, "u1") == "2-3"
    play.joins_cluster = False
    play.restart()
    assert cpus_of(play, "u1") == "2-3"


def test_a_start_waits_for_a_pod_that_is_not_killed_within_its_grace_period() -> None:
    play = a_play(listed=True).wanting(guaranteed("u1", 3))
    play.fail_always = {"KillPod": ("Unavailable", "hung")}
    play.drop("u1")
    play.want(guaranteed("u2", 3))
    play.later(200)
    assert (cpus_of(play, "u1"), cpus_of(play, "u2")) == ("1-3", "none runs")
    play.fail_always = {}
    play.later(600)
    assert (cpus_of(play, "u1"), cpus_of(play, "u2")) == ("none runs", "1-3")
