"""The addresses for pods reach the runtime: those of the Node, or of the configuration on a node without a cluster."""

import asyncio
from pathlib import Path
from typing import Any

from bus.messages.beat import Beat
from bus.messages.sources import NodeObject
from bus.messages.streams import NODE_OBJECT
from services.frame.launch import Context
from services.podsync.controllers.pod_cidr import RETRY_SECONDS, PodCidr
from shared.config.effective import EffectiveConfig
from tests.fakes.memory_bus import MemoryNetwork
from tests.fakes.runtime import FakeRuntime
from tests.fakes.virtual_time import ended, on_virtual_time, pass_time, virtual_clock
from tests.service.podsync.stage import on_stage


class Stage:
    """sources with our Node, a runtime, and that part of podsync."""

    def __init__(self, **config: Any) -> None:
        self.network = MemoryNetwork(virtual_clock())
        self.runtime = FakeRuntime(self.network.clock)
        self.config = EffectiveConfig(node_name="n1", root_dir="", run_dir="", log_dir="", cert_dir="", **config)
        self.sources = self.network.bus("sources")
        self._nodes = self.sources.own(NODE_OBJECT)
        self.troubles: tuple[str, ...] = ()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start sources, the reader of beats, and podsync."""
        listener = self.network.bus("server")
        listener.on_beat(self._heard)
        for bus in (self.sources, listener):
            await bus.start()
        await self.start()

    async def start(self) -> None:
        """Start podsync."""
        bus = self.network.bus("podsync")
        part = PodCidr(Context("podsync", self.config, bus, self.network.clock, asyncio.Event()), self.runtime)
        await bus.start()
        self._task = asyncio.create_task(part.run())
        await self.passes(1)

    async def kill(self) -> None:
        assert self._task is not None
        self.network.kill("podsync")
        await ended(self._task)

    async def passes(self, seconds: float) -> None:
        await pass_time(self.network, seconds)

    async def node(self, **spec: Any) -> None:
        """The API server has our Node with this spec."""
        self._nodes.put("node", NodeObject(node={"metadata": {"name": "n1", "uid": "u"}, "spec": spec}))
        await self.passes(1)

    @property
    def sent(self) -> list[str]:
        """What the runtime was sent, in order."""
        requests = self.runtime.requests("UpdateRuntimeConfig")
        return [request["runtime_config"]["network_config"]["pod_cidr"] for request in requests]

    def _heard(self, beat: Beat) -> None:
        if beat.service == "podsync":
            self.troubles = beat.troubles


@on_virtual_time
async def test_the_addresses_of_the_node_reach_the_runtime_once() -> None:
    stage = Stage(kubeconfig="/k")
    await stage.open()
    assert stage.sent == []
    await stage.node()  # the control plane gives it none yet
    assert stage.sent == []
    await stage.node(podCIDR="10.0.1.0/24", podCIDRs=["10.0.1.0/24", "fd00:1::/64"])
    assert stage.sent == ["10.0.1.0/24,fd00:1::/64"]
    await stage.node(podCIDR="10.0.1.0/24", podCIDRs=["10.0.1.0/24", "fd00:1::/64"], unschedulable=True)
    await stage.passes(120)
    assert len(stage.sent) == 1
    await stage.kill()


async def test_the_service_sends_them(tmp_path: Path) -> None:
    async with on_stage(tmp_path, kubeconfig="/k") as stage:
        node = {"metadata": {"name": "node1", "uid": "u"}, "spec": {"podCIDRs": ["10.0.1.0/24"]}}
        stage.node_object.put("node", NodeObject(node=node))
        await stage.until(lambda: stage.runtime.requests("UpdateRuntimeConfig"))


@on_virtual_time
async def test_a_change_is_sent_and_a_node_without_addresses_changes_nothing() -> None:
    stage = Stage(kubeconfig="/k")
    await stage.open()
    await stage.node(podCIDRs=["10.0.1.0/24"])
    await stage.node()
    await stage.node(podCIDRs=["10.0.2.0/24"])
    assert stage.sent == ["10.0.1.0/24", "10.0.2.0/24"]
    await stage.kill()


@on_virtual_time
async def test_they_are_sent_again_after_a_restart_of_podsync() -> None:
    stage = Stage(kubeconfig="/k")
    await stage.open()
    await stage.node(podCIDRs=["10.0.1.0/24"])
    await stage.kill()
    await stage.start()
    assert stage.sent == ["10.0.1.0/24", "10.0.1.0/24"]
    await stage.kill()


@on_virtual_time
async def test_what_the_runtime_did_not_take_is_a_trouble_and_is_sent_again() -> None:
    stage = Stage(kubeconfig="/k")
    await stage.open()
    stage.runtime.fail("UpdateRuntimeConfig", "Unavailable", "no socket", times=2)
    await stage.node(podCIDRs=["10.0.1.0/24"])
    await stage.passes(1)
    line = "the runtime did not take the pod CIDR 10.0.1.0/24: rpc error: code = Unavailable desc = no socket"
    assert list(stage.troubles) == [line]
    await stage.node(podCIDRs=["10.0.2.0/24"])  # the newest one counts
    await stage.passes(2 * RETRY_SECONDS)
    assert stage.sent == ["10.0.1.0/24", "10.0.2.0/24", "10.0.2.0/24"]
    await stage.passes(2)
    assert list(stage.troubles) == []
    await stage.kill()


@on_virtual_time
async def test_the_configuration_has_them_on_a_node_without_a_cluster() -> None:
    stage = Stage(pod_cidr="10.9.0.0/24")
    await stage.open()
    assert stage.sent == ["10.9.0.0/24"]
    await stage.kill()


@on_virtual_time
async def test_in_a_cluster_the_configuration_does_not_count() -> None:
    stage = Stage(kubeconfig="/k", pod_cidr="10.9.0.0/24")
    await stage.open()
    await stage.passes(60)
    assert stage.sent == []
    await stage.node(podCIDRs=["10.0.1.0/24"])
    assert stage.sent == ["10.0.1.0/24"]
    await stage.kill()
