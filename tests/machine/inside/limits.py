"""What pods get of memory, swap and process ids on cgroup v2 alone, and what ends a pod that wants more of them or of
the disk (node.md 4.4, 4.6, 4.7, 4.13, 5.4, 5.6); and those tests of tests/e2e/test_resize.py that write cgroups, on the
same node.

tests/machine/test_on_cgroup_v2.py runs this in a machine; it is not collected by itself.
"""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.kube import paths
from shared.model.objects import Object
from tests.e2e import test_resize
from tests.e2e.test_disk_pressure import UNUSED, allocate, held_of
from tests.e2e.test_node_allocatable import machine
from tests.e2e.test_resize import MI, Stage, instance, make_stage
from tests.support.agents.agent import NODE
from tests.support.agents.behaviour import container, pod_of, status_of
from tests.support.agents.conditions import condition_of
from tests.support.waits.deadline import WAIT_SECONDS
from tools.oci_image import Image

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

CGROUPS = Path("/sys/fs/cgroup")
SWAP = Path("/swapfile")
PAGE = 4096  # bytes
PODS_MI, THRESHOLD_MI, PIDS = 900, 200, 64  # memory of all pods; what of it stays free; processes of a pod
DISK_MI = 1000  # what of the disk stays free
FACTOR = 0.9  # memoryThrottlingFactor
REQUEST_MI, LIMIT_MI = 64, 128
# Both are in memory and count as the container's: more together than it may have without swap.
FILL = (
    "dd if=/dev/zero of=/held/file bs=1M count=100 2>/dev/null; dd if=/dev/zero of=/dev/shm/file bs=1M count=44"
    " 2>/dev/null; echo filled; exec sleep 1000000"
)
FILLED_MI = 144
IDLE = "exec sleep 1000000"
CROWD = "(for i in $(seq 80); do sleep 1000 & done) & exec sleep 1000000"
OVER_ITS_LIMIT = "head -c 200000000 /dev/zero | tail"
# Grows beyond the threshold and then no more, so that only an eviction ends it.
GROW = (
    "trap 'exit 143' TERM; i=0; while [ $i -lt 80 ]; do i=$((i+1)); dd if=/dev/zero bs=1M count=8 2>/dev/null >> "
    "/held/file; done; sleep 1000000 & wait $!"
)


@pytest.fixture(scope="module")
def swap() -> Iterator[int]:
    """Bytes of swap that the node has."""
    subprocess.run(["fallocate", "-l", "1G", SWAP], check=True)
    SWAP.chmod(0o600)
    subprocess.run(["mkswap", "--quiet", SWAP], check=True)
    subprocess.run(["swapon", SWAP], check=True)
    yield machine("SwapTotal")
    subprocess.run(["swapoff", SWAP], check=True)
    SWAP.unlink()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(swap: int, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with make_stage(
        tmp_path_factory.mktemp("limits"),
        featureGates={"MemoryQoS": True},
        memoryReservationPolicy="TieredReservation",
        memoryThrottlingFactor=FACTOR,
        failSwapOn=False,
        memorySwap={"swapBehavior": "LimitedSwap"},
        podPidsLimit=PIDS,
        systemReserved={"memory": str(machine("MemTotal") - PODS_MI * MI)},
        evictionHard={"memory.available": f"{THRESHOLD_MI}Mi", "nodefs.available": f"{DISK_MI}Mi"},
        evictionPressureTransitionPeriod="5s",
        imageMinimumGCAge="1ns",
    ) as made:
        sure: Object = {"requests": amounts(64) | {"ephemeral-storage": "200Mi"}, "limits": amounts(64)}
        await made.run(holding("sure", IDLE, sure, medium=""))
        await made.run(holding("burst", FILL, {"requests": amounts(REQUEST_MI), "limits": amounts(LIMIT_MI)}))
        await made.run(holding("best", IDLE, {}, medium=""))
        yield made


def amounts(memory_mi: int) -> Object:
    return {"cpu": "50m", "memory": f"{memory_mi}Mi"}


def holding(name: str, script: str, resources: Object, medium: str = "Memory", **spec: Any) -> Object:
    """Return a pod whose container has a directory in memory, or on the disk where the medium is ""."""
    mounts = [{"name": "held", "mountPath": "/held"}]
    volumes = [{"name": "held", "emptyDir": {"medium": medium}}]
    return pod_of(name, container("c", script, resources=resources, volumeMounts=mounts), volumes=volumes, **spec)


def read(cgroup: str, file: str) -> str:
    return (CGROUPS / cgroup.strip("/") / file).read_text().strip()


def counts(cgroup: str, file: str) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in read(cgroup, file).splitlines())}


def own_cgroup(stage: Stage, name: str, qos: str) -> str:
    """The cgroup of the pod's container."""
    pod = stage.get(paths.pod("default", name))
    return stage.own_cgroup(stage.cgroup(pod, qos), instance(pod, "c"))


def throttled_at(request: int, limit: int) -> str:
    """memory.high by the reference, in pages."""
    return str(int((request + FACTOR * (limit - request)) // PAGE) * PAGE)


async def test_each_class_is_protected_and_throttled_by_what_it_requests(stage: Stage) -> None:
    files = ("memory.min", "memory.low", "memory.high", "memory.max")
    found = {
        name: tuple(read(own_cgroup(stage, name, qos), file) for file in files)
        for name, qos in (("sure", ""), ("burst", "burstable"), ("best", "besteffort"))
    }
    assert found == {
        "sure": (str(64 * MI), "0", "max", str(64 * MI)),
        "burst": ("0", str(REQUEST_MI * MI), throttled_at(REQUEST_MI * MI, LIMIT_MI * MI), str(LIMIT_MI * MI)),
        "best": ("0", "0", throttled_at(0, PODS_MI * MI), "max"),
    }
    kubepods, burstable = stage.level(), stage.level("burstable")
    wanted = (str((64 + REQUEST_MI) * MI), str(PODS_MI * MI), str(REQUEST_MI * MI))

    def of_classes() -> tuple[str, ...]:
        own = (read(kubepods, "memory.min"), read(kubepods, "memory.max"))
        return (*own, read(burstable, "memory.low"))

    await stage.world.wait_for(lambda: of_classes() == wanted, lambda: f"{wanted}; they are {of_classes()}")


async def test_a_burstable_container_is_throttled_and_swaps_what_its_limit_does_not_hold(
    stage: Stage, swap: int
) -> None:
    allowed = int(REQUEST_MI * MI / machine("MemTotal") * swap) // PAGE * PAGE  # which the kernel makes of it
    shown = {name: read(own_cgroup(stage, name, qos), "memory.swap.max")
             for name, qos in (("sure", ""), ("burst", "burstable"), ("best", "besteffort"))}  # fmt: skip
    assert shown == {"sure": "0", "burst": str(allowed), "best": "0"}
    own = own_cgroup(stage, "burst", "burstable")

    def filled() -> bool:
        return int(read(own, "memory.current")) + int(read(own, "memory.swap.current")) >= FILLED_MI * MI

    await stage.world.wait_for(filled, "the container to have its memory")
    swapped = int(read(own, "memory.swap.current"))
    assert (FILLED_MI - LIMIT_MI) * MI <= swapped <= allowed
    events = counts(own, "memory.events")
    assert events["high"] > 0 and events["oom_kill"] == 0, events
    pod = stage.get(paths.pod("default", "burst"))
    assert status_of(pod, "c")["restartCount"] == 0 and status_of(pod, "c")["ready"]


async def test_the_summary_shows_the_swap_of_a_container_and_of_the_node(stage: Stage, swap: int) -> None:
    own = own_cgroup(stage, "burst", "burstable")

    async def same() -> Object | None:
        before, summary = int(read(own, "memory.swap.current")), await stage.world.get_json("/stats/summary")
        pods = summary["pods"] if summary else []
        shown = [c["swap"] for pod in pods if pod["podRef"]["name"] == "burst" for c in pod["containers"]]
        used = [one.get("swapUsageBytes") for one in shown]
        settled = used == [before] and int(read(own, "memory.swap.current")) == before
        return summary if settled and summary["node"]["swap"]["swapUsageBytes"] else None  # it is read on its own

    summary: Object = await stage.world.wait_for(same, "the summary to have the swap of burst", 2 * WAIT_SECONDS)
    node = summary["node"]["swap"]
    assert node["swapAvailableBytes"] + node["swapUsageBytes"] == swap


def killed_for_memory(stage: Stage) -> int:
    """Processes of pods that the kernel has killed for their memory."""
    return counts(stage.level(), "memory.events")["oom_kill"]


async def test_a_container_over_its_memory_limit_is_killed_by_the_kernel(stage: Stage) -> None:
    before = killed_for_memory(stage)
    eater = container("c", OVER_ITS_LIMIT, resources={"limits": {"memory": "24Mi"}})
    stage.bind(pod_of("eater", eater, restartPolicy="Never"))
    ended = await stage.until("eater", lambda p: p["status"].get("phase") == "Failed", "to fail")
    assert killed_for_memory(stage) > before
    state = status_of(ended, "c")["state"]["terminated"]
    assert state["exitCode"] == 137, state
    assert state["reason"] in ("OOMKilled", "Error"), state  # containerd may lose the event together with the cgroup
    await stage.delete("eater")


async def test_a_pod_has_no_more_processes_than_the_limit_of_process_ids(stage: Stage) -> None:
    pod = await stage.run(pod_of("crowd", container("c", CROWD)))
    cgroup = stage.cgroup(pod, "besteffort")
    assert read(cgroup, "pids.max") == str(PIDS)

    def refusals() -> int:
        """Counted for the pod or, by an older kernel, for the container."""
        return sum(counts(one, "pids.events")["max"] for one in (cgroup, own_cgroup(stage, "crowd", "besteffort")))

    await stage.world.wait_for(lambda: refusals() > 0, "a refused process")
    assert int(read(cgroup, "pids.current")) <= PIDS
    await stage.delete("crowd")


async def wait_evicted(stage: Stage, name: str, kind: str, resource: str, threshold_mi: int, begin: int) -> None:
    """Wait until the node had this condition after the revision `begin`, the pod is evicted for it, and the node has
    it no more. A machine whose memory is full may stop all its processes for the seconds for which the node has it."""
    store = stage.api.server.store

    def pressure() -> str:
        return str(condition_of(stage.get(paths.node(NODE)), kind).get("status"))

    def was_pressed() -> bool:
        nodes = [change.after for change in store.since(begin) if change.after and change.after.get("kind") == "Node"]
        return any(condition_of(node, kind).get("status") == "True" for node in nodes)

    await stage.world.wait_for(lambda: stage.api.do(was_pressed), kind, 2 * WAIT_SECONDS)
    evicted = await stage.until(name, lambda p: p["status"].get("phase") == "Failed", "to be evicted")
    status = evicted["status"]
    assert status["reason"] == "Evicted", status
    start = f"The node was low on resource: {resource}. Threshold quantity: {threshold_mi}Mi, available: "
    assert status["message"].startswith(start), status
    assert condition_of(evicted, "DisruptionTarget")["reason"] == "TerminationByKubelet"
    await stage.world.wait_for(lambda: pressure() == "False", f"no {kind}", 2 * WAIT_SECONDS)


def check_run(stage: Stage, *names: str) -> None:
    """Check that these pods run, and that none of their containers was restarted."""
    for name in names:
        kept = stage.get(paths.pod("default", name))
        assert (kept["status"]["phase"], status_of(kept, "c")["restartCount"]) == ("Running", 0), kept["status"]


async def test_the_pod_that_grows_is_evicted_and_the_others_stay(stage: Stage) -> None:
    killed = killed_for_memory(stage)
    begin = stage.api.do(lambda: stage.api.server.store.revision)
    stage.bind(holding("grows", GROW, {}, restartPolicy="Never"))
    await wait_evicted(stage, "grows", "MemoryPressure", "memory", THRESHOLD_MI, begin)
    assert killed_for_memory(stage) == killed
    check_run(stage, "sure", "burst", "best")


# They run here on the node of this file. QoS cgroups keep what a deleted pod requested until the next pod starts, or
# for a minute, which the tests before would have to wait for.
test_containers_are_resized = test_resize.test_running_containers_get_what_their_pod_lists_without_a_restart
test_a_limit_is_not_set_too_low = test_resize.test_a_limit_of_memory_is_not_set_below_what_is_in_use
test_a_killed_podsync = test_resize.test_a_podsync_that_is_killed_between_two_writes_ends_where_it_would_have_ended
test_a_pod_is_resized = test_resize.test_the_node_declares_the_resize_of_a_pod_and_of_init_containers_and_does_them


async def test_without_a_factor_containers_are_throttled_no_more(stage: Stage) -> None:
    """As after a change from 1.36, which has a factor by default, to 1.37."""
    throttled = own_cgroup(stage, "burst", "burstable"), own_cgroup(stage, "best", "besteffort")

    def high() -> list[str]:
        return [read(own, "memory.high") for own in throttled]

    assert "max" not in high()
    await stage.world.stop_supervisord()
    stage.world.write_config(memoryThrottlingFactor=None)
    await stage.world.start()
    await stage.world.wait_for(lambda: high() == ["max", "max"], "memory.high to be max", 2 * WAIT_SECONDS)
    # systemd writes what it has of each unit again.
    await asyncio.to_thread(subprocess.run, ["systemctl", "daemon-reload"], check=True)
    assert high() == ["max", "max"]


async def test_the_pod_that_fills_the_disk_is_evicted_after_unused_images_are_removed(stage: Stage) -> None:
    world = stage.world
    await world.import_images([Image(name=UNUSED, command=("/bin/sh",))])
    sure, best = (held_of(world, stage.get(paths.pod("default", name))) for name in ("sure", "best"))
    allocate(sure / "file", 100 * MI)  # of the 200 that it requests
    free, begin = os.statvfs(best), stage.api.do(lambda: stage.api.server.store.revision)
    allocate(best / "file", free.f_frsize * free.f_bavail - (DISK_MI - 32) * MI)
    await wait_evicted(stage, "best", "DiskPressure", "ephemeral-storage", DISK_MI, begin)
    assert UNUSED not in {name for image in await world.runtime.list_images() for name in image.repo_tags}
    check_run(stage, "sure", "burst")
