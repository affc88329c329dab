"""A container runtime that answers slowly, fails, loses what it has, shows what it has not, and goes away in mid call.

A real containerd behind a proxy that misbehaves once in each way; the simulation does it with every call. Each pod must
run, or show why it does not, and must end right; the last test counts what all of them have left on the machine.
"""

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cri_api.v1 import api_pb2

from shared.model.runtime import ContainerState
from tests.chaos.cut_calls import CutCalls, is_given_up, sandbox_of_shim
from tests.e2e.bad_node import REQUEST_SECONDS, BadNode
from tests.fakes.cri_proxy import CriProxy
from tests.fakes.runtime_leftovers import leftovers
from tests.support.agents.behaviour import container
from tests.support.runtime.containerd import PrivateContainerd
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

NO_ANSWER = REQUEST_SECONDS + WAIT_SECONDS
GONE = "Unavailable"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node() -> AsyncIterator[BadNode]:
    directory = Path(tempfile.mkdtemp(prefix="bkc", dir="/tmp"))
    containerd = PrivateContainerd(directory)
    try:
        containerd.start()
        containerd.import_images()
        async with CriProxy(containerd.endpoint, directory / "proxy.sock") as proxy, BadNode(containerd, proxy) as node:
            yield node
    finally:
        await containerd.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(autouse=True)
def behaves_again(node: BadNode) -> Any:
    yield
    node.proxy.clear()


# Slow


@pytest.mark.parametrize("method", ["RunPodSandbox", "StartContainer"])
async def test_a_slow_call_makes_a_pod_late_and_nothing_twice(node: BadNode, method: str) -> None:
    name = f"slow-{method.lower()}"
    node.rule("delay", method, 2.0, pod=name)
    node.put(name)
    pod = await node.runs(name)
    assert (len(pod.sandboxes), len(pod.containers)) == (1, 1)
    assert pod.containers[0].attempt == 0
    await node.ends(name)


# Fails


async def test_a_start_that_fails_once_is_tried_again(node: BadNode) -> None:
    rule = node.rule("fail", "StartContainer", "no luck", pod="once")
    # The next attempt hangs, so that the failure is shown until this test has seen it.
    again = node.rule("hang", "StartContainer", pod="once")
    node.put("once")
    await node.shows("once", "RunContainerError", "no luck")
    again.release.set()
    await node.runs("once")
    assert rule.count == 1
    await node.ends("once")


async def test_an_end_that_fails_once_is_tried_again(node: BadNode) -> None:
    node.put("end")
    await node.runs("end")
    rule = node.rule("fail", "StopPodSandbox", "no luck", pod="end")
    await node.ends("end")
    assert rule.count == 1


async def test_a_stop_that_fails_for_long_is_tried_until_it_works(node: BadNode) -> None:
    node.put("always-stop")
    await node.runs("always-stop")
    stop = node.rule("fail", "StopContainer", "never", pod="always-stop", times=0)
    sandbox = node.rule("fail", "StopPodSandbox", "never", pod="always-stop", times=0)
    node.remove_manifest("always-stop")
    await node.wait_for(lambda: stop.count >= 2, "a second try")
    seen = await node.runtime_pod("always-stop")
    assert seen is not None and seen.containers
    for rule in (stop, sandbox):
        if rule in node.proxy.rules:
            node.proxy.rules.remove(rule)
    await node.wait_gone("always-stop")


# The answer is lost, or comes never


@pytest.mark.parametrize("method", ["RunPodSandbox", "CreateContainer", "StartContainer"])
async def test_what_was_done_although_the_answer_was_lost_is_found_and_not_done_twice(
    node: BadNode, method: str
) -> None:
    name = f"lost-{method.lower()}"
    rule = node.rule("fail", method, "transport is closing", pod=name, code=GONE, after=True)
    node.put(name)
    pod = await node.runs(name)
    assert rule.count == 1
    assert (len(pod.sandboxes), len(pod.containers)) == (1, 1), pod
    assert pod.containers[0].attempt == 0
    await node.ends(name)


async def test_an_end_whose_answer_was_lost_is_an_end(node: BadNode) -> None:
    node.put("lost-end")
    await node.runs("lost-end")
    node.rule("fail", "StopPodSandbox", "transport is closing", pod="lost-end", code=GONE, after=True)
    await node.ends("lost-end")


async def test_a_call_that_is_never_answered_is_given_up_and_looked_after(node: BadNode) -> None:
    rule = node.rule("hang", "CreateContainer", pod="never", after=True)
    node.put("never")
    await asyncio.wait_for(rule.reached.wait(), WAIT_SECONDS)
    pod = await node.runs("never", NO_ANSWER)
    assert len(pod.containers) == 1
    await node.ends("never", NO_ANSWER)
    assert rule.count == 1


# Lost and made up


async def test_a_container_that_is_not_listed_for_a_while_ends_with_its_pod(node: BadNode) -> None:
    node.put("lost-container")
    pod = await node.runs("lost-container")
    await node.is_observed(pod)
    node.proxy.hide(pod.containers[0].id)

    async def replaced() -> bool:
        seen = await node.runtime_pod("lost-container")
        return seen is not None and len([c for c in seen.containers if c.state is ContainerState.RUNNING]) == 2

    await node.wait_for(replaced, "another container in its place")
    node.proxy.show(pod.containers[0].id)
    await node.ends("lost-container")


async def test_a_container_that_was_made_up_keeps_no_pod_from_running_or_ending(node: BadNode) -> None:
    node.put("made-up")
    pod = await node.runs("made-up")
    labels = {"io.kubernetes.pod.uid": pod.uid, "io.kubernetes.pod.name": pod.name}
    labels |= {"io.kubernetes.pod.namespace": "default", "io.kubernetes.container.name": "c"}
    made_up = api_pb2.Container(
        id="f" * 64,
        pod_sandbox_id=pod.sandboxes[0].id,
        metadata=api_pb2.ContainerMetadata(name="c", attempt=7),
        state=api_pb2.CONTAINER_RUNNING,
        created_at=time.time_ns(),
        labels=labels,
    )
    node.proxy.invent(made_up)
    node.put("made-up-too")
    await node.runs("made-up-too")
    assert (await node.runs("made-up")).containers[0].id == pod.containers[0].id
    for name in ("made-up", "made-up-too"):
        await node.ends(name)


# Goes away in mid call


async def test_a_connection_that_ends_in_mid_call(node: BadNode) -> None:
    rule = node.rule("hang", "CreateContainer", pod="dropped", after=True)
    node.put("dropped")
    await asyncio.wait_for(rule.reached.wait(), WAIT_SECONDS)
    await node.proxy.drop_connections()
    pod = await node.runs("dropped")
    assert len([c for c in pod.containers if c.attempt == 0]) == 1
    await node.ends("dropped")


@pytest.mark.parametrize("method", ["RunPodSandbox", "StopContainer"])
async def test_a_runtime_that_restarts_in_mid_call(node: BadNode, method: str) -> None:
    name = f"restarted-{method.lower()}"
    if method == "StopContainer":
        node.put(name, container("c", "trap '' TERM; sleep 1000000"), grace=8)
        await node.runs(name)
    rule = node.rule("hang", method, pod=name)
    if method == "StopContainer":
        node.remove_manifest(name)
    else:
        node.put(name)
    await asyncio.wait_for(rule.reached.wait(), WAIT_SECONDS)
    rule.release.set()  # into the arms of one that is about to end
    await asyncio.to_thread(node.containerd.end)
    await asyncio.to_thread(node.containerd.start)
    if method != "StopContainer":
        await node.runs(name)
        node.remove_manifest(name)
    await node.wait_gone(name)


# What is left


async def test_nothing_is_left_of_any_of_them(node: BadNode) -> None:
    assert node.put_so_far and node.namespaces, "this test counts what the others leave"
    for manifest in node.home.manifests.glob("*.yaml"):  # of tests that failed
        await node.ends(manifest.stem)
    bridge = node.containerd.embedded.bridge
    seen: dict[str, list[str]] = {}
    cut = CutCalls(node.containerd.log.read_text(errors="replace"))

    def was_given_up(shim: int) -> bool:
        return is_given_up(shim) and cut.cause_of_shim(sandbox_of_shim(shim)) == "RunPodSandbox"

    async def nothing() -> bool:
        found = await leftovers(node, node.containerd.directory, bridge, node.namespaces)
        # Calls are cut off here: the runtime kills its CNI plugin, and `bridge` finds its rules only with its link. A
        # sandbox that it was starting as it ended may leave a shim, which no later runtime knows (docs/kill-matrix.md).
        found.pop("address translation", None)
        found["shims"] = [shim for shim in found.get("shims", ()) if not was_given_up(int(shim))]
        seen.clear()
        seen.update({kind: things for kind, things in found.items() if things})
        return not seen

    try:  # dead sandboxes and logs are collected once a minute
        await node.wait_for(nothing, "nothing to be left", 2 * WAIT_SECONDS)
    except AssertionError:
        assert seen == {}
        raise
