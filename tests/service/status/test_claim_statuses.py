"""The status of claims, as volume requests it of status."""

import asyncio
from pathlib import Path

import pytest

from bus.messages.status import PatchClaimStatus, PatchedClaim
from services.frame.launch import Context
from services.status.controllers.claim_statuses import ClaimStatuses
from shared.kube import paths
from tests.fakes.virtual_time import pass_time
from tests.service.status.cluster import Cluster

pytestmark = pytest.mark.virtual_time

PATH = paths.persistent_volume_claim("default", "data")


async def patched(cluster: Cluster, version: str) -> PatchedClaim:
    request = PatchClaimStatus(
        namespace="default",
        name="data",
        resource_version=version,
        status={
            "capacity": {"storage": "2Gi"},
            "allocatedResourceStatuses": {"storage": None},
            "conditions": [{"$patch": "delete", "type": "Resizing"}],
        },
    )
    asking = asyncio.create_task(cluster.podsync.ask("status", request, PatchedClaim, timeout=60))
    await pass_time(cluster.network, 20)
    return asking.result()


async def test_a_status_is_patched_unless_the_claim_is_newer(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.begin()
    conditions = [{"type": "Resizing", "status": "True"}, {"type": "Other", "status": "True"}]
    status = {"phase": "Bound", "allocatedResourceStatuses": {"storage": "NodeResizePending"}, "conditions": conditions}
    written = cluster.server.put(PATH, {"spec": {}, "status": status})
    version = written["metadata"]["resourceVersion"]
    answer = await patched(cluster, version)
    assert (answer.error, answer.resource_version == version) == ("", False)
    found = cluster.server.get(PATH)
    assert found is not None
    assert found["metadata"]["resourceVersion"] == answer.resource_version
    assert found["status"] == {
        "phase": "Bound",
        "capacity": {"storage": "2Gi"},
        "allocatedResourceStatuses": {},
        "conditions": [{"type": "Other", "status": "True"}],
    }
    again = await patched(cluster, version)
    assert "modified" in again.error
    cluster.server.refuse(1, 403)
    assert "refused with 403" in (await patched(cluster, answer.resource_version)).error
    await cluster.stop()


async def test_a_node_without_an_api_server_refuses(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.begin()
    await cluster.stop()
    bus = cluster.network.bus("status")
    ClaimStatuses(Context("status", cluster.config, bus, cluster.network.clock, asyncio.Event()), None)
    await bus.start()
    assert (await patched(cluster, "1")).error == "the node has no API server whose claims it could update"
