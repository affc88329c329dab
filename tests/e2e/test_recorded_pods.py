"""The pods a Go kubelet was recorded with, on a real API server: what the API shows of them equals the recording.

But for ids, times, addresses and image names, for fields that API server 1.20 does not know, and where a moment was
recorded that passes (a crash loop between two states): of those the events alone are compared.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.model.objects import Object
from tests.agent import NODE
from tests.cluster import Cluster
from tests.recorded import recording
from tools.oci_image import BUSYBOX_IMAGE

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

RECORDED_IMAGES = (
    "registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
    "registry.k8s.io/e2e-test-images/busybox:1.36.1-1",
)
SETTLED = (
    "args-and-expansion",
    "bad-image-name",
    "deadline",
    "dns-default",
    "dns-none",
    "env-sources",
    "forbidden-sysctl",
    "host-aliases",
    "host-network",
    "host-pid-ipc",
    "image-never-absent",
    "long-name-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "missing-configmap-env",
    "node-selector-mismatch",
    "out-of-cpu",
    "plain",
    "ports",
    "privileged",
    "qos-burstable",
    "qos-guaranteed",
    "readiness-gate",
    "run-to-completion",
    "security-context",
    "share-process-ns",
    "tty-stdin",
)
PASSING = ("bad-command", "crashloop", "fails-never")
OF_THIS_RUN = (
    *("lastTransitionTime", "startTime", "startedAt", "finishedAt", "containerID", "imageID", "image"),
    *("ip", "hostIP", "podIP", "podIPs"),
)
UNKNOWN_TO_1_20 = ("observedGeneration", "hostIPs", "resources", "allocatedResources", "user", "volumeMounts")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    config = {"clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.local"}
    plane = {"feature_gates": {"BoundServiceAccountTokenVolume": True}}
    async with Cluster(directory, config=config, plane=plane) as running:
        data = {"k1": "v1", "k2": "v2"}
        await running.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": data})
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "sec"}, "stringData": {"pw": "s3cret"}}
        await running.create(secret)
        yield running


@pytest.mark.parametrize("name", SETTLED)
async def test_status_and_events_are_the_recorded_ones(cluster: Cluster, name: str) -> None:
    recorded = recording(name)
    wanted = shown(recorded["api_pod"]["status"])
    pod = submitted(recorded)
    await cluster.create(pod)
    name = pod["metadata"]["name"]
    seen: dict[str, Any] = {}

    def as_recorded(pod: Object) -> bool:
        seen["status"] = shown(pod["status"])
        return bool(seen["status"] == wanted)

    try:
        await cluster.wait_pod(name, as_recorded, "to be as recorded", 30)
    except AssertionError:
        assert seen["status"] == wanted
        raise
    await told(cluster, name, recorded)
    await cluster.delete_pod(name)
    await cluster.wait_gone(name)


@pytest.mark.parametrize("name", PASSING)
async def test_the_events_are_the_recorded_ones(cluster: Cluster, name: str) -> None:
    recorded = recording(name)
    await cluster.create(submitted(recorded))
    await told(cluster, name, recorded)
    await cluster.delete_pod(name)
    await cluster.wait_gone(name)


async def told(cluster: Cluster, name: str, recorded: dict[str, Any]) -> None:
    """Wait until the pod's events are the recorded ones: type, reason, message and field path; how often is chance."""
    wanted = {of_event(event) for event in recorded["events"]}
    seen: set[tuple[str, ...]] = set()

    async def all_told() -> bool:
        seen.clear()
        seen.update(of_event(event) for event in await cluster.events_of(name))
        return seen == wanted

    try:
        await cluster.wait_for(all_told, f"the events of {name}", 30)
    except AssertionError:
        assert sorted(seen) == sorted(wanted)
        raise


def submitted(recorded: dict[str, Any]) -> Object:
    """What was applied then, with an image this machine has, bound to our node."""
    text = json.dumps(recorded["submitted"])
    for image in RECORDED_IMAGES:
        text = text.replace(image, BUSYBOX_IMAGE)
    pod: Object = json.loads(text)
    pod["spec"]["nodeName"] = NODE
    pod["metadata"].pop("namespace", None)
    return pod


def shown(status: Object) -> Any:
    """A status without what differs from run to run; conditions by type, for their order is the API server's."""
    reduced = _reduced(status)
    reduced.setdefault("conditions", [])
    return reduced | {"conditions": {c["type"]: c for c in reduced["conditions"]}}


def _reduced(value: Any) -> Any:
    if isinstance(value, dict):
        skipped = (*OF_THIS_RUN, *UNKNOWN_TO_1_20)
        return {key: _reduced(item) for key, item in value.items() if key not in skipped}
    return [_reduced(item) for item in value] if isinstance(value, list) else value


def of_event(event: Object) -> tuple[str, ...]:
    """Type, reason, message and field path, without what differs from run to run."""
    text = str(event["message"]).replace(BUSYBOX_IMAGE, "IMAGE")
    for image in RECORDED_IMAGES:
        text = text.replace(image, "IMAGE")
    text = text.split(" in pod ")[0]  # `<name>_<namespace>(<uid>)` follows
    text = text.removesuffix(": unknown")  # a word some versions of containerd add
    return event["type"], event["reason"], text, event["involvedObject"].get("fieldPath", "")
