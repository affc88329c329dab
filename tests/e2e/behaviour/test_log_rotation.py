"""Log rotation of real containers: an agent of its own with small sizes, and a reader that follows all the while."""

import asyncio
import gzip
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.agents.agent import NODE
from tests.support.agents.behaviour import Node, container, pod_of
from tests.support.clusters.control_plane import assets
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

FILES, SIZE = 3, 20_000
CONFIG = {
    "containerLogMaxSize": str(SIZE),
    "containerLogMaxFiles": FILES,
    "containerLogMonitorInterval": "3s",
    "containerLogMaxWorkers": 2,
}
# About 8 kB a second: a rotation in every look or two.
COUNTING = f"i=0; while :; do i=$((i+1)); echo $i-{'x' * 60}; usleep 10000; done"
PODS = {
    "logs-busy": pod_of("logs-busy", container("c", COUNTING)),
    "logs-ends": pod_of(
        "logs-ends",
        # Eight times the size at which a log is rotated. A look may come between its last line and its end.
        container("c", "seq 2000 | sed s/$/-yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy/"),
        restartPolicy="Never",
    ),
    "logs-missing": pod_of("logs-missing", container("c", "while :; do echo tick; sleep 1; done")),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Node]:
    async with Node(tmp_path_factory.mktemp("rotating"), config=CONFIG) as node:
        node.put(PODS)
        yield node
        await node.take_away(PODS)


async def log_of(node: Node, name: str) -> Path:
    def found() -> Path | None:
        files = list((node.agent.home.log_dir / "pods").glob(f"default_{name}-{NODE}_*/c/0.log"))
        return files[0] if files else None

    path: Path = await node.agent.wait_for(found, f"a log of {name}")
    return path


def numbers(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"(?m)\bF (\d+)-", text)]


def numbers_of(path: Path) -> list[int]:
    """Every number that the files hold, oldest first; a rotation meanwhile leaves some out, or repeats them."""
    seen: list[int] = []
    for file in (*sorted(path.parent.glob("0.log.*")), path):
        with suppress(FileNotFoundError):  # it is renamed, or removed
            if file.suffix != ".tmp":  # it is being packed
                content = file.read_bytes()
                seen += numbers((gzip.decompress(content) if file.suffix == ".gz" else content).decode())
    return seen


async def packed(node: Node, path: Path, count: int = 1) -> list[Path]:
    def found() -> list[Path]:
        files = list(path.parent.glob("*.gz"))
        return files if len(files) >= count else []

    files: list[Path] = await node.agent.wait_for(found, f"{count} packed files", 2 * WAIT_SECONDS)
    return files


async def test_a_busy_log_is_rotated_and_packed(node: Node) -> None:
    path = await log_of(node, "logs-busy")
    [file] = await packed(node, path)
    assert re.fullmatch(r"0\.log\.\d{8}-\d{6}\.gz", file.name)

    def large() -> bool:
        with suppress(FileNotFoundError):  # another rotation has come between
            return all(len(gzip.decompress(file.read_bytes())) >= SIZE for file in path.parent.glob("*.gz"))
        return False

    await node.agent.wait_for(large, "packed files of a full log")


async def test_no_line_is_lost_between_the_files(node: Node) -> None:
    path = await log_of(node, "logs-busy")
    await packed(node, path)

    def without_gap() -> list[int] | None:
        seen = numbers_of(path)  # a rotation in between shows a gap that is none
        return seen if seen and seen == list(range(seen[0], seen[-1] + 1)) else None

    await node.agent.wait_for(without_gap, "files without a gap")


async def test_the_log_of_a_container_that_ended_is_rotated_no_more(node: Node) -> None:
    await node.wait_phase("logs-ends", "Succeeded")
    path, busy = await log_of(node, "logs-ends"), await log_of(node, "logs-busy")

    def complete() -> bool:  # not while the log is renamed, or gets its name back because its container has ended
        return path.exists() and numbers_of(path) == list(range(1, 2001))

    await node.agent.wait_for(complete, "all lines of the container that ended")
    await packed(node, busy)
    before, earlier, later = sizes_beside(path), rotated(busy), set[str]()
    assert sum(before.values()) > SIZE

    def looked_at() -> bool:  # the second rotation is of a look that began after the first one, and so after `before`
        later.update(name for name in rotated(busy) if name > max(earlier))
        return len(later) >= 2

    await node.agent.wait_for(looked_at, "two more rotations of a busy log")
    assert sizes_beside(path) == before


def sizes_beside(path: Path) -> dict[str, int]:
    """Name and bytes of each file of this log."""
    return {file.name: file.stat().st_size for file in path.parent.iterdir()}


async def test_a_removed_log_comes_back(node: Node) -> None:
    path = await log_of(node, "logs-missing")
    await node.wait_phase("logs-missing", "Running")
    path.unlink()
    await node.agent.wait_for(lambda: path.exists() and b"tick" in path.read_bytes(), "the log to come back")


async def test_a_follower_sees_every_line_across_rotations(node: Node) -> None:
    path = await log_of(node, "logs-busy")
    await packed(node, path)
    last = max(rotated(path))
    seen: list[int] = []
    files = set[str]()
    kubectl = await asyncio.create_subprocess_exec(
        str(assets() / "kubectl"), f"--kubeconfig={node.plane.kubeconfig}",
        "logs", "--follow", "--tail=1", f"logs-busy-{NODE}", stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert kubectl.stdout is not None
    try:
        async with asyncio.timeout(2 * WAIT_SECONDS):
            async for line in kubectl.stdout:
                seen.append(int(line.split(b"-")[0]))
                files |= {name for name in rotated(path) if name > last}
                if len(files) >= 3:
                    break
    finally:
        kubectl.kill()
        await kubectl.wait()
    assert seen == list(range(seen[0], seen[0] + len(seen)))


def rotated(path: Path) -> set[str]:
    """The moments at which the log was rotated, as far as files show them."""
    return {file.name.removesuffix(".tmp").removesuffix(".gz") for file in path.parent.iterdir() if file != path}
