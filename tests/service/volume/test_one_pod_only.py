"""What goes wrong for one pod costs that pod only: paths that hang, names that are not text, mistakes of ours."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodState
from bus.messages.volume import VolumeState
from services.volume import operations, service
from services.volume.actions import Actions
from services.volume.adapters import empty_dir, host_path
from services.volume.core.operations import Kind, MountVolume, Operation
from services.volume.core.payload import Gathered
from services.volume.core.reconciler import Reconciler
from services.volume.core.volume_source import HostPath, VolumeSource, volume_source
from shared.model.objects import Object
from shared.tree_removal import Removed
from tests.fakes.heard import PATIENCE
from tests.service.volume.node import Node, started_node

HUNG = 20  # paths; more than there are places for looks at hostPaths


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    node = await started_node(tmp_path, monkeypatch)
    node.host.mkdir()
    node.admitted.mark_complete()
    return node


class DeadServer:
    """Paths below `/dead` hang until it answers; other looks at hostPaths are real."""

    def __init__(self) -> None:
        self.answers, self.under_way, self.most = threading.Event(), 0, 0
        self._set_up, self._lock = host_path.set_up, threading.Lock()

    def set_up(self, source: HostPath) -> str:
        if not source.path.startswith("/dead"):
            return self._set_up(source)
        with self._lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        assert self.answers.wait(PATIENCE)
        with self._lock:
            self.under_way -= 1
        return source.path


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeadServer]:
    dead = DeadServer()
    monkeypatch.setattr(operations, "HOST_PATH_PATIENCE", 0.05)
    monkeypatch.setattr(host_path, "set_up", dead.set_up)
    yield dead
    dead.answers.set()


def mounted(node: Node, uid: str) -> bool:
    shown = node.mounted.state.get(uid)
    return shown is not None and all(v.state is VolumeState.MOUNTED for v in shown.volumes.values())


async def test_paths_that_hang_are_named_and_stop_no_other_volume(node: Node, dead: DeadServer) -> None:
    for number in range(HUNG):
        node.volumes.append({"name": f"nfs-{number}", "hostPath": {"path": f"/dead/{number}", "type": "Directory"}})
        node.admit(f"hung-{number:02}", f"nfs-{number}")
    async with node.volume():
        await node.mounted.until(lambda state: sum("hung" in uid for uid in state) == HUNG)
        node.admit("fine", "cache", "logs")
        await node.mounted.until(lambda _: mounted(node, "fine"))
        await node.until_troubles("MountVolume nfs-0 of pod default/web (hung-00): /dead/0 does not answer")
        assert dead.most == operations.PLACES[Kind.HOST_PATH]
        error = node.mounted.state["hung-00"].volumes["nfs-0"].error
        assert error.startswith('MountVolume.SetUp failed for volume "nfs-0" : hostPath type check failed: /dead/0 ')
        dead.answers.set()
        await node.mounted.until(lambda _: all(mounted(node, f"hung-{number:02}") for number in range(HUNG)))
        await node.until_troubles()


async def test_many_pods_on_one_path_that_hangs_take_one_thread(node: Node, dead: DeadServer) -> None:
    node.volumes.append({"name": "nfs", "hostPath": {"path": "/dead/share", "type": "Directory"}})
    for number in range(HUNG):
        node.admit(f"hung-{number}", "nfs")
    node.admit("fine", "host")
    async with node.volume():
        await node.mounted.until(lambda state: len(state) == HUNG + 1 and mounted(node, "fine"))
        assert dead.most == 1
        errors = {node.mounted.state[f"hung-{number}"].volumes["nfs"].error for number in range(HUNG)}
        text = "hostPath type check failed: /dead/share does not answer within 0.05 s"
        assert errors == {f'MountVolume.SetUp failed for volume "nfs" : {text}'}


async def test_a_pod_whose_path_hangs_can_be_removed(node: Node, dead: DeadServer) -> None:
    node.volumes.append({"name": "nfs", "hostPath": {"path": "/dead/share", "type": "Directory"}})
    node.admit("hung", "nfs", "cache")
    async with node.volume():
        await node.mounted.until(bool)
        node.admit("hung", state=PodState.FINISHED)
        await node.until_gone("hung")
        assert dead.under_way == 1


async def test_a_removal_that_takes_long_is_reported_with_how_far_it_is(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def remove(path: Path, removed: Removed | None = None) -> None:
        if removed is not None:
            removed.entries = 250_000
            entered.set()
            assert go_on.wait(PATIENCE)

    monkeypatch.setattr(empty_dir, "remove_tree", remove)
    monkeypatch.setattr(operations, "SLOW", 0.0)
    node.admit("u", "cache")
    async with node.volume():
        await node.mounted.until(bool)
        node.admit("u", state=PodState.TERMINATED)
        assert await asyncio.to_thread(entered.wait, PATIENCE)
        node.admit("v")
        await node.until_troubles("UnmountVolume cache of pod default/web (u) takes long, 200000 entries are removed")
        go_on.set()
        await node.mounted.until(lambda state: "u" not in state)
        await node.until_troubles()


async def test_a_name_that_is_not_utf8_in_a_volume_that_cannot_be_removed_is_an_error_of_its_pod(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, removed: Removed | None = None) -> None:
        if path.parent.parent.name == "volumes":
            raise PermissionError(1, "Operation not permitted", f"{path}/caf\udce9")

    monkeypatch.setattr(empty_dir, "remove_tree", refused)
    node.admit("u", "cache")
    async with node.volume():
        await node.mounted.until(bool)
        node.admit("u", state=PodState.TERMINATED)
        state = await node.mounted.until(lambda state: bool(state["u"].volumes["cache"].error))
        assert state["u"].volumes["cache"].error.endswith("/caf\\xe9: operation not permitted")
        node.admit("v", "cache")
        await node.mounted.until(lambda _: mounted(node, "v"))


async def test_a_mistake_in_the_decision_for_one_pod_is_tried_again_and_stops_no_other(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    operations_of = Reconciler.operations

    def mistaken(reconciler: Reconciler, uid: str, now: float) -> list[Operation]:
        if uid == "bad":
            raise KeyError("of a shape that is not known")
        return operations_of(reconciler, uid, now)

    node.admit("bad", "cache")
    with monkeypatch.context() as broken:
        broken.setattr(Reconciler, "operations", mistaken)
        async with node.volume():
            node.admit("good", "cache")
            await node.mounted.until(lambda _: mounted(node, "good"))
            await node.until_troubles("reconciliation of pod bad failed: KeyError")
            for number in range(5):
                node.admit(f"good-{number}", "cache")
            await node.mounted.until(lambda _: mounted(node, "good-4"))
            broken.undo()
            await node.mounted.until(lambda _: mounted(node, "bad"))
            await node.until_troubles()
    assert len([record for record in caplog.records if record.exc_info]) == 1


async def test_a_mistake_in_an_operation_is_an_error_of_its_pod(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    perform = Actions.perform

    def mistaken(actions: Actions, operation: Operation, gathered: Gathered, removed: Removed) -> str:
        if operation.uid == "bad" and isinstance(operation, MountVolume):
            raise IndexError("of a shape that is not known")
        return perform(actions, operation, gathered, removed)

    monkeypatch.setattr(Actions, "perform", mistaken)
    node.admit("bad", "cache")
    async with node.volume():
        node.admit("good", "cache")
        state = await node.mounted.until(lambda state: mounted(node, "good") and "bad" in state)
        assert state["bad"].volumes["cache"].error.endswith("unexpected IndexError")
        await node.until_troubles("MountVolume cache of pod bad failed: IndexError")
        node.admitted.delete("bad")
        await node.until_troubles()


async def test_a_volume_that_cannot_be_understood_is_refused_and_the_rest_is_mounted(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(pod: Object, name: str, on: Any) -> VolumeSource:
        if name == "key":
            raise AttributeError("of a shape that is not known")
        return volume_source(pod, name, on)

    monkeypatch.setattr(service, "volume_source", mistaken)
    node.admit("u", "key", "cache")
    async with node.volume():
        state = await node.mounted.until(lambda state: "u" in state and bool(state["u"].volumes["cache"].host_path))
        assert state["u"].volumes["key"].error.endswith("unexpected AttributeError")


async def test_a_directory_that_cannot_be_read_at_the_start_keeps_no_other_pod_waiting(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = Actions.found

    def unreadable(actions: Actions, uid: str) -> object:
        if uid == "bad":
            raise OSError(5, "Input/output error", uid)
        return found(actions, uid)

    for uid in ("bad", "good"):
        node.empty_dir(uid, "cache").mkdir(parents=True)
    monkeypatch.setattr(Actions, "found", unreadable)
    caplog.set_level(logging.ERROR)
    async with node.volume():
        await node.mounted.until_complete()
        await node.until_gone("good")
        await node.until_troubles("look at the directory of pod bad failed: OSError")
        await asyncio.sleep(0)
    assert node.empty_dir("bad", "cache").is_dir()
