"""A node changes hands: pods that a Go kubelet started go on under Bulkhead, and again under the Go kubelet.

By the runtime's word no container is restarted; by the API server's no pod is unready for a moment while Bulkhead takes
over. Containers keep the hash annotation they were made with, so the older kubelet finds its own again.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from bench.agents import Bulkhead, GoKubelet
from bench.site import Site
from bench.watch import ready
from services.volume.adapters.mounts import mount_table
from shared.host.mountinfo import below
from shared.kube import paths
from shared.kube.interface import ApiStatusError
from shared.model.objects import Object
from shared.podspec.earlier_hash import earlier_container_hash
from shared.podspec.hashing import container_hash
from tests.support.agents.behaviour import container
from tests.support.agents.conditions import condition_of, is_ready
from tests.support.clusters.control_plane import assets
from tests.support.clusters.go_node import go_node
from tests.support.waits.deadline import WAIT_SECONDS
from tools import leftovers

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

NODE = "handed-over"
HTTPD = "mkdir -p /tmp/w; echo hi > /tmp/w/index.html; exec httpd -f -p 8080 -h /tmp/w"
PROBES = {
    "readinessProbe": {"httpGet": {"path": "/index.html", "port": "web"}, "periodSeconds": 1, "timeoutSeconds": 60},
    "livenessProbe": {
        "exec": {"command": ["true"]},
        "periodSeconds": 2,
        "initialDelaySeconds": 1,
        "timeoutSeconds": 60,
    },
    "startupProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "timeoutSeconds": 60},
}
EVERYTHING = container(
    "everything",
    ports=[{"name": "here", "containerPort": 9000, "hostPort": 31999, "hostIP": "127.0.0.1"}],
    env=[
        {"name": "PLAIN", "value": "a<b>&c"},
        {"name": "EMPTY"},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}}},
        {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k", "optional": False}}},
        {"name": "S", "valueFrom": {"secretKeyRef": {"name": "sec", "key": "none", "optional": True}}},
    ],
    envFrom=[{"prefix": "P_", "configMapRef": {"name": "cm"}}],
    resources={"requests": {"cpu": "0.05", "memory": "16Mi"}, "limits": {"cpu": "100m", "memory": "33554432"}},
    volumeMounts=[
        {"name": "scratch", "mountPath": "/scratch", "mountPropagation": "None"},
        {"name": "cm", "mountPath": "/cm", "readOnly": True},
        {"name": "sec", "mountPath": "/sec"},
    ],
    securityContext={
        "runAsUser": 0,
        "runAsNonRoot": False,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": False,
    },
    lifecycle={
        "postStart": {"exec": {"command": ["true"]}},
        "preStop": {"httpGet": {"port": 9, "httpHeaders": [{"name": "X", "value": ""}]}},
    },
    workingDir="/",
    stdin=True,
    tty=True,
    terminationMessagePolicy="FallbackToLogsOnError",
)
VOLUMES = [
    {"name": "scratch", "emptyDir": {"medium": "Memory"}},
    {"name": "cm", "configMap": {"name": "cm"}},
    {"name": "sec", "secret": {"secretName": "sec", "defaultMode": 256}},
]
INIT = container("first", "echo made")


def api_pod(name: str, *containers: Object, **spec: Any) -> Object:
    body = {"nodeName": NODE, "terminationGracePeriodSeconds": 1, "containers": list(containers), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": body}


PODS = [
    api_pod("plain", container("c")),
    api_pod("two", container("a"), container("b")),
    api_pod("probed", container("web", HTTPD, ports=[{"name": "web", "containerPort": 8080}], **PROBES)),
    api_pod("everything", EVERYTHING, volumes=VOLUMES),
    api_pod("host", container("c"), hostNetwork=True),
    api_pod("initialised", container("c"), initContainers=[INIT]),
]
STARTED = [pod["metadata"]["name"] for pod in PODS]


@dataclass
class HandedOver:
    """One node of one API server, kept by one kubelet after the other."""

    site: Site
    go: GoKubelet
    bulkhead: Bulkhead
    unready: list[str] = field(default_factory=list)  # what was seen of the pods and should not have been

    def note_unready(self, kind: str, obj: Object, _: float) -> None:
        """A listener of the watch: each event of a pod that was Ready and is not."""
        if obj["metadata"]["name"] in STARTED and not obj["metadata"].get("deletionTimestamp") and not is_ready(obj):
            self.unready.append(f"{kind} {obj['metadata']['name']}: {obj['status']}")

    async def hand_to(self, agent: GoKubelet | Bulkhead) -> None:
        """Stop the other, start this one, and wait until it has written the node's status."""
        other = self.bulkhead if agent is self.go else self.go
        await asyncio.to_thread(other.stop)
        before = condition_of(await self.site.plane.admin.get(paths.node(NODE)), "Ready").get("lastHeartbeatTime")
        agent.start()

        async def written() -> bool:
            agent.check_alive()
            node = await self.site.plane.admin.get(paths.node(NODE))
            return is_ready(node) and condition_of(node, "Ready").get("lastHeartbeatTime") != before

        await wait(written, "the node's status to be written")

    async def running(self) -> dict[str, tuple[str, int]]:
        """`pod/container` -> id and number of restarts, by the API server's word; the pods of the start only."""
        listed = (await self.site.plane.admin.get(paths.pods("default"))).get("items") or ()
        return {
            f"{pod['metadata']['name']}/{s['name']}": (s["containerID"], s["restartCount"])
            for pod in listed
            if pod["metadata"]["name"] in STARTED
            for s in pod["status"]["containerStatuses"]
        }

    async def in_runtime(self) -> set[str]:
        """Ids of every container the runtime runs."""
        seen = await self.site.runtime.observe()
        return {c.id for pod in seen.values() for c in pod.containers if c.state == "RUNNING"}


async def wait(look: Any, what: str, seconds: float = 2 * WAIT_SECONDS) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            if await look():
                return
        except ApiStatusError:
            pass
        assert asyncio.get_running_loop().time() < deadline, f"waited {seconds} s for {what}"
        await asyncio.sleep(0.05)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def handed() -> AsyncIterator[HandedOver]:
    folder = assets()
    async with go_node(folder, NODE) as (site, go, bulkhead):
        for kind, data in (("ConfigMap", {"data": {"k": "v"}}), ("Secret", {"stringData": {"pw": "s3cret"}})):
            meta = {"name": "cm" if kind == "ConfigMap" else "sec", "namespace": "default"}
            made = {"apiVersion": "v1", "kind": kind, "metadata": meta, **data}
            await site.plane.admin.create(f"/api/v1/namespaces/default/{kind.lower()}s", made)
        expected = site.watch.node(NODE, ready, "to be Ready")
        go.start()
        await expected.within(2 * WAIT_SECONDS)
        for pod in PODS:
            await site.plane.admin.create(paths.pods("default"), pod)

        async def all_ready() -> bool:
            listed = (await site.plane.admin.get(paths.pods("default"))).get("items") or ()
            return len(listed) == len(PODS) and all(is_ready(pod) for pod in listed)

        await wait(all_ready, "the pods to be ready under the Go kubelet")
        yield HandedOver(site, go, bulkhead)


async def test_the_hash_of_the_older_kubelet_is_the_one_it_wrote(handed: HandedOver) -> None:
    pods = {pod["metadata"]["uid"]: pod for pod in (await handed.site.plane.admin.get(paths.pods("default")))["items"]}
    compared = 0
    for uid, seen in (await handed.site.runtime.observe()).items():
        spec = pods[uid]["spec"]
        specs = {c["name"]: c for c in (*spec["containers"], *(spec.get("initContainers") or ()))}
        for instance in seen.containers:
            assert instance.spec_hash == earlier_container_hash(specs[instance.name]), (instance.name, instance)
            assert instance.spec_hash != container_hash(specs[instance.name])
            compared += 1
    assert compared == 8


async def test_pods_go_on_under_bulkhead_and_again_under_the_go_kubelet(handed: HandedOver) -> None:
    before, alive = await handed.running(), await handed.in_runtime()
    handed.site.watch.listeners.append(handed.note_unready)
    await handed.hand_to(handed.bulkhead)
    extra = api_pod("new", container("c"))
    await handed.site.plane.admin.create(paths.pods("default"), extra)

    async def new_ready() -> bool:
        return is_ready(await handed.site.plane.admin.get(paths.pod("default", "new")))

    await wait(new_ready, "a new pod to be ready under Bulkhead")
    assert await handed.running() == before
    assert alive <= await handed.in_runtime()
    options = {"apiVersion": "v1", "kind": "DeleteOptions"}
    await handed.site.plane.admin.delete(paths.pod("default", "new"), options)

    async def new_gone() -> bool:
        try:
            await handed.site.plane.admin.get(paths.pod("default", "new"))
        except ApiStatusError as error:
            return error.not_found
        return False

    await wait(new_gone, "the new pod to be gone")
    handed.site.watch.listeners.remove(handed.note_unready)
    assert not handed.unready, handed.unready[0]
    await handed.hand_to(handed.go)  # which shows probed pods unready until its first probe, as at any start of its own
    await asyncio.sleep(3)  # longer than its relist and its first syncs: no event shows that it has synced all pods
    assert await handed.running() == before
    assert alive <= await handed.in_runtime()


async def test_what_the_go_kubelet_started_is_ended_by_bulkhead_without_a_trace(handed: HandedOver) -> None:
    await handed.hand_to(handed.bulkhead)
    listed = (await handed.site.plane.admin.get(paths.pods("default")))["items"]
    for pod in listed:
        options = {"apiVersion": "v1", "kind": "DeleteOptions"}
        await handed.site.plane.admin.delete(paths.pod("default", pod["metadata"]["name"]), options)

    async def none_left() -> bool:
        return not (await handed.site.plane.admin.get(paths.pods("default"))).get("items")

    await wait(none_left, "all pods to be gone")

    def left() -> list[str]:
        pods, tops = handed.go.home / "kubelet" / "pods", leftovers.cgroups_of(handed.go.home.name)
        cgroups = [
            str(path) for top in tops for path in leftovers.directories_below(top) if path.name.startswith("pod")
        ]
        return below(mount_table(), str(pods)) + [path.name for path in pods.iterdir()] + cgroups

    async def clean() -> bool:
        return not left()

    await wait(clean, f"mounts, directories and cgroups to go: {left()}")
