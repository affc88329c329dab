"""A run once on the in-memory bus: bootstrap follows the pods, records each outcome and ends supervisord."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodStatus
from bus.messages.sources import DesiredPod
from bus.messages.streams import PODS_DESIRED, PODS_STATUS
from services.bootstrap.adapters.supervisord import Supervisord, SupervisordError
from services.bootstrap.controllers.run_once import RunOnce
from services.frame.launch import Context
from shared.agent.run_once import load_record
from shared.config.effective import EffectiveConfig
from shared.model.run_once import Outcome, RunOnceRecord
from tests.fakes.memory_bus import MemoryNetwork
from tests.fakes.virtual_time import AtOnce, ended, pass_time, virtual_clock

pytestmark = pytest.mark.virtual_time

GENERATION = "boot/17/1"
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


class Node:
    """sources and podsync as far as a run once follows them, and bootstrap; `refusals` of supervisord come first."""

    def __init__(self, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asyncio.get_running_loop().set_default_executor(AtOnce(1))
        self.network, self.run_dir = MemoryNetwork(virtual_clock()), run_dir
        self.sources, self.podsync = self.network.bus("sources"), self.network.bus("podsync")
        self.desired, self.statuses = self.sources.own(PODS_DESIRED), self.podsync.own(PODS_STATUS)
        self.shutdowns, self.refusals = 0, 0
        monkeypatch.setattr(Supervisord, "of_environment", lambda: self)
        self._task: asyncio.Task[None]

    def shut_down(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise SupervisordError("no answer")
        self.shutdowns += 1

    async def begin(self, generation: str = GENERATION) -> None:
        config = EffectiveConfig(
            node_name="n", root_dir="/r", run_dir=str(self.run_dir), log_dir="", cert_dir="", static_pod_path="/m"
        )
        bus = self.network.bus("bootstrap")
        run_once = RunOnce(Context("bootstrap", config, bus, self.network.clock, asyncio.Event()), generation)
        await bus.start()
        self._task = asyncio.create_task(run_once.run())
        await pass_time(self.network, 3)

    async def kill(self) -> None:
        await ended(self._task)
        self.network.kill("bootstrap")

    async def start(self) -> None:
        await self.sources.start()
        await self.podsync.start()
        await self.begin()

    async def want(self, *names: str, policy: str = "Never") -> None:
        for name in names:
            pod = {"metadata": {"namespace": "default", "name": name}, "spec": {"restartPolicy": policy}}
            self.desired.put(name, DesiredPod(uid=name, source="file", pod=pod))
        self.desired.mark_complete()
        self.statuses.mark_complete()
        await pass_time(self.network, 3)

    async def show(self, name: str, **status: Any) -> None:
        self.statuses.put(name, PodStatus(uid=name, name=name, namespace="default", version=(1, 1), status=status))
        await pass_time(self.network, 3)

    @property
    def record(self) -> RunOnceRecord:
        found = load_record(self.run_dir)
        assert found is not None
        return found

    @property
    def outcomes(self) -> dict[str, Outcome]:
        return {pod.name: pod.outcome for pod in self.record.pods}


async def test_the_agent_ends_when_each_pod_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch)
    await node.start()
    assert load_record(tmp_path) is None, "no pod is known yet"
    await node.want("a", "b")
    assert node.outcomes == {"a": Outcome.WAITING, "b": Outcome.WAITING}
    await node.show("a", phase="Succeeded")
    await node.show("b", phase="Running")
    assert node.outcomes == {"a": Outcome.SUCCEEDED, "b": Outcome.RUNNING}
    assert node.shutdowns == 0
    await node.show("b", phase="Failed")
    assert node.record.complete and node.record.failed
    assert node.shutdowns == 1
    await node.kill()


async def test_a_killed_bootstrap_goes_on_with_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch)
    await node.start()
    await node.want("web", policy="Always")
    await node.show("web", phase="Running")
    began = node.record.began
    await node.kill()
    await pass_time(node.network, 1100)
    await node.begin()
    assert node.record.began == began
    assert node.outcomes == {"web": Outcome.FAILED}, "its time to start counts from the begin of the run"
    await node.kill()
    shutdowns = node.shutdowns
    await node.begin()
    assert node.shutdowns == shutdowns + 1, "killed after the record was complete, it requests the end again"
    await node.kill()
    await node.begin(generation="boot/18/9")
    assert node.record.generation == "boot/18/9" and node.record.began > began, "a later agent begins again"
    await node.kill()


async def test_a_supervisord_that_does_not_answer_is_requested_to_end_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, monkeypatch)
    node.refusals = 2
    await node.start()
    await node.want("web", policy="Always")
    await node.show("web", **READY)
    await pass_time(node.network, 30)
    assert (node.refusals, node.shutdowns) == (0, 1)
    await node.kill()


async def test_a_manifest_that_sources_cannot_use_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, monkeypatch)
    node.sources.trouble("manifest /m/bad.yaml", "/m/bad.yaml: invalid pod: no containers")
    node.sources.trouble("inotify", "too many watches")
    await node.start()
    await node.want()
    assert node.record.complete and node.record.failed
    assert node.record.problems == ("/m/bad.yaml: invalid pod: no containers",)
    assert node.shutdowns == 1
    await node.kill()


async def test_nothing_is_decided_by_an_incomplete_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch)
    await node.start()
    node.desired.mark_complete()
    await pass_time(node.network, 30)
    assert load_record(tmp_path) is None and node.shutdowns == 0
    await node.kill()
