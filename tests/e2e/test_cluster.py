"""A node of a real cluster, as a user of kubectl sees it: real etcd, API server, controllers and containerd."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shared.kube import paths
from shared.model.objects import Object
from tests.support.agents.agent import NODE
from tests.support.agents.behaviour import PLANE
from tests.support.agents.conditions import is_ready
from tests.support.clusters.cluster import Cluster
from tests.support.clusters.cluster_witness import Witness
from tests.support.waits.deadline import WAIT_SECONDS
from tools.oci_image import BUSYBOX_IMAGE

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    async with Cluster(directory, plane=PLANE) as running:
        yield running


async def test_the_node_is_registered_as_a_kubelet_registers_it(cluster: Cluster) -> None:
    node = await cluster.node()
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == NODE
    assert node["metadata"]["annotations"]["volumes.kubernetes.io/controller-managed-attach-detach"] == "true"
    status = node["status"]
    assert {"cpu", "memory", "pods", "ephemeral-storage"} <= set(status["capacity"]) & set(status["allocatable"])
    assert [a["type"] for a in status["addresses"]][-1] == "Hostname"
    assert status["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")
    assert status["nodeInfo"]["kubeletVersion"].startswith("v1.")
    assert status["daemonEndpoints"]["kubeletEndpoint"]["Port"] > 0
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
        "Ready": "True",
    }
    described = cluster.plane.kubectl("describe", "node", NODE).stdout
    assert "KubeletReady" in described


async def test_the_lease_belongs_to_the_node(cluster: Cluster) -> None:
    node = await cluster.node()
    owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": node["metadata"]["uid"]}

    async def owned() -> Object | None:  # a task of its own writes the lease
        lease = await cluster.get(paths.lease(NODE))
        return lease if lease is not None and lease["metadata"].get("ownerReferences") == [owner] else None

    lease = await cluster.wait_for(owned, "the lease to belong to the node")
    assert lease["spec"]["holderIdentity"] == NODE
    assert lease["spec"]["leaseDurationSeconds"] == 40


async def wait_logs(cluster: Cluster, name: str, end: str) -> str:
    """Wait until the output of `kubectl logs` has this end, and return it: a Ready container may not write yet."""

    async def logged() -> str | None:
        printed = cluster.plane.kubectl("logs", name).stdout
        return printed if printed.endswith(end) else None

    printed: str = await cluster.wait_for(logged, f"the log of {name} to end with {end!r}")
    return printed


async def test_a_pod_runs_is_described_logged_and_deleted(cluster: Cluster) -> None:
    await cluster.create(cluster.pod("talker", "sh", "-c", "echo hello from here; exec sleep 1000"))
    await cluster.wait_served("talker")
    assert await wait_logs(cluster, "talker", "\n") == "hello from here\n"
    columns = cluster.plane.kubectl("get", "pod", "talker", "-o", "wide").stdout.splitlines()[1].split()
    assert (columns[1], columns[2], columns[6]) == ("1/1", "Running", NODE)

    async def described() -> bool:
        text = cluster.plane.kubectl("describe", "pod", "talker").stdout
        return all(reason in text for reason in ("Pulled", "Created", "Started"))

    await cluster.wait_for(described, "the pod's events to be described")
    cluster.plane.kubectl("delete", "pod", "talker", "--timeout=120s")
    assert await cluster.get_pod("talker") is None
    await cluster.agent.wait_for(lambda: _directories(cluster) == [], "the pod's directory to be gone")


async def test_exec_through_the_api_server(cluster: Cluster) -> None:
    await cluster.create(cluster.pod("shell"))
    await cluster.wait_served("shell")
    run = cluster.plane.kubectl
    assert run("exec", "shell", "--", "cat", "/etc/hostname").stdout == "shell\n"
    assert run("exec", "-i", "shell", "--", "wc", "-c", stdin="x" * 100_000).stdout.strip() == "100000"
    failed = run("exec", "shell", "--", "sh", "-c", "echo sorry >&2; exit 7", check=False)
    assert (failed.returncode, failed.stderr.splitlines()[0]) == (7, "sorry")
    await cluster.delete_pod("shell", grace=0)


async def test_a_service_account_token_and_services_are_in_every_pod(cluster: Cluster) -> None:
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    command = f"ls -a {place}; cat {place}/namespace; echo; cut -d. -f1 {place}/token; echo $KUBERNETES_SERVICE_HOST"
    await cluster.create(cluster.pod("bearer", "sh", "-c", f"{command}; exec sleep 1000"))
    await cluster.wait_served("bearer")
    lines = (await wait_logs(cluster, "bearer", "\n10.0.0.1\n")).splitlines()
    assert {"..data", "ca.crt", "namespace", "token"} <= set(lines)
    assert lines[-2].startswith("eyJ")
    assert "default" in lines
    await cluster.delete_pod("bearer")
    await cluster.wait_gone("bearer")


async def test_configuration_reaches_a_pod_and_its_change_too(cluster: Cluster) -> None:
    settings = {"metadata": {"name": "settings"}, "data": {"colour": "green"}}
    await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", **settings})
    secret = {"metadata": {"name": "sealed"}, "stringData": {"word": "xyzzy"}}
    await cluster.create({"apiVersion": "v1", "kind": "Secret", **secret})
    pod = cluster.pod(
        "configured",
        "sh",
        "-c",
        "echo $COLOUR $WORD; while true; do cat /etc/settings/colour; echo; sleep 0.2; done",
        volumes=[{"name": "settings", "configMap": {"name": "settings"}}],
    )
    container = pod["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "settings", "mountPath": "/etc/settings"}]
    container["env"] = [
        {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}}},
        {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "sealed", "key": "word"}}},
    ]
    await cluster.create(pod)
    await cluster.wait_served("configured")
    path = "/api/v1/namespaces/default/configmaps/settings"
    found = await cluster.plane.admin.get(path)
    await cluster.plane.admin.update(path, found | {"data": {"colour": "blue"}})

    async def changed() -> bool:
        return cluster.plane.kubectl("logs", "configured", "--tail=1").stdout == "blue\n"

    await cluster.wait_for(changed, "the changed value to be seen in the pod")
    assert cluster.plane.kubectl("logs", "configured").stdout.startswith("green xyzzy\n")
    await cluster.delete_pod("configured", grace=0)


async def test_a_missing_object_causes_an_event_and_is_waited_for(cluster: Cluster) -> None:
    pod = cluster.pod("waiting", volumes=[{"name": "later", "configMap": {"name": "later"}}])
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "later", "mountPath": "/later"}]
    await cluster.create(pod)

    async def event_seen() -> bool:
        text = 'MountVolume.SetUp failed for volume "later" : configmap "later" not found'
        return any((e["reason"], e["message"]) == ("FailedMount", text) for e in await cluster.events_of("waiting"))

    await cluster.wait_for(event_seen, "the FailedMount event")
    await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later"}, "data": {"a": "b"}})
    await cluster.wait_ready("waiting")
    await cluster.delete_pod("waiting", grace=0)


async def test_a_pod_that_does_not_fit_is_refused_with_an_event(cluster: Cluster) -> None:
    pod = cluster.pod("glutton")
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "64"}}
    await cluster.create(pod)
    found = await cluster.wait_pod("glutton", lambda p: p["status"]["phase"] == "Failed", "to be refused")
    assert found["status"]["reason"] == "OutOfcpu"
    assert found["status"]["message"].startswith("Pod was rejected: Node didn't have enough resource: cpu, requested")

    async def event_seen() -> bool:
        return [event["reason"] for event in await cluster.events_of("glutton")] == ["OutOfcpu"]

    await cluster.wait_for(event_seen, "the event")
    await cluster.delete_pod("glutton")
    await cluster.wait_gone("glutton")


async def test_a_static_pod_has_its_mirror(cluster: Cluster) -> None:
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static"}}
    container = {"name": "main", "image": BUSYBOX_IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sleep", "999"]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    cluster.agent.put_manifest("static", {**manifest, "spec": spec})
    mirror = f"static-{NODE}"
    await cluster.wait_ready(mirror)
    first = await cluster.get_pod(mirror)
    assert first is not None
    assert first["metadata"]["annotations"]["kubernetes.io/config.source"] == "file"
    assert [o["kind"] for o in first["metadata"]["ownerReferences"]] == ["Node"]
    running = await cluster.agent.runtime_pod("static")
    await cluster.delete_pod(mirror, grace=0)

    def made_again(pod: Object) -> bool:
        return bool(pod["metadata"]["uid"] != first["metadata"]["uid"] and is_ready(pod))

    await cluster.wait_pod(mirror, made_again, "to be made again")
    await cluster.wait_served(mirror)
    again = await cluster.agent.runtime_pod("static")
    assert running is not None and again is not None
    assert [c.id for c in again.containers] == [c.id for c in running.containers]
    assert cluster.plane.kubectl("logs", mirror).returncode == 0
    cluster.agent.remove_manifest("static")
    await cluster.wait_gone(mirror)


async def test_a_deleted_node_is_registered_by_the_next_start_of_the_agent_alone(cluster: Cluster) -> None:
    before = (await cluster.node())["metadata"]["uid"]
    cluster.plane.kubectl("delete", "node", NODE)
    message = "restart the agent to register it again"
    await cluster.agent.wait_for(lambda: message in cluster.agent.log_of("status"), "status to notice it")
    cluster.agent.kill("status")

    def noticed_again() -> bool:
        return cluster.agent.log_of("status").count(message) > 1

    await cluster.agent.wait_for(noticed_again, "the next status to notice it")
    cluster.agent.reset_start_counts()
    assert await cluster.get(paths.node(NODE)) is None
    assert await cluster.agent.stop_supervisord() == 0
    await cluster.agent.start()

    async def back() -> bool:
        node = await cluster.get(paths.node(NODE))
        return node is not None and node["metadata"]["uid"] != before and is_ready(node)

    await cluster.wait_for(back, "the node to be back")

    async def owned() -> bool:
        node, lease = await cluster.node(), await cluster.get(paths.lease(NODE))
        owners = (lease or {"metadata": {}})["metadata"].get("ownerReferences") or []
        return [owner["uid"] for owner in owners] == [node["metadata"]["uid"]]

    await cluster.wait_for(owned, "the lease to belong to the new node")


async def test_a_drained_node_is_empty_and_comes_back(cluster: Cluster) -> None:
    names = [f"movable-{number}" for number in range(3)]
    for name in names:
        await cluster.create(cluster.pod(name))
    await cluster.wait_ready(*names)
    cluster.plane.kubectl("drain", NODE, "--force", "--ignore-daemonsets", "--timeout=120s")
    assert not {pod["metadata"]["name"] for pod in await cluster.items(paths.pods("default"))} & set(names)
    cluster.plane.kubectl("uncordon", NODE)
    assert is_ready(await cluster.node())


async def test_thirty_pods_of_a_deployment_come_and_go(cluster: Cluster) -> None:
    names = [f"web-{number}" for number in range(30)]
    async with Witness(cluster.plane.admin) as seen:
        for name in names:
            pod = cluster.pod(name)
            pod["metadata"]["labels"] = {"app": "web"}
            await cluster.create(pod)
        await cluster.wait_ready(*names, seconds=2 * WAIT_SECONDS)
        ips = {pod["status"]["podIP"] for pod in await cluster.items(paths.pods("default"), labelSelector="app=web")}
        assert len(ips) == 30
        cluster.plane.kubectl("delete", "pods", "-l", "app=web", "--wait=false")
        await cluster.wait_gone(*names, seconds=2 * WAIT_SECONDS)
    seen.assert_calm()
    await cluster.agent.wait_for(lambda: _directories(cluster) == [], "all pod directories to be gone")


def _restarts(pod: Object) -> int:
    statuses = pod["status"].get("containerStatuses") or [{}]
    return int(statuses[0].get("restartCount") or 0)


def _directories(cluster: Cluster) -> list[str]:
    place = cluster.agent.home.path / "kubelet" / "pods"
    return sorted(path.name for path in place.iterdir()) if place.exists() else []
