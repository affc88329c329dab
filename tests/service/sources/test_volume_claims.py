"""PersistentVolumeClaims and their PersistentVolumes on a node in a cluster: who may read them, how changes show."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.sources.controllers import volume_claims
from shared.model.objects import Object
from tests.service.sources.cluster import NODE, ClusterNode, cluster_node, pod

pytestmark = pytest.mark.virtual_time

CLAIMS, VOLUMES = "/api/v1/namespaces/default/persistentvolumeclaims", "/api/v1/persistentvolumes"
KEY, VOLUME_KEY = "PersistentVolumeClaim/default/data", "PersistentVolume//pv-1"


def using(name: str, claim: str = "data") -> Object:
    return pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])


def put(node: ClusterNode, *, bound: bool, name: str = "data", volume: str = "pv-1") -> None:
    """The claim; bound to the volume where asked for."""
    metadata = {"name": name, "namespace": "default"}
    status = {"phase": "Bound" if bound else "Pending"}
    made = node.api.put(f"{CLAIMS}/{name}", {"metadata": metadata, "spec": {"volumeName": volume} if bound else {}})
    node.api.put(f"{CLAIMS}/{name}", {**made, "status": status})
    if bound:
        reference = {"claimRef": {"name": name, "namespace": "default", "uid": made["metadata"]["uid"]}}
        node.api.put(f"{VOLUMES}/{volume}", {"metadata": {"name": volume}, "spec": reference})


@asynccontextmanager
async def node_with_claim(path: Path) -> AsyncIterator[ClusterNode]:
    """A node with a pod whose bound claim was read."""
    async with cluster_node(path) as node:
        put(node, bound=True)
        node.api.bind(using("web"), NODE)
        await node.start()
        assert (await node.ask("PersistentVolumeClaim", "data")).object is not None
        yield node


def reads(node: ClusterNode) -> int:
    """How many requests came for claims and volumes."""
    return sum("/persistentvolume" in path for _, path in node.api.requests)


async def test_a_claim_and_its_volume_are_read_for_pods_that_name_them_only(node: ClusterNode) -> None:
    put(node, bound=True)
    await node.start()
    assert (await node.ask("PersistentVolumeClaim", "data")).object is None
    assert (await node.ask("PersistentVolume", "pv-1", namespace="")).object is None
    node.api.bind(using("web"), NODE)
    await node.until(lambda: KEY in node.changed.state, within=2.0)
    claim = await node.ask("PersistentVolumeClaim", "data")
    volume = await node.ask("PersistentVolume", "pv-1", namespace="")
    assert claim.object is not None
    assert volume.object is not None
    assert claim.object["spec"]["volumeName"] == volume.object["metadata"]["name"]
    assert node.changed.state[KEY].resource_version == claim.object["metadata"]["resourceVersion"]
    node.api.delete("/api/v1/namespaces/default/pods/web", grace=0)
    await node.until(lambda: not {KEY, VOLUME_KEY} & node.changed.state.keys(), within=2.0)


async def test_a_claim_that_is_bound_later_shows_within_seconds_and_is_then_read_rarely(node: ClusterNode) -> None:
    node.api.bind(using("web"), NODE)
    await node.start()
    missing = await node.ask("PersistentVolumeClaim", "data")
    assert (missing.not_found, missing.error) == (True, 'persistentvolumeclaims "data" not found')
    put(node, bound=False)
    await node.pass_time(10)
    found = await node.ask("PersistentVolumeClaim", "data")
    assert found.object is not None
    assert found.object["status"]["phase"] == "Pending"
    put(node, bound=True)
    await node.until(lambda: VOLUME_KEY in node.changed.state, within=volume_claims.UNBOUND.cap + 1)
    before = node.asked("GET", "/data")
    await node.pass_time(100)
    assert node.asked("GET", "/data") - before <= 3


@pytest.mark.long
async def test_a_claim_that_is_bound_late_does_not_wait_for_the_many_that_are_bound(node: ClusterNode) -> None:
    for number in range(200):
        put(node, bound=True, name=f"old-{number}", volume=f"pv-old-{number}")
        node.api.bind(using(f"web-{number}", f"old-{number}"), NODE)
    put(node, bound=False)
    node.api.bind(using("web"), NODE)
    await node.start()
    await node.until(lambda: "PersistentVolume//pv-old-199" in node.changed.state, within=60)
    await node.pass_time(300)
    before = reads(node)
    await node.pass_time(100)
    limit = volume_claims.BOUND_READS_PER_SECOND + 3 / volume_claims.UNBOUND.cap
    assert reads(node) - before <= 100 * limit
    put(node, bound=True)
    await node.until(lambda: VOLUME_KEY in node.changed.state, within=volume_claims.UNBOUND.cap + 1)


@pytest.mark.long
async def test_many_claims_that_are_not_bound_leave_most_of_the_rate_limit_to_others(node: ClusterNode) -> None:
    for number in range(100):
        put(node, bound=False, name=f"new-{number}")
        node.api.bind(using(f"web-{number}", f"new-{number}"), NODE)
    await node.start()
    await node.pass_time(60)
    before = reads(node)
    await node.pass_time(100)
    assert 0 < reads(node) - before <= 100 * 30 * volume_claims.UNBOUND_READS_SHARE + 100


async def test_a_new_pod_gets_the_claim_as_it_is_now(tmp_path: Path) -> None:
    async with node_with_claim(tmp_path) as node:
        node.api.delete(f"{CLAIMS}/data")
        node.api.bind(using("next"), NODE)
        await node.settle()
        assert (await node.ask("PersistentVolumeClaim", "data")).not_found


async def test_a_new_pod_never_gets_a_claim_as_it_was_read_for_another_pod(tmp_path: Path) -> None:
    async with node_with_claim(tmp_path) as node:
        node.api.delete(f"{CLAIMS}/data")
        put(node, bound=True, volume="pv-2")
        node.api.refuse(0, 500)  # the watch gives the pod, and no GET the claim
        node.api.bind(using("next"), NODE)
        await node.settle()
        refused = await node.ask("PersistentVolumeClaim", "data")
        assert (refused.object, refused.error) == (None, "refused with 500")
        node.api.up()
        await node.until(lambda: "PersistentVolume//pv-2" in node.changed.state, within=volume_claims.UNBOUND.cap + 1)
        claim = await node.ask("PersistentVolumeClaim", "data")
        assert claim.object is not None
        assert claim.object["spec"]["volumeName"] == "pv-2"


async def test_an_outage_leaves_what_was_read(tmp_path: Path) -> None:
    async with node_with_claim(tmp_path) as node:
        node.api.down()
        await node.pass_time(200)
        assert (await node.ask("PersistentVolumeClaim", "data")).object is not None
        assert (await node.ask("PersistentVolume", "pv-1", namespace="")).object is not None
        before = node.changed.state[KEY].resource_version
        claim = node.api.get(f"{CLAIMS}/data") or {}
        node.api.put(f"{CLAIMS}/data", {**claim, "metadata": {**claim["metadata"], "labels": {"new": "label"}}})
        node.api.up()
        await node.until(lambda: node.changed.state[KEY].resource_version != before, within=150)
