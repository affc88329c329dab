"""In random sequences of pods, plugins and restarts no device is with two pods, and a running pod keeps its own."""

import random
from collections.abc import Callable

import pytest

from bus.messages.device_plugins import Device, DeviceResource
from bus.messages.podsync import PodState
from tests.unit.podsync.admission.test_device_admission import GPU, NIC, a_play, away, plugin, with_devices
from tests.unit.podsync.play import Play

IDS = {GPU: ("a", "b", "c", "d"), NIC: ("x", "y")}
Given = dict[str, dict[tuple[str, str], frozenset[str]]]  # UID -> container and resource -> devices


class DeviceWorld:
    """Has a node with two device plugins. `chance` decides what happens."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.play: Play = a_play(devices={name: plugin(*ids, name=name) for name, ids in IDS.items()}, agent_start="1")
        self.given: Given = {}  # to the pods that have been admitted
        self.pods = 0
        self.steps: tuple[Callable[[], None], ...] = (
            self.add_pod,
            self.add_pod,
            self.remove_pod,
            self.change_plugin,
            self.change_plugin,
            self.kill_process,
            self.let_time_pass,
            self.let_calls_fail,
        )

    def take_step(self) -> None:
        """Do one thing, and look whether all rules hold."""
        self.chance.choice(self.steps)()
        self.check()

    def add_pod(self) -> None:
        self.pods += 1
        counts = {"gpu": self.chance.choice((0, 1, 1, 2, 3)), "nic": self.chance.choice((0, 0, 1))}
        containers = ("c", "d")[: self.chance.choice((1, 1, 2))]
        self.play.want(with_devices(f"u{self.pods}", f"pod{self.pods}", containers, **counts))

    def remove_pod(self) -> None:
        if self.play.wanted:
            self.play.drop(self.chance.choice(sorted(self.play.wanted)))

    def change_plugin(self) -> None:
        name = self.chance.choice((GPU, NIC))
        devices = tuple(Device(id=each, healthy=self.chance.random() < 0.8) for each in IDS[name])
        listed = DeviceResource(
            resource=name,
            connected=True,
            since=1.0,
            devices=devices,
            preferred_allocation=self.chance.random() < 0.5,
        )
        gone = away(*IDS[name], name=name)
        self.play.plug(self.chance.choice((listed, listed, gone, away(name=name, dropped=True))))

    def kill_process(self) -> None:
        self.play.kill_at = self.play.steps + self.chance.choice((1, 2, 3, 5, 8))
        self.chance.choice((self.add_pod, self.remove_pod, self.change_plugin, self.play.restart))()
        self.play.kill_at = -1

    def let_time_pass(self) -> None:
        self.play.later(self.chance.choice((1.0, 15.0, 400.0)))

    def let_calls_fail(self) -> None:
        self.play.fail["AllocatePodDevices"] = ("", "no answer")
        self.play.refuses_devices = self.chance.choice(("", "", "broken"))
        self.play.preferred = frozenset(self.chance.sample("abcdxy", 3))

    def check(self) -> None:
        owners: dict[tuple[str, str], str] = {}
        for uid, tracked in self.play.core.tracked.items():
            saved = tracked.saved
            mine = {
                (name, of.resource): of.ids
                for name, given in saved.placement.containers.items()
                for of in given.devices
            }
            if saved.state in (PodState.SYNC, PodState.TERMINATING):
                for (_, resource), ids in mine.items():
                    for each in ids:
                        assert owners.setdefault((resource, each), uid) == uid, f"{each} is with two pods"
                own = [(resource, each) for (_, resource), ids in mine.items() for each in ids]
                assert len(own) == len(set(own)), f"{uid} has a device in two containers"
            if saved.admission_decided and not saved.rejected and saved.state is PodState.SYNC:
                assert mine == self.given.setdefault(uid, mine), f"the devices of {uid} have changed"
                self._check_amounts(uid, mine)
            assert uid not in self.given or not saved.rejected, f"{uid} was judged again"

    def _check_amounts(self, uid: str, mine: dict[tuple[str, str], frozenset[str]]) -> None:
        """Assert that each container has what it requests, and that its plugin has prepared exactly that."""
        for container in self.play.core.tracked[uid].containers:
            for resource, amount in container["resources"]["limits"].items():
                ids = mine.get((container["name"], resource), frozenset())
                assert len(ids) == int(amount)
                prepared = [
                    set(each.ids)
                    for of, each in self.play.prepared
                    if (of, each.container, each.resource) == (uid, container["name"], resource)
                ]
                assert not ids or prepared[-1] == ids


@pytest.mark.share(4, test=3)
@pytest.mark.parametrize("seed", [*range(40), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(40, 400))])
def test_no_device_is_with_two_pods_and_a_running_pod_keeps_its_own(seed: int) -> None:
    world = DeviceWorld(seed)
    world.play.want(with_devices("first", "first", gpu=2, nic=1))
    world.check()
    for _ in range(40):
        world.take_step()
    assert world.given["first"] == {("c", GPU): {"a", "b"}, ("c", NIC): {"x"}}
