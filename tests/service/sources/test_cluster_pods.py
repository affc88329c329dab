"""Pods from the API server: what the other services receive while the API server fails and sources is killed."""

from pathlib import Path
from typing import Any

import pytest

from services.sources.core.first_seen import KEY
from shared.files.checkpoint import Checkpoint
from shared.kube import paths
from shared.model import objects
from tests.service.sources.cluster import NODE, ClusterNode, cluster_node, mirror, noticed_within, pod

pytestmark = pytest.mark.virtual_time

STATIC = "apiVersion: v1\nkind: Pod\nmetadata: {name: static}\nspec: {containers: [{name: c, image: i}]}\n"
SEEN, SOURCE = "kubernetes.io/config.seen", "kubernetes.io/config.source"


async def test_bound_pods_are_wanted_and_deleted_ones_are_not(node: ClusterNode) -> None:
    before = node.api.bind(pod("before"), NODE)
    node.api.bind(pod("elsewhere"), "node2")
    await node.start()
    assert node.desired.complete and node.wanted() == ["before"]
    desired = node.desired.state[objects.uid(before)]
    annotations = objects.annotations(desired.pod)
    assert (desired.source, annotations[SOURCE]) == ("api", "api")
    assert annotations[SEEN].startswith("2023-11-14T") and len(annotations[SEEN].partition(".")[2]) >= 10
    node.api.bind(pod("after"), NODE)
    await node.settle()
    assert node.wanted() == ["after", "before"]
    node.api.delete(paths.pod("default", "before"), grace=0)
    await node.settle()
    assert node.wanted() == ["after"]


async def test_older_pods_of_a_list_are_published_first(node: ClusterNode) -> None:
    uids = []
    for name in ("zeta", "mu", "alpha"):  # the API server lists by name
        uids.append(node.api.bind(pod(name), NODE)["metadata"]["uid"])
        node.clock.advance(2.0)
    await node.start()
    assert node.desired.history == [f"put {uid}" for uid in uids]


async def test_a_pod_being_deleted_is_published_as_such_until_it_is_gone(node: ClusterNode) -> None:
    uid = objects.uid(node.api.bind(pod("web"), NODE))
    await node.start()
    node.api.delete(paths.pod("default", "web"))
    await node.settle()
    assert "deletionTimestamp" in node.desired.state[uid].pod["metadata"]


async def test_no_pod_is_asked_for_before_the_node_was_read(node: ClusterNode) -> None:
    node.api.refuse(2, 503)  # the list of nodes, and that of services
    await node.start()
    assert node.asked("GET", "/pods") == 0 and not node.desired.complete
    await node.until(lambda: node.desired.complete, within=10.0)
    paths_asked = [path for _, path in node.api.requests]
    assert paths_asked.index("/api/v1/nodes") < paths_asked.index("/api/v1/pods")


async def test_mirror_pods_go_their_own_way(node: ClusterNode) -> None:
    node.api.bind(mirror("static-node1", "hash1"), NODE)
    await node.start()
    assert node.wanted() == [] and node.desired.complete and node.mirrors.complete
    found = node.mirrors.state["static-node1_default"]
    assert (found.name, found.namespace, found.config_hash) == ("static-node1", "default", "hash1")
    node.api.delete(paths.pod("default", "static-node1"), grace=0)
    await node.settle()
    assert node.mirrors.state == {}


async def test_the_node_is_published_and_its_absence_is_known(node: ClusterNode) -> None:
    await node.start()
    assert objects.name(node.nodes.state["node"].node) == NODE
    node.api.delete(paths.node(NODE))
    await node.settle()
    assert node.nodes.state == {} and node.nodes.complete and node.desired.complete
    await node.kill()
    await node.start()
    assert node.nodes.complete and node.nodes.state == {}
    node.api.put(paths.node(NODE), {"metadata": {"name": NODE, "labels": {"a": "b"}}})
    await node.settle()
    assert node.nodes.state["node"].node["metadata"]["labels"]["a"] == "b"


@pytest.mark.parametrize("seconds", [0.5, 5.0, 61.0, 600.0])
@pytest.mark.parametrize("fault", ["down", "pause"])
async def test_after_an_outage_everything_is_level_soon(node: ClusterNode, fault: str, seconds: float) -> None:
    node.api.bind(pod("stays"), NODE)
    node.api.bind(pod("goes"), NODE)
    await node.start()
    getattr(node.api, fault)()
    await node.pass_time(seconds / 2)
    node.api.delete(paths.pod("default", "goes"), grace=0)
    node.api.bind(pod("comes"), NODE)
    await node.pass_time(seconds / 2)
    assert node.wanted() == ["goes", "stays"]
    node.api.up()
    await node.until(lambda: node.wanted() == ["comes", "stays"], within=noticed_within(seconds) + 2.0)


async def test_an_outage_is_logged_once_and_is_over_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with cluster_node(tmp_path) as node:
        await node.start()
        node.api.down()
        await node.pass_time(120.0)
        assert [line for line in node.troubles() if "API server not reachable" in line]
        assert caplog.text.count("API server not reachable") == 1
        node.api.up()
        await node.pass_time(noticed_within(120.0))
        assert node.troubles() == ()
        assert caplog.text.count("API server reachable again") == 1


async def test_static_pods_flow_while_the_api_server_has_never_answered(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "static.yaml").write_text(STATIC)
    async with cluster_node(tmp_path, static_pod_path=str(tmp_path / "manifests")) as node:
        node.api.bind(pod("static-node1"), NODE)  # an API pod that has the static pod's name
        node.api.down()
        await node.start()
        assert node.wanted() == ["static-node1"] and not node.desired.complete
        assert not node.mirrors.complete and not node.nodes.complete
        node.api.up()
        await node.until(lambda: node.desired.complete, within=10.0)
        assert node.wanted() == ["static-node1", "static-node1"]


async def test_a_restart_while_the_api_server_is_away_removes_nothing(node: ClusterNode) -> None:
    node.api.bind(pod("stays"), NODE)
    node.api.bind(pod("goes"), NODE)
    await node.start()
    await node.kill()
    node.api.down()
    await node.start()
    await node.pass_time(60.0)
    assert node.wanted() == ["goes", "stays"] and not node.desired.complete
    node.api.delete(paths.pod("default", "goes"), grace=0)
    node.api.up()
    await node.until(lambda: node.wanted() == ["stays"], within=noticed_within(60.0) + 2.0)


async def test_a_restart_keeps_the_first_seen_time_and_finds_what_changed_meanwhile(node: ClusterNode) -> None:
    stays = objects.uid(node.api.bind(pod("stays"), NODE))
    node.api.bind(pod("goes"), NODE)
    await node.start()
    before = node.desired.state[stays]
    await node.kill()
    node.clock.advance(3600.0)
    node.api.delete(paths.pod("default", "goes"), grace=0)
    node.api.bind(pod("comes"), NODE)
    await node.start()
    assert node.wanted() == ["comes", "stays"]
    assert node.desired.state[stays] == before
    assert node.desired.history.count(f"put {stays}") == 1


async def test_an_expired_version_is_answered_by_a_new_list(node: ClusterNode) -> None:
    node.api.bind(pod("goes"), NODE)
    await node.start()
    lists = node.asked("GET", "/pods")
    node.api.down()
    await node.settle()
    node.api.delete(paths.pod("default", "goes"), grace=0)
    node.api.bind(pod("comes"), NODE)
    node.api.compact()
    node.api.up()
    await node.until(lambda: node.wanted() == ["comes"], within=10.0)
    assert node.asked("GET", "/pods") == lists + 1


async def test_a_dropped_watch_resumes_and_nothing_is_published_twice(node: ClusterNode) -> None:
    await node.start()
    lists = node.asked("GET", "/pods")
    names = [f"web{number}" for number in range(5)]
    for name in names:
        node.api.drop_watches()
        node.api.bind(pod(name), NODE)
        await node.pass_time(10.0)
        assert name in node.wanted()
    assert node.asked("GET", "/pods") == lists
    assert len(node.desired.history) == 5 and node.troubles() == ()


@pytest.mark.long
async def test_an_idle_node_asks_little(node: ClusterNode) -> None:
    for number in range(30):
        node.api.put(f"/api/v1/namespaces/default/configmaps/c{number % 3}", {"data": {}})
        volumes = [{"name": "v", "configMap": {"name": f"c{number % 3}"}}]
        node.api.bind(pod(f"web{number}", volumes=volumes), NODE)
    await node.start()
    assert node.asked("WATCH", "/configmaps") == 3
    before = len(node.api.requests)
    await node.pass_time(900.0)
    assert (len(node.api.requests) - before) / 15.0 < 2.0


class Odd:
    """A client whose lists of pods hold what the double would never send."""

    def __init__(self, client: Any, extra: list[Any]) -> None:
        self._client, self.extra = client, extra

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def get(self, path: str, query: Any = None, *, timeout: float | None = None) -> Any:
        answer = await self._client.get(path, query, timeout=timeout)
        return {**answer, "items": answer["items"] + self.extra} if path == paths.PODS else answer


async def test_an_object_that_is_not_understood_is_reported_and_nothing_counts_as_gone(
    node: ClusterNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.api.bind(pod("web"), NODE)
    client = Odd(node.api.client(f"system:node:{NODE}"), [{"metadata": {"name": "odd", "namespace": "x"}}])
    await node.start(client)
    assert (node.wanted(), node.desired.complete) == (["web"], False)
    node.api.compact()
    node.api.drop_watches()
    await node.pass_time(10.0)
    assert caplog.text.count("pod odd_x from the API server cannot be understood") == 1
    assert [line for line in node.troubles() if "odd_x" in line]
    client.extra = []
    node.api.bind(pod("other"), NODE)
    await node.kill()
    await node.start(client)
    assert (node.wanted(), node.desired.complete) == (["other", "web"], True)


async def test_two_pods_of_one_name_in_a_list_are_one_pod_and_an_event(node: ClusterNode) -> None:
    twin = node.api.bind(pod("web"), NODE)
    twin = {**twin, "metadata": {**twin["metadata"], "uid": "twin"}}
    await node.start(Odd(node.api.client(f"system:node:{NODE}"), [twin]))
    assert node.wanted() == ["web"] and "twin" not in node.desired.state
    node.api.bind(pod("other"), NODE)
    await node.settle()
    (event,) = node.events.state.values()
    assert (event.reason, event.uid) == ("FailedValidation", "twin")
    expected = 'Error validating pod web_default(twin) from api due to duplicate pod name "web", ignoring'
    assert event.message == expected


async def test_first_seen_times_in_a_form_of_a_newer_version_are_not_replaced(tmp_path: Path) -> None:
    newer = Checkpoint(tmp_path / "root/sources/pods", tmp_path / "spare")
    newer.save(KEY, {"version": 2, "by_namespace": {}})
    async with cluster_node(tmp_path) as node:
        node.api.bind(pod("web"), NODE)
        await node.start()
        assert node.wanted() == ["web"]
    assert newer.load_all() == {KEY: {"version": 2, "by_namespace": {}}}
