"""Which files /containerLogs reads: what a pod may put into the node's log directory is not trusted."""

import os
from pathlib import Path

import pytest

from tests.service.server.running import CONTAINER, Running, pod_log
from tests.service.server.test_container_logs import LOGS, Follower, append, line, log, server

__all__ = ["log", "server"]


@pytest.mark.parametrize("reached", ["link", "directory link", "pod link", "elsewhere", "parent", "fifo"])
async def test_only_a_regular_file_in_the_pods_log_directory_is_read(
    server: Running, tmp_path: Path, reached: str
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "0.log").write_bytes(line("secret"))
    (secret / CONTAINER).symlink_to(secret)
    path = pod_log(tmp_path)
    match reached:
        case "link":
            path.symlink_to(secret / "0.log")
        case "directory link":
            path.parent.rmdir()
            path.parent.symlink_to(secret)
        case "pod link":
            path.parent.rmdir()
            path.parent.parent.rmdir()
            path.parent.parent.symlink_to(secret)
        case "elsewhere":
            path = secret / "0.log"
        case "parent":
            path = path.parent / ".." / ".." / ".." / "secret" / "0.log"
        case "fifo":
            os.mkfifo(path)
    await server.node.run_pod(path)
    status, body = await server.get(server.read_only + LOGS)
    assert status == 200
    assert body.startswith(f'failed to open log file "{path}": open {path}: ')


async def test_a_follower_does_not_go_on_in_a_link_that_replaces_the_log(
    server: Running, log: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(line("secret"))
    async with Follower(server, "follow=true&tailLines=1") as follower:
        assert await follower.read(6) == b"three\n"
        link = log.with_suffix(".link")
        link.symlink_to(secret)
        link.rename(log)
        assert await follower.rest() == (
            f'failed to read log file "{log}": read {log}: symbolic links are not followed'.encode()
        )


async def test_dockers_links_are_followed(server: Running, log: Path, tmp_path: Path) -> None:
    outside = log.rename(tmp_path / "docker.log")
    log.symlink_to(outside)
    server.node.report_status({"running": {}}, runtime="docker")
    await server.node.network.settle()
    async with Follower(server, "follow=true&tailLines=1") as follower:
        assert await follower.read(6) == b"three\n"
        append(outside, line("seen"))
        assert await follower.read(5) == b"seen\n"
