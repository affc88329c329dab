"""Strangers who crowd the kubelet's port: what they cost, and that those who may ask are answered meanwhile."""

import asyncio
import json
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from shared.kube import paths
from tests.support.agents.agent import NODE
from tests.support.clusters.cluster import Cluster
from tests.support.waits.deadline import SLOWNESS, measure_slowness

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

SECONDS = 5.0  # of the crowd, once it is all there
GROWTH = 64 << 20  # bytes
LOGS = 5.0  # seconds on an idle machine for `kubectl logs`, above what `kubectl get` takes in the same run
LEASE = 30.0  # seconds; it is renewed every 10, and is good for 40
POD = 30.0  # seconds on an idle machine for another pod to be ready


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.night)])
async def test_idle_connections_partial_heads_and_bad_tokens_hold_up_nothing(tmp_path: Path, count: int) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create(cluster.pod("talker", "sh", "-c", "echo hello; exec sleep 1000"))
        await cluster.wait_served("talker")
        pid = cluster.agent.beats["server"].pid
        before = _resident(pid)
        crowd = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.load.crowd", str(cluster.agent.port), str(count), str(SECONDS),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        crowding = asyncio.create_task(crowd.communicate())
        took, others, resident, leases = [], [], [before], []
        try:
            created = time.monotonic()
            ready = asyncio.create_task(_start_another(cluster))
            while not crowding.done():
                others.append(await _kubectl(cluster, "get", "pod", "talker"))
                took.append(await _kubectl(cluster, "logs", "talker"))
                resident.append(_resident(pid))
                leases.append(await _lease_age(cluster))
            await ready
            another = ready.result() - created
            output, _ = await crowding
            assert crowd.returncode == 0, "the crowd did not get its connections and answers in time"
            counts = json.loads(output)
        finally:
            if crowd.returncode is None:
                crowd.kill()
        growth = max(resident) - before
        print(
            f"\n{count}: {len(took)} logs, {sorted(took)[len(took) // 2]:.2f} s, worst {max(took):.2f} s; get at "
            f"worst {max(others):.2f} s; another pod after {another:.2f} s; lease {max(leases):.1f} s old at most; "
            f"server {before >> 20} MiB, grew by {growth >> 20} MiB; {counts}"
        )
        assert counts.get("token 401", 0) >= count
        assert growth <= GROWTH
        slowness = max(SLOWNESS, measure_slowness())
        assert max(took) <= max(others) + LOGS * slowness
        assert max(leases) <= LEASE
        assert another <= POD * slowness
        assert cluster.agent.beats["server"].pid == pid


async def _kubectl(cluster: Cluster, *words: str) -> float:
    began = time.monotonic()
    await asyncio.to_thread(cluster.plane.kubectl, *words)
    return time.monotonic() - began


async def _start_another(cluster: Cluster) -> float:
    await cluster.create(cluster.pod("another"))
    await cluster.wait_ready("another")
    return time.monotonic()


async def _lease_age(cluster: Cluster) -> float:
    lease = await cluster.plane.admin.get(paths.lease(NODE))
    renewed = datetime.fromisoformat(lease["spec"]["renewTime"])
    return (datetime.now(renewed.tzinfo) - renewed).total_seconds()


def _resident(pid: int) -> int:
    """Bytes."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) << 10
