"""ClusterTrustBundles on a node in a cluster: watched from the first request on, read by name and by signer."""

from pathlib import Path

import pytest

from tests.fakes.api_resources import V1_20, V1_37
from tests.service.sources.cluster import ClusterNode, cluster_node

pytestmark = pytest.mark.virtual_time

BUNDLES = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles"
SIGNER = "example.com/ca"
BY_SIGNER = f"ClusterTrustBundleList//{SIGNER}"


def put(node: ClusterNode, name: str, text: str, signer: str = SIGNER) -> str:
    """The bundle is this from now on; return its version."""
    made = node.api.put(f"{BUNDLES}/{name}", {"spec": {"signerName": signer, "trustBundle": text}})
    return str(made["metadata"]["resourceVersion"])


def version(node: ClusterNode, key: str) -> str | None:
    found = node.changed.state.get(key)
    return found.resource_version if found is not None else None


async def names(node: ClusterNode, signer: str = SIGNER) -> list[str]:
    found = await node.ask("ClusterTrustBundleList", signer, namespace="")
    assert found.object is not None
    return sorted(item["metadata"]["name"] for item in found.object["items"])


async def test_bundles_are_watched_from_the_first_request_on(node: ClusterNode) -> None:
    put(node, "roots", "first")
    await node.start()
    assert node.asked("GET", "/clustertrustbundles") == 0
    found = await node.ask("ClusterTrustBundle", "roots", namespace="")
    assert found.object is not None and found.object["spec"]["trustBundle"] == "first"
    missing = await node.ask("ClusterTrustBundle", "gone", namespace="")
    error = 'clustertrustbundle.certificates.k8s.io "gone" not found'
    assert (missing.not_found, missing.error) == (True, error)
    now = put(node, "roots", "second")
    await node.until(lambda: version(node, "ClusterTrustBundle//roots") == now, within=5.0)
    found = await node.ask("ClusterTrustBundle", "roots", namespace="")
    assert found.object is not None and found.object["spec"]["trustBundle"] == "second"


async def test_the_stable_version_of_the_api_is_used_where_the_server_has_it(tmp_path: Path) -> None:
    async with cluster_node(tmp_path, drops=V1_37) as node:
        node.api.put(
            f"{BUNDLES.replace('v1beta1', 'v1')}/roots", {"spec": {"signerName": SIGNER, "trustBundle": "stable"}}
        )
        await node.start()
        assert await names(node) == ["roots"]
        assert node.asked("GET", "v1beta1/clustertrustbundles") == 0


async def test_the_bundles_of_a_signer_have_one_version_that_follows_each_of_them(node: ClusterNode) -> None:
    put(node, "a", "a")
    put(node, "foreign", "f", signer="example.com/other")
    await node.start()
    assert await names(node) == ["a"]
    await node.until(lambda: version(node, BY_SIGNER), within=5.0)
    seen = [version(node, BY_SIGNER)]
    put(node, "b", "b")
    await node.until(lambda: version(node, BY_SIGNER) not in seen, within=5.0)
    assert await names(node) == ["a", "b"]
    seen.append(version(node, BY_SIGNER))
    put(node, "foreign", "g", signer="example.com/other")
    node.api.delete(f"{BUNDLES}/a")
    await node.until(lambda: version(node, BY_SIGNER) not in seen, within=5.0)
    assert await names(node) == ["b"]
    seen.append(version(node, BY_SIGNER))
    node.api.delete(f"{BUNDLES}/b")
    await node.until(lambda: version(node, BY_SIGNER) not in seen, within=5.0)
    found = await node.ask("ClusterTrustBundleList", SIGNER, namespace="")
    assert found.object == {"metadata": {"resourceVersion": version(node, BY_SIGNER)}, "items": []}


async def test_an_api_server_without_the_api_is_an_error_in_the_kubelets_words(tmp_path: Path) -> None:
    async with cluster_node(tmp_path, drops=V1_20) as node:
        await node.start()
        found = await node.ask("ClusterTrustBundle", "roots", namespace="")
        assert found.error == "ClusterTrustBundle projection is not supported in static kubelet mode"
        assert not found.not_found
