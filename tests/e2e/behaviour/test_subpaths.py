"""Parts of volumes in containers: what is mounted, what is made, what is refused, and that nothing of it stays."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from services.volume.adapters.mounts import mount_table
from shared.host.mountinfo import below
from shared.model.objects import Object
from tests.support.agents.behaviour import Node, container, pod_of, status_of

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]

EMPTY = {"name": "v", "emptyDir": {}}


def mounting(name: str, *mounts: Object, script: str = "exec sleep 1000000", **fields: object) -> Object:
    return container(name, script, volumeMounts=list(mounts), **fields)


def part(path: str, at: str = "/part", name: str = "v", **fields: object) -> Object:
    return {"name": name, "mountPath": at, "subPath": path, **fields}


def preparing(script: str) -> Object:
    return mounting("setup", {"name": "v", "mountPath": "/v"}, script=script)


def pods(directory: Path) -> dict[str, Object]:
    host = {"name": "v", "hostPath": {"path": str(directory), "type": "Directory"}}
    escaping = preparing("cd /v; ln -s / out")
    twice = "echo x >> /part/starts; [ $(wc -l </part/starts) -ge 2 ] && exec sleep 1000000; exit 1"
    ends = mounting("c", part("a"), script="echo x > /part/file")
    return {
        "subpaths-made": pod_of(
            "subpaths-made",
            mounting("one", part("shared/deep"), script="echo from-one > /part/file; exec sleep 1000000"),
            mounting("two", part("shared")),
            volumes=[EMPTY],
            securityContext={"fsGroup": 4242},
        ),
        "subpaths-file": pod_of(
            "subpaths-file",
            mounting("c", part("conf", "/etc/conf"), part("conf", "/etc/fixed", readOnly=True)),
            initContainers=[preparing("echo one > /v/conf")],
            volumes=[EMPTY],
        ),
        "subpaths-escape": pod_of(
            "subpaths-escape",
            mounting("out", part("out/etc")),
            mounting("new", part("out/bulkhead-was-here")),
            initContainers=[escaping],
            volumes=[EMPTY],
        ),
        "subpaths-restart": pod_of(
            "subpaths-restart",
            mounting("c", part("kept"), script=twice),
            volumes=[EMPTY],
        ),
        "subpaths-ends": pod_of("subpaths-ends", ends, volumes=[host], restartPolicy="Never"),
    }


@pytest_asyncio.fixture(scope="module", loop_scope="package", autouse=True)
async def host(node: Node, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    directory: Path = tmp_path_factory.mktemp("host")
    all_pods = pods(directory)
    node.put(all_pods)
    yield directory
    await node.take_away(all_pods)
    await node.agent.wait_for(lambda: not mounts_of(node), lambda: f"an end of {mounts_of(node)}")


def mounts_of(node: Node, uid: str = "") -> list[str]:
    """Subpaths that are mounted now, of one pod or of all of this module."""
    top = str(node.agent.home.path / "kubelet" / "pods")
    return [path for path in below(mount_table(), top) if uid in path and "volume-subpaths" in path]


async def running(node: Node, name: str) -> Object:
    return await node.wait_phase(name, "Running")


async def test_missing_directories_are_made_and_shared(node: Node) -> None:
    await running(node, "subpaths-made")
    seen = await node.agent.wait_for(
        lambda: _text(node, "subpaths-made", "two", "/part/deep/file"), "the file of the other container"
    )
    assert seen == "from-one\n"
    assert (await node.inside("subpaths-made", "two", "stat", "-c", "%g", "/part/deep")).strip() == "4242"


async def _text(node: Node, pod: str, name: str, path: str) -> str:
    return await node.inside(pod, name, "sh", "-c", f"cat {path} || true")


async def test_a_file_is_mounted_as_a_file_and_read_only_where_asked(node: Node) -> None:
    await running(node, "subpaths-file")
    assert await node.inside("subpaths-file", "c", "cat", "/etc/conf", "/etc/fixed") == "one\none\n"
    write = "echo two > /etc/conf; echo three > /etc/fixed || cat /etc/fixed"
    assert await node.inside("subpaths-file", "c", "sh", "-c", write) == "two\n"


@pytest.mark.parametrize(("name", "step"), [("out", "prepare subPath"), ("new", "create subPath directory")])
async def test_a_symlink_that_leads_out_is_refused_without_details(node: Node, name: str, step: str) -> None:
    pod = await node.wait_static(
        "subpaths-escape",
        lambda p: status_of(p, name).get("state", {}).get("waiting", {}).get("message"),
        "to wait",
    )
    waiting = status_of(pod, name)["state"]["waiting"]
    assert (waiting["reason"], waiting["message"]) == (
        "CreateContainerConfigError",
        f'failed to {step} for volumeMount "v" of container "{name}"',
    )
    assert not Path("/bulkhead-was-here").exists()


async def test_a_restarted_container_has_the_same_part_again(node: Node) -> None:
    pod = await node.wait_static(
        "subpaths-restart", lambda p: status_of(p, "c").get("restartCount") and "running" in status_of(p, "c")["state"],
        "to run again",
    )  # fmt: skip
    assert status_of(pod, "c")["restartCount"] == 1
    script = "until [ $(wc -l < /part/starts) -ge 2 ]; do sleep 0.1; done; cat /part/starts"
    assert await node.inside("subpaths-restart", "c", "sh", "-c", script) == "x\nx\n"


async def test_nothing_stays_mounted_once_the_containers_run(node: Node) -> None:
    for name in ("subpaths-made", "subpaths-file"):
        pod = await running(node, name)
        uid = str(pod["metadata"]["uid"])
        await node.agent.wait_for(partial(_is_free, node, uid), f"an end of the mounts of {name}")


def _is_free(node: Node, uid: str) -> bool:
    return not mounts_of(node, uid)


async def test_a_pod_that_ended_leaves_what_it_wrote_and_no_mount(node: Node, host: Path) -> None:
    pod = await node.wait_phase("subpaths-ends", "Succeeded")
    await node.agent.wait_for(lambda: not mounts_of(node, str(pod["metadata"]["uid"])), "an end of its mounts")
    assert (host / "a" / "file").read_text() == "x\n"
