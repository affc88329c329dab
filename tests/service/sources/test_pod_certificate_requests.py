"""PodCertificateRequests on a node in a cluster: only those of the node, watched from the first request on."""

from pathlib import Path

import pytest

from tests.fakes.api_resources import V1_20, V1_37
from tests.service.sources.cluster import NODE, ClusterNode, cluster_node

pytestmark = pytest.mark.virtual_time

REQUESTS = "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests"
KEY = "PodCertificateRequest/default/req-1"


async def test_a_request_of_the_node_is_followed_to_its_result_and_its_end(node: ClusterNode) -> None:
    node.api.put(f"{REQUESTS}/req-1", {"spec": {"nodeName": NODE}})
    node.api.put(f"{REQUESTS}/foreign", {"spec": {"nodeName": "other"}})
    await node.start()
    assert node.asked("GET", "/podcertificaterequests") == 0
    found = await node.ask("PodCertificateRequest", "req-1")
    assert found.object is not None and found.object["spec"]["nodeName"] == NODE
    foreign = await node.ask("PodCertificateRequest", "foreign")
    error = 'podcertificaterequest.certificates.k8s.io "foreign" not found'
    assert (foreign.object, foreign.not_found, foreign.error) == (None, True, error)
    issued = node.api.put(f"{REQUESTS}/req-1", {"spec": {"nodeName": NODE}, "status": {"certificateChain": "chain"}})
    version = issued["metadata"]["resourceVersion"]
    await node.until(
        lambda: KEY in node.changed.state and node.changed.state[KEY].resource_version == version, within=5.0
    )
    found = await node.ask("PodCertificateRequest", "req-1")
    assert found.object is not None and found.object["status"] == {"certificateChain": "chain"}
    node.api.delete(f"{REQUESTS}/req-1")
    await node.until(lambda: KEY not in node.changed.state, within=5.0)


async def test_the_stable_version_of_the_api_is_used_where_the_server_has_it(tmp_path: Path) -> None:
    async with cluster_node(tmp_path, drops=V1_37) as node:
        node.api.put(f"{REQUESTS.replace('v1beta1', 'v1')}/req-1", {"spec": {"nodeName": NODE}})
        await node.start()
        found = await node.ask("PodCertificateRequest", "req-1")
        assert found.object is not None and found.object["spec"]["nodeName"] == NODE
        assert node.asked("GET", "v1beta1/podcertificaterequests") == 0


async def test_an_api_server_without_the_api_says_nothing_about_a_request(tmp_path: Path) -> None:
    async with cluster_node(tmp_path, drops=V1_20) as node:
        await node.start()
        found = await node.ask("PodCertificateRequest", "req-1")
        assert (found.object, found.not_found) == (None, False)
        assert "could not find the requested resource" in found.error
