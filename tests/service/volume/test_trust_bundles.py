"""Trust anchors in a projected volume, with sources played: only with the feature gate, and kept up to date."""

from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodState, PodVolumes
from bus.messages.sources import ChangedObject
from tests.service.volume.cluster import FOLDERS, Cluster, without_mounts

KEY = "ClusterTrustBundleList//example.com/ca"
SOURCE = {"clusterTrustBundle": {"path": "ca.pem", "signerName": "example.com/ca", "labelSelector": {}}}


def certificate(text: str) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    without_mounts(monkeypatch)
    monkeypatch.setitem(FOLDERS, "roots", "projected")
    cluster = Cluster(tmp_path)
    await cluster.start()
    volume = {"name": "roots", "projected": {"defaultMode": 0o644, "sources": [SOURCE]}}
    pod: dict[str, Any] = {"metadata": {"name": "web", "namespace": "shop", "uid": "u"}}
    pod["spec"] = {"volumes": [volume], "containers": [{"name": "c"}]}
    admitted = PodVolumes(uid="u", name="web", namespace="shop", state=PodState.SYNC, pod=pod, volumes=("roots",))
    cluster.admitted.put("u", admitted)
    cluster.admitted.mark_complete()
    return cluster


def put(cluster: Cluster, version: str, *texts: str) -> None:
    """The bundles of the signer from now on."""
    items = [{"metadata": {}, "spec": {"trustBundle": certificate(text)}} for text in texts]
    cluster.objects[KEY] = {"metadata": {"resourceVersion": version}, "items": items}
    cluster.changed.put(KEY, ChangedObject(resource_version=version))


async def test_the_file_follows_the_bundles_and_a_kill(cluster: Cluster) -> None:
    put(cluster, "1")
    async with cluster.volume(gates={"ClusterTrustBundleProjection": True}):
        state = await cluster.mounted.until(lambda state: "u" in state and state["u"].volumes["roots"].error != "")
        text = "combination of signerName and labelSelector matched zero ClusterTrustBundles"
        assert state["u"].volumes["roots"].error == f'MountVolume.SetUp failed for volume "roots" : {text}'
        put(cluster, "2", "AAAA")
        await cluster.until_mounted("u", "roots")
        assert cluster.read("u", "roots") == {"ca.pem": certificate("AAAA")}
    put(cluster, "3", "BBBB")
    async with cluster.volume(gates={"ClusterTrustBundleProjection": True}):
        await cluster.until_shown("u", "roots", **{"ca.pem": certificate("BBBB")})
        put(cluster, "4", "CCCC")
        await cluster.until_shown("u", "roots", **{"ca.pem": certificate("CCCC")})


async def test_without_the_gate_the_source_is_refused_and_nothing_is_requested(cluster: Cluster) -> None:
    put(cluster, "1", "AAAA")
    async with cluster.volume():
        state = await cluster.mounted.until(lambda state: "u" in state and state["u"].volumes["roots"].error != "")
    text = "ClusterTrustBundle projection is not supported in static kubelet mode"
    assert state["u"].volumes["roots"].error.endswith(text)
    assert not cluster.asked
