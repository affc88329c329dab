"""Status on the in-memory bus and virtual time: what it publishes of the node and its pods, and when."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from bus.messages.event import KubeEvent
from bus.messages.pleg import NodeObserved
from bus.messages.podsync import NodePressure, NodeShutdown
from bus.messages.streams import (
    NODE_OBSERVED,
    NODE_PRESSURE,
    NODE_SHUTDOWN,
    events_of,
)
from bus.stream import EventRecorder
from services.frame.launch import Context
from services.status.controllers.node_conditions import BOOTSTRAP_IS_SILENT
from services.status.core.ready import MAIN_LOOPS
from services.status.service import Status, build
from shared.config.effective import EffectiveConfig
from shared.model.frozen_copy import replace
from shared.time.timestamps import rfc3339_micro
from tests.fakes.followed import FollowedStream
from tests.fakes.memory_bus import MemoryNetwork
from tests.service.running_service import running_service
from tests.support.waits.deadline import WAIT_SECONDS

WELL = NodeObserved(
    observed_at=0,
    runtime_reachable=True,
    runtime_ready=True,
    network_ready=True,
    network_message="",
    last_relist_at=1,
    cpus=1,
    memory_capacity=1,
    nodefs_capacity=1,
)


Conditions = tuple[dict[str, str], ...]


class Decided:
    """The conditions of the node that status decided, in every incarnation, in order."""

    def __init__(self) -> None:
        self.all: list[Conditions] = []
        self._changed = asyncio.Event()

    def watch(self, service: Status) -> None:
        evaluator = service.node_conditions
        publish = evaluator._publish

        async def recorded(conditions: Conditions, now: float) -> None:
            before = evaluator.conditions
            await publish(conditions, now)
            if evaluator.conditions is not before:
                self.all.append(evaluator.conditions)
                self._changed.set()

        evaluator._publish = recorded  # type: ignore[method-assign]

    async def until(self, condition: Callable[[Conditions], bool]) -> Conditions:
        async with asyncio.timeout(WAIT_SECONDS):
            while not self.all or not condition(self.all[-1]):
                self._changed.clear()
                await self._changed.wait()
        return self.all[-1]


class Node:
    """The other processes as buses, and status, started again and again."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.network = MemoryNetwork()
        self.buses = {name: self.network.bus(name) for name in ("bootstrap", "sources", "podsync", "volume", "server")}
        self.pressure = self.buses["podsync"].own(NODE_PRESSURE)
        self.shutdown = self.buses["podsync"].own(NODE_SHUTDOWN)
        self.podsync_events = EventRecorder(self.buses["podsync"].own(events_of("podsync")), self.network.clock)
        self.decided = Decided()
        self.node_events = FollowedStream(self.buses["server"], events_of("status"))
        self.start_pleg()

    def start_pleg(self) -> None:
        self.pleg = self.network.bus("pleg")
        self.observed = self.pleg.own(NODE_OBSERVED)

    async def start(self) -> None:
        for bus in (*self.buses.values(), self.pleg):
            await bus.start()

    def observe(self, observed: NodeObserved) -> None:
        self.observed.put("node", replace(observed, last_relist_at=self.network.clock.monotonic()))

    async def live(self, seconds: int) -> None:
        """Time passes while pleg relists and every running loop turns."""
        for _ in range(seconds):
            self.turn()
            await self.network.advance(1)

    def turn(self, *but: str) -> None:
        """Every main loop turns, but for those of the services named."""
        for bus in (*self.buses.values(), self.pleg):
            if bus.service not in but:
                bus.progress(MAIN_LOOPS[bus.service])

    def live_while_status_is_stopped(self, seconds: int) -> None:
        """SIGSTOP: the beats of the first seconds wait for status, then the queue is full. No event loop turns."""
        for second in range(seconds):
            self.network.clock.advance(1)
            self.turn()
            if second < 5:
                for bus in (*self.buses.values(), self.pleg):
                    bus.beat()
        self.network._next_beat += seconds

    @property
    def ready_values(self) -> list[str]:
        """Every Ready that was decided, in order."""
        return [conditions[-1]["status"] for conditions in self.decided.all]

    @contextlib.asynccontextmanager
    async def status(self) -> AsyncIterator[None]:
        config = EffectiveConfig(
            node_name="n1",
            root_dir=str(self.tmp_path / "root"),
            run_dir=str(self.tmp_path / "run"),
            log_dir="",
            cert_dir="",
        )
        bus = self.network.bus("status")
        service = build(Context("status", config, bus, self.network.clock, asyncio.Event()))
        self.decided.watch(service)
        async with running_service(self.network, bus, service):
            yield

    @contextlib.asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """status runs, and has found everything well."""
        self.observe(WELL)
        async with self.status():
            await self.until_ready_is("True", "")
            yield

    async def until_ready_is(self, status: str, text: str) -> dict[str, str]:
        def holds(conditions: Conditions) -> bool:
            return conditions[-1]["status"] == status and text in conditions[-1]["message"]

        return (await self.decided.until(holds))[-1]


@pytest.fixture
async def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    await node.start()
    return node


async def test_a_well_node_is_ready_with_its_pressure_conditions(node: Node) -> None:
    node.observe(WELL)
    pressure = {"type": "DiskPressure", "status": "False", "reason": "KubeletHasNoDiskPressure", "message": "m"}
    node.pressure.put("node", NodePressure(conditions=({**pressure, "lastTransitionTime": "t0"},)))
    async with node.status():
        ready = await node.until_ready_is("True", "kubelet is posting ready status")
        await node.decided.until(lambda conditions: len(conditions) == 2)
    assert ready["lastTransitionTime"] == "2023-11-14T22:13:20Z"


async def test_no_condition_is_published_before_it_is_known(node: Node) -> None:
    async with node.status():
        await node.live(29)
        assert node.decided.all == []
        await node.live(3)
        await node.until_ready_is("False", "network state unknown")


async def test_a_shutdown_of_the_machine_makes_the_node_not_ready_until_it_is_cancelled(node: Node) -> None:
    node.observe(WELL)
    async with node.status():
        await node.until_ready_is("True", "kubelet is posting ready status")
        node.shutdown.put("node", NodeShutdown(in_progress=True))
        ready = await node.until_ready_is("False", "node is shutting down")
        assert (ready["reason"], ready["message"]) == ("KubeletNotReady", "node is shutting down")
        node.shutdown.put("node", NodeShutdown(in_progress=True, over=True))
        await node.live(2)
        assert node.ready_values[-1] == "False"
        node.shutdown.put("node", NodeShutdown(in_progress=False))
        await node.until_ready_is("True", "kubelet is posting ready status")


async def test_a_network_that_fails_makes_the_node_not_ready_and_back_with_events(node: Node) -> None:
    async with node.ready():
        node.observe(replace(WELL, network_ready=False, network_message="reason:NetworkPluginNotReady message:no cni"))
        expected = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:no cni"
        assert (await node.until_ready_is("False", ""))["message"] == expected
        node.observe(WELL)
        await node.until_ready_is("True", "")
        events = await node.node_events.until(lambda state: len(state) == 2)
    assert [event.message for event in events.values()] == [
        "Node n1 status is now: NodeNotReady",
        "Node n1 status is now: NodeReady",
    ]
    assert {(event.kind, event.name, event.uid, event.type) for event in events.values()} == {
        ("Node", "n1", "", "Normal")
    }


async def test_a_runtime_that_goes_away_is_down_after_thirty_seconds(node: Node) -> None:
    async with node.ready():
        node.observe(replace(WELL, runtime_reachable=False))
        await node.live(29)
        assert node.decided.all[-1][-1]["status"] == "True"
        await node.live(3)
        await node.until_ready_is("False", "container runtime is down")


async def test_a_dead_process_is_no_matter_for_thirty_seconds_and_named_afterwards(node: Node) -> None:
    async with node.ready():
        await node.live(1)
        node.network.kill("volume")
        del node.buses["volume"]
        await node.live(29)
        assert node.decided.all[-1][-1]["status"] == "True"
        await node.live(3)
        await node.until_ready_is("False", "volume is not healthy: volume was last seen active 31s ago")


async def test_a_silent_bootstrap_is_a_trouble_and_no_condition(node: Node) -> None:
    node.observe(WELL)
    troubles: list[tuple[str, ...]] = []
    listener = node.network.bus("listener")
    listener.on_beat(lambda beat: troubles.append(beat.troubles) if beat.service == "status" else None)
    await listener.start()
    async with node.status():
        await node.until_ready_is("True", "")
        await node.live(2)
        node.network.kill("bootstrap")
        stopped = node.buses.pop("bootstrap")
        await node.live(29)
        assert BOOTSTRAP_IS_SILENT not in troubles[-1]
        await node.live(60)
        assert node.ready_values == ["True"]
        assert BOOTSTRAP_IS_SILENT in troubles[-1]
        node.buses["bootstrap"] = node.network.bus(stopped.service)
        await node.buses["bootstrap"].start()
        await node.live(3)
        assert node.ready_values == ["True"] and BOOTSTRAP_IS_SILENT not in troubles[-1]


async def test_a_restart_of_pleg_is_no_matter(node: Node) -> None:
    async with node.ready():
        await node.live(5)
        node.network.kill("pleg")
        node.start_pleg()
        await node.pleg.start()
        node.observed.put("node", replace(WELL, last_relist_at=0))
        await node.network.advance(10)
    assert node.ready_values == ["True"]


async def test_a_process_whose_main_loop_hangs_is_named_though_another_loop_of_it_turns(node: Node) -> None:
    async with node.ready():
        await node.live(2)
        for _ in range(32):
            node.turn("volume")
            node.buses["volume"].progress("another")
            await node.network.advance(1)
        await node.until_ready_is("False", "volume is not healthy: volume was last seen active 31s ago")


async def test_a_loop_that_turns_when_there_is_work_may_rest(node: Node) -> None:
    node.observe(WELL)
    node.buses["bootstrap"].progress("kubeconfig")
    async with node.status():
        await node.until_ready_is("True", "")
        await node.live(120)
    assert node.ready_values == ["True"]


async def test_a_time_in_which_status_was_stopped_is_nobodys_silence(node: Node) -> None:
    async with node.ready():
        await node.live(2)
        for seconds in (60, 300):
            node.live_while_status_is_stopped(seconds)
            await node.network.settle()
            await node.live(40)
    assert node.ready_values == ["True"]


async def test_who_died_while_status_was_stopped_is_named_thirty_seconds_after_it_goes_on(node: Node) -> None:
    async with node.ready():
        await node.live(2)
        node.network.kill("volume")
        del node.buses["volume"]
        node.live_while_status_is_stopped(60)
        await node.live(29)
        assert node.ready_values == ["True"]
        await node.live(3)
        await node.until_ready_is("False", "volume is not healthy: volume was last seen active 1m3")


async def test_a_report_of_the_runtime_counts_at_once_also_after_a_stop(node: Node) -> None:
    async with node.ready():
        await node.live(2)
        node.network.kill("volume")
        del node.buses["volume"]
        node.live_while_status_is_stopped(60)
        node.observe(replace(WELL, network_ready=False, network_message="reason:X message:no cni"))
        ready = await node.until_ready_is("False", "reason:X message:no cni")
        assert "volume" not in ready["message"]


@pytest.mark.long
async def test_pleg_that_stands_still_for_three_minutes_makes_the_node_not_ready(node: Node) -> None:
    async with node.ready():
        await node.live(2)
        for _ in range(181):
            node.turn("pleg")
            await node.network.advance(1)
        await node.until_ready_is("False", "PLEG is not healthy: pleg was last seen active 3m")


async def test_the_transition_time_survives_a_restart(node: Node) -> None:
    node.observe(WELL)
    async with node.status():
        before = await node.until_ready_is("True", "")
    await node.live(100)
    async with node.status():
        await node.decided.until(lambda now: now[-1]["lastHeartbeatTime"] > before["lastHeartbeatTime"])
    after = node.decided.all[-1][-1]
    assert after["lastTransitionTime"] == before["lastTransitionTime"]
    assert node.node_events.state == {}


async def test_a_changing_duration_alone_is_published_only_every_ten_seconds(node: Node) -> None:
    async with node.ready():
        node.network.kill("volume")
        del node.buses["volume"]
        await node.live(32)
        await node.until_ready_is("False", "volume")
        before = len(node.ready_values)
        await node.live(30)
        await node.until_ready_is("False", "1m")
    assert len(node.ready_values) - before in (2, 3)


async def test_events_of_all_processes_are_logged_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    node.podsync_events.record(KubeEvent(type="Normal", reason="Started", message="Container started", name="web"))
    async with node.status():
        await node.network.settle()
        node.podsync_events.record(KubeEvent(type="Warning", reason="BackOff", message="Back-off", name="web"))
        await node.network.settle()
    node.network.clock.advance(3600)
    async with node.status():
        await node.network.settle()
    lines = [record.getMessage() for record in caplog.records if "Event occurred" in record.getMessage()]
    assert [("reason=Started" in line, "reason=BackOff" in line) for line in lines] == [(True, False), (False, True)]


@pytest.mark.parametrize("hours", [1, -1])
async def test_what_comes_after_a_clock_step_is_logged(
    node: Node, caplog: pytest.LogCaptureFixture, hours: int
) -> None:
    caplog.set_level("INFO")
    async with node.status():
        await node.network.settle()
        before = rfc3339_micro(node.network.clock.wall())
        node.network.clock._wall += hours * 3600
        node.podsync_events.record(KubeEvent(type="Normal", reason="Started", message="m", name="web"))
        node.podsync_events.record(KubeEvent(type="Normal", reason="Pulled", message="m", name="web", time=before))
        await node.network.settle()
    lines = [record.getMessage() for record in caplog.records if "Event occurred" in record.getMessage()]
    assert ["reason=Started" in lines[0], "reason=Pulled" in lines[1], len(lines)] == [True, True, 2]


async def test_a_writer_keeps_the_newest_two_hundred_events(node: Node) -> None:
    for number in range(250):
        node.podsync_events.record(KubeEvent(type="Normal", reason="R", message=str(number)))
    followed = FollowedStream(node.network.bus("status"), events_of("podsync"))
    await node.network._buses["status"].start()
    assert {event.message for event in (await followed.until(bool)).values()} == {str(n) for n in range(50, 250)}
