"""What is mounted where and how, read from /proc/1/mountinfo; the files the agent itself mounts."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.model.objects import Object
from tests.support.agents.behaviour import Node, container, pod_of, status_of
from tests.support.runtime.docker_limits import Limit, lacks_capabilities

pytestmark = [
    pytest.mark.root,
    pytest.mark.versions,
    pytest.mark.asyncio(loop_scope="package"),
    pytest.mark.timeout(300),
]

MAKE = "mkdir -p /v/a/b; echo deep > /v/a/b/file; echo top > /v/top"


def mounting(name: str, *mounts: Object, **fields: Any) -> Object:
    return container(name, volumeMounts=list(mounts), **fields)


def volume(path: str, name: str = "v", **fields: object) -> Object:
    return {"name": name, "mountPath": path, **fields}


def pods_on(directory: Path) -> dict[str, Object]:
    host = {"name": "h", "hostPath": {"path": str(directory), "type": "Directory"}}
    return {
        "spec-mounts": pod_of(
            "spec-mounts",
            mounting("plain", volume("/data"), volume("relative")),
            mounting("fixed", volume("/data", readOnly=True)),
            mounting("part", volume("/deep", subPath="a/b"), volume("/one", subPath="top")),
            mounting("named", volume("/made", subPathExpr="of/$(WHO)"), env=[{"name": "WHO", "value": "me"}]),
            mounting("nameless", volume("/made", subPathExpr="of/$(WHO)")),
            mounting("hosts", volume("/etc/hosts", subPath="top")),
            initContainers=[container("setup", MAKE, volumeMounts=[volume("/v")])],
            volumes=[{"name": "v", "emptyDir": {}}],
        ),
        "spec-host": pod_of(
            "spec-host",
            mounting("private", volume("/h", "h")),
            mounting("follows", volume("/h", "h", mountPropagation="HostToContainer")),
            mounting("both", volume("/h", "h", mountPropagation="Bidirectional"), securityContext={"privileged": True}),
            mounting("fixed", volume("/h", "h", readOnly=True)),
            volumes=[host],
        ),
        "spec-memory": pod_of(
            "spec-memory", mounting("c", volume("/m")), volumes=[{"name": "v", "emptyDir": {"medium": "Memory"}}]
        ),
    }


async def command(*words: str | Path) -> None:
    await asyncio.to_thread(subprocess.run, words, check=True)


@pytest_asyncio.fixture(scope="module", loop_scope="package", autouse=True)
async def shared(node: Node, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """A directory of the host whose mounts propagate, with one mount in it."""
    directory = tmp_path_factory.mktemp("shared")
    await command("mount", "-t", "tmpfs", "spec", directory)
    try:
        await command("mount", "--make-shared", directory)
        (directory / "greeting").write_text("from the host\n")
        (directory / "later").mkdir()
        pods = pods_on(directory)
        node.put(pods)
        yield directory
        await node.take_away(pods)
    finally:
        await command("umount", "-R", directory)


async def mounts(node: Node, pod: str, name: str) -> dict[str, tuple[list[str], list[str]]]:
    """Mount point -> options and propagation (shared:…, master:…), once the container runs."""
    await node.wait_static(pod, lambda p: "running" in (status_of(p, name).get("state") or {}), f"{name} to run")
    found = {}
    for line in (await node.inside(pod, name, "cat", "/proc/1/mountinfo")).splitlines():
        fields = line.split(" - ")[0].split()
        found[fields[4]] = (fields[5].split(","), [word.partition(":")[0] for word in fields[6:]])
    return found


async def test_one_volume_in_two_places(node: Node) -> None:
    found = await mounts(node, "spec-mounts", "plain")
    assert "rw" in found["/data"][0]
    assert "/relative" in found
    assert await node.inside("spec-mounts", "plain", "cat", "/data/top", "/relative/a/b/file") == "top\ndeep\n"


async def test_a_mount_that_is_read_only(node: Node) -> None:
    assert "ro" in (await mounts(node, "spec-mounts", "fixed"))["/data"][0]
    output = await node.inside("spec-mounts", "fixed", "sh", "-c", "touch /data/x 2>&1; true")
    assert "Read-only file system" in output


async def test_mounts_do_not_propagate_by_themselves(node: Node) -> None:
    found = await mounts(node, "spec-host", "private")
    assert found["/h"][1] == []


async def test_mounts_of_the_host_are_followed_where_asked_for(node: Node, shared: Path) -> None:
    assert (await mounts(node, "spec-host", "follows"))["/h"][1] == ["master"]
    await mounts(node, "spec-host", "private")
    await command("mount", "-t", "tmpfs", "late", shared / "later")
    assert "/h/later" in await mounts(node, "spec-host", "follows")
    assert "/h/later" not in await mounts(node, "spec-host", "private")


@pytest.mark.beyond_docker(Limit.PRIVILEGED, where=lacks_capabilities())
async def test_mounts_propagate_both_ways_where_asked_for(node: Node) -> None:
    assert "shared" in (await mounts(node, "spec-host", "both"))["/h"][1]


async def test_a_directory_of_the_host_read_only(node: Node) -> None:
    assert "ro" in (await mounts(node, "spec-host", "fixed"))["/h"][0]
    assert await node.inside("spec-host", "fixed", "cat", "/h/greeting") == "from the host\n"


async def test_a_directory_and_a_file_of_a_volume(node: Node) -> None:
    await mounts(node, "spec-mounts", "part")
    assert await node.inside("spec-mounts", "part", "cat", "/deep/file", "/one") == "deep\ntop\n"
    assert await node.inside("spec-mounts", "part", "ls", "/deep") == "file\n"


async def test_a_directory_of_a_volume_is_made_by_its_expression(node: Node) -> None:
    await mounts(node, "spec-mounts", "named")
    await node.inside("spec-mounts", "named", "touch", "/made/here")
    await mounts(node, "spec-mounts", "plain")
    assert await node.inside("spec-mounts", "plain", "ls", "/data/of/me") == "here\n"


async def test_an_expression_without_its_variable_holds_the_container_back(node: Node) -> None:
    def refused(pod: Object) -> bool:
        waiting = (status_of(pod, "nameless").get("state") or {}).get("waiting") or {}
        return bool(waiting.get("reason") == "CreateContainerConfigError")

    pod = await node.wait_static("spec-mounts", refused, "nameless to be refused")
    assert status_of(pod, "nameless")["state"]["waiting"]["message"] == "missing value for WHO"


async def test_a_hosts_file_of_its_own_stands_instead_of_the_agents(node: Node) -> None:
    await mounts(node, "spec-mounts", "hosts")
    assert await node.inside("spec-mounts", "hosts", "cat", "/etc/hosts") == "top\n"


async def test_a_volume_in_memory(node: Node) -> None:
    await mounts(node, "spec-memory", "c")
    assert "tmpfs" in await node.inside("spec-memory", "c", "stat", "-f", "-c", "%T", "/m")
