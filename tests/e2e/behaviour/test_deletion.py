"""Pods deleted through a real API server: with a grace of their own, by force, twice, in the middle of something."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.model.runtime import ContainerState
from tests.e2e.behaviour.notes import Notes
from tests.support.agents.agent import NODE
from tests.support.agents.behaviour import Node, pod_of
from tests.support.runtime.stops import uptime
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def notes(tmp_path_factory: pytest.TempPathFactory) -> Notes:
    return Notes(Path(tmp_path_factory.mktemp("notes")))


async def api_pod(node: Node, notes: Notes, name: str, script: str, grace: int, **fields: Any) -> str:
    """A pod of the API server that runs; its UID."""
    made = pod_of(name, notes.container("c", script, file=name, **fields), grace=grace, volumes=[notes.volume()])
    made["spec"] |= {"nodeName": NODE}
    await node.create(made)
    await asyncio.to_thread(notes.wait, name, "up")
    await node.wait_ready(name)
    return str((await node.get_pod(name) or {})["metadata"]["uid"])


async def alive(node: Node, uid: str) -> int:
    """How many containers of the pod the runtime has running."""
    pod = (await node.agent.runtime.observe(uid)).get(uid)
    return len([c for c in (pod.containers if pod else ()) if c.state is ContainerState.RUNNING])


async def nothing_runs(node: Node, uid: str) -> None:
    async def gone() -> bool:
        return await alive(node, uid) == 0

    await node.wait_for(gone, "its containers to end")


async def test_a_deletion_with_a_grace_of_its_own_ends_the_pod_within_it(node: Node, notes: Notes) -> None:
    uid = await api_pod(node, notes, "deleted-short", "stubborn", 300)
    instance = (await node.agent.runtime.observe(uid))[uid].containers[0].id
    deleted = uptime()
    await node.delete_pod("deleted-short", 3)
    await node.wait_gone("deleted-short")
    assert await alive(node, uid) == 0
    assert node.agent.stops()[instance].is_within(3, deleted)


async def test_the_object_goes_after_the_containers(node: Node, notes: Notes) -> None:
    hold = "note pre; until [ -e /out/deleted-slow.go ]; do sleep 0.1; done; note pre-end"
    hooks = {"preStop": notes.hook(hold, "deleted-slow")}
    await api_pod(node, notes, "deleted-slow", "dying 0", 120, lifecycle=hooks)
    await node.delete_pod("deleted-slow")
    await asyncio.to_thread(notes.wait, "deleted-slow", "pre")
    pod = await node.get_pod("deleted-slow")
    assert pod is not None and pod["metadata"]["deletionGracePeriodSeconds"] == 120
    (notes.directory / "deleted-slow.go").touch()
    await node.wait_gone("deleted-slow")
    assert notes.words("deleted-slow") == ["up", "pre", "pre-end", "term", "end"]


async def test_a_forced_deletion_takes_the_object_at_once_and_leaves_the_process_its_grace(
    node: Node, notes: Notes
) -> None:
    hold = "note pre; until [ -e /out/forced.go ]; do sleep 0.1; done; note pre-end"
    hooks = {"preStop": notes.hook(hold, "forced")}
    uid = await api_pod(node, notes, "forced", "dying 1", 120, lifecycle=hooks)
    await node.delete_pod("forced", 0)
    assert await node.get_pod("forced") is None
    assert await alive(node, uid) == 1
    (notes.directory / "forced.go").touch()
    await nothing_runs(node, uid)
    assert notes.words("forced") == ["up", "pre", "pre-end", "term", "end"]


async def test_a_second_deletion_with_less_grace_counts(node: Node, notes: Notes) -> None:
    uid = await api_pod(node, notes, "hurried", "stubborn", 300)
    await node.delete_pod("hurried")
    await asyncio.to_thread(notes.wait, "hurried", "term")
    await node.delete_pod("hurried", 1)
    await node.wait_gone("hurried")
    assert await alive(node, uid) == 0


async def test_a_second_deletion_waits_for_the_pre_stop_that_runs(node: Node, notes: Notes) -> None:
    hooks = {"preStop": notes.hook("note pre; sleep 5; note pre-end", "twice-pre")}
    await api_pod(node, notes, "twice-pre", "dying 0", 60, lifecycle=hooks)
    await node.delete_pod("twice-pre", 60)
    await asyncio.to_thread(notes.wait, "twice-pre", "pre")
    await node.delete_pod("twice-pre", 40)
    await node.wait_gone("twice-pre")
    assert notes.words("twice-pre") == ["up", "pre", "pre-end", "term", "end"]


async def test_a_pod_is_deleted_in_the_middle_of_a_pull(node: Node, notes: Notes) -> None:
    asked = asyncio.Event()

    async def never_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()  # until the other side gives up
        writer.close()

    registry = await asyncio.start_server(never_answers, "127.0.0.1", 0)
    image = f"127.0.0.1:{registry.sockets[0].getsockname()[1]}/endless:1"
    made = pod_of("in-pull", {"name": "c", "image": image})
    made["spec"]["nodeName"] = NODE
    await node.create(made)
    await asyncio.wait_for(asked.wait(), WAIT_SECONDS)
    await node.delete_pod("in-pull")
    await node.wait_gone("in-pull")
    registry.close()
