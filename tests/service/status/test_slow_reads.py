"""An API server that takes 20 s for each read, and a webhook that takes 20 s for each write."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bus.messages.status import IssuedToken, RequestToken
from tests.fakes.api_server import FakeApiServer
from tests.service.status.cluster import Cluster
from tests.service.status.node_stage import NodeStage
from tests.service.status.test_pod_statuses import begun

pytestmark = pytest.mark.virtual_time


def slow(api: FakeApiServer, seconds: float, *methods: str) -> None:
    """Every request with one of these methods takes so long."""
    api.slow(lambda received: seconds if received.method in methods else 0.0)


async def test_the_node_becomes_and_stays_ready_while_each_read_takes_twenty_seconds(stage: NodeStage) -> None:
    slow(stage.api, 20.0, "GET")
    await stage.start()
    await stage.until(lambda: stage.ready() and stage.lease, within=120)
    await stage.pass_time(600)
    assert stage.ready() and max(stage.lease_ages[-300:]) < 30


async def test_a_status_is_written_through_a_webhook_that_takes_twenty_seconds(cluster: Cluster) -> None:
    uid = cluster.create("web")
    slow(cluster.server, 20.0, "PATCH")
    cluster.admit(uid)
    cluster.publish_status(uid)
    await cluster.live(25)
    assert cluster.shown()["phase"] == "Running" and cluster.sent("PATCH") == ["PATCH web/status"]


async def test_a_token_is_issued_through_a_webhook_that_takes_twenty_seconds(tmp_path: Path) -> None:
    cluster: Cluster = await begun(tmp_path)
    uid = cluster.create("web")
    slow(cluster.server, 20.0, "POST")
    bound: dict[str, Any] = {"kind": "Pod", "apiVersion": "v1", "name": "web", "uid": uid}
    request = RequestToken(namespace="default", service_account="default", spec={"boundObjectRef": bound})
    asking = asyncio.create_task(cluster.podsync.ask("status", request, IssuedToken, 40.0))
    await cluster.live(25)
    assert asking.done() and "no answer in time" not in asking.result().error
    await cluster.stop()
