"""Contracts of the API server: lists, selectors and watches, as a kubelet relies on them."""

from collections.abc import AsyncIterator

from shared.kube import paths
from shared.kube.interface import ApiStatusError, WatchEvent
from tests.contracts.api_cluster import (
    Cluster,
    contract,
    is_at_least,
    make_pod,
    path_of,
    refused,
    status_path_of,
    version_of,
)

_SECONDS = 30.0


def _ours(cluster: Cluster, more: str = "") -> dict[str, str]:
    return {"fieldSelector": f"spec.nodeName={cluster.node_name}{more}"}


def _summary(event: WatchEvent) -> tuple[str, str]:
    return event.type, event.object["metadata"]["name"].partition("-")[0]


async def _rest(events: AsyncIterator[WatchEvent]) -> list[WatchEvent]:
    return [event async for event in events]


@contract
async def a_list_holds_what_its_field_selector_names(cluster: Cluster) -> None:
    one, two = await make_pod(cluster, "one"), await make_pod(cluster, "two")
    await make_pod(cluster, "elsewhere", node="another")
    found = await cluster.node.get(paths.PODS, _ours(cluster))
    assert found["kind"] == "PodList" and int(version_of(found)) >= int(version_of(two))
    assert [item["metadata"]["uid"] for item in found["items"]] == [pod["metadata"]["uid"] for pod in (one, two)]
    await cluster.node.patch(status_path_of(one), {"status": {"phase": "Failed"}})
    found = await cluster.node.get(paths.PODS, _ours(cluster, ",status.phase!=Failed"))
    assert [item["metadata"]["uid"] for item in found["items"]] == [two["metadata"]["uid"]]
    found = await cluster.node.get(paths.NODES, {"fieldSelector": f"metadata.name={cluster.node_name}"})
    assert [item["metadata"]["name"] for item in found["items"]] == [cluster.node_name]


@contract
async def a_field_that_cannot_be_selected_by_is_refused(cluster: Cluster) -> None:
    error = await refused(cluster.node.get(paths.PODS, {"fieldSelector": "spec.hostPID=true"}))
    assert error.code == 400 and "field label not supported: spec.hostPID" in str(error)


@contract
async def services_with_an_address_can_be_selected_since_1_22(cluster: Cluster) -> None:
    for name, more in ((f"headless-{cluster.node_name}", {"clusterIP": "None"}), (f"ip-{cluster.node_name}", {})):
        body = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **more}}
        await cluster.admin.create("/api/v1/namespaces/default/services", body)
    try:
        found = await cluster.node.get(paths.SERVICES, {"fieldSelector": "spec.clusterIP!=None"})
    except ApiStatusError as error:
        assert error.code == 400 and "spec.clusterIP" in str(error)
    else:
        names = {item["metadata"]["name"] for item in found["items"]}
        assert f"ip-{cluster.node_name}" in names and f"headless-{cluster.node_name}" not in names


@contract
async def a_watch_shows_the_changes_of_the_nodes_pods(cluster: Cluster) -> None:
    before = await make_pod(cluster, "before")
    listed = await cluster.node.get(paths.PODS, _ours(cluster))
    query = {**_ours(cluster), "resourceVersion": version_of(listed)}
    async with cluster.node.watch(paths.PODS, query, timeout=_SECONDS) as events:
        await make_pod(cluster, "strange", node="another")
        pod = await make_pod(cluster, "ours")
        event = await anext(events)
        assert _summary(event) == ("ADDED", "ours") and version_of(event.object) == version_of(pod)
        assert (event.object["kind"], event.object["apiVersion"]) == ("Pod", "v1")
        await cluster.node.patch(status_path_of(before), {"status": {"phase": "Running"}})
        event = await anext(events)
        assert _summary(event) == ("MODIFIED", "before") and event.object["status"]["phase"] == "Running"
        await cluster.admin.delete(path_of(pod), {"gracePeriodSeconds": 3})
        event = await anext(events)
        assert _summary(event) == ("MODIFIED", "ours") and event.object["metadata"]["deletionTimestamp"]
        marked = event.object
        await cluster.node.delete(path_of(pod), {"gracePeriodSeconds": 0})
        event = await anext(events)
        while event.type == "MODIFIED":  # servers before 1.27 send that the grace is 0 now
            assert event.object["metadata"]["deletionGracePeriodSeconds"] == 0
            event = await anext(events)
        assert _summary(event) == ("DELETED", "ours") and event.object["metadata"]["uid"] == pod["metadata"]["uid"]
        assert int(version_of(event.object)) > int(version_of(marked))


@contract
async def an_object_that_leaves_the_selection_is_deleted_for_the_watch(cluster: Cluster) -> None:
    pod = await make_pod(cluster, "leaves")
    query = {**_ours(cluster, ",status.phase!=Failed"), "resourceVersion": version_of(pod)}
    async with cluster.node.watch(paths.PODS, query, timeout=_SECONDS) as events:
        failed = await cluster.node.patch(status_path_of(pod), {"status": {"phase": "Failed"}})
        event = await anext(events)
        assert _summary(event) == ("DELETED", "leaves") and version_of(event.object) == version_of(failed)
        assert event.object["status"]["phase"] == "Pending"
        await cluster.node.patch(status_path_of(pod), {"status": {"phase": "Pending"}})
        assert _summary(await anext(events)) == ("ADDED", "leaves")


@contract
async def a_watch_goes_on_where_another_ended(cluster: Cluster) -> None:
    first = await make_pod(cluster, "first")
    await make_pod(cluster, "second")
    await cluster.admin.patch(path_of(first), {"metadata": {"labels": {"a": "b"}}})
    query = {**_ours(cluster), "resourceVersion": version_of(first)}
    async with cluster.node.watch(paths.PODS, query, timeout=_SECONDS) as events:
        assert _summary(await anext(events)) == ("ADDED", "second")
        last = await anext(events)
        assert _summary(last) == ("MODIFIED", "first")
    query["resourceVersion"] = version_of(last.object)
    async with cluster.node.watch(paths.PODS, query, timeout=_SECONDS) as events:
        await make_pod(cluster, "third")
        assert _summary(await anext(events)) == ("ADDED", "third")


@contract
async def a_list_of_the_node_is_as_new_as_all_that_was_seen_before(cluster: Cluster) -> None:
    pod = await make_pod(cluster, "seen")
    listed = await cluster.node.get(paths.NODES, {"fieldSelector": f"metadata.name={cluster.node_name}"})
    assert int(version_of(listed)) >= int(version_of(pod))


@contract
async def a_list_not_older_than_a_version_has_what_was_written_by_then(cluster: Cluster) -> None:
    pod = await make_pod(cluster, "written")
    listed = await cluster.node.get(paths.PODS, {**_ours(cluster), "resourceVersion": version_of(pod)})
    assert [item["metadata"]["uid"] for item in listed["items"]] == [pod["metadata"]["uid"]]
    assert int(version_of(listed)) >= int(version_of(pod))
    query = {"fieldSelector": f"metadata.name={cluster.node_name}", "resourceVersion": "0"}
    nodes = await cluster.node.get(paths.NODES, query)
    assert [item["metadata"]["name"] for item in nodes["items"]] == [cluster.node_name]


@contract
async def a_list_from_the_cache_comes_in_one_part_whatever_its_limit(cluster: Cluster) -> None:
    last = [await make_pod(cluster, f"part{number}") for number in range(3)][-1]
    await cluster.node.get(paths.PODS, {**_ours(cluster), "resourceVersion": version_of(last)})  # the cache is there
    listed = await cluster.node.get(paths.PODS, {**_ours(cluster), "resourceVersion": "0", "limit": "1"})
    assert len(listed["items"]) == 3 and not listed["metadata"].get("continue")


@contract
async def a_version_that_is_not_reached_within_three_seconds_is_too_large(cluster: Cluster) -> None:
    listed = await cluster.node.get(paths.PODS, _ours(cluster))
    query = {**_ours(cluster), "resourceVersion": str(int(version_of(listed)) + 1_000_000)}
    error = await refused(cluster.node.get(paths.PODS, query, timeout=_SECONDS))
    assert (error.code, error.reason, error.too_large_version) == (504, "Timeout", True) and error.retry_after == 1.0


@contract
async def a_watch_from_nowhere_begins_with_what_there_is(cluster: Cluster) -> None:
    await make_pod(cluster, "present")
    async with cluster.node.watch(paths.PODS, {**_ours(cluster), "resourceVersion": "0"}, timeout=_SECONDS) as events:
        assert _summary(await anext(events)) == ("ADDED", "present")


@contract
async def a_watch_can_begin_with_all_objects_and_a_bookmark_after_them_since_1_34(cluster: Cluster) -> None:
    present = await make_pod(cluster, "present")
    await make_pod(cluster, "elsewhere-three", node="another")
    query = {
        **_ours(cluster),
        "resourceVersion": version_of(present),
        "resourceVersionMatch": "NotOlderThan",
        "sendInitialEvents": "true",
        "allowWatchBookmarks": "true",
    }

    async def watched() -> list[WatchEvent]:
        async with cluster.node.watch(paths.PODS, query, timeout=_SECONDS) as events:
            return [await anext(events), await anext(events)]

    if not await is_at_least(cluster, 1, 34):
        error = await refused(watched())
        assert (error.code, error.reason) == (422, "Invalid")
        text = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch"
        assert str(error) == f'ListOptions.meta.k8s.io "" is invalid: {text}'
        return
    first, end = await watched()
    assert _summary(first) == ("ADDED", "present") and end.type == "BOOKMARK"
    assert end.object["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(version_of(end.object)) >= int(version_of(present))


@contract
async def a_watch_ends_in_time_with_a_bookmark(cluster: Cluster) -> None:
    listed = await cluster.node.get(paths.PODS, _ours(cluster))
    query = {**_ours(cluster), "resourceVersion": version_of(listed), "allowWatchBookmarks": "true"}
    async with cluster.node.watch(paths.PODS, query, timeout=5) as events:
        elsewhere = await make_pod(cluster, "elsewhere-too", node="another")
        found = await _rest(events)
    assert {event.type for event in found} == {"BOOKMARK"}, found
    assert found[-1].object["kind"] == "Pod"
    assert int(version_of(found[-1].object)) >= int(version_of(elsewhere))


@contract
async def a_watch_without_bookmarks_just_ends(cluster: Cluster) -> None:
    listed = await cluster.node.get(paths.PODS, _ours(cluster))
    query = {**_ours(cluster), "resourceVersion": version_of(listed)}
    async with cluster.node.watch(paths.PODS, query, timeout=1) as events:
        assert await _rest(events) == []


@contract
async def a_version_that_is_forgotten_is_gone(cluster: Cluster) -> None:
    pod = await make_pod(cluster, "forgotten")
    for value in ("1", "2", "3"):
        await cluster.admin.patch(path_of(pod), {"metadata": {"labels": {"a": value}}})
    await cluster.forget_history()

    async def watched() -> None:
        query = {**_ours(cluster), "resourceVersion": version_of(pod)}
        async with cluster.node.watch(paths.PODS, query, timeout=_SECONDS) as events:
            await anext(events)

    error = await refused(watched())
    assert error.gone and error.reason in ("Expired", "Gone")
    listed = await cluster.node.get(paths.PODS, _ours(cluster))
    assert [item["metadata"]["labels"] for item in listed["items"]] == [{"a": "3"}]
