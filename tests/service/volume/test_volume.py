"""Volume on the in-memory bus with a real root directory: what podsync receives, and what is on disk then."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodState
from bus.messages.volume import MountedVolume, VolumeState
from services.volume.controllers import memory_swap_warning, operation_executor, reconciliation
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.mounting import orphans
from services.volume.core.operations.operations import Kind, MountVolume, Operation
from services.volume.core.operations.outcome import Performed, PluginEvent
from services.volume.core.reconciler import Reconciler
from services.volume.plugins.empty_dir import EmptyDirPlugin
from services.volume.plugins.plugin_calls import PluginCalls
from shared.files.tree_removal import RemovalProgress
from shared.podspec.support import why_unmounted
from tests.service.volume.node import Node, started_node
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return await started_node(tmp_path, monkeypatch)


async def test_all_volumes_of_a_pod_are_published_in_one_put(node: Node) -> None:
    node.host.mkdir()
    node.admit("u", "cache", "logs", "host")
    async with node.volume():
        mounted = (await node.mounted.until(bool))["u"].volumes
    assert node.mounted.history == ["put u"]
    assert mounted == {
        "cache": MountedVolume(
            health=(), state=VolumeState.MOUNTED, host_path=str(node.empty_dir("u", "cache")), selinux_relabel=True
        ),
        "logs": MountedVolume(
            health=(), state=VolumeState.MOUNTED, host_path=str(node.empty_dir("u", "logs")), selinux_relabel=True
        ),
        "host": MountedVolume(state=VolumeState.MOUNTED, host_path=str(node.host), health=()),
    }
    assert node.empty_dir("u", "cache").is_dir()


async def test_a_pod_without_volumes_gets_directories_and_no_entry(node: Node) -> None:
    node.admit("u")
    node.admit("v", "cache")
    async with node.volume():
        await node.mounted.until(lambda state: "v" in state)
        async with asyncio.timeout(WAIT_SECONDS):
            while not (node.directory("u") / "plugins").exists():
                await asyncio.sleep(0)
    assert "u" not in node.mounted.state


async def test_a_pod_that_ends_is_unmounted_and_then_removed(node: Node) -> None:
    node.admit("u", "cache")
    node.admitted.mark_complete()
    async with node.volume():
        await node.mounted.until(bool)
        (node.empty_dir("u", "cache") / "data").write_text("x")
        node.admit("u", state=PodState.TERMINATED)
        await node.mounted.until(lambda state: not state)
        assert node.directory("u").is_dir()
        assert not node.empty_dir("u", "cache").exists()
        node.admit("u", state=PodState.FINISHED)
        await node.until_gone("u")


async def test_a_turn_without_a_change_looks_at_no_pod(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []
    turns: list[int] = []
    operations, report = Reconciler.operations, reconciliation.Reconciliation._report

    def counted(self: Reconciler, uid: str, now: float) -> list[Operation]:
        looked_at.append(uid)
        return operations(self, uid, now)

    def turned(self: reconciliation.Reconciliation) -> None:
        turns.append(len(looked_at))
        report(self)

    async def until_turned(times: int) -> None:
        before = len(turns)
        async with asyncio.timeout(WAIT_SECONDS):
            while len(turns) < before + times:
                await asyncio.sleep(0)

    monkeypatch.setattr(Reconciler, "operations", counted)
    monkeypatch.setattr(reconciliation.Reconciliation, "_report", turned)
    monkeypatch.setattr(reconciliation, "TURN_SECONDS", 0.001)
    monkeypatch.setattr(reconciliation, "HOLD_SECONDS", 10 * WAIT_SECONDS)  # at whose end all pods are looked at
    node.admit("u", "cache")
    node.admitted.mark_complete()
    async with node.volume():
        await node.mounted.until(bool)
        await until_turned(5)
        before = len(looked_at)
        await until_turned(20)
        assert len(looked_at) == before
        node.admit("u", state=PodState.TERMINATED)
        await node.mounted.until(lambda state: not state)
    assert len(looked_at) > before


@pytest.mark.long
async def test_a_failing_mount_is_an_error_and_an_event_until_it_succeeds(node: Node) -> None:
    node.admit("u", "host")
    text = f'MountVolume.SetUp failed for volume "host" : hostPath type check failed: {node.host} is not a directory'
    async with node.volume():
        state = await node.mounted.until(bool)
        assert state["u"].volumes["host"] == MountedVolume(state=VolumeState.ERROR, error=text)
        (event, *_) = (await node.events.until(bool)).values()
        node.host.mkdir()
        await node.mounted.until(lambda state: state["u"].volumes["host"].state is VolumeState.MOUNTED)
    assert (event.type, event.reason, event.message) == ("Warning", "FailedMount", text)
    assert (event.namespace, event.name, event.uid) == ("default", "web", "u")


async def test_an_unsupported_volume_names_its_type(node: Node) -> None:
    node.admit("u", "key")
    async with node.volume():
        state = await node.mounted.until(bool)
        await node.events.until(bool)
    assert state["u"].volumes["key"].error.endswith(why_unmounted("rbd"))
    assert state["u"].volumes["key"].unsupported


async def test_a_restart_finds_what_is_there_and_changes_nothing_on_disk(node: Node) -> None:
    node.admit("u", "cache")
    node.admitted.mark_complete()
    async with node.volume():
        before = await node.mounted.until(bool)
        (node.empty_dir("u", "cache") / "data").write_text("kept")
    async with node.volume():
        await node.mounted.until(lambda state: node.mounted.history[-2:] == ["put u", "put u"] and state == before)
    assert (node.empty_dir("u", "cache") / "data").read_text() == "kept"


async def test_what_a_dead_pod_left_is_removed_once_the_list_is_complete_and_not_before(node: Node) -> None:
    (node.empty_dir("dead", "cache") / "data").mkdir(parents=True)
    node.admit("u", "cache")
    async with node.volume():
        state = await node.mounted.until(lambda state: "u" in state)
        assert state["dead"].volumes["cache"].state is VolumeState.PENDING
        assert node.empty_dir("dead", "cache").exists()
        node.admitted.mark_complete()
        await node.mounted.until(lambda state: list(state) == ["u"])
        await node.until_gone("dead")


@pytest.mark.long
async def test_what_is_mounted_is_published_before_the_stream_is_complete(node: Node) -> None:
    node.empty_dir("found", "cache").mkdir(parents=True)
    async with node.volume():
        assert list(await node.mounted.until_complete()) == ["found"]


async def test_what_a_plugin_reports_in_its_thread_is_an_event_of_the_pod_or_of_the_persistent_volume(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up = EmptyDirPlugin.set_up

    def reporting(plugin: EmptyDirPlugin, uid: str, *arguments: Any) -> str:
        plugin.report(PluginEvent("Slow", "of the pod", uid=uid))
        plugin.report(PluginEvent("Gone", "of another pod", uid="other"))
        plugin.report(PluginEvent("Done", "of the volume", persistent_volume="pv", is_warning=False))
        return set_up(plugin, uid, *arguments)

    monkeypatch.setattr(EmptyDirPlugin, "set_up", reporting)
    node.admit("u", "cache")
    async with node.volume():
        found = await node.events.until(lambda state: len(state) == 2)
    assert [(e.type, e.reason, e.message, e.kind, e.name) for e in found.values()] == [
        ("Warning", "Slow", "of the pod", "Pod", "web"),
        ("Normal", "Done", "of the volume", "PersistentVolume", "pv"),
    ]


class Gate:
    """Operations of pod `hung` hang in their thread until the gate is opened; all others are performed."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        self._perform = PluginCalls.perform

    def perform(
        self, calls: PluginCalls, operation: Operation, gathered: SetUpInputs, removed: RemovalProgress
    ) -> Performed:
        if operation.uid == "hung" and not isinstance(operation, MountVolume):
            self.entered.set()
            assert self.opened.wait(WAIT_SECONDS)
        return self._perform(calls, operation, gathered, removed)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """One operation of each kind at a time."""
    gate = Gate()
    monkeypatch.setattr(operation_executor, "MAX_OPERATIONS", dict.fromkeys(Kind, 1))
    monkeypatch.setattr(PluginCalls, "perform", lambda *arguments: gate.perform(*arguments))  # noqa: PLW0108 - bound to the calls, not to the gate
    yield gate
    gate.opened.set()


async def test_a_removal_kept_waiting_by_a_long_one_does_not_take_the_next_pod_of_the_same_uid(
    node: Node, gate: Gate
) -> None:
    node.admitted.mark_complete()
    node.admit("again", "cache")
    node.admit("hung", "cache")
    async with node.volume():
        await node.mounted.until(lambda state: len(state) == 2)
        node.admit("again", state=PodState.TERMINATED)
        await node.mounted.until(lambda state: "again" not in state)
        node.admitted.delete("hung")
        assert await asyncio.to_thread(gate.entered.wait, WAIT_SECONDS)
        node.admit("again", state=PodState.FINISHED)
        await node.network.settle()
        node.admitted.delete("again")
        await node.network.settle()
        node.admit("again", "cache")
        await node.network.settle()
        etc_hosts = node.directory("again") / "etc-hosts"
        etc_hosts.write_text("127.0.0.1 localhost\n")
        gate.opened.set()
        mounted = await node.mounted.until(
            lambda state: "again" in state and state["again"].volumes["cache"].state is VolumeState.MOUNTED
        )
    assert etc_hosts.exists()
    assert Path(mounted["again"].volumes["cache"].host_path).is_dir()


async def test_a_teardown_kept_waiting_by_a_long_one_does_not_take_the_data_of_the_next_pod(
    node: Node, gate: Gate
) -> None:
    node.admitted.mark_complete()
    node.admit("again", "cache")
    node.admit("hung", "cache")
    async with node.volume():
        await node.mounted.until(lambda state: len(state) == 2)
        data = node.empty_dir("again", "cache") / "data"
        data.write_text("kept")
        node.admitted.delete("hung")
        assert await asyncio.to_thread(gate.entered.wait, WAIT_SECONDS)
        node.admit("again", state=PodState.TERMINATED)
        await node.mounted.until(lambda state: state["again"].volumes["cache"].state is VolumeState.UNMOUNTING)
        node.admit("again", "cache")
        await node.mounted.until(lambda state: state["again"].volumes["cache"].state is VolumeState.PENDING)
        gate.opened.set()
        await node.mounted.until(lambda state: state["again"].volumes["cache"].state is VolumeState.MOUNTED)
    assert data.read_text() == "kept"


async def test_neither_events_nor_listings_of_directories_wait_for_operations_that_hang(
    node: Node, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciliation, "SWEEP_SECONDS", 0.0)  # a look in every turn of the loop
    node.admitted.mark_complete()
    node.admit("hung", "cache")
    async with node.volume():
        await node.mounted.until(bool)
        node.admitted.delete("hung")
        assert await asyncio.to_thread(gate.entered.wait, WAIT_SECONDS)
        node.admit("u", "key")
        await node.mounted.until(lambda state: "u" in state)


async def test_a_podsync_that_lost_its_records_and_finds_the_pod_again_keeps_its_volume(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "ORPHAN_GRACE_SECONDS", WAIT_SECONDS)
    node.admit("u", "cache")
    node.admitted.mark_complete()
    async with node.volume():
        await node.mounted.until(bool)
        data = node.empty_dir("u", "cache") / "data"
        data.write_text("kept")
        await node.podsync_restarts()
        node.admitted.mark_complete()
        await node.network.settle()
        await node.mounted.until(
            lambda state: "u" in state and state["u"].volumes["cache"].state is VolumeState.PENDING
        )
        node.admit("u", "cache")
        await node.mounted.until(
            lambda state: "u" in state and state["u"].volumes["cache"].state is VolumeState.MOUNTED
        )
    assert data.read_text() == "kept"


@pytest.mark.long
async def test_fifty_pods_come_and_go(node: Node) -> None:
    node.admitted.mark_complete()
    async with node.volume():
        for number in range(50):
            node.admit(f"u{number}", "cache", "logs")
        await node.mounted.until(lambda state: len(state) == 50)
        for number in range(50):
            node.admitted.delete(f"u{number}")
        await node.mounted.until(lambda state: not state)
        for number in range(50):
            await node.until_gone(f"u{number}")


@pytest.mark.long
async def test_a_change_of_one_pod_looks_at_no_other_pod(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: Counter[str] = Counter()
    operations = Reconciler.operations

    def counted(reconciler: Reconciler, uid: str, now: float) -> list[Operation]:
        looked_at[uid] += 1
        return operations(reconciler, uid, now)

    for uid in ("a", "b", "c"):
        node.admit(uid, "cache")
    node.admitted.mark_complete()
    async with node.volume():
        await node.mounted.until(lambda state: state.keys() == {"a", "b", "c"})
        monkeypatch.setattr(Reconciler, "operations", counted)
        for _ in range(10):
            node.admit("c", "cache", "logs")
            await node.mounted.until(lambda state: set(state["c"].volumes) == {"cache", "logs"})
            node.admit("c", "cache")
            await node.mounted.until(lambda state: set(state["c"].volumes) == {"cache"})
    assert looked_at["c"] >= 10
    assert looked_at["a"] < looked_at["c"] / 2  # a turn for every pod may be due at any moment


async def test_a_node_whose_memory_volumes_may_be_swapped_gets_one_event(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_swap_warning, "memory_may_be_on_disk", lambda: True)
    node.admit("u", "cache")
    async with node.volume():
        await node.mounted.until(bool)
        events = [event for event in node.events.state.values() if event.kind == "Node"]
    assert [(event.type, event.reason, event.name) for event in events] == [
        ("Warning", "PossibleMemoryBackedVolumesOnDisk", "n")
    ]
