"""Measures what it costs pleg to read the usage of 100 pods of one container with a cgroup, a process and a network.

The pods have no runtime, so that reading their usage is all that is measured.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.agents import BULKHEAD
from bench.figure import Figure, Plan, Samples, Scenario
from bench.site import Node
from bench.statistics import Goal
from services.pleg.adapters.usage_reading import UsageReading
from services.podsync.adapters.cgroups import cgroup_files, cgroup_removal
from shared.host.cgroup_layout import find_hierarchies
from shared.model.runtime import Container, ContainerState, RuntimePod, Sandbox, SandboxState
from shared.time.clock import SystemClock

PODS = 100
_FIRST_READINGS = 2  # not counted, because they find the cgroup of each process and warm the caches
USAGE = Figure(
    "usage.container",
    f"CPU of reading the usage of a container, {PODS} pods",
    "ms",
    (Goal("p50", "value", 0.3),),
    optional=True,
)


async def stats(node: Node, samples: Samples, plan: Plan) -> None:
    """Read the cgroups and the network of each pod in this process, as pleg does."""
    if node.agent.name != BULKHEAD:
        samples.is_absent(USAGE.key, "the kubelet reads it inside of its process")
        return
    with crowd(PODS) as pods:
        for took in readings(pods, plan.scrapes):
            samples.sample(USAGE.key, took * 1000 / PODS)


def readings(pods: list[RuntimePod], count: int) -> list[float]:
    """Return the seconds of CPU that each of `count` readings of these pods took, of one container each."""
    reading = UsageReading(find_hierarchies(), SystemClock(), ("kubepods",))
    taken = []
    for _ in range(_FIRST_READINGS + count):
        began = time.thread_time()
        usages = reading.read_pods(pods)
        taken.append(time.thread_time() - began)
        assert all(usage.cgroup is not None and usage.network is not None for usage in usages), "a pod was not read"
    return taken[_FIRST_READINGS:]


@contextmanager
def crowd(count: int) -> Iterator[list[RuntimePod]]:
    """Make this many pods of cgroups; remove them at the end."""
    trees, top = find_hierarchies(), f"/bulkhead-bench-{os.getpid()}"
    sleepers: list[subprocess.Popen[bytes]] = []
    try:
        pods = []
        for number in range(count):
            uid, container_id = f"bench-{number}", f"{number:064x}"
            name = f"{top}/besteffort/pod{uid}/{container_id}"
            cgroup_files.make(trees, name)
            sleeper = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
            sleepers.append(sleeper)
            for root in trees.roots():
                (root / name.strip("/") / "cgroup.procs").write_text(str(sleeper.pid))
            pods.append(_pod(uid, container_id, sleeper.pid))
        yield pods
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
        cgroup_removal.remove(trees, top)


def _pod(uid: str, container_id: str, process: int) -> RuntimePod:
    container = Container(
        id=container_id, name="c", attempt=0, sandbox_id=f"s-{uid}", state=ContainerState.RUNNING, created_at=1,
        pid=process,
    )  # fmt: skip
    sandbox = Sandbox(id=f"s-{uid}", attempt=0, state=SandboxState.READY, created_at=1, pid=process)
    return RuntimePod(
        uid=uid, name=uid, namespace="bench", observed_at=0.0, sandboxes=(sandbox,), containers=(container,)
    )


SCENARIOS = (Scenario("stats", stats, (USAGE,)),)
