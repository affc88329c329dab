"""What fails for one pod affects that pod only: removals that hang, names that are not text, programming errors."""

import asyncio
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodState
from services.volume.adapters import backing_directory
from services.volume.controllers import operation_executor, populator
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.operations.operations import MountVolume, Operation, UnmountVolume
from services.volume.core.operations.outcome import Performed
from services.volume.core.reconciler import Reconciler
from services.volume.core.specs.volume_spec import Refused, VolumeSpec
from services.volume.plugins.plugin_calls import PluginCalls
from services.volume.plugins.registry import volume_spec
from shared.files import tree_removal
from shared.files.tree_removal import RemovalPausedError, RemovalProgress
from shared.model.objects import Object
from tests.service.volume.node import TIMEOUT, Node, mounted, started_node
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    node = await started_node(tmp_path, monkeypatch)
    node.host.mkdir()
    node.admitted.mark_complete()
    return node


async def test_a_removal_that_takes_long_is_reported_with_how_far_it_is(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def remove(path: Path, removed: RemovalProgress | None = None) -> None:
        if removed is not None:
            removed.entries = 250_000
            entered.set()
            assert go_on.wait(WAIT_SECONDS)

    monkeypatch.setattr(backing_directory, "remove_tree", remove)
    monkeypatch.setattr(operation_executor, "REPORT_AFTER_SECONDS", 0.0)
    node.admit("u", "cache")
    async with node.volume():
        await node.mounted.until(bool)
        node.admit("u", state=PodState.TERMINATED)
        assert await asyncio.to_thread(entered.wait, WAIT_SECONDS)
        node.admit("v")
        await node.until_troubles("UnmountVolume cache of pod default/web (u) takes long, 200000 entries are removed")
        go_on.set()
        await node.mounted.until(lambda state: "u" not in state)
        await node.until_troubles()


LONG = 4  # removals; as many as there are places


@pytest.mark.long
async def test_long_removals_take_turns_with_the_others(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    going, turns = threading.Event(), dict.fromkeys((f"long-{number}" for number in range(LONG)), 0)
    remove_tree = tree_removal.remove_tree

    def remove(path: Path, removed: RemovalProgress | None = None) -> None:
        uid = path.parent.parent.parent.name
        if uid in turns and removed is not None and not going.is_set():
            turns[uid] += 1
            while not removed.pause:
                time.sleep(0.001)
            raise RemovalPausedError
        remove_tree(path, removed)

    monkeypatch.setattr(backing_directory, "remove_tree", remove)
    monkeypatch.setattr(operation_executor, "REMOVAL_TURN_SECONDS", 0.05)
    async with node.volume():
        for uid in (*turns, "fifth"):
            node.admit(uid, "cache")
        await node.mounted.until(lambda _: all(mounted(node, uid) for uid in (*turns, "fifth")))
        for uid in turns:
            node.admit(uid, state=PodState.FINISHED)
        async with asyncio.timeout(WAIT_SECONDS):
            while not all(turns.values()):
                await asyncio.sleep(0)
        node.admit("fifth", state=PodState.FINISHED)
        await node.until_gone("fifth")
        assert all(node.empty_dir(uid, "cache").is_dir() for uid in turns)
        going.set()
        for uid in turns:
            await node.until_gone(uid)


@pytest.mark.long
async def test_removals_that_hang_are_named_and_stop_no_other(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, perform = threading.Event(), PluginCalls.perform

    def hanging(calls: PluginCalls, operation: Operation, gathered: SetUpInputs, removed: RemovalProgress) -> Performed:
        if isinstance(operation, UnmountVolume) and operation.uid.startswith("hung"):
            assert answers.wait(WAIT_SECONDS)
        return perform(calls, operation, gathered, removed)

    monkeypatch.setattr(PluginCalls, "perform", hanging)
    monkeypatch.setattr(operation_executor, "REMOVAL_TIMEOUT_SECONDS", 0.5)
    hung = [f"hung-{number}" for number in range(LONG)]
    async with node.volume():
        for uid in (*hung, "fifth"):
            node.admit(uid, "cache")
        await node.mounted.until(lambda _: all(mounted(node, uid) for uid in (*hung, "fifth")))
        for uid in (*hung, "fifth"):
            node.admit(uid, state=PodState.FINISHED)
        await node.until_gone("fifth")
        unmount = "UnmountVolume cache of pod default/web"
        await node.until_troubles(
            "; ".join(f"{unmount} ({uid}): {node.directory(uid)} does not answer" for uid in hung)
        )
        state = await node.mounted.until(lambda state: bool(state["hung-0"].volumes["cache"].error))
        assert state["hung-0"].volumes["cache"].error.endswith("/pods/hung-0 does not answer within 0.5 s")
        answers.set()
        for uid in hung:
            await node.until_gone(uid)
        await node.until_troubles()


@pytest.mark.long
async def test_unmounts_of_one_server_that_hang_stop_no_other_removal(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, begun, perform = threading.Event(), list[str](), PluginCalls.perform

    def hanging(calls: PluginCalls, operation: Operation, gathered: SetUpInputs, removed: RemovalProgress) -> Performed:
        if not operation.volume.endswith("/share"):
            return perform(calls, operation, gathered, removed)
        if isinstance(operation, UnmountVolume):
            begun.append(operation.uid)
            assert answers.wait(WAIT_SECONDS)
        return Performed("/share")

    monkeypatch.setattr(PluginCalls, "perform", hanging)
    monkeypatch.setattr(operation_executor, "REMOVAL_TIMEOUT_SECONDS", 0.05)
    node.volumes.append({"name": "share", "nfs": {"server": "storage", "path": "/share"}})
    hung = [f"hung-{number}" for number in range(operation_executor.MAX_SPARE_REMOVALS + 2 * LONG)]
    async with node.volume():
        for uid in hung:
            node.admit(uid, "share")
        node.admit("fine", "cache")
        await node.mounted.until(lambda _: all(mounted(node, uid) for uid in (*hung, "fine")))
        for uid in hung:
            node.admit(uid, state=PodState.FINISHED)
        async with asyncio.timeout(WAIT_SECONDS):
            while len(begun) < operation_executor.MAX_UNMOUNTS_PER_DRIVER:
                await asyncio.sleep(0.01)
        node.admit("fine", state=PodState.FINISHED)
        await node.until_gone("fine")
        assert len(begun) == operation_executor.MAX_UNMOUNTS_PER_DRIVER
        answers.set()
        await node.mounted.until(lambda state: not state)


async def test_a_volume_whose_unmount_hangs_is_mounted_again_only_after_the_unmount_has_returned(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers, performed, perform = threading.Event(), list[str](), PluginCalls.perform

    def hanging(calls: PluginCalls, operation: Operation, gathered: SetUpInputs, removed: RemovalProgress) -> Performed:
        if operation.uid == "u" and isinstance(operation, UnmountVolume):
            assert answers.wait(WAIT_SECONDS)
        given = perform(calls, operation, gathered, removed)
        if operation.uid == "u":
            performed.append(type(operation).__name__)
        return given

    monkeypatch.setattr(PluginCalls, "perform", hanging)
    monkeypatch.setattr(operation_executor, "REMOVAL_TIMEOUT_SECONDS", 0.05)
    node.admit("u", "cache")
    async with node.volume():
        await node.mounted.until(lambda _: mounted(node, "u"))
        node.admit("u", state=PodState.FINISHED)
        async with asyncio.timeout(TIMEOUT):
            while "Operation for UnmountVolume u/cache failed." not in caplog.text:
                await asyncio.sleep(0.01)
        node.admit("u", "cache")
        node.admit("v", "cache")
        await node.mounted.until(lambda _: mounted(node, "v"))
        assert performed == ["MountVolume"]
        answers.set()
        await node.mounted.until(lambda _: performed[1:] == ["UnmountVolume", "MountVolume"] and mounted(node, "u"))
        assert node.empty_dir("u", "cache").is_dir()


async def test_a_removal_that_pauses_ends_before_its_volume_is_mounted_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, remove_tree = 0, tree_removal.remove_tree

    def remove(path: Path, removed: RemovalProgress | None = None) -> None:
        nonlocal turns
        turns += removed is not None and path.exists()
        if removed is not None and turns == 1:
            (path / "file-1").unlink()
            while not removed.pause:
                time.sleep(0.001)
            raise RemovalPausedError
        remove_tree(path, removed)

    monkeypatch.setattr(backing_directory, "remove_tree", remove)
    monkeypatch.setattr(operation_executor, "REMOVAL_TURN_SECONDS", 0.2)
    node.admit("u", "cache")
    async with node.volume():
        await node.mounted.until(lambda _: mounted(node, "u"))
        for number in range(3):
            (node.empty_dir("u", "cache") / f"file-{number}").touch()
        node.admit("u", state=PodState.FINISHED)
        async with asyncio.timeout(WAIT_SECONDS):
            while not turns:
                await asyncio.sleep(0)
        node.admit("u", "cache")
        await node.mounted.until(lambda _: turns > 1 and mounted(node, "u"))
        assert list(node.empty_dir("u", "cache").iterdir()) == []


async def test_a_name_that_is_not_utf8_in_a_volume_that_cannot_be_removed_is_an_error_of_its_pod(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, removed: RemovalProgress | None = None) -> None:
        if path.parent.parent.name == "volumes":
            raise PermissionError(1, "Operation not permitted", f"{path}/caf\udce9")

    monkeypatch.setattr(backing_directory, "remove_tree", refused)
    node.admit("u", "cache")
    async with node.volume():
        await node.mounted.until(bool)
        node.admit("u", state=PodState.TERMINATED)
        state = await node.mounted.until(lambda state: bool(state["u"].volumes["cache"].error))
        assert state["u"].volumes["cache"].error.endswith("/caf\\xe9: operation not permitted")
        node.admit("v", "cache")
        await node.mounted.until(lambda _: mounted(node, "v"))


async def test_an_exception_in_the_decision_for_one_pod_is_tried_again_and_stops_no_other(
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


async def test_an_exception_in_an_operation_is_an_error_of_its_pod(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    perform = PluginCalls.perform

    def mistaken(
        calls: PluginCalls, operation: Operation, gathered: SetUpInputs, removed: RemovalProgress
    ) -> Performed:
        if operation.uid == "bad" and isinstance(operation, MountVolume):
            raise IndexError("of a shape that is not known")
        return perform(calls, operation, gathered, removed)

    monkeypatch.setattr(PluginCalls, "perform", mistaken)
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
    def mistaken(pod: Object, name: str, *rest: Any) -> VolumeSpec | Refused:
        if name == "key":
            raise AttributeError("of a shape that is not known")
        return volume_spec(pod, name, *rest)

    monkeypatch.setattr(populator, "volume_spec", mistaken)
    node.admit("u", "key", "cache")
    async with node.volume():
        state = await node.mounted.until(lambda state: "u" in state and bool(state["u"].volumes["cache"].host_path))
        assert state["u"].volumes["key"].error.endswith("unexpected AttributeError")


async def test_a_directory_that_cannot_be_read_at_the_start_keeps_no_other_pod_waiting(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = PluginCalls.find_volumes

    def unreadable(calls: PluginCalls, uid: str) -> object:
        if uid == "bad":
            raise OSError(5, "Input/output error", uid)
        return found(calls, uid)

    for uid in ("bad", "good"):
        node.empty_dir(uid, "cache").mkdir(parents=True)
    monkeypatch.setattr(PluginCalls, "find_volumes", unreadable)
    caplog.set_level(logging.ERROR)
    async with node.volume():
        await node.mounted.until_complete()
        await node.until_gone("good")
        await node.until_troubles("look at the directory of pod bad failed: OSError")
        await asyncio.sleep(0)
    assert node.empty_dir("bad", "cache").is_dir()
