"""Pods with a user namespace of their own, on a runtime that supports them (pods.md 6.7): what the kernel maps, who
owns the files in volumes, and that a pod keeps its ids over restarts and kills.

tests/machine/test_user_namespaces.py runs this in a machine; it is not collected by itself.
"""

import json
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.model.objects import Object
from shared.model.runtime import RuntimePod
from tests.support.agents.behaviour import container, pod_of, status_of
from tests.support.agents.world import World
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

BLOCK = 65536
GROUP, USER = 2000, 1000
SUBUID, SUBGID = Path("/etc/subuid"), Path("/etc/subgid")
UNMAPPED = "/host"  # the file system of the machine of which the kernel can map no ids
_LIST = "stat -c '%u %g %n' /kept /kept/root /info/name /part /dev/termination-log /etc/hosts > /kept/seen"
_MOUNTS = [
    {"name": "kept", "mountPath": "/kept"},
    {"name": "info", "mountPath": "/info"},
    {"name": "kept", "mountPath": "/part", "subPath": "part"},
]
_VOLUMES: list[Object] = [
    {"name": "kept", "emptyDir": {}},
    {"name": "info", "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
]


def apart(name: str) -> Object:
    """A pod of root and of a user, which note what they see. It is ready when a probe in it can write to its volume."""
    root = f"echo start >> /kept/starts; touch /kept/root /part/root; {_LIST}; touch /kept/listed; exec sleep 1000000"
    user = "until touch /kept/user; do sleep 1; done; exec sleep 1000000"
    probe = {"exec": {"command": ["sh", "-c", "test -e /kept/listed && echo x > /kept/probed"]}, "periodSeconds": 1}
    return pod_of(
        name,
        container("root", root, volumeMounts=_MOUNTS, readinessProbe=probe),
        container("user", user, volumeMounts=_MOUNTS, securityContext={"runAsUser": USER}),
        hostUsers=False,
        volumes=_VOLUMES,
        securityContext={"fsGroup": GROUP},
    )


@asynccontextmanager
async def started(**given: Any) -> AsyncIterator[World]:
    """A world whose directory lets root of a pod pass to the files of its containers, for it is another user."""
    async with World(start=False, **given) as made:
        made.home.path.chmod(0o711)
        await made.start()
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with started() as made:
        yield made


async def run(world: World, name: str) -> RuntimePod:
    """Start such a pod, and wait until it is ready."""
    world.put_manifest(name, apart(name))
    await world.wait_served(name, seconds=3 * WAIT_SECONDS)
    return await world.wait_running(name)


async def end(world: World, *names: str) -> None:
    for name in names:
        world.remove_manifest(name)
        await world.wait_gone(name, 2 * WAIT_SECONDS)
    await world.wait_for(lambda: not records(world), "the records to go with the pods", 2 * WAIT_SECONDS)


def records(world: World) -> dict[str, int]:
    """The first host id of each record, by the UID of the pod."""
    found = {}
    for path in (world.home.path / "kubelet/pods").glob("*/userns"):
        record = json.loads(path.read_bytes())
        assert record["uidMappings"] == record["gidMappings"], record
        [mapping] = record["uidMappings"]
        assert (mapping["containerId"], mapping["length"]) == (0, BLOCK), record
        found[path.parent.name] = int(mapping["hostId"])
    return found


def maps(pid: int) -> set[tuple[int, ...]]:
    """What the kernel maps for users and groups of this process: (container id, host id, length)."""
    return {
        tuple(map(int, line.split()))
        for kind in ("uid_map", "gid_map")
        for line in Path(f"/proc/{pid}/{kind}").read_text().splitlines()
    }


def user_of(pid: int) -> int:
    """The user of the machine that this process runs as."""
    return int(re.findall(r"^Uid:\t(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[0])


def first_id(world: World, pod: RuntimePod) -> int:
    """The first id of the machine that this pod has, after a look that all its processes have it."""
    first = records(world)[pod.uid]
    assert first % BLOCK == 0 and first > 0
    users = {c.name: user_of(c.pid) for c in pod.containers if c.pid}
    assert users == {"root": first, "user": first + USER}, (users, first)
    assert [maps(c.pid) for c in pod.containers if c.pid] == [{(0, first, BLOCK)}] * 2
    return first


def is_back(world: World, service: str, old_pid: int) -> bool:
    return world.pid_of(service) not in (0, old_pid)


def volume(world: World, pod: RuntimePod, kind: str, name: str) -> Path:
    return world.home.path / f"kubelet/pods/{pod.uid}/volumes/kubernetes.io~{kind}" / name


async def test_files_in_volumes_have_the_ids_of_the_pod_inside_and_those_of_the_machine_outside(world: World) -> None:
    pod = await run(world, "files")
    first_id(world, pod)
    kept, info = volume(world, pod, "empty-dir", "kept"), volume(world, pod, "downward-api", "info")
    assert (kept / "seen").read_text().splitlines() == [
        *(f"0 {GROUP} {path}" for path in ("/kept", "/kept/root", "/info/name", "/part")),
        *(f"0 0 {path}" for path in ("/dev/termination-log", "/etc/hosts")),
    ]
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in (kept, kept / "root", kept / "user")}
    assert owners == {"kept": (0, GROUP), "root": (0, GROUP), "user": (USER, GROUP)}
    assert ((kept / "part/root").stat().st_uid, (info / "name").stat().st_uid) == (0, 0)
    assert (info / "name").read_text() == f"files-{pod.name.split('-', 1)[1]}"
    await end(world, "files")


async def test_two_pods_share_no_id_and_the_ids_of_a_pod_that_has_ended_are_free(world: World) -> None:
    first, second = [await run(world, name) for name in ("one", "two")]
    ids = [first_id(world, pod) for pod in (first, second)]
    assert ids == [BLOCK, 2 * BLOCK]
    world.remove_manifest("one")
    await world.wait_gone("one", 2 * WAIT_SECONDS)
    await world.wait_for(lambda: set(records(world)) == {second.uid}, "the record to go with the pod")
    assert first_id(world, await run(world, "three")) == BLOCK
    await end(world, "two", "three")


async def test_a_pod_keeps_its_ids_over_restarts_of_containers_sandbox_agent_and_runtime(world: World) -> None:
    pod = await run(world, "stays")
    first = first_id(world, pod)

    async def next_start(what: str, starts: int) -> RuntimePod:
        file = volume(world, pod, "empty-dir", "kept") / "starts"
        await world.wait_for(lambda: len(file.read_text().splitlines()) == starts, what, 3 * WAIT_SECONDS)
        await world.wait_served("stays", seconds=3 * WAIT_SECONDS)
        now = await world.wait_running("stays")
        assert first_id(world, now) == first
        return now

    os.kill(next(c.pid for c in pod.containers if c.name == "root"), signal.SIGKILL)
    now = await next_start("the container to run again", 2)
    sandboxes = {box.id for box in now.sandboxes}
    for service in ("podsync", "containerd"):
        pid = world.kill(service)
        await world.wait_for(partial(is_back, world, service, pid), f"{service} to be back")
    now = await next_start("no other start", 2)
    assert {box.id for box in now.sandboxes} == sandboxes
    world.kill("podsync")
    os.kill(now.sandboxes[0].pid, signal.SIGKILL)
    await next_start("the containers of another sandbox", 3)
    await end(world, "stays")


async def test_ids_that_are_recorded_when_podsync_is_killed_are_those_that_the_pod_gets(world: World) -> None:
    first = await run(world, "before")
    world.crash_at("podsync.user_namespace.recorded")
    world.put_manifest("killed", apart("killed"))
    await world.wait_for(lambda: world.crashed, "podsync to be killed", 2 * WAIT_SECONDS)
    [uid] = set(records(world)) - {first.uid}
    recorded = records(world)[uid]
    await world.wait_served("killed", seconds=3 * WAIT_SECONDS)
    pod = await world.wait_running("killed")
    assert (pod.uid, first_id(world, pod)) == (uid, recorded)
    assert recorded != first_id(world, first)
    await end(world, "before", "killed")


async def test_a_volume_whose_file_system_maps_no_ids_fails_its_container_with_the_reason(world: World) -> None:
    pod = pod_of(
        "unmapped",
        container("c", volumeMounts=[{"name": "v", "mountPath": "/v"}]),
        hostUsers=False,
        volumes=[{"name": "v", "hostPath": {"path": UNMAPPED}}],
    )
    world.put_manifest("unmapped", pod)

    async def waiting() -> Object | None:
        found = status_of(await world.pod("unmapped") or {"status": {}}, "c").get("state", {}).get("waiting") or {}
        return found if found.get("reason") in ("RunContainerError", "CreateContainerError") else None

    state = await world.wait_for(waiting, "the container to fail", 3 * WAIT_SECONDS)
    assert "idmap" in state["message"].lower(), state
    await end(world, "unmapped")


@pytest.fixture
def kubelet_user() -> Iterator[None]:
    """The user whose subordinate ids are those of pods."""
    before = SUBUID.read_text(), SUBGID.read_text()
    subprocess.run(["useradd", "--system", "kubelet"], check=True)
    yield
    subprocess.run(["userdel", "kubelet"], check=True)
    SUBUID.write_text(before[0])
    SUBGID.write_text(before[1])


async def test_the_ids_are_those_of_user_kubelet_and_a_range_of_no_use_is_said(kubelet_user: None) -> None:
    begin, max_pods = 300 * BLOCK, 20
    for file in (SUBUID, SUBGID):
        file.write_text(f"kubelet:{begin}:{BLOCK}\n")
    async with started(config={"maxPods": max_pods}) as world:
        world.put_manifest("ranged", apart("ranged"))
        said = f"/etc/subuid: user kubelet has {BLOCK} ids from {begin} on: {max_pods * BLOCK} are needed"
        await world.wait_for(lambda: said in world.log_of("status"), said, 2 * WAIT_SECONDS)
        assert not records(world) and await world.runtime_pod("ranged") is None
        for file in (SUBUID, SUBGID):
            file.write_text(f"kubelet:{begin}:{max_pods * BLOCK}\n")
        await world.wait_served("ranged", seconds=4 * WAIT_SECONDS)
        assert first_id(world, await world.wait_running("ranged")) == begin
        await end(world, "ranged")
