"""Which state of the API server each list reads: its cache, not older than what was seen, or, where that is needed, the
newest state, which costs the API server a quorum read."""

import asyncio
from pathlib import Path

import pytest

from services.sources.core import first_seen
from shared.files.checkpoint import Checkpoint, RecordLocation
from shared.kube import paths
from shared.model import objects
from shared.model.objects import Object
from tests.service.sources.cluster import NODE, ClusterNode, cluster_node, noticed_within, pod
from tests.service.sources.shown_secrets import put_secret, showing, version_of

pytestmark = pytest.mark.virtual_time

SECRETS = paths.referenced("Secret", "default")


def lists(node: ClusterNode) -> list[tuple[str, str]]:
    """The last part of the path and the resourceVersion of each list of the node, "" = a quorum read."""
    return [
        (received.path.rpartition("/")[2], received.query.get("resourceVersion", ""))
        for received in node.api.received
        if (received.method == "GET" or "sendInitialEvents" in received.query)
        and received.path in (paths.NODES, paths.PODS, paths.SERVICES, SECRETS)
    ]


async def start_after_backup(node: ClusterNode) -> tuple[int, dict[str, Object]]:
    """Start sources on a node with the pod `web`, which shows Secret `s`, and change the Secret five times; return the
    backup of the store from before the start."""
    put_secret(node, "s")
    node.api.bind(showing("web", "s"), NODE)
    backup = node.api.store.backup()
    await node.start()
    for _ in range(5):
        put_secret(node, "s")
    return backup


async def restart(node: ClusterNode) -> None:
    await node.kill()
    node.api.received.clear()
    await node.start()


async def test_only_the_list_of_the_node_and_the_very_first_one_of_its_pods_are_quorum_reads(node: ClusterNode) -> None:
    put_secret(node, "s")
    await node.start()
    assert sorted(lists(node)) == [("nodes", ""), ("pods", ""), ("services", "0")]
    node.api.bind(showing("web", "s"), NODE)
    node.api.bind(pod("goes"), NODE)
    await node.settle()
    gone = node.api.delete(paths.pod("default", "goes"), grace=0)
    await node.settle()
    await restart(node)
    read = (gone["metadata"]["resourceVersion"],)
    assert sorted(lists(node)) == [("nodes", ""), ("pods", *read), ("secrets", "0"), ("services", "0")]
    assert node.wanted() == ["web"]


async def test_a_node_without_pods_reads_them_from_the_cache_after_its_first_start(node: ClusterNode) -> None:
    await node.start()
    await restart(node)
    assert dict(lists(node))["pods"] not in ("", "0")


async def test_an_expired_version_is_listed_from_the_cache(node: ClusterNode) -> None:
    put_secret(node, "s")
    node.api.bind(showing("web", "s"), NODE)
    await node.start()
    node.api.down()
    await node.settle()
    node.api.bind(pod("comes"), NODE)
    node.api.compact()
    node.api.received.clear()
    node.api.up()
    await node.until(lambda: node.wanted() == ["comes", "web"], within=10.0)
    await node.pass_time(10.0)
    again = dict(lists(node))
    assert again.pop("nodes") == ""
    assert again.keys() == {"pods", "secrets", "services"} and {"", "0"}.isdisjoint(again.values()), again


async def test_after_a_restart_an_api_server_that_is_behind_neither_ends_a_pod_nor_starts_one_again(
    node: ClusterNode, caplog: pytest.LogCaptureFixture
) -> None:
    gone = objects.uid(node.api.bind(pod("gone"), NODE))
    await node.start()
    behind = node.api.store.backup()
    runs = objects.uid(node.api.bind(pod("runs"), NODE))
    node.api.delete(paths.pod("default", "gone"), grace=0)
    await node.settle()
    assert node.wanted() == ["runs"]
    node.api.store.fall_behind(behind)
    published = len(node.desired.history)
    await restart(node)
    await node.pass_time(4.0)
    assert node.desired.complete and node.wanted() == ["runs"]
    assert {f"delete {runs}", f"put {gone}"}.isdisjoint(node.desired.history[published:])
    assert [version for what, version in lists(node) if what == "pods"][1:] == [""], "the cache did not get there"
    assert "pods: the API server" not in caplog.text and node.troubles() == ()


async def test_after_a_restart_an_api_server_that_is_behind_brings_no_older_spec_back(node: ClusterNode) -> None:
    node.api.bind(pod("web"), NODE)
    await node.start()
    behind = node.api.store.backup()
    newer = node.api.bind(pod("web", containers=[{"name": "main", "image": "busybox:2"}]), NODE)
    await node.settle()
    node.api.store.fall_behind(behind)
    await restart(node)
    await node.settle()
    assert [node.desired.complete] == [False], "the cache may still get there"
    node.api.store.catch_up()
    await node.settle()
    assert node.desired.complete
    spec = node.desired.state[objects.uid(newer)].pod["spec"]
    assert spec["containers"][0]["image"] == "busybox:2"
    assert dict(lists(node))["pods"] == newer["metadata"]["resourceVersion"]


async def test_the_record_is_written_for_what_is_to_run_and_not_for_a_status(node: ClusterNode, tmp_path: Path) -> None:
    bound = node.api.bind(pod("web"), NODE)
    await node.start()
    path, record = paths.pod("default", "web"), next(tmp_path.glob("root/sources/pods/*"))
    before = record.stat().st_ino
    node.api.put(path, {**bound, "status": {"startTime": "2026-01-01T00:00:00Z"}})
    await node.settle()
    assert record.stat().st_ino == before
    newer = node.api.bind(pod("web", containers=[{"name": "main", "image": "busybox:2"}]), NODE)
    await node.settle()
    assert record.stat().st_ino != before
    assert f'"{newer["metadata"]["resourceVersion"]}"' in record.read_text()


@pytest.mark.parametrize("overtaken", [False, True], ids=["older than the record", "newer than the record"])
async def test_a_store_that_was_restored_while_sources_did_not_run_is_what_counts(
    node: ClusterNode, overtaken: bool
) -> None:
    backup = await start_after_backup(node)
    node.api.bind(pod("lost"), NODE)
    await node.settle()
    await node.kill()
    node.api.store.restore(backup)
    for _ in range(20 if overtaken else 0):
        node.api.put("/api/v1/namespaces/default/configmaps/c", {"data": {"k": str(node.api.store.revision)}})
    node.api.received.clear()
    await node.start()
    assert node.desired.complete and node.wanted() == ["web"]
    assert bool(dict(lists(node))["pods"]) is overtaken
    assert version_of(node, "s") == node.api.store.backup()[1][f"{SECRETS}/s"]["metadata"]["resourceVersion"]


async def test_a_list_that_a_restored_store_never_reaches_is_followed_by_one_of_the_newest_state(
    node: ClusterNode,
) -> None:
    backup = await start_after_backup(node)
    await node.settle()
    node.api.down()
    node.api.store.restore(backup)
    node.api.received.clear()
    node.api.up()
    restored = backup[1][f"{SECRETS}/s"]["metadata"]["resourceVersion"]
    await node.until(lambda: version_of(node, "s") == restored, within=10.0 + noticed_within(0.0))
    await node.pass_time(2.0)
    assert {what for what, version in lists(node) if not version} == {"nodes", "pods", "secrets", "services"}


async def test_a_secret_whose_watch_begins_again_is_never_an_older_one(tmp_path: Path) -> None:
    async with cluster_node(tmp_path, sync_frequency=10.0) as node:
        put_secret(node, "s")
        reference = {"secretKeyRef": {"name": "s", "key": "k"}}
        env = [{"name": "A", "valueFrom": reference}]
        node.api.bind(pod("web", containers=[{"name": "main", "image": "busybox:1", "env": env}]), NODE)
        await node.start()
        behind = node.api.store.backup()
        put_secret(node, "s")
        await node.settle()
        newest = version_of(node, "s")
        await node.pass_time(100.0)
        assert node.api.store.streams and not [each for each in node.api.store.streams if each.resource == "secrets"]
        node.api.store.fall_behind(behind)
        asking = asyncio.create_task(node.ask("Secret", "s"))
        await node.pass_time(4.0)
        found = asking.result()
        assert found.object is None or found.object["metadata"]["resourceVersion"] == newest
        found = await node.ask("Secret", "s")
        assert found.object is not None and found.object["metadata"]["resourceVersion"] == newest


async def test_a_record_that_only_a_newer_version_can_read_is_no_reason_to_trust_a_cache(
    node: ClusterNode, tmp_path: Path
) -> None:
    await node.start()
    await node.kill()
    records = Checkpoint(tmp_path / "root/sources/pods", tmp_path / "fallback")
    [record] = records.load_all().values()
    records.save(first_seen.KEY, record | {"version": first_seen.VERSION + 1, "pods": []})
    node.api.received.clear()
    await node.start()
    assert dict(lists(node))["pods"] == ""


async def test_what_could_be_saved_nowhere_is_saved_with_the_next_change(
    node: ClusterNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.start()
    with monkeypatch.context() as full:
        full.setattr(Checkpoint, "save", lambda *_: RecordLocation.NOWHERE)
        node.api.bind(pod("web"), NODE)
        await node.settle()
    shown = node.api.get(paths.pod("default", "web"))
    assert shown is not None
    node.api.put(paths.pod("default", "web"), shown | {"status": {"phase": "Running"}})
    await node.settle()
    [record] = Checkpoint(tmp_path / "root/sources/pods", tmp_path / "fallback").load_all().values()
    assert list(first_seen.decode(record)) == [objects.uid(shown)]
