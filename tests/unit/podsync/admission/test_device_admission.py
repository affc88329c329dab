"""A pod gets its devices in this order: they are chosen and saved, the plugins prepare them, and the verdict is saved
with what they answered (node.md 4.15)."""

from typing import Any

import pytest

from bus.messages.device_plugins import AllocatedDevices, Device, DeviceResource
from services.podsync.core.admission.node_view import MachineFacts
from services.podsync.core.placement.placing import NodePlacer, PlacementSettings
from services.podsync.core.placement.pod_placement import ContainerDevices, ContainerPlacement, PodPlacement
from services.podsync.core.pod.events import NodeChanged
from services.podsync.core.pod.instructions import AllocatePodDevices, AskPreferredDevices
from shared.model.frozen_copy import replace
from shared.model.machine_topology import MachineTopology
from tests.unit.podsync.play import Play, Pod, a_container, a_pod, every_step

GPU, NIC = "example.com/gpu", "example.com/nic"
SINCE = 1_000_000_000.0  # 2001-09-09T01:46:40Z


def plugin(*ids: str, name: str = GPU, healthy: bool = True, **fields: Any) -> DeviceResource:
    """Return what volume publishes of a plugin that is connected and has these devices."""
    devices = tuple(Device(id=each, healthy=healthy) for each in ids)
    return DeviceResource(**{"resource": name, "connected": True, "since": SINCE, "devices": devices, **fields})


def away(*ids: str, **fields: Any) -> DeviceResource:
    """Return what volume publishes of a plugin that had these devices and is not connected."""
    return plugin(*ids, **{"healthy": False, "connected": False, **fields})


def a_play(**fields: Any) -> Play:
    """Return a play of a node where nothing is aligned, with a plugin of two GPUs."""
    placer = NodePlacer(MachineTopology(), PlacementSettings())
    return Play(**{"facts": MachineFacts(placer=placer), "devices": {GPU: plugin("a", "b")}, **fields})


def with_devices(uid: str = "u1", name: str = "web", containers: tuple[str, ...] = ("c",), **counts: int) -> Pod:
    """Return a pod each of whose containers requests these numbers of devices of resources of example.com."""
    amounts = {f"example.com/{kind}": str(count) for kind, count in counts.items()}
    resources = {"limits": amounts, "requests": amounts}
    return a_pod(uid, name, containers=[a_container(each, resources=resources) for each in containers])


def devices_of(play: Play, uid: str = "u1") -> dict[tuple[str, str], list[str]]:
    """Return the devices that the containers of a pod have, by container and resource."""
    placement = play.core.tracked[uid].saved.placement
    return {(name, of.resource): sorted(of.ids) for name, given in placement.containers.items() for of in given.devices}


def rejection(play: Play, uid: str = "u1") -> tuple[str, str]:
    saved = play.core.tracked[uid].saved
    return saved.rejected, saved.rejected_message


def condition(play: Play, uid: str = "u1") -> tuple[str, str, str]:
    """Return status, reason and message of the condition that says whether containers may start."""
    [found] = [c for c in play.statuses[uid].status["conditions"] if c["type"] == "PodReadyToStartContainers"]
    return found["status"], found.get("reason", ""), found.get("message", "")


def test_the_choice_is_saved_before_the_plugin_is_called_and_its_answer_with_the_verdict() -> None:
    play = a_play(hang={"AllocatePodDevices"}).wanting(with_devices(gpu=1))
    assert isinstance(play.calls[-1], AllocatePodDevices)
    assert play.disk["u1"]["placement"]["c"]["devices"] == [{"resource": GPU, "ids": ["a"]}]
    assert (play.disk["u1"]["admission_decided"], "u1" in play.published) == (False, False)
    play.restart()
    record = play.disk["u1"]
    assert record["placement"]["c"]["devices"] == [{"resource": GPU, "ids": ["a"], "setup": {"envs": {"IDS": "a"}}}]
    assert record["admission_decided"]
    assert play.running("u1") == [("c", 0)]
    assert play.log.index("AllocatePodDevices") < play.log.index("RunPodSandbox")


def test_each_container_gets_its_own_devices_of_each_resource() -> None:
    play = a_play(devices={GPU: plugin("a", "b", "c"), NIC: plugin("x", "y", name=NIC)})
    play.want(with_devices(gpu=1, nic=1, containers=("c", "d")))
    given = {("c", GPU): ["a"], ("c", NIC): ["x"], ("d", GPU): ["b"], ("d", NIC): ["y"]}
    assert devices_of(play) == given
    assert [(each.container, each.resource, list(each.ids)) for _, each in play.prepared] == [
        (container, resource, ids) for (container, resource), ids in given.items()
    ]


def test_a_pod_without_devices_asks_no_plugin_and_gets_its_verdict_at_once() -> None:
    """Its instructions are those of a node without device plugins."""
    ways = []
    for devices in ({}, {GPU: plugin("a"), NIC: away("x", name=NIC)}):
        play = a_play(devices=devices, plugins_listed=bool(devices)).wanting(a_pod())
        ways.append(play.log)
        assert play.running("u1") == [("c", 0)]
    assert ways[0] == ways[1]


def test_a_plugin_is_asked_what_it_prefers_and_gets_that() -> None:
    play = a_play(devices={GPU: plugin("a", "b", "c", preferred_allocation=True)}, preferred=frozenset({"b", "c"}))
    play.want(with_devices(gpu=1, containers=("c", "d")))
    assert devices_of(play) == {("c", GPU): ["b"], ("d", GPU): ["c"]}
    questions = [call.question for call in play.calls if isinstance(call, AskPreferredDevices)]
    assert [question.available for question in questions] == [("a", "b", "c"), ("a", "c")]


def test_a_plugin_that_does_not_answer_has_no_preference() -> None:
    play = a_play(
        devices={GPU: plugin("a", "b", preferred_allocation=True)}, fail={"AskPreferredDevices": ("", "no answer")}
    )
    play.want(with_devices(gpu=1))
    assert devices_of(play) == {("c", GPU): ["a"]}
    assert play.log.count("AskPreferredDevices") == 1


def test_a_refusal_of_the_plugin_rejects_the_pod_and_frees_its_devices() -> None:
    text = f"device plugin Allocate rpc failed for {GPU} with err: rpc error: code = Unknown desc = broken"
    play = a_play(refuses_devices=text).wanting(with_devices(gpu=2))
    assert rejection(play) == ("UnexpectedAdmissionError", f"Allocate failed due to {text}, which is unexpected")
    assert devices_of(play) == {}
    assert play.events[-1].startswith("Warning UnexpectedAdmissionError: Allocate failed due to device plugin")
    play.refuses_devices = ""
    play.want(with_devices("u2", "other", gpu=2))
    assert devices_of(play, "u2") == {("c", GPU): ["a", "b"]}


def test_devices_that_one_pod_is_being_given_are_given_to_no_other() -> None:
    play = a_play(hang={"AllocatePodDevices"}).wanting(with_devices(gpu=1), with_devices("u2", "second", gpu=1))
    play.want(with_devices("u3", "third", gpu=1))
    assert (devices_of(play, "u1"), devices_of(play, "u2")) == ({("c", GPU): ["a"]}, {("c", GPU): ["b"]})
    why = f"requested number of devices unavailable for {GPU}. Requested: 1, Available: 0"
    assert rejection(play, "u3") == (
        "UnexpectedAdmissionError",
        f"Allocate failed due to {why}, which is unexpected",
    )


def test_devices_are_free_once_the_pod_does_not_run_any_more() -> None:
    play = a_play().wanting(with_devices(gpu=2))
    play.drop("u1")
    play.want(with_devices("u2", "other", gpu=2))
    assert devices_of(play, "u2") == {("c", GPU): ["a", "b"]}


def test_a_pod_that_is_deleted_while_the_plugin_prepares_its_devices_ends_at_once() -> None:
    play = a_play(hang={"AllocatePodDevices"}).wanting(with_devices(gpu=2))
    play.drop("u1")
    assert "InterruptCall AllocatePodDevices" in play.log
    assert play.core.tracked == {}
    play.want(with_devices("u2", "other", gpu=2))
    assert devices_of(play, "u2") == {("c", GPU): ["a", "b"]}


def test_a_plugin_prepares_devices_once_the_pod_that_had_them_has_stopped() -> None:
    """An edited static pod gets the devices of the one before it."""
    play = a_play(devices={GPU: plugin("a")}, hang={"KillPod"}).wanting(with_devices(gpu=1))
    edited = with_devices("u2", gpu=1)
    del play.wanted["u1"]
    play.want(edited)
    assert "KillPod" in play.log
    assert [uid for uid, _ in play.prepared] == ["u1"]
    assert play.core.tracked["u2"].waits_for == "the pods that have some of its devices or CPUs to stop"
    play.restart()
    assert [uid for uid, _ in play.prepared] == ["u1", "u2"]
    assert (play.running("u1"), play.running("u2")) == ([], [("c", 0)])


def test_devices_that_break_before_the_plugin_has_prepared_them_are_chosen_anew() -> None:
    play = a_play(fail={"AllocatePodDevices": ("", "no answer")}).wanting(with_devices(gpu=1))
    assert devices_of(play) == {("c", GPU): ["a"]}
    broken = plugin("a", "b").devices
    play.plug(replace(plugin(), devices=(replace(broken[0], healthy=False), broken[1])))
    assert devices_of(play) == {("c", GPU): ["b"]}
    assert play.running("u1") == [("c", 0)]


def test_devices_that_break_after_the_verdict_stay_with_the_pod_through_a_restart() -> None:
    play = a_play().wanting(with_devices(gpu=1))
    play.plug(away("a", "b"))
    play.restart()
    play.later(1000)
    assert (devices_of(play), play.running("u1")) == ({("c", GPU): ["a"]}, [("c", 0)])
    assert play.log.count("AllocatePodDevices") == 1


def test_a_new_pod_waits_for_a_plugin_that_is_away_and_says_so() -> None:
    play = a_play(devices={GPU: away("a", "b")}).wanting(with_devices(gpu=1))
    text = f"device plugins: that of {GPU}, not connected since 2001-09-09T01:46:40Z"
    assert play.core.tracked["u1"].waits_for == text
    assert play.events == [f"Warning DevicePluginNotReady: waits for {text}"]
    assert condition(play) == ("False", "DevicePluginNotReady", f"the pod waits for {text}")
    assert ("u1" in play.published, play.prepared) == (False, [])
    play.later(200)
    play.plug(plugin("a", "b"))
    assert play.running("u1") == [("c", 0)]
    assert condition(play)[:2] == ("True", "")
    assert len([event for event in play.events if "DevicePluginNotReady" in event]) == 1


def test_a_preview_names_the_plugin_for_which_the_pod_would_wait() -> None:
    play = a_play(devices={GPU: away("a"), NIC: plugin("x", name=NIC)})
    admissions = play.core.node_state.admissions
    text = f"device plugins: that of {GPU}, not connected since 2001-09-09T01:46:40Z"
    assert (admissions.preview(with_devices(gpu=1), "file"), admissions.awaited_by(with_devices(gpu=1))) == (None, text)
    verdict = admissions.preview(with_devices(nic=1), "file")
    assert verdict is not None and verdict.reason == ""
    assert verdict.placement.containers["c"].devices[0].ids == {"x"}
    assert play.core.tracked == {}


def test_a_pod_of_an_earlier_agent_keeps_its_devices_and_waits_for_no_plugin() -> None:
    of = ContainerDevices(resource=GPU, ids=frozenset({"b"}), setup=AllocatedDevices(envs={"IDS": "b"}))
    given = PodPlacement(containers={"c": ContainerPlacement(devices=(of,))})
    play = a_play(devices={GPU: away("a", "b")}, inherited={"u1": given}, sources_complete=False)
    play.want(with_devices(gpu=1))
    assert play.running("u1") == [("c", 0)]
    assert (devices_of(play), play.prepared) == ({("c", GPU): ["b"]}, [])
    play.plug(plugin("a", "b"))
    play.want(with_devices("u2", "other", gpu=1))
    assert devices_of(play, "u2") == {("c", GPU): ["a"]}


def test_a_plugin_that_stays_away_is_waited_for_five_minutes_and_then_the_kubelet_s_rejection_follows() -> None:
    play = a_play(devices={GPU: away("a", "b")}).wanting(with_devices(gpu=1))
    play.later(299)
    assert rejection(play) == ("", "")
    play.later(2)
    why = f"no healthy devices present; cannot allocate unhealthy devices {GPU}"
    assert rejection(play) == ("UnexpectedAdmissionError", f"Allocate failed due to {why}, which is unexpected")


def test_a_restart_of_the_process_does_not_prolong_the_wait_and_one_of_the_agent_begins_it_again() -> None:
    play = a_play(devices={GPU: away("a", "b")}, agent_start="first").wanting(with_devices(gpu=1))
    play.later(200)
    play.restart()
    assert condition(play)[1] == "DevicePluginNotReady"
    play.later(90)
    assert rejection(play) == ("", "")
    play.agent_start = "second"
    play.restart()
    play.later(290)
    assert rejection(play) == ("", "")
    play.later(20)
    assert rejection(play)[0] == "UnexpectedAdmissionError"


def test_a_resource_that_is_dropped_during_the_wait_is_waited_for_and_one_dropped_before_is_not() -> None:
    play = a_play(devices={GPU: away("a"), NIC: away(name=NIC, dropped=True)}).wanting(with_devices(gpu=1))
    play.later(100)
    play.plug(away(dropped=True))
    play.want(with_devices("u2", "other", nic=1))
    text = f"Node didn't have enough resource: {NIC}, requested: 1, used: 0, capacity: 0"
    assert (rejection(play, "u1"), rejection(play, "u2")) == (("", ""), (f"OutOf{NIC}", text))
    play.plug(plugin("a"))
    assert play.running("u1") == [("c", 0)]


@pytest.mark.parametrize("shown", ["0", "2"])
def test_a_dropped_resource_is_out_of_devices_unless_a_pod_still_has_one(shown: str) -> None:
    """The Node may still show what the resource had before it was dropped."""
    play = a_play(source="api", node={"status": {"allocatable": {GPU: shown}}})
    play.handle(NodeChanged(node=play.node))
    play.want(with_devices(gpu=1))
    play.plug(away(dropped=True))
    play.want(with_devices("u2", "second", gpu=1))
    why = f"cannot allocate unregistered device {GPU}"
    unexpected = f"Allocate failed due to {why}, which is unexpected"
    assert rejection(play, "u2") == ("UnexpectedAdmissionError", unexpected)
    play.drop("u1")
    play.want(with_devices("u3", "third", gpu=1))
    assert rejection(play, "u3")[0] == f"OutOf{GPU}"
    play.plug(plugin("a", "b"))
    play.want(with_devices("u4", "fourth", gpu=2))
    assert devices_of(play, "u4") == {("c", GPU): ["a", "b"]}


def test_a_resource_that_is_not_known_yet_is_waited_for_until_volume_has_listed_all() -> None:
    play = a_play(devices={}, plugins_listed=False).wanting(with_devices(gpu=1))
    assert play.core.tracked["u1"].waits_for == f"the list of device plugins, which may have {GPU}"
    play.plug(plugin("a"))
    assert play.running("u1") == [("c", 0)]


def test_an_extended_resource_that_no_plugin_has_is_none_of_devices() -> None:
    play = a_play(devices={}).wanting(with_devices(licenses=1))
    assert play.running("u1") == [("c", 0)]
    assert "AllocatePodDevices" not in play.log


def test_a_plugin_that_is_back_counts_before_the_node_shows_its_devices() -> None:
    """The Node in the API server still has none of them; the kubelet counts those that it has given, too."""
    play = a_play(source="api", node={"status": {"allocatable": {GPU: "0"}}}, devices={GPU: away("a")})
    play.handle(NodeChanged(node=play.node))
    play.want(with_devices(gpu=1))
    play.plug(plugin("a"))
    assert (rejection(play), play.running("u1")) == (("", ""), [("c", 0)])


def test_a_plugin_that_never_answers_is_asked_again_until_the_wait_is_over() -> None:
    play = a_play(fail_always={"AllocatePodDevices": ("", "the plugin is not connected")}).wanting(with_devices(gpu=1))
    play.later(250)
    assert rejection(play) == ("", "")
    assert 5 < play.log.count("AllocatePodDevices") < 60
    play.later(100)
    assert rejection(play)[1] == "Allocate failed due to the plugin is not connected, which is unexpected"
    assert devices_of(play) == {}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["alive", "dies", "refuses"])
@pytest.mark.parametrize("step", every_step(24))
def test_a_kill_at_any_step_gives_no_device_twice_and_loses_none(step: int, kind: str) -> None:
    """Two pods of one device each, where the plugin answers, dies in its first call and comes back, or refuses."""
    play = a_play(kill_at=step, refuses_devices="broken" if kind == "refuses" else "")
    play.devices[GPU] = plugin("a", "b", preferred_allocation=True)
    play.plug(play.devices[GPU])
    if kind == "dies":
        play.fail["AllocatePodDevices"] = ("", "rpc error: code = Unavailable desc = EOF")
    play.want(with_devices(gpu=1))
    play.want(with_devices("u2", "second", gpu=1))
    if kind == "dies":
        play.plug(away("a", "b"))
        play.later(60)
        play.plug(plugin("a", "b"))
        play.later(20)
    given = [ids for uid in ("u1", "u2") for ids in devices_of(play, uid).values()]
    if kind == "refuses":
        assert given == []
        assert {rejection(play, uid)[0] for uid in ("u1", "u2")} == {"UnexpectedAdmissionError"}
        return
    assert sorted(given) == [["a"], ["b"]]
    assert (play.running("u1"), play.running("u2")) == ([("c", 0)], [("c", 0)])
    for uid in ("u1", "u2"):
        asked = {tuple(wanted.ids) for of, wanted in play.prepared if of == uid}
        assert asked == {tuple(ids) for ids in devices_of(play, uid).values()}, "prepared and given differ"
