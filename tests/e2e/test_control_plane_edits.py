"""A kubeadm control plane whose static manifests are edited: host network, probe ports and requests are those of the
pod that goes, and the new one runs all the same. Nothing else gives way for it.

The pods have the shape of kubeadm's; busybox serves in place of etcd and the others. `BULKHEAD_EDITS` is the number of
edits of each manifest.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shared.model.objects import Object
from shared.model.quantity import parse_quantity
from tests.support.agents.behaviour import Node, container, pod_of
from tests.support.agents.free_ports import free_ports
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1800)]

EDITS = int(os.environ.get("BULKHEAD_EDITS", "5"))
REQUESTS = {
    "etcd": {"cpu": "100m", "memory": "100Mi"},
    "kube-apiserver": {"cpu": "250m"},
    "kube-controller-manager": {"cpu": "200m"},
    "kube-scheduler": {"cpu": "100m"},
}
SPARE = 50  # milli CPUs that are left on the node: less than any manifest asks for
SERVE = "mkdir -p /www; echo ok > /www/livez; trap 'exit 0' TERM; httpd -f -p 127.0.0.1:{port} -h /www & wait; : {edit}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Node]:
    directory: Path = tmp_path_factory.mktemp("edits")
    async with Node(directory) as running:
        yield running


def manifest(name: str, port: int, edit: int) -> Object:
    """The static pod in kubeadm's shape."""

    def probe(failures: int) -> Object:
        get = {"host": "127.0.0.1", "path": "/livez", "port": "probe-port", "scheme": "HTTP"}
        return {"httpGet": get, "failureThreshold": failures, "periodSeconds": 1, "timeoutSeconds": 15}

    server = container(
        name,
        SERVE.format(port=port, edit=edit),
        ports=[{"name": "probe-port", "containerPort": port, "protocol": "TCP"}],
        resources={"requests": REQUESTS[name]},
        startupProbe=probe(24),
        livenessProbe=probe(8),
        readinessProbe=probe(3),
        volumeMounts=[{"name": "certs", "mountPath": "/etc/ssl/certs", "readOnly": True}],
    )
    pod = pod_of(
        name,
        server,
        grace=30,
        hostNetwork=True,
        priority=2_000_001_000,
        priorityClassName="system-node-critical",
        securityContext={"seccompProfile": {"type": "RuntimeDefault"}},
        volumes=[{"name": "certs", "hostPath": {"path": "/etc/ssl/certs", "type": "DirectoryOrCreate"}}],
    )
    pod["metadata"] |= {"annotations": {"edit": str(edit)}, "labels": {"component": name, "tier": "control-plane"}}
    return pod


async def edit_all(node: Node, ports: dict[str, int], edit: int) -> None:
    """Write every manifest and wait until the pods of this edit are ready."""
    node.put({name: manifest(name, port, edit) for name, port in ports.items()})

    def is_new_and_ready(pod: Object) -> bool:
        statuses = pod["status"].get("containerStatuses") or [{}]
        return pod["metadata"]["annotations"].get("edit") == str(edit) and bool(statuses[0].get("ready"))

    waits = (
        node.wait_static(name, is_new_and_ready, f"to be ready in edit {edit}", 2 * WAIT_SECONDS) for name in ports
    )
    await asyncio.gather(*waits)


async def test_every_edit_of_a_control_plane_manifest_runs_and_preempts_nothing(node: Node) -> None:
    ports = dict(zip(REQUESTS, free_ports(len(REQUESTS)), strict=True))
    await edit_all(node, ports, 0)
    allocatable = parse_quantity((await node.node())["status"]["allocatable"]["cpu"]).milli()
    taken = sum(parse_quantity(requests["cpu"]).milli() for requests in REQUESTS.values())
    requests = {"cpu": f"{allocatable - taken - SPARE}m"}
    innocent = node.pod("innocent")
    innocent["spec"]["containers"][0]["resources"] = {"requests": requests}
    await node.create(innocent)
    await node.wait_ready("innocent")
    before = await node.get_pod("innocent")
    for edit in range(1, EDITS + 1):
        await edit_all(node, ports, edit)
    after = await node.get_pod("innocent")
    assert before is not None and after is not None
    assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]
    warnings = {event["reason"] for event in await node.items("/api/v1/events") if event["type"] == "Warning"}
    assert not warnings & {"NodePorts", "OutOfcpu", "Preempting", "UnexpectedAdmissionError", "ExceededGracePeriod"}
