"""Rotation of real files, with a writer that does what a runtime does and a fake runtime that can refuse."""

import asyncio
import errno
import gzip
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from services.podsync.adapters.logs import log_files
from services.podsync.adapters.logs.log_clean_up import LogCleanUp
from services.podsync.controllers.log_rotation import LogRotation
from services.podsync.core.log_rotation import LogLimits, written_logs
from shared.config.effective import EmbeddedContainerd
from shared.time.clock import SystemClock
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.stage import on_stage

IMAGE = "localhost/busybox:1"
LIMIT = 1000


class Writer:
    """A container and its log: the runtime holds the file open and reopens it on request."""

    def __init__(self, directory: Path, files: int = 3, size: int = LIMIT, workers: int = 1) -> None:
        self.runtime = FakeRuntime(images=[IMAGE])
        self.logs = directory / "logs"
        self.rotation = LogRotation(
            self.runtime, SystemClock(), LogLimits(size=size, files=files), workers, self._written
        )
        self._ended: set[str] = set()
        self._paths: dict[str, str] = {}
        self.lines = 0

    def _written(self) -> dict[str, str]:
        return {container: path for container, path in self._paths.items() if container not in self._ended}

    async def start(self, name: str = "c") -> Path:
        logs = self.logs / f"ns_pod_{name}"
        (logs / name).mkdir(parents=True)
        pod = {"metadata": {"name": "pod", "namespace": "ns", "uid": name}, "log_directory": str(logs)}
        sandbox = await self.runtime.run_pod_sandbox(pod, "")
        labels = {"io.kubernetes.container.name": name}
        config = {"metadata": {"name": name}, "image": {"image": IMAGE}, "log_path": f"{name}/0.log", "labels": labels}
        container = await self.runtime.create_container(sandbox, config, pod)
        await self.runtime.start_container(container)
        seen = (await self.runtime.observe(name))[name]
        self._paths |= written_logs(seen.containers)
        path = Path(self._paths[container])
        path.touch(mode=0o640)
        return path

    def write(self, path: Path, size: int = LIMIT) -> None:
        self.lines += 1
        with path.open("a") as file:
            file.write(f"{self.lines:04}" + "x" * (size - 5) + "\n")
        path.chmod(0o640)

    def end(self, path: Path) -> None:
        container = next(container for container, where in self._paths.items() if where == str(path))
        self._ended.add(container)
        self.runtime.exit_container(container)

    async def rotate(self) -> None:
        await self.rotation.look()
        await self.rotation.finished()


@pytest_asyncio.fixture
async def writer(tmp_path: Path) -> AsyncIterator[Writer]:
    yield Writer(tmp_path)


def beside(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir())


def kinds(path: Path) -> list[str]:
    """`log`, `plain` and `gz`, oldest last."""
    names = sorted((name for name in beside(path) if name != path.name), reverse=True)
    return ["log" if path.exists() else "-", *("gz" if name.endswith(".gz") else "plain" for name in names)]


async def test_a_log_below_its_size_is_left_alone(writer: Writer) -> None:
    path = await writer.start()
    writer.write(path, LIMIT - 1)
    await writer.rotate()
    assert (beside(path), writer.runtime.requests("ReopenContainerLog")) == (["0.log"], [])


async def test_a_log_goes_through_plain_and_packed_and_away(writer: Writer) -> None:
    path = await writer.start()
    seen = []
    for _ in range(4):
        writer.write(path)
        await writer.rotate()
        seen.append(kinds(path))
    assert seen == [["log", "plain"], ["log", "plain", "gz"], ["log", "plain", "gz"], ["log", "plain", "gz"]]
    packed = next(file for file in path.parent.iterdir() if file.suffix == ".gz")
    assert gzip.decompress(packed.read_bytes()).startswith(b"0003")
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.glob("0.log.*")} == {0o640}
    assert path.stat().st_size == 0


async def test_a_negative_size_never_rotates(tmp_path: Path) -> None:
    writer = Writer(tmp_path, size=-1)
    path = await writer.start()
    writer.write(path, 10 * LIMIT)
    path.rename(f"{path}.moved")
    await writer.rotate()
    assert beside(path) == ["0.log.moved"]


async def test_a_missing_log_is_opened_again(writer: Writer) -> None:
    path = await writer.start()
    path.unlink()
    await writer.rotate()
    assert beside(path) == ["0.log"]


async def test_a_refusal_gives_the_log_its_name_back(writer: Writer) -> None:
    path = await writer.start()
    writer.write(path)
    writer.runtime.fail("ReopenContainerLog", "Unavailable", "gone")
    await writer.rotate()
    assert (beside(path), path.stat().st_size) == (["0.log"], LIMIT)
    writer.runtime.clear_faults()
    await writer.rotate()
    assert kinds(path) == ["log", "plain"]


async def test_a_refusal_that_was_none_keeps_the_new_file(writer: Writer) -> None:
    path = await writer.start()
    writer.write(path)
    writer.runtime.fail("ReopenContainerLog", "DeadlineExceeded", after=True)
    await writer.rotate()
    assert (kinds(path), path.stat().st_size) == (["log", "plain"], 0)


async def test_a_container_that_ends_keeps_its_log_where_readers_look(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await writer.start()
    writer.write(path)
    make_room = log_files.make_room

    def and_it_ends(log: Path, limits: LogLimits) -> None:
        make_room(log, limits)
        writer.end(path)

    monkeypatch.setattr(log_files, "make_room", and_it_ends)
    await writer.rotate()
    assert (beside(path), path.stat().st_size) == (["0.log"], LIMIT)


async def test_a_removed_container_is_no_trouble(writer: Writer, caplog: pytest.LogCaptureFixture) -> None:
    path = await writer.start()
    writer.write(path)
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()
    await writer.rotate()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_full_disk_costs_the_packing_and_not_the_rotation(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = await writer.start()
    writer.write(path)
    await writer.rotate()
    real = shutil.copyfileobj

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfileobj", full)
    writer.write(path)
    await writer.rotate()
    assert (kinds(path), path.stat().st_size) == (["log", "plain", "plain"], 0)
    assert [r.getMessage() for r in caplog.records if "is not packed: [Errno 28]" in r.getMessage()]
    monkeypatch.setattr(shutil, "copyfileobj", real)
    writer.write(path)
    await writer.rotate()
    assert kinds(path) == ["log", "plain", "gz"]


async def test_what_was_planted_among_the_logs_is_neither_packed_nor_followed(tmp_path: Path) -> None:
    writer, secret = Writer(tmp_path, files=5), tmp_path / "secret"  # with 3, what was planted goes as the oldest
    secret.write_text("of the node")
    path = await writer.start()
    (path.parent / "0.log.20000101-000000").symlink_to(secret)
    os.mkfifo(path.parent / "0.log.20000101-000001")
    writer.write(path)
    await writer.rotate()
    assert not list(path.parent.glob("*.gz"))
    assert secret.read_text() == "of the node"


async def test_a_log_that_is_a_link_is_not_rotated(writer: Writer, tmp_path: Path) -> None:
    path = await writer.start()
    path.unlink()
    path.symlink_to(tmp_path / "large")
    (tmp_path / "large").write_text("x" * 10 * LIMIT)
    await writer.rotate()
    assert (beside(path), writer.runtime.requests("ReopenContainerLog")) == (["0.log"], [])


@pytest.mark.long
async def test_packing_a_backlog_leaves_the_event_loop_alone(tmp_path: Path) -> None:
    writer = Writer(tmp_path, files=20, workers=2)
    paths = [await writer.start(f"c{number}") for number in range(4)]
    noise = os.urandom(1 << 20)
    for path in paths:
        for number in range(6):
            (path.parent / f"0.log.20000101-00000{number}").write_bytes(noise * 4)
        writer.write(path)
    busy = time.thread_time()  # of this thread alone, without the load of the machine
    rotation = asyncio.create_task(writer.rotate())
    while not rotation.done():
        await asyncio.sleep(0.005)
    await rotation
    busy = time.thread_time() - busy
    assert all(len(list(path.parent.glob("*.gz"))) == 6 for path in paths)
    print(f"the loop's own share of packing 96 MiB: {busy * 1000:.0f} ms")
    assert busy < 1.0  # gzip of that much takes several seconds of another thread


async def test_a_rotation_under_way_is_not_begun_twice(writer: Writer) -> None:
    path = await writer.start()
    writer.write(path)
    writer.runtime.hang("ReopenContainerLog")
    await writer.rotation.look()
    for _ in range(3):
        await writer.rotation.look()
    writer.runtime.clear_faults()
    for task in list(writer.rotation._tasks.values()):
        task.cancel()
    assert len(writer.runtime.requests("ReopenContainerLog")) <= 1


KILLED = """
import asyncio, sys
from pathlib import Path
from services.podsync.controllers.log_rotation import LogRotation
from services.podsync.core.log_rotation import LogLimits
from shared.time.clock import SystemClock

class Runtime:
    async def reopen_container_log(self, container):
        Path(sys.argv[1]).touch()

async def main():
    rotation = LogRotation(Runtime(), SystemClock(), LogLimits(size=1000, files=3), 1, lambda: {"c": sys.argv[1]})
    await rotation.look()
    await rotation.finished()

asyncio.run(main())
"""


@pytest.mark.share(4)
@pytest.mark.parametrize("point", ["removed", "packing", "packed", "renamed", "reopened"])
async def test_a_kill_at_any_step_is_repaired_by_the_next_rotation(writer: Writer, tmp_path: Path, point: str) -> None:
    path = await writer.start()
    written = b""
    for stamp in ("20000101-000000", "20000101-000001"):
        writer.write(path)
        path.rename(f"{path}.{stamp}")
        path.touch()
    writer.write(path)
    written = path.read_bytes()
    order = tmp_path / "crash"
    order.write_text(f"podsync.logs.{point}")
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", KILLED, str(path)],
        env={**os.environ, "CRASH_AT": f"@{order}"},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    await writer.rotate()
    await writer.rotate()
    assert kinds(path) == ["log", "plain", "gz"]
    newest = sorted(path.parent.glob("0.log.2*"))[-1]
    assert (newest.read_bytes(), path.stat().st_size) == (written, 0)
    packed = next(path.parent.glob("*.gz"))
    assert gzip.decompress(packed.read_bytes()).startswith(b"0002")


class Cleared:
    """A directory of logs, and what is known of pods and containers."""

    def __init__(self, directory: Path) -> None:
        self.logs, self.links = directory / "pods", directory / "containers"
        self.known: set[str] | None = {"known"}
        self.existing: set[str] | None = {"1a"}
        for name in ("ns_web_known", "ns_web_gone", "lost+found", ".removing-ns_old_gone"):
            (self.logs / name / "c").mkdir(parents=True)
            (self.logs / name / "c" / "0.log").write_text("x")
        self.links.mkdir()
        for container, target in (("1a", "none"), ("2b", "none"), ("3c", "ns_web_known/c/0.log")):
            (self.links / f"web_ns_c-{container}.log").symlink_to(self.logs / target)
        (self.logs / "ns_link_gone").symlink_to(directory / "elsewhere")
        (self.logs / "ns_file_gone").write_text("x")

    async def sweep(self) -> tuple[list[str], list[str]]:
        await LogCleanUp(self.logs, lambda: self.known, lambda: self.existing).sweep()
        return sorted(entry.name for entry in self.logs.iterdir()), sorted(entry.name for entry in self.links.iterdir())


async def test_logs_of_pods_that_are_gone_go_and_nothing_else(tmp_path: Path) -> None:
    cleared = Cleared(tmp_path)
    assert await cleared.sweep() == (
        ["lost+found", "ns_file_gone", "ns_link_gone", "ns_web_known"],
        ["web_ns_c-1a.log", "web_ns_c-3c.log"],
    )


async def test_nothing_goes_while_not_everything_is_known(tmp_path: Path) -> None:
    cleared = Cleared(tmp_path)
    cleared.known = cleared.existing = None
    logs, links = await cleared.sweep()
    assert (len(logs), len(links)) == (6, 3)


async def test_a_removal_that_was_cut_short_goes_on_beside_a_new_one(tmp_path: Path) -> None:
    cleared = Cleared(tmp_path)
    (cleared.logs / ".removing-ns_web_gone" / "c").mkdir(parents=True)
    await cleared.sweep()
    logs, _ = await cleared.sweep()
    assert "ns_web_gone" not in logs and not [name for name in logs if name.startswith(".")]


KILLED_SWEEP = f"""
import asyncio, sys
from pathlib import Path
from {LogCleanUp.__module__} import LogCleanUp

asyncio.run(LogCleanUp(Path(sys.argv[1]), lambda: {{"known"}}, set).sweep())
"""


@pytest.mark.long
async def test_the_next_sweep_removes_what_a_killed_one_has_renamed(tmp_path: Path) -> None:
    cleared = Cleared(tmp_path)
    order = tmp_path / "crash"
    order.write_text("podsync.logs.aside")
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", KILLED_SWEEP, str(cleared.logs)],
        env={**os.environ, "CRASH_AT": f"@{order}"},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert (cleared.logs / ".removing-ns_web_gone").is_dir() and not (cleared.logs / "ns_web_gone").exists()
    logs, _ = await cleared.sweep()
    assert logs == ["lost+found", "ns_file_gone", "ns_link_gone", "ns_web_known"]


async def test_directories_that_are_not_there_are_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await LogCleanUp(tmp_path / "none" / "pods", set, set).sweep()
    assert caplog.records == []


GUESTS = [(False, "/var/log/pods", True), (True, "/var/log/pods", False), (True, "/home/k/log/pods", True)]


@pytest.mark.parametrize(("embedded", "place", "ours"), GUESTS)
async def test_a_guest_beside_a_kubelet_leaves_the_logs_of_that_ones_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embedded: bool, place: str, ours: bool
) -> None:
    swept: list[Path] = []

    async def sweep(self: LogCleanUp) -> None:
        swept.extend({self._logs} & {Path(place)})

    monkeypatch.setattr(LogCleanUp, "sweep", sweep)
    monkeypatch.setattr("services.podsync.controllers.housekeeping.CLEAN_UP_SECONDS", 0.001)
    own = EmbeddedContainerd(root="r", state="s", socket="c.sock", config_file="f", cni_conf_dir="d")
    async with on_stage(tmp_path, pod_logs_dir=place, embedded_containerd=own if embedded else None) as on:
        await on.until(lambda: on.service and on.service.housekeeping.cleans_logs is ours and bool(swept) is ours)
