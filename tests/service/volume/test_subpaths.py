"""Requests for subpaths on the in-memory bus; what would be bound is recorded, not bound."""

import asyncio
import logging
from pathlib import Path

import pytest

from bus.messages.podsync import PodState
from bus.messages.volume import PreparedSubpath, PrepareSubpath, ReleaseSubpaths
from services.volume.adapters import root_dir, subpaths
from services.volume.controllers import subpath_requests as requests
from services.volume.core.mounting import orphans
from tests.service.volume.node import Node, without_device_plugins

SECRET_PATH = "of-a-secret"


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(root_dir, "prepare", lambda path: Path(path).mkdir(exist_ok=True))
    monkeypatch.setattr(orphans, "ORPHAN_GRACE_SECONDS", 0.05)
    monkeypatch.setattr(subpaths, "bind", lambda source, target: None)
    monkeypatch.setattr(subpaths, "unmount_all", lambda target: None)
    without_device_plugins(monkeypatch)
    node = Node(tmp_path)
    await node.podsync.start()
    return node


async def ask(node: Node, path: str = SECRET_PATH, volume: str = "cache") -> PreparedSubpath:
    request = PrepareSubpath(uid="u", volume=volume, container="c", index=2, path=path)
    return await node.podsync.ask("volume", request, PreparedSubpath)


async def release(node: Node) -> PreparedSubpath:
    return await node.podsync.ask("volume", ReleaseSubpaths(uid="u", container="c"), PreparedSubpath)


def place(node: Node) -> Path:
    return node.directory("u") / "volume-subpaths" / "cache" / "c" / "2"


async def test_a_subpath_is_made_returned_and_released(node: Node) -> None:
    node.admit("u", "cache")
    async with node.volume():
        assert await ask(node) == PreparedSubpath(host_path=str(place(node)))
        assert (node.empty_dir("u", "cache") / SECRET_PATH).is_dir()
        assert await ask(node) == PreparedSubpath(host_path=str(place(node)))
        assert place(node).is_dir()
        assert await release(node) == PreparedSubpath()
        assert not (node.directory("u") / "volume-subpaths").exists()
        assert await release(node) == PreparedSubpath()


async def test_a_volume_that_is_not_mounted_yet_is_waited_for(node: Node) -> None:
    async with node.volume():
        asking = asyncio.create_task(ask(node))
        await asyncio.sleep(0)
        node.admit("u", "cache")
        assert (await asking).host_path == str(place(node))


async def test_a_volume_that_is_never_mounted_is_an_error_with_the_kubelets_text(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "TIMEOUT_SECONDS", 0.05)
    async with node.volume():
        assert await ask(node) == PreparedSubpath(error='cannot find volume "cache" to mount into container "c"')


@pytest.mark.parametrize(
    ("path", "step"), [("out/x", "create subPath directory"), ("out", "prepare subPath"), ("../x", "prepare subPath")]
)
async def test_a_refusal_names_the_mount_and_not_the_path(
    node: Node, caplog: pytest.LogCaptureFixture, path: str, step: str
) -> None:
    node.admit("u", "cache")
    async with node.volume():
        await node.mounted.until(bool)
        (node.empty_dir("u", "cache") / "out").symlink_to("/etc")
        with caplog.at_level(logging.DEBUG):
            answer = await ask(node, path)
    assert answer == PreparedSubpath(error=f'failed to {step} for volumeMount "cache" of container "c"')
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    reason = "is no path inside a volume" if ".." in path else "leads out of the volume"
    assert line == f"pod u: subPath of mount 2 (volume cache) of container c: {reason}"


async def test_what_was_not_released_is_unmounted_before_the_volume(node: Node) -> None:
    node.admit("u", "cache")
    node.admitted.mark_complete()
    async with node.volume():
        await ask(node)
    async with node.volume():  # it was killed meanwhile
        await node.mounted.until(bool)
        node.admit("u", state=PodState.FINISHED)
        await node.until_gone("u")


@pytest.mark.long
async def test_the_subpaths_of_an_unknown_pod_are_unmounted(node: Node) -> None:
    node.admit("u", "cache")
    async with node.volume():
        await ask(node)
    await node.podsync_restarts()
    node.admitted.mark_complete()
    async with node.volume():
        await node.until_gone("u")
