"""Reads on behalf of others: Secrets and ConfigMaps by each strategy, Services, RuntimeClasses, the Node."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bus.messages.sources import FoundObject, GetObject
from services.frame.launch import Context
from services.sources.service import Sources, build
from shared.config.effective import EffectiveConfig
from shared.kube import paths
from shared.model.objects import Object
from tests.fakes.api_resources import V1_20
from tests.fakes.virtual_time import ended
from tests.service.sources.cluster import NODE, ClusterNode, cluster_node, noticed_within, pod

pytestmark = pytest.mark.virtual_time

VALUE = "aHVzaC1odXNo"
SECRETS = "/api/v1/namespaces/default/secrets"
STRATEGIES = pytest.mark.parametrize("strategy", ["Watch", "Cache", "Get"])


def secret(value: str = VALUE, **more: Any) -> Object:
    return {"data": {"k": value}, **more}


def using(name: str, secret_name: str = "s", *, shown: bool = False) -> Object:
    if shown:
        return pod(name, volumes=[{"name": "v", "secret": {"secretName": secret_name}}])
    reference = {"secretKeyRef": {"name": secret_name, "key": "k"}}
    env = [{"name": "A", "valueFrom": reference}]
    return pod(name, containers=[{"name": "main", "image": "busybox:1", "env": env}])


async def value(node: ClusterNode, name: str = "s") -> str:
    found = await node.ask("Secret", name)
    assert found.object is not None, found.error
    return str(found.object["data"]["k"])


@STRATEGIES
async def test_only_what_a_pod_of_this_node_names_is_read(tmp_path: Path, strategy: str) -> None:
    async with cluster_node(tmp_path, change_detection_strategy=strategy) as node:
        node.api.put(f"{SECRETS}/s", secret())
        await node.start()
        unnamed = FoundObject(object=None, error='object "default"/"s" not registered')
        assert await node.ask("Secret", "s") == unnamed
        node.api.bind(using("web"), NODE)
        await node.settle()
        assert await value(node) == VALUE
        assert node.changed.state["Secret/default/s"].resource_version
        node.api.delete(paths.pod("default", "web"), grace=0)
        await node.settle()
        assert await node.ask("Secret", "s") == unnamed
        assert node.changed.state == {}


@STRATEGIES
async def test_a_value_is_never_on_a_stream_or_in_the_log(
    tmp_path: Path, strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with cluster_node(tmp_path, change_detection_strategy=strategy) as node:
        node.api.put(f"{SECRETS}/s", secret())
        node.api.bind(using("web"), NODE)
        await node.start()
        assert await value(node) == VALUE
        node.api.put(f"{SECRETS}/s", secret(VALUE + "Mg=="))
        node.api.drop_watches()
        await node.pass_time(5.0)
        streams = (node.desired, node.mirrors, node.nodes, node.changed, node.events)
        assert node.changed.changes
        assert VALUE not in "".join(str(stream.changes) for stream in streams)
        assert VALUE not in caplog.text
        assert VALUE.encode() not in b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())


@pytest.mark.parametrize(
    ("strategy", "words"),
    [("Watch", 'secret "s" not found'), ("Cache", 'secrets "s" not found'), ("Get", 'secrets "s" not found')],
)
async def test_a_missing_object_is_reported_with_the_text_of_the_strategy(
    tmp_path: Path, strategy: str, words: str
) -> None:
    async with cluster_node(tmp_path, change_detection_strategy=strategy) as node:
        node.api.bind(using("web"), NODE)
        await node.start()
        assert await node.ask("Secret", "s") == FoundObject(object=None, not_found=True, error=words)
        assert node.changed.state["Secret/default/s"].resource_version == ""


async def test_watch_publishes_changes_at_once_by_one_watch_for_all_pods(node: ClusterNode) -> None:
    node.api.put(f"{SECRETS}/s", secret())
    for number in range(5):
        node.api.bind(using(f"web{number}"), NODE)
    await node.start()
    assert node.asked("WATCH", "/secrets") == 1
    first = node.changed.state["Secret/default/s"].resource_version
    node.api.put(f"{SECRETS}/s", secret("bmV3"))
    await node.settle()
    assert node.changed.state["Secret/default/s"].resource_version != first
    assert await value(node) == "bmV3"
    node.api.delete(f"{SECRETS}/s")
    await node.settle()
    assert node.changed.state["Secret/default/s"].resource_version == ""
    assert node.asked("GET", "/secrets") == 1


async def test_watch_answers_from_what_it_knows_while_the_api_server_is_away(node: ClusterNode) -> None:
    node.api.put(f"{SECRETS}/s", secret())
    node.api.bind(using("web"), NODE)
    await node.start()
    node.api.down()
    await node.pass_time(30.0)
    assert await value(node) == VALUE
    node.api.put(f"{SECRETS}/s", secret("bmV3"))
    node.api.up()
    await node.pass_time(noticed_within(30.0) + 2.0)
    assert await value(node) == "bmV3"


async def test_watch_waits_a_second_for_the_first_list(node: ClusterNode) -> None:
    node.api.put(f"{SECRETS}/s", secret())
    node.api.bind(using("web"), NODE)
    await node.start()
    node.api.slow(2.0)
    node.api.bind(using("other", "t"), NODE)
    await node.settle()
    found = await node.ask("Secret", "t")
    assert found.error == "failed to sync secret cache: timed out waiting for the condition"
    await node.pass_time(3.0)
    assert (await node.ask("Secret", "t")).not_found


@pytest.mark.parametrize("shown", [False, True])
async def test_an_idle_watch_is_closed_unless_a_volume_shows_the_object(tmp_path: Path, shown: bool) -> None:
    async with cluster_node(tmp_path, sync_frequency=10.0) as node:
        node.api.put(f"{SECRETS}/s", secret())
        node.api.bind(using("web", shown=shown), NODE)
        await node.start()
        await value(node)
        await node.pass_time(70.0)
        node.api.put(f"{SECRETS}/s", secret("bmV3"))
        before = node.asked("GET", "/secrets")
        await node.settle()
        assert await value(node) == "bmV3"
        assert node.asked("GET", "/secrets") - before == (0 if shown else 1)


async def test_an_immutable_object_is_not_watched(node: ClusterNode) -> None:
    node.api.put(f"{SECRETS}/s", secret(immutable=True))
    node.api.bind(using("web", shown=True), NODE)
    await node.start()
    await node.pass_time(1.0)
    asked = (node.asked("GET", "/secrets"), node.asked("WATCH", "/secrets"))
    node.api.drop_watches()
    await node.pass_time(10.0)
    assert await value(node) == VALUE
    assert (node.asked("GET", "/secrets"), node.asked("WATCH", "/secrets")) == asked


async def test_cache_reads_again_after_its_time_or_when_a_pod_comes(tmp_path: Path) -> None:
    async with cluster_node(tmp_path, change_detection_strategy="Cache") as node:
        annotations = {"node.alpha.kubernetes.io/ttl": "20"}
        node.api.put(paths.node(NODE), {"metadata": {"name": NODE, "annotations": annotations}})
        node.api.put(f"{SECRETS}/s", secret())
        node.api.bind(using("web"), NODE)
        await node.start()
        await value(node)
        node.api.put(f"{SECRETS}/s", secret("Mg=="))
        await node.pass_time(19.0)
        assert await value(node) == VALUE
        await node.pass_time(1.0)
        assert await value(node) == "Mg=="
        node.api.put(f"{SECRETS}/s", secret("Mw=="))
        node.api.bind(using("other"), NODE)
        await node.settle()
        assert await value(node) == "Mw=="
        await node.pass_time(20.0)
        node.api.refuse(0, 500)
        assert (await node.ask("Secret", "s")).error == "refused with 500"


async def test_get_reads_each_time(tmp_path: Path) -> None:
    async with cluster_node(tmp_path, change_detection_strategy="Get") as node:
        node.api.put(f"{SECRETS}/s", secret())
        node.api.bind(using("web"), NODE)
        await node.start()
        await value(node)
        node.api.put(f"{SECRETS}/s", secret("Mg=="))
        assert await value(node) == "Mg=="
        assert node.asked("GET", "/secrets/s") == 2 and node.asked("WATCH", "/secrets") == 0


@STRATEGIES
async def test_an_authorizer_that_lags_behind_costs_moments(tmp_path: Path, strategy: str) -> None:
    async with cluster_node(tmp_path, change_detection_strategy=strategy) as node:
        await node.start()
        node.api.put(f"{SECRETS}/s", secret())
        node.api.refuse(2, 403)
        node.api.bind(using("web"), NODE)
        await node.settle()
        began = node.clock.monotonic()
        assert await value(node) == VALUE
        assert node.clock.monotonic() - began < 1.0
        assert node.troubles() == ()


@STRATEGIES
async def test_fresh_asks_the_api_server_itself(tmp_path: Path, strategy: str) -> None:
    async with cluster_node(tmp_path, change_detection_strategy=strategy) as node:
        node.api.put(f"{SECRETS}/s", secret())
        node.api.bind(using("web"), NODE)
        await node.start()
        await value(node)
        node.api.put(f"{SECRETS}/s", secret("Mg=="))
        found = await node.ask("Secret", "s", fresh=True)
        assert found.object is not None and found.object["data"]["k"] == "Mg=="


async def test_services_are_those_of_the_namespace_and_the_api_servers_own(node: ClusterNode) -> None:
    for namespace, name, ip in [
        ("default", "kubernetes", "10.0.0.1"),
        ("default", "web", "10.0.0.2"),
        ("kube-system", "dns", "10.0.0.10"),
        ("kube-system", "headless", "None"),
    ]:
        node.api.put(f"/api/v1/namespaces/{namespace}/services/{name}", {"spec": {"clusterIP": ip}})
    node.api.down()
    await node.start()
    assert not (await node.services_for("default")).synced
    node.api.up()
    await node.pass_time(10.0)
    found = await node.services_for("kube-system")
    assert found.synced
    assert [service["metadata"]["name"] for service in found.services] == ["kubernetes", "dns"]


async def test_of_a_service_only_what_variables_are_made_of_is_answered(tmp_path: Path) -> None:
    async with cluster_node(tmp_path) as node:
        port = {"name": "http", "port": 80, "protocol": "TCP"}
        service = {
            "metadata": {"annotations": {"notes": "x" * 1000}, "labels": {"app": "web"}},
            "spec": {
                "clusterIP": "10.0.0.2",
                "ports": [{**port, "targetPort": "http"}, "none"],
                "selector": {"a": "b"},
            },
            "status": {"loadBalancer": {}},
        }
        node.api.put("/api/v1/namespaces/default/services/web", service)
        await node.start()
        listed = (await node.services_for("default")).services
        node.api.put("/api/v1/namespaces/default/services/odd", {"spec": {"clusterIP": "10.0.0.3", "ports": 7}})
        await node.pass_time(1.0)
        changed = (await node.services_for("default")).services
    web = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"clusterIP": "10.0.0.2", "ports": [port]}}
    odd = {"metadata": {"name": "odd", "namespace": "default"}, "spec": {"clusterIP": "10.0.0.3", "ports": []}}
    assert listed == (web,)
    assert changed == (odd, web)


async def test_services_are_listed_whole_where_an_older_api_server_cannot_select_them(tmp_path: Path) -> None:
    async with cluster_node(tmp_path, drops=V1_20) as node:
        node.api.put("/api/v1/namespaces/default/services/kubernetes", {"spec": {"clusterIP": "10.0.0.1"}})
        await node.start()
        found = await node.services_for("default")
        assert found.synced
        assert [service["metadata"]["name"] for service in found.services] == ["kubernetes"]


async def test_runtime_classes_are_listed_at_the_first_request(node: ClusterNode) -> None:
    node.api.put(f"{paths.RUNTIME_CLASSES}/kata", {"handler": "kata"})
    await node.start()
    assert node.asked("GET", "/runtimeclasses") == 0
    found = await node.ask("RuntimeClass", "kata", namespace="")
    assert found.object is not None and found.object["handler"] == "kata"
    missing = await node.ask("RuntimeClass", "gone", namespace="")
    assert (missing.not_found, missing.error) == (True, 'runtimeclass.node.k8s.io "gone" not found')
    assert node.asked("GET", "/runtimeclasses") == 1


async def test_csi_drivers_are_watched_from_the_first_request_on(node: ClusterNode) -> None:
    node.api.put(f"{paths.CSI_DRIVERS}/a.csi", {"spec": {"attachRequired": False}})
    await node.start()
    assert node.asked("GET", "/csidrivers") == 0
    found = await node.ask("CSIDriver", "a.csi", namespace="")
    assert found.object is not None and found.object["spec"] == {"attachRequired": False}
    missing = await node.ask("CSIDriver", "b.csi", namespace="")
    assert (missing.not_found, missing.error) == (True, 'csidriver.storage.k8s.io "b.csi" not found')
    made = node.api.put(f"{paths.CSI_DRIVERS}/b.csi", {"spec": {"podInfoOnMount": True}})
    version = made["metadata"]["resourceVersion"]
    await node.until(lambda: _version(node, "CSIDriver//b.csi") == version, within=5.0)
    assert (await node.ask("CSIDriver", "b.csi", namespace="")).object is not None
    node.api.delete(f"{paths.CSI_DRIVERS}/b.csi")
    await node.until(lambda: _version(node, "CSIDriver//b.csi") == "", within=5.0)


async def test_a_volume_attachment_is_read_at_each_request(node: ClusterNode) -> None:
    await node.start()
    missing = await node.ask("VolumeAttachment", "csi-1", namespace="")
    assert missing.not_found
    path = f"{paths.VOLUME_ATTACHMENTS}/csi-1"
    node.api.put(path, {"spec": {"nodeName": "n"}, "status": {"attached": True}})
    found = await node.ask("VolumeAttachment", "csi-1", namespace="")
    assert found.object is not None and found.object["status"] == {"attached": True}


async def test_a_resource_claim_is_read_at_each_request(node: ClusterNode) -> None:
    await node.start()
    missing = await node.ask("ResourceClaim", "gpu", namespace="default")
    assert missing.not_found and missing.error == 'resourceclaims.resource.k8s.io "gpu" not found'
    for pods in ([], [{"resource": "pods", "name": "web", "uid": "u"}]):
        node.api.put(paths.resource_claim("default", "gpu"), {"status": {"reservedFor": pods}})
        found = await node.ask("ResourceClaim", "gpu", namespace="default")
        assert found.object is not None and found.object["status"] == {"reservedFor": pods}


def _version(node: ClusterNode, key: str) -> str | None:
    changed = node.changed.state.get(key)
    return changed.resource_version if changed is not None else None


async def test_service_accounts_are_asked_of_the_api_server_which_may_not_let_nodes_read_them(
    node: ClusterNode,
) -> None:
    node.api.put(paths.service_account("default", "robot"), {})
    await node.start()
    found = await node.ask("ServiceAccount", "robot", namespace="default")
    assert found.object is None
    assert 'cannot get resource "serviceaccounts"' in found.error
    assert node.asked("GET", "/serviceaccounts/robot") == 4, "its authorizer may lag behind"


async def test_the_node_is_read_from_memory_or_live(node: ClusterNode) -> None:
    node.api.down()
    await node.start()
    unread = "nodes have not yet been read at least once, cannot construct node object"
    assert (await node.ask("Node", NODE, namespace="")).error == unread
    node.api.up()
    await node.pass_time(10.0)
    assert (await node.ask("Node", NODE, namespace="")).object is not None
    assert node.asked("GET", f"/nodes/{NODE}") == 0
    assert (await node.ask("Node", NODE, namespace="", fresh=True)).object is not None
    assert node.asked("GET", f"/nodes/{NODE}") == 1
    assert (await node.ask("Node", "node2", namespace="")).object is None
    assert (await node.ask("Pod", "web")).object is None


async def test_a_node_that_runs_alone_reports_it_and_marks_its_empty_set_complete(tmp_path: Path) -> None:
    node = ClusterNode(tmp_path)
    bus = node.network.bus("sources")
    config = EffectiveConfig(node_name=NODE, root_dir=str(tmp_path), run_dir=str(tmp_path), log_dir="", cert_dir="")
    service: Sources = build(Context("sources", config, bus, node.clock, asyncio.Event()))
    await bus.start()
    await node._bus.start()
    task = asyncio.create_task(service.run())
    await node.desired.until_complete()
    found = await node._bus.ask("sources", GetObject(kind="RuntimeClass", namespace="", name="b"), FoundObject)
    assert found.error == "not supported due to running kubelet in standalone mode"
    found = await node._bus.ask("sources", GetObject(kind="Secret", namespace="a", name="b"), FoundObject)
    assert (found.not_found, found.error) == (True, 'secret "b" not found')
    assert (await node.services_for("default")).synced
    assert node.desired.complete and not node.mirrors.complete and not node.nodes.complete
    await ended(task)
