"""Measures volumes: many pods with four volumes each, created and deleted at once, as the disk and the mount table show
them.

Starts of containers are not measured: a volume counts from the moment at which its files are there.
"""

import asyncio
import base64
import time
from pathlib import Path

from bench.errors import BenchError
from bench.figure import Figure, Plan, Samples, Scenario
from bench.site import MAX_POD_SECONDS, Node
from bench.watch import gone, ready
from services.volume.adapters.mounts import mount_table
from shared.host.mountinfo import below
from shared.kube import paths
from shared.model.objects import Object

MOUNTED = Figure("volumes.mounted", "many pods with 4 volumes → all mounted", "s")
EACH = Figure("volumes.each", "one of these volumes", "ms")
REMOVED = Figure("volumes.removed", "delete → no mount is left", "s")
LOOK_SECONDS = 0.02  # between two looks
SECRET = "volumes"
# Paths below pods/<uid> that exist once a volume is mounted and filled.
SIGNS = (
    "volumes/kubernetes.io~secret/secret/..data/key",
    "volumes/kubernetes.io~downward-api/fields/..data/name",
    "volumes/kubernetes.io~projected/joined/..data/key",
    "plugins/kubernetes.io~empty-dir/memory/ready",
)


async def volumes(node: Node, samples: Samples, plan: Plan) -> None:
    """Create all pods at once, and then delete all at once."""
    pods = node.agent.home / "kubelet" / "pods"
    data = {"key": base64.b64encode(b"value").decode()}
    metadata = {"name": SECRET, "namespace": "default"}
    await node.post({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    names = node.new_names("volumes", plan.volume_pods)
    expected = [node.watch.pod(name, ready, "to be Ready") for name in names]
    began = time.monotonic()
    created = await asyncio.gather(*(node.post(_pod(node, name)) for name in names))
    missing = [pods / str(pod["metadata"]["uid"]) / sign for pod in created for sign in SIGNS]
    while missing := [path for path in missing if not path.exists()]:
        if time.monotonic() > began + 2 * MAX_POD_SECONDS:
            raise BenchError(f"{len(missing)} volumes were not mounted within {2 * MAX_POD_SECONDS:.0f} s")
        await asyncio.sleep(LOOK_SECONDS)
    took = time.monotonic() - began
    samples.sample(MOUNTED.key, took)
    samples.sample(EACH.key, 1000 * took / (len(names) * len(SIGNS)))
    for one in expected:
        await one.within(2 * MAX_POD_SECONDS)
    away = [node.watch.pod(name, gone, "to be gone") for name in names]
    began = time.monotonic()
    await asyncio.gather(*(node.admin.delete(paths.pod("default", name)) for name in names))
    for one in away:
        await one.within(2 * MAX_POD_SECONDS)
    while left := _mounts(pods):
        if time.monotonic() > began + 2 * MAX_POD_SECONDS:
            raise BenchError(f"{len(left)} mounts are left below {pods}, such as {left[0]}")
        await asyncio.sleep(LOOK_SECONDS)
    samples.sample(REMOVED.key, time.monotonic() - began)
    await node.admin.delete(f"/api/v1/namespaces/default/secrets/{SECRET}")


def _mounts(pods: Path) -> list[str]:
    return below(mount_table(), str(pods))


def _pod(node: Node, name: str) -> Object:
    field = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
    sources = [{"secret": {"name": SECRET}}, {"downwardAPI": {"items": [field]}}]
    listed: list[Object] = [
        {"name": "secret", "secret": {"secretName": SECRET}},
        {"name": "fields", "downwardAPI": {"items": [field]}},
        {"name": "joined", "projected": {"sources": sources}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
    ]
    pod = node.pod(name, volumes=listed)
    mounts = [{"name": volume["name"], "mountPath": f"/v/{volume['name']}"} for volume in listed]
    pod["spec"]["containers"][0]["volumeMounts"] = mounts
    return pod


SCENARIOS = (Scenario("volumes", volumes, (MOUNTED, EACH, REMOVED)),)
