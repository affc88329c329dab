"""How long the API server waits for the status of a pod, as status measures it."""

import pytest

from tests.service.status.cluster import Cluster
from tests.service.status.test_pod_statuses import running_pod

pytestmark = pytest.mark.virtual_time


async def test_the_time_until_the_api_server_has_a_status_is_measured_once(cluster: Cluster) -> None:
    uid = await running_pod(cluster)
    await cluster.live(40)

    def measured() -> list[float]:
        name = "kubelet_pod_status_sync_duration_seconds"
        return next(series[()] for family, series in cluster.metrics.collect() if family.name == name)

    assert sum(measured()[:-1]) == 2
    cluster.server.down()
    before = measured()[-1]
    cluster.publish_status(uid, ready=False)
    await cluster.live(20)
    cluster.server.up()
    await cluster.live(40)
    assert sum(measured()[:-1]) == 3
    assert measured()[-1] - before >= 20
