"""What test_takeover runs where systemd is process 1: kubeadm's unit with a Go kubelet and its pods, and the commands.

Not collected by itself. `TAKEOVER_PODS`: the number of pods.
"""

import asyncio
import fcntl
import json
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bench.agents import GoKubelet
from bench.site import Site
from tests.support.agents.agent import BIN
from tests.support.clusters.control_plane import assets
from tests.support.kubeadm.node import (
    COUNT,
    LONG,
    NODE,
    OURS,
    PACKAGED,
    RECORD,
    UNITS,
    KubeadmNode,
    back_offs,
    crashes_of_bootstrap,
    interrupted,
    main_process,
    run,
    systemctl,
)
from tests.support.kubeadm.unit import DROP_IN
from tests.support.source.document_blocks import blocks
from tools.clean import remove_pods
from tools.home import CHECKOUT

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1500)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(request: pytest.FixtureRequest) -> AsyncIterator[KubeadmNode]:
    folder = assets()
    async with Site(folder) as site:
        go = GoKubelet(
            folder=folder, node=NODE, kubeconfig=site.plane.kubeconfig_for_node(NODE), client_ca=site.plane.ca_file,
            endpoint=site.containerd.endpoint,
        )  # fmt: skip
        made = KubeadmNode(site, go)
        joined = False
        try:
            await made.join()
            joined = True
            yield made
        finally:
            if request.session.testsfailed or not joined:
                made.print_state()
            systemctl("stop", "kubelet.service")
            await remove_pods(site.containerd.endpoint)
            go.remove()


async def test_a_node_that_cannot_be_taken_over_is_refused_and_stays_as_it_is(node: KubeadmNode) -> None:
    home, lock = node.home, RECORD.with_name("takeover.lock")
    done = node.bulkhead("takeover", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "would do 4/4" in done.stdout
    with node.changed(home / "default", "KUBELET_EXTRA_ARGS=--container-runtime-endpoint=unix:///nowhere.sock\n"):
        await node.refuses("the container runtime at unix:///nowhere.sock")
    with node.changed(home / "kubelet.conf", (home / "kubelet.conf").read_text().replace("127.0.0.1:", "127.0.0.2:")):
        await node.refuses("--without-api-server")
    with node.changed(home / "kubelet.yaml", "kind: KubeletConfiguration\nport: many\n"):
        await node.refuses("Bulkhead refuses the kubelet's configuration")
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        await node.refuses("another takeover or give-back is in progress")
    run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(lock.parent))
    try:
        await node.refuses("has less than 64 MiB free")
    finally:
        run("umount", str(lock.parent))
    by_hand = UNITS / "kubelet.service.d/20-hand.conf"
    with node.changed(by_hand, "[Service]\nExecStart=\nExecStart=/bin/sh -c 'true'\n"):
        systemctl("daemon-reload")
        await node.refuses("starts /bin/sh, which is not a kubelet")
    systemctl("daemon-reload")
    command = DROP_IN.rpartition("ExecStart=")[2].strip().replace("/usr/bin/kubelet", node.command[0])
    with node.changed(UNITS / "kubelet.service.d/99-hand.conf", f"[Service]\nExecStart=\nExecStart={command}\n"):
        systemctl("daemon-reload")
        done = node.bulkhead("takeover")  # which finds it after its daemon-reload, before the restart
        assert done.returncode == 1, done.stderr
        assert "systemctl cat shows why" in done.stderr
    with node.changed(by_hand, "[Service]\nExecStart=\nExecStart=/bin/false\n"):
        systemctl("daemon-reload")
        by_hand.write_text("[Service]\n")
        await node.refuses("systemctl daemon-reload")  # the operator has not seen yet what it brings
    systemctl("daemon-reload")
    assert not OURS.exists()
    assert not RECORD.exists()


# Packages of kubeadm before 1.29, and since.
@pytest.mark.parametrize("directory", [pytest.param(UNITS, marks=pytest.mark.night), PACKAGED])
async def test_takeover_and_give_back_keep_every_container_also_when_they_are_killed(
    node: KubeadmNode, directory: Path
) -> None:
    node.lay_out_units(directory)
    before = await node.running()
    assert len(before) == COUNT
    own = main_process()
    await node.kill("takeover", "takeover.saved.RESTART")
    assert main_process() == own, "the daemon-reload has ended the kubelet"
    assert node.own_runs, node.kubelets()
    taken = node.timed("takeover", "--timeout", str(LONG))
    assert node.ours_runs, node.kubelets()
    assert await node.running() == before
    shown = json.loads(node.bulkhead("status", "-o", "json", "--wait-ready", str(LONG)).stdout)
    assert shown["ready"], shown["problems"]
    await node.kill("give-back", "takeover.acted.RESTART")
    began = time.monotonic()
    answer = json.loads(node.does("give-back", "--timeout", str(LONG), "-o", "json"))
    given = time.monotonic() - began
    assert (answer["result"], answer["node"]) == ("done", NODE)
    assert answer["containers"]["before"] in (COUNT, COUNT + 1)
    assert node.own_runs, node.kubelets()
    assert await node.running() == before
    assert not OURS.exists()
    assert not RECORD.exists()
    print(f"figures: {COUNT} pods: takeover {taken:.1f} s, give-back {given:.1f} s")


@pytest.mark.night
async def test_the_blocks_of_the_page_lead_to_bulkhead_and_back(node: KubeadmNode) -> None:
    before, began = await node.running(), time.monotonic()
    found = blocks(CHECKOUT / "docs/replace-kubelet.md")
    assert [block.how for block in found].count("the kubelet runs") == 3
    for block in found:
        node.shell(block.commands.replace("/opt/bulkhead/.venv/bin", str(BIN)))
        if block.how:
            await node.wait_for_one(of_bulkhead=block.how == "Bulkhead runs")
            assert await node.running() == before
    print(f"figures: the blocks of the page: {time.monotonic() - began:.1f} s")


@pytest.mark.night
async def test_a_node_that_does_not_become_ready_is_rolled_back(node: KubeadmNode) -> None:
    before = await node.running()
    broken = "[Service]\nEnvironment=PYTHONHOME=/nowhere\n"  # of which the Go kubelet knows nothing
    with node.changed(UNITS / "kubelet.service.d/95-hand.conf", broken):
        systemctl("daemon-reload")
        done = node.bulkhead("takeover", "--timeout", "15")
    systemctl("daemon-reload")
    assert done.returncode == 3, done.stderr
    assert "rolled back, kubelet.service runs its own kubelet" in done.stderr
    assert "systemd has started it again" in done.stderr
    assert node.own_runs, node.kubelets()
    assert await node.running() == before
    assert not OURS.exists()
    assert not RECORD.exists()


@pytest.mark.night
async def test_a_takeover_waits_for_no_back_off_of_an_earlier_one(node: KubeadmNode) -> None:
    before, log = await node.running(), Path("/var/log/bulkhead/bootstrap.log")
    log.unlink(missing_ok=True)
    log.mkdir(parents=True)  # bootstrap ends
    done = node.bulkhead("takeover", "--timeout", "15")
    assert done.returncode == 3, done.stderr
    log.rmdir()
    print(f"figures: after a takeover that failed: {node.timed('takeover'):.1f} s")
    assert max(back_offs()) == 0
    node.does("give-back")
    await node.kill("takeover", "takeover.saved.WAIT")
    await node.wait_for(crashes_of_bootstrap(), "a back-off of bootstrap")
    print(f"figures: after one that was killed: {node.timed('takeover'):.1f} s")
    assert max(back_offs()) == 0, "Bulkhead was not started again"
    assert node.ours_runs, node.kubelets()
    node.does("give-back")
    assert node.own_runs, node.kubelets()
    assert await node.running() == before


@pytest.mark.night
async def test_a_static_pod_never_runs_twice_while_the_api_server_is_away(node: KubeadmNode) -> None:
    before, earlier = await node.running(), await node.only_static_container()
    kubeconfig = node.home / "kubelet.conf"
    seen: list[list[str]] = [[earlier]]
    with node.changed(kubeconfig, kubeconfig.read_text().replace("127.0.0.1:", "127.0.0.2:")):
        command = asyncio.create_task(asyncio.to_thread(node.does, "takeover", "--without-api-server"))
        deadline = time.monotonic() + LONG
        while not command.done() or seen[-1] in ([], [earlier]):
            assert time.monotonic() < deadline, seen[-1]
            seen.append(await node.static_containers())
            await asyncio.sleep(0.05)
        await command
    assert max(map(len, seen)) == 1, "two instances of a static pod ran at the same time"
    assert await node.running() == before
    node.does("give-back")
    assert node.own_runs, node.kubelets()
    assert await node.running() == before


@pytest.mark.night
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_an_interrupted_takeover_is_rolled_back(node: KubeadmNode, number: signal.Signals) -> None:
    before = await node.running()
    code, errors = await asyncio.to_thread(interrupted, number)
    assert code == 130, errors
    assert "interrupted: rolled back" in errors
    assert node.own_runs, node.kubelets()
    assert await node.running() == before
    assert not RECORD.exists()
