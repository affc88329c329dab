"""Contracts of the API server: creating, patching, updating and deleting, as a kubelet relies on it."""

from shared.kube import paths
from shared.kube.interface import PatchType
from tests.contracts.api_cluster import (
    Cluster,
    contract,
    has_no_pod,
    make_pod,
    path_of,
    refused,
    refused_once_known,
    status_path_of,
    version_of,
)


@contract
async def a_new_pod_is_pending_whatever_status_it_came_with(cluster: Cluster) -> None:
    body = {
        "metadata": {"generateName": "new-"},
        "spec": {"containers": [{"name": "c", "image": "busybox"}]},
        "status": {"phase": "Running", "message": "m"},
    }
    pod = await cluster.admin.create(paths.pods("default"), body)
    assert pod["metadata"]["name"].startswith("new-") and len(pod["metadata"]["name"]) > 4
    assert pod["metadata"]["uid"] and pod["metadata"]["creationTimestamp"] and int(version_of(pod))
    assert (pod["kind"], pod["apiVersion"]) == ("Pod", "v1")
    assert pod["status"]["phase"] == "Pending" and "message" not in pod["status"]
    assert pod["status"]["qosClass"] == "BestEffort"
    assert pod["spec"]["restartPolicy"] == "Always" and pod["spec"]["terminationGracePeriodSeconds"] == 30
    again = await cluster.admin.get(path_of(pod))
    assert again["metadata"]["uid"] == pod["metadata"]["uid"] and version_of(again) == version_of(pod)


@contract
async def a_name_is_taken_once(cluster: Cluster) -> None:
    pod = await make_pod(cluster, "twice")
    error = await refused(make_pod(cluster, "twice"))
    assert error.already_exists and not error.conflict
    assert str(error) == f'pods "{pod["metadata"]["name"]}" already exists'


@contract
async def what_is_absent_is_not_found(cluster: Cluster) -> None:
    path = paths.pod("default", "absent")
    for request in (
        cluster.admin.get(path),
        cluster.admin.delete(path),
        cluster.admin.patch(paths.pod_status("default", "absent"), {"status": {}}),
    ):
        error = await refused(request)
        assert error.not_found and str(error) == 'pods "absent" not found'
        assert (error.details["name"], error.details["kind"]) == ("absent", "pods")
    error = await refused(cluster.node.get(paths.lease(cluster.node_name)))
    assert str(error) == f'leases.coordination.k8s.io "{cluster.node_name}" not found'


@contract
async def nothing_is_made_in_a_namespace_that_is_absent(cluster: Cluster) -> None:
    event = {"metadata": {"name": "e", "namespace": "nowhere"}, "involvedObject": {"namespace": "nowhere"}}
    error = await refused(cluster.admin.create(paths.events("nowhere"), event))
    assert error.not_found and str(error) == 'namespaces "nowhere" not found'


@contract
async def a_status_patch_changes_the_status_alone(cluster: Cluster) -> None:
    pod = await make_pod(cluster, "status-alone")
    patch = {"spec": {"activeDeadlineSeconds": 7}, "status": {"phase": "Running", "podIP": "10.1.1.1"}}
    after = await cluster.node.patch(status_path_of(pod), patch)
    assert after["status"]["phase"] == "Running" and after["status"]["podIP"] == "10.1.1.1"
    assert after["status"]["qosClass"] == "BestEffort"
    assert after["spec"] == pod["spec"]
    assert after["metadata"].get("generation") == pod["metadata"].get("generation")
    assert int(version_of(after)) > int(version_of(pod))


@contract
async def a_patch_of_the_object_leaves_its_status(cluster: Cluster) -> None:
    pod = await make_pod(cluster, "spec-alone")
    await cluster.node.patch(status_path_of(pod), {"status": {"phase": "Running"}})
    patch = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Failed"}, "spec": {"activeDeadlineSeconds": 9}}
    after = await cluster.admin.patch(path_of(pod), patch)
    assert after["status"]["phase"] == "Running" and after["metadata"]["labels"] == {"a": "b"}
    assert after["spec"]["activeDeadlineSeconds"] == 9
    if "generation" in pod["metadata"]:  # servers since 1.33
        assert after["metadata"]["generation"] == pod["metadata"]["generation"] + 1


@contract
async def a_status_for_another_uid_is_refused(cluster: Cluster) -> None:
    pod = await make_pod(cluster, "other-uid")
    patch = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}, "status": {"phase": "Running"}}
    error = await refused(cluster.node.patch(status_path_of(pod), patch))
    assert (error.code, error.reason) == (422, "Invalid")
    assert 'metadata.uid: Invalid value: "00000000-0000-0000-0000-000000000000": field is immutable' in str(error)
    complete = {**pod, "metadata": {**pod["metadata"], **patch["metadata"]}}
    error = await refused(cluster.node.update(status_path_of(pod), complete))
    assert error.conflict and "UID in precondition: 00000000-0000-0000-0000-000000000000" in str(error)
    assert version_of(await cluster.node.get(path_of(pod))) == version_of(pod)
    patch["metadata"]["uid"] = pod["metadata"]["uid"]
    assert (await cluster.node.patch(status_path_of(pod), patch))["status"]["phase"] == "Running"


@contract
async def an_old_resource_version_is_refused(cluster: Cluster) -> None:
    pod = await make_pod(cluster, "old-version")
    await cluster.node.patch(status_path_of(pod), {"status": {"phase": "Running"}})
    stale = {"metadata": {"resourceVersion": version_of(pod)}, "status": {"phase": "Failed"}}
    for request in (cluster.node.patch(status_path_of(pod), stale), cluster.admin.update(path_of(pod), pod)):
        error = await refused(request)
        assert error.conflict and "the object has been modified; please apply your changes" in str(error)


@contract
async def a_patch_that_changes_nothing_is_no_new_version(cluster: Cluster) -> None:
    pod = await make_pod(cluster, "no-change")
    patch = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    first = await cluster.node.patch(status_path_of(pod), patch)
    assert version_of(await cluster.node.patch(status_path_of(pod), patch)) == version_of(first)


@contract
async def conditions_are_merged_by_type_and_ordered(cluster: Cluster) -> None:
    pod = await make_pod(cluster, "conditions")

    async def patched(status: dict[str, object]) -> list[tuple[str, str]]:
        after = await cluster.node.patch(status_path_of(pod), {"status": status})
        return [(condition["type"], condition["status"]) for condition in after["status"]["conditions"]]

    both = [{"type": "A", "status": "True", "reason": "R"}, {"type": "B", "status": "True"}]
    assert await patched({"conditions": both}) == [("A", "True"), ("B", "True")]
    assert await patched({"conditions": [{"type": "B", "status": "False"}]}) == [("A", "True"), ("B", "False")]
    added: dict[str, object] = {"conditions": [{"type": "C", "status": "True"}]}
    assert await patched(added) == [("C", "True"), ("A", "True"), ("B", "False")]
    order = [{"type": "A"}, {"type": "C"}, {"type": "B"}]
    ordered = {"$setElementOrder/conditions": order, "conditions": [{"type": "A", "status": "Unknown", "reason": None}]}
    assert await patched(ordered) == [("A", "Unknown"), ("C", "True"), ("B", "False")]
    assert "reason" not in (await cluster.node.get(path_of(pod)))["status"]["conditions"][0]
    deleted: dict[str, object] = {"conditions": [{"$patch": "delete", "type": "A"}]}
    assert await patched(deleted) == [("C", "True"), ("B", "False")]


@contract
async def addresses_of_a_pod_are_merged_and_its_container_statuses_replaced(cluster: Cluster) -> None:
    pod = await make_pod(cluster, "lists")

    def container(name: str) -> dict[str, object]:
        return {"name": name, "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": {}}

    first = {"podIPs": [{"ip": "10.1.1.1"}], "podIP": "10.1.1.1", "containerStatuses": [container("a"), container("b")]}
    await cluster.node.patch(status_path_of(pod), {"status": first})
    second = {
        "podIP": "10.1.1.2",
        "$setElementOrder/podIPs": [{"ip": "10.1.1.2"}],
        "podIPs": [{"ip": "10.1.1.2"}, {"$patch": "delete", "ip": "10.1.1.1"}],
        "containerStatuses": [container("b")],
    }
    after = (await cluster.node.patch(status_path_of(pod), {"status": second}))["status"]
    assert after["podIPs"] == [{"ip": "10.1.1.2"}] and after["podIP"] == "10.1.1.2"
    assert [status["name"] for status in after["containerStatuses"]] == ["b"]
    after = (await cluster.node.patch(status_path_of(pod), {"status": {"containerStatuses": None}}))["status"]
    assert "containerStatuses" not in after


@contract
async def a_bound_pod_is_deleted_by_its_node(cluster: Cluster) -> None:
    pod = await make_pod(cluster, "graceful")
    marked = await cluster.admin.delete(path_of(pod), {"gracePeriodSeconds": 20})
    assert marked["metadata"]["deletionTimestamp"] and marked["metadata"]["deletionGracePeriodSeconds"] == 20
    longer = await cluster.admin.delete(path_of(pod), {"gracePeriodSeconds": 25})
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 20
    shorter = await cluster.admin.delete(path_of(pod), {"gracePeriodSeconds": 5})
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    assert shorter["metadata"]["deletionTimestamp"] < marked["metadata"]["deletionTimestamp"]
    await cluster.node.patch(status_path_of(pod), {"status": {"phase": "Failed"}})
    options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
    await cluster.eventually(lambda: cluster.node.delete(path_of(pod), options))
    assert await has_no_pod(cluster, pod)


@contract
async def the_grace_of_a_deletion_is_the_pods_own_where_none_is_given(cluster: Cluster) -> None:
    pod = await make_pod(cluster, "own-grace", terminationGracePeriodSeconds=17)
    assert (await cluster.admin.delete(path_of(pod)))["metadata"]["deletionGracePeriodSeconds"] == 17


@contract
async def a_deletion_of_another_uid_is_refused(cluster: Cluster) -> None:
    pod = await make_pod(cluster, "delete-other-uid")
    options = {"gracePeriodSeconds": 0, "preconditions": {"uid": "another"}}
    error = await refused_once_known(cluster, lambda: cluster.node.delete(path_of(pod), options))
    assert error.conflict and "the UID in the precondition (another) does not match the UID in record" in str(error)
    assert "deletionTimestamp" not in (await cluster.node.get(path_of(pod)))["metadata"]


@contract
async def a_pod_that_runs_nowhere_is_gone_at_once(cluster: Cluster) -> None:
    unbound = await make_pod(cluster, "unbound", node="")
    finished = await make_pod(cluster, "finished")
    await cluster.node.patch(status_path_of(finished), {"status": {"phase": "Succeeded"}})
    for pod in (unbound, finished):
        await cluster.admin.delete(path_of(pod))
        assert (await refused(cluster.admin.get(path_of(pod)))).not_found


@contract
async def a_finalizer_keeps_a_pod_until_it_is_removed(cluster: Cluster) -> None:
    pod = await make_pod(cluster, "finalizer")
    await cluster.admin.patch(path_of(pod), {"metadata": {"finalizers": ["example.com/hold"]}})
    await cluster.eventually(lambda: cluster.node.delete(path_of(pod), {"gracePeriodSeconds": 0}))
    held = await cluster.node.get(path_of(pod))
    assert held["metadata"]["deletionTimestamp"] and held["metadata"]["deletionGracePeriodSeconds"] == 0
    await cluster.admin.patch(path_of(pod), {"metadata": {"finalizers": None}}, PatchType.MERGE)
    assert await has_no_pod(cluster, pod)


@contract
async def events_are_created_and_counted_up(cluster: Cluster) -> None:
    name = f"e-{cluster.node_name}"
    body = {
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": cluster.node_name, "uid": cluster.node_name},
        "reason": "Starting",
        "count": 1,
        "type": "Normal",
    }
    error = await refused(cluster.node.patch(paths.event("default", name), {"count": 2}))
    assert error.not_found
    await cluster.node.create(paths.events("default"), body)
    assert (await refused(cluster.node.create(paths.events("default"), body))).already_exists
    after = await cluster.node.patch(paths.event("default", name), {"count": 2, "message": "m"})
    assert (after["count"], after["message"], after["reason"]) == (2, "m", "Starting")
    error = await refused(cluster.node.create(paths.events("kube-system"), body))
    assert error.code == 400


@contract
async def a_lease_is_renewed_only_from_its_newest_version(cluster: Cluster) -> None:
    path = paths.lease(cluster.node_name)
    spec = {"holderIdentity": cluster.node_name, "leaseDurationSeconds": 40}
    lease = {"metadata": {"name": cluster.node_name, "namespace": "kube-node-lease"}, "spec": spec}
    first = await cluster.node.create(paths.LEASES, lease)
    renewed = {**first, "spec": {**spec, "renewTime": "2026-01-02T03:04:05.000001Z"}}
    second = await cluster.node.update(path, renewed)
    assert second["spec"]["renewTime"] == "2026-01-02T03:04:05.000001Z"
    assert (await refused(cluster.node.update(path, renewed))).conflict
    error = await refused(cluster.node.update(path, lease))
    assert (error.code, error.reason) == (422, "Invalid")


@contract
async def a_deletion_of_a_collection_takes_what_the_selectors_fit_and_nothing_else(cluster: Cluster) -> None:
    collection = paths.referenced("ConfigMap", "default")
    for name, batch in (("first", "x"), ("second", "x"), ("kept", "x"), ("other", "y")):
        labels = {"collection": batch}
        await cluster.admin.create(collection, {"metadata": {"name": f"batch-{name}", "labels": labels}})
    query = {"labelSelector": "collection=x", "fieldSelector": "metadata.name!=batch-kept"}
    answer = await cluster.admin.delete(collection, query=query)
    assert sorted(item["metadata"]["name"] for item in answer["items"]) == ["batch-first", "batch-second"]
    left = (await cluster.admin.get(collection, {"labelSelector": "collection"}))["items"]
    assert sorted(item["metadata"]["name"] for item in left) == ["batch-kept", "batch-other"]
    assert (await cluster.admin.delete(collection, query=query))["items"] == []
    error = await refused(cluster.node.delete(collection, query=query))
    assert error.forbidden and 'cannot deletecollection resource "configmaps"' in str(error)
