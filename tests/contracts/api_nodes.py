"""Contracts of the API server: the Node object, what a node may do, tokens and reviews."""

from typing import Any

from shared.kube import paths
from shared.model.objects import Object
from tests.contracts.api_cluster import (
    Cluster,
    contract,
    has_no_pod,
    is_at_least,
    make_pod,
    path_of,
    refused,
    refused_once_known,
    status_path_of,
    version_of,
)

_MIRROR = {"kubernetes.io/config.mirror": "hash", "kubernetes.io/config.hash": "hash"}


async def _mirror(cluster: Cluster, name: str, node: str = "", **spec: Any) -> Object:
    this = await cluster.node.get(paths.node(cluster.node_name))
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": cluster.node_name,
        "uid": this["metadata"]["uid"],
        "controller": True,
    }
    metadata = {"name": f"{name}-{cluster.node_name}", "namespace": "default", "annotations": _MIRROR}
    containers = [{"name": "c", "image": "busybox"}]
    body = {
        "metadata": {**metadata, "ownerReferences": [owner]},
        "spec": {"containers": containers, "nodeName": node or cluster.node_name, **spec},
    }
    return await cluster.node.create(paths.pods("default"), body)


@contract
async def a_node_registers_once_with_its_status(cluster: Cluster) -> None:
    this = await cluster.node.get(paths.node(cluster.node_name))
    assert this["status"]["capacity"] == {"cpu": "2"}
    error = await refused(cluster.node.create(paths.NODES, {"metadata": {"name": cluster.node_name}}))
    assert error.already_exists and str(error) == f'nodes "{cluster.node_name}" already exists'


@contract
async def a_node_status_patch_carries_labels_and_leaves_the_spec(cluster: Cluster) -> None:
    before = await cluster.node.get(paths.node(cluster.node_name))
    patch = {
        "metadata": {"labels": {"kubernetes.io/os": "linux"}, "annotations": {"a": "b"}},
        "spec": {"providerID": "x"},
        "status": {"nodeInfo": {"kubeletVersion": "v1"}},
    }
    after = await cluster.node.patch(paths.node_status(cluster.node_name), patch)
    assert after["metadata"]["labels"]["kubernetes.io/os"] == "linux" and after["metadata"]["annotations"]["a"] == "b"
    assert after["spec"] == before["spec"]
    assert after["status"]["nodeInfo"]["kubeletVersion"] == "v1" and after["status"]["capacity"] == {"cpu": "2"}


@contract
async def addresses_of_a_node_are_replaced_and_its_conditions_merged(cluster: Cluster) -> None:
    path = paths.node_status(cluster.node_name)
    old, host = {"type": "InternalIP", "address": "10.0.0.9"}, {"type": "Hostname", "address": "h"}
    conditions = [{"type": "Ready", "status": "False"}, {"type": "MemoryPressure", "status": "False"}]
    await cluster.node.patch(path, {"status": {"addresses": [old, host], "conditions": conditions}})
    new = [{"type": "InternalIP", "address": "10.0.0.8"}, {"type": "InternalIP", "address": "fd00::8"}, host]
    status = {"addresses": [*new, {"$patch": "replace"}], "conditions": [{"type": "Ready", "status": "True"}]}
    after = (await cluster.node.patch(path, {"status": status}))["status"]
    assert after["addresses"] == new
    assert [(c["type"], c["status"]) for c in after["conditions"]] == [("Ready", "True"), ("MemoryPressure", "False")]


@contract
async def an_update_of_a_node_leaves_its_status(cluster: Cluster) -> None:
    path = paths.node(cluster.node_name)
    before = await cluster.node.get(path)
    changed = {**before, "metadata": {**before["metadata"], "annotations": {"c": "d"}}, "status": {}}
    after = await cluster.node.update(path, changed)
    assert after["metadata"]["annotations"]["c"] == "d" and after["status"] == before["status"]


@contract
async def a_node_changes_itself_alone(cluster: Cluster) -> None:
    other = f"other-{cluster.node_name}"
    await cluster.admin.create(paths.NODES, {"metadata": {"name": other}})
    for path in (paths.node_status(other), paths.node(other)):
        error = await refused(cluster.node.patch(path, {"metadata": {"annotations": {"a": "b"}}}))
        assert error.forbidden and f'is not allowed to modify node "{other}"' in str(error)
    own = paths.node(cluster.node_name)
    label = {"metadata": {"labels": {"node-restriction.kubernetes.io/x": "y"}}}
    error = await refused(cluster.node.patch(own, label))
    assert (
        error.forbidden
        and "is not allowed to modify" in str(error)
        and "node-restriction.kubernetes.io/x" in str(error)
    )
    taints = {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
    error = await refused(cluster.node.patch(own, taints))
    assert error.forbidden and f'node "{cluster.node_name}" is not allowed to modify taints' in str(error)
    assert (await refused(cluster.node.delete(own))).forbidden


@contract
async def a_node_has_its_own_lease_alone(cluster: Cluster) -> None:
    lease = {"metadata": {"name": "another"}, "spec": {"holderIdentity": "another", "leaseDurationSeconds": 40}}
    assert (await refused(cluster.node.create(paths.LEASES, lease))).forbidden
    assert (await refused(cluster.node.get(paths.lease("another")))).forbidden


@contract
async def a_node_creates_mirror_pods_alone(cluster: Cluster) -> None:
    body = {
        "metadata": {"name": f"plain-{cluster.node_name}"},
        "spec": {"containers": [{"name": "c", "image": "busybox"}], "nodeName": cluster.node_name},
    }
    error = await refused(cluster.node.create(paths.pods("default"), body))
    assert error.forbidden and 'pod does not have "kubernetes.io/config.mirror" annotation' in str(error)
    error = await refused(_mirror(cluster, "strange", node="another"))
    assert error.forbidden and "can only create pods with spec.nodeName set to itself" in str(error)
    volumes = [{"name": "s", "secret": {"secretName": "s"}}]
    assert (await refused(_mirror(cluster, "secretive", volumes=volumes))).forbidden
    pod = await _mirror(cluster, "mirror")
    assert pod["status"]["phase"] == "Pending" and pod["metadata"]["annotations"]["kubernetes.io/config.mirror"]
    assert (await refused(_mirror(cluster, "mirror"))).already_exists
    await cluster.node.patch(status_path_of(pod), {"status": {"phase": "Running"}})
    options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
    await cluster.eventually(lambda: cluster.node.delete(path_of(pod), options))
    assert await has_no_pod(cluster, pod)


@contract
async def a_node_touches_its_own_pods_alone(cluster: Cluster) -> None:
    pod = await make_pod(cluster, "foreign", node="another")
    error = await refused(cluster.node.patch(status_path_of(pod), {"status": {"phase": "Running"}}))
    assert error.forbidden and "can only update pod status for pods with spec.nodeName set to itself" in str(error)
    error = await refused_once_known(cluster, lambda: cluster.node.delete(path_of(pod), {"gracePeriodSeconds": 0}))
    assert error.forbidden and "can only delete pods with spec.nodeName set to itself" in str(error)
    own = await make_pod(cluster, "own-spec")
    assert (await refused(cluster.node.patch(path_of(own), {"metadata": {"labels": {"a": "b"}}}))).forbidden


@contract
async def a_node_reads_the_secrets_of_its_pods_alone(cluster: Cluster) -> None:
    for plural, kind in (("secrets", "Secret"), ("configmaps", "ConfigMap")):
        name = f"{plural}-{cluster.node_name}"
        await cluster.admin.create(
            paths.referenced(kind, "default"), {"metadata": {"name": name}, "data": {"k": "dg=="}}
        )
        path, by_name = f"{paths.referenced(kind, 'default')}/{name}", {"fieldSelector": f"metadata.name={name}"}
        error = await refused(cluster.node.get(path))
        assert error.forbidden
        assert f"no relationship found between node '{cluster.node_name}' and this object" in str(error)
        assert (await refused(cluster.node.get(paths.referenced(kind, "default"), by_name))).forbidden
        volume = {"secret": {"secretName": name}} if kind == "Secret" else {"configMap": {"name": name}}
        await make_pod(cluster, f"reads-{plural}", volumes=[{"name": "v", **volume}])

        async def read(path: str = path) -> Object:
            return await cluster.node.get(path)

        assert (await cluster.eventually(read))["data"] == {"k": "dg=="}
        listed = await cluster.node.get(paths.referenced(kind, "default"), by_name)
        assert [item["metadata"]["name"] for item in listed["items"]] == [name]
        query = {**by_name, "resourceVersion": version_of(listed)}
        async with cluster.node.watch(paths.referenced(kind, "default"), query, timeout=30) as events:
            await cluster.admin.patch(path, {"data": {"k": "dw=="}})
            event = await anext(events)
            assert (event.type, event.object["data"]) == ("MODIFIED", {"k": "dw=="})
        assert (await refused(cluster.node.get(paths.referenced(kind, "default")))).forbidden


@contract
async def a_node_gets_tokens_for_its_pods_alone(cluster: Cluster) -> None:
    audience = "https://kubernetes.default.svc"
    sources = [{"serviceAccountToken": {"path": "t", "audience": audience}}]
    volumes = [{"name": "t", "projected": {"sources": sources}}]
    pod = await make_pod(cluster, "token", serviceAccountName="default", volumes=volumes)
    path = paths.service_account_token("default", "default")
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    spec = {"audiences": [audience], "expirationSeconds": 3607, "boundObjectRef": bound}

    async def ask() -> Object:
        return await cluster.node.create(path, {"spec": spec})

    token = (await cluster.eventually(ask))["status"]
    assert token["token"] and token["expirationTimestamp"].endswith("Z")
    if await is_at_least(cluster, 1, 32):
        error = await refused(cluster.node.create(path, {"spec": {**spec, "audiences": ["vault"]}}))
        assert error.forbidden and 'audience "vault" not found in pod spec volume' in str(error)
    free = {"audiences": spec["audiences"], "expirationSeconds": 3607}
    error = await refused(cluster.node.create(path, {"spec": free}))
    assert error.forbidden and "not bound to a pod" in str(error)
    recreated = {**spec, "boundObjectRef": {**bound, "uid": "another"}}
    assert (await refused(cluster.node.create(path, {"spec": recreated}))).code in (403, 409)
    foreign = await make_pod(cluster, "foreign-token", node="another")
    metadata = foreign["metadata"]
    elsewhere = {**spec, "boundObjectRef": {**bound, "name": metadata["name"], "uid": metadata["uid"]}}
    error = await refused_once_known(cluster, lambda: cluster.node.create(path, {"spec": elsewhere}))
    assert error.forbidden


@contract
async def reviews_are_answered_to_a_node(cluster: Cluster) -> None:
    review = await cluster.node.create(paths.TOKEN_REVIEWS, {"spec": {"token": "unknown"}})
    assert not review["status"].get("authenticated")
    attributes = {"verb": "get", "resource": "nodes", "subresource": "proxy", "name": cluster.node_name}
    request = {"spec": {"user": "unknown", "resourceAttributes": attributes}}
    assert (await cluster.node.create(paths.SUBJECT_ACCESS_REVIEWS, request))["status"]["allowed"] is False


@contract
async def runtime_classes_are_read_by_a_node(cluster: Cluster) -> None:
    name = f"rc-{cluster.node_name}"
    await cluster.admin.create(paths.RUNTIME_CLASSES, {"metadata": {"name": name}, "handler": "runc"})
    found = await cluster.node.get(paths.RUNTIME_CLASSES)
    assert "runc" in [item["handler"] for item in found["items"] if item["metadata"]["name"] == name]
    error = await refused(cluster.node.create(paths.RUNTIME_CLASSES, {"metadata": {"name": "mine"}, "handler": "h"}))
    assert error.forbidden
