"""A machine that loses its power and boots without API server runs its pods from the encrypted records; then the API
server returns, and its list counts."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from shared.files.sealed_record import SealedRecord
from shared.kube import paths
from shared.model import objects
from shared.model.objects import Object
from tests.machine.joined import MachineCluster
from tests.machine.root import Root
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(2400)]

PLACE = "/var/lib/bulkhead/kubelet/bulkhead/offline"
SECONDS = 5 * WAIT_SECONDS
NOTICED = 72.0  # seconds within which an agent that runs notices the return of the API server
SECRETS = {f"secret-{number}": f"hunter2-{number}-correct-horse-battery" for number in range(4)}
# A container shows what it was given, and so that it was not started anew.
_SHOW = 'echo "$(cat /s/password) $(cat /c/a) $(test -s /t/token && echo token)"'
KEY = "/etc/offline.key"
_UNIT = f"[Service]\nLoadCredential=bulkhead.offline-pods:{KEY}\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(
    installed_root: Root, package: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[MachineCluster]:
    """A machine that has joined, with records."""
    directory = tmp_path_factory.mktemp("offline")
    async with MachineCluster(directory, root=installed_root, package=package) as running:
        cluster = running
        ours = list(yaml.safe_load_all(cluster.machine.must("cat", "/etc/bulkhead/kubelet.yaml")))
        ours[1]["offlinePods"] = {"enabled": True}
        cluster.machine.write("/etc/bulkhead/kubelet.yaml", yaml.safe_dump_all(ours))
        cluster.machine.must("sh", "-c", f"umask 077; head -c 32 /dev/urandom > {KEY}")
        cluster.machine.write("/etc/systemd/system/bulkhead.service.d/key.conf", _UNIT)
        cluster.machine.must("systemctl", "daemon-reload")
        cluster.machine.must("sync")  # the records are on the disk by themselves
        cluster.machine.must("systemctl", "restart", "bulkhead")
        await cluster.wait_node_ready()
        try:
            yield cluster
        finally:
            print(cluster.machine.last_lines())


def record_of(cluster: MachineCluster, name: str, directory: Path) -> dict[str, Any]:
    """The content of a record, decrypted out here as root could in there; {} = there is none yet."""
    found = cluster.machine.call("cat", f"{PLACE}/{name}/{name}.json")
    if found.returncode:
        return {}
    secret = base64.b64decode(cluster.machine.must("base64", KEY))
    content = found.stdout
    place = directory / name
    place.mkdir(exist_ok=True)
    (place / f"{name}.json").write_text(content)
    record = SealedRecord(place, directory / "none", name, secret, 64 << 20)
    return record.load(json.loads(content)["data"]["binding"]) or {}


async def listed(cluster: MachineCluster) -> dict[str, Object]:
    """The pods as `bulkhead pods` shows them in there, by name."""
    found = await asyncio.to_thread(cluster.machine.call, "bulkhead", "pods", "--output=json")
    rows = json.loads(found.stdout) if found.returncode == 0 else []
    return {row["name"]: row for row in rows}


def pod_with(cluster: MachineCluster, name: str, secret: str) -> Object:
    """A pod with a Secret and a ConfigMap in volumes, a claim, and a token of its service account."""
    pod = cluster.pod(name, "sh", "-c", f"{_SHOW}; exec sleep 1000000")
    pod["spec"]["volumes"] = [
        {"name": "s", "secret": {"secretName": secret}},
        {"name": "c", "configMap": {"name": "settings"}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "tests"}}]}},
    ]
    mounts = [{"name": one, "mountPath": f"/{one}"} for one in "scdt"]
    pod["spec"]["containers"][0]["volumeMounts"] = mounts
    return pod


async def test_a_boot_without_api_server_and_its_return(node: MachineCluster, tmp_path: Path) -> None:
    cluster, names = node, [f"pod-{number}" for number in range(4)]
    for name, value in SECRETS.items():
        await cluster.create({"kind": "Secret", "metadata": {"name": name}, "stringData": {"password": value}})
    await cluster.create({"kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "one"}})
    volume = {
        "metadata": {"name": "pv"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "hostPath": {"path": "/var/lib/data", "type": "DirectoryOrCreate"},
            "claimRef": {"namespace": "default", "name": "data"},
        },
    }
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": "pv",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    await cluster.plane.admin.create("/api/v1/persistentvolumes", volume)
    await cluster.plane.admin.create("/api/v1/namespaces/default/persistentvolumeclaims", claim)
    uids = {}
    for name, secret in zip(names, SECRETS, strict=True):
        uids[name] = objects.uid(await cluster.create(pod_with(cluster, name, secret)))
    await cluster.wait_ready(*names, seconds=SECONDS)

    async def is_recorded() -> bool:
        pods = await asyncio.to_thread(record_of, cluster, "pods", tmp_path)
        tokens = await asyncio.to_thread(record_of, cluster, "tokens", tmp_path)
        bound = {one["spec"]["boundObjectRef"]["uid"] for one in tokens.get("tokens", ())}
        answers = {(one["kind"], one["name"]) for one in pods.get("answers", ())}
        needed = {*(("Secret", name) for name in SECRETS), ("ConfigMap", "settings"), ("PersistentVolume", "pv")}
        return {objects.uid(pod) for pod in pods.get("pods", ())} == set(uids.values()) <= bound and needed <= answers

    await cluster.wait_for(is_recorded, "the records to have pods and tokens", SECONDS, every=1.0)
    assert cluster.machine.call("test", "-e", f"{PLACE}/key").returncode == 1, "the credential of the unit is not used"
    for value in SECRETS.values():  # of the disk alone: volumes of Secrets are in memory
        for form in (value, base64.b64encode(value.encode()).decode()):
            found = cluster.machine.call("grep", "-rlF", "--exclude-dir=volumes", form, "/var/lib/bulkhead/kubelet")
            assert found.returncode == 1, found.stdout

    await cluster.plane.stop_api_server()
    cluster.machine.cut()
    booted = time.monotonic()

    async def run_from_the_record() -> bool:
        rows = await listed(cluster)
        return all((row := rows.get(name)) and row["source"] == "record" and row["ready"] == 1 for name in names)

    await cluster.wait_for(run_from_the_record, "the pods to run from the record", SECONDS, every=1.0)
    print(f"{len(names)} pods ran {time.monotonic() - booted:.1f} s after the machine had answered")
    print(cluster.machine.must("systemctl", "show", "bulkhead", "--property=ActiveEnterTimestampMonotonic"))
    before = await listed(cluster)
    for name, value in zip(names, SECRETS.values(), strict=True):
        assert cluster.machine.must("bulkhead", "logs", name).split() == [value, "one", "token"], name
    assert "the API server did not answer after the start" in cluster.machine.call("bulkhead", "status").stdout
    assert "in the record of" in cluster.machine.must("bulkhead", "explain", names[0])

    await cluster.plane.start_api_server()
    returned = time.monotonic()
    deleted, moved, edited = names[0], names[1], names[2]
    for name in (deleted, moved):
        await cluster.delete_pod(name, grace=0)
    elsewhere = pod_with(cluster, moved, "secret-1")
    await cluster.create({**elsewhere, "spec": {**elsewhere["spec"], "nodeName": "elsewhere"}})
    await cluster.plane.admin.patch(
        paths.pod("default", edited),
        {"metadata": {"labels": {"edited": "yes"}}, "spec": {"activeDeadlineSeconds": 9000}},
    )

    async def is_right() -> bool:
        rows = await listed(cluster)
        return rows.keys() == set(names) - {deleted, moved} and all(row["source"] == "api" for row in rows.values())

    await cluster.wait_for(is_right, "the API server's list to count", SECONDS + NOTICED, every=1.0)
    print(f"the node was right {time.monotonic() - returned:.1f} s after the return")
    await cluster.wait_ready(*names[2:], seconds=SECONDS)
    after = await listed(cluster)
    for name in names[2:]:
        pod = await cluster.get_pod(name)
        assert pod is not None and objects.uid(pod) == uids[name] == after[name]["uid"]
        assert after[name]["restarts"] == before[name]["restarts"], "a container started twice"
        assert pod["status"]["containerStatuses"][0]["restartCount"] == before[name]["restarts"]
    running = cluster.machine.must("sh", "-c", "pgrep -fcx 'sleep 1000000' || true").strip()
    assert int(running) == len(names) - 2, running

    async def event() -> Object | None:
        events = await cluster.items(paths.events("default"), fieldSelector="reason=StartedFromRecord")
        return events[0] if events else None

    found = await cluster.wait_for(event, "the event of the Node", SECONDS)
    assert found["involvedObject"]["kind"] == "Node" and found.get("count", 1) == 1, found
    assert found["message"].startswith("4 pods were started from the record of ")
