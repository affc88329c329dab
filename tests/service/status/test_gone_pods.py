"""Pods that are gone from the API server while nothing shows it, with API servers of all versions."""

from pathlib import Path

import pytest

from tests.fakes.api_resources import NEWEST, V1_20, OlderServer
from tests.service.status.cluster import POD_PATHS
from tests.service.status.test_pod_statuses import begun, running_pod

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("drops", [NEWEST, V1_20], ids=["newest", "1.20"])
async def test_a_pod_that_is_gone_after_a_lost_answer_is_let_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, drops: OlderServer
) -> None:
    """A node that GETs a pod that is gone gets 404, since Kubernetes 1.32 403."""
    cluster = await begun(tmp_path, drops=drops)
    uid = await running_pod(cluster)
    cluster.watching = False
    cluster.server.lose_answers(1)
    cluster.publish_status(uid, ready=False)
    await cluster.live(0.1)
    cluster.server.delete(POD_PATHS + "web", grace=0)
    caplog.clear()
    await cluster.live(9)
    assert len(cluster.sent("GET")) <= 2, "once, and at the comparison of every ten seconds"
    assert "tried again" not in caplog.text
    await cluster.stop()
