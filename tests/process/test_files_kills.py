"""The real volume process killed at each step of writing a volume's files, on real mounts; the others are played.

What a container reads is all old or all new at any moment, the next process finishes, and nothing outlives the pod.
"""

import asyncio
import base64
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bus.manifest import new_manifest, prepare_run_dir, write_manifest
from bus.messages.podsync import PodState, PodVolumes
from bus.messages.sources import ChangedObject, FoundObject, GetObject
from bus.messages.status import IssuedToken, RequestToken
from bus.messages.streams import OBJECTS_CHANGED, PODS_VOLUMES, VOLUMES_MOUNTED
from bus.messages.volume import MountedVolumes, VolumeState
from bus.process_bus import ProcessBus
from services.volume.adapters.mounts import mount_table, unmount
from shared.config.effective import EffectiveConfig
from shared.config.excerpt import CONFIG_NAME
from shared.config.loader import encode_effective
from shared.mountinfo import below
from tests.fakes.followed import FollowedStream
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.no_runtime, pytest.mark.timeout(300)]

CHECKOUT = Path(__file__).parents[2]
STEPS = ("directory", "files", "ownership", "links", "data_link", "rename", "stale_links", "old_directory")
UID = "6f1c0d8f"
SOURCES = [
    {"secret": {"name": "s"}},
    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
]
SPEC = {
    "serviceAccountName": "default",
    "securityContext": {"fsGroup": 4242},
    "containers": [{"name": "c"}],
    "volumes": [
        {"name": "all", "projected": {"sources": SOURCES, "defaultMode": 0o640}},
        {"name": "cfg", "configMap": {"name": "c", "defaultMode": 0o644}},
    ],
}


class Arena:
    """The volume process, and podsync, sources and status on real sockets."""

    def __init__(self, home: Path) -> None:
        self.home, self.run_dir, self.root = home, home / "run", home / "kubelet"
        self.crash = home / "crash"
        self.version = 0
        self._process: asyncio.subprocess.Process | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        prepare_run_dir(self.run_dir)
        config = EffectiveConfig(
            node_name="n", root_dir=str(self.root), run_dir=str(self.run_dir), log_dir=str(self.home / "log"),
            cert_dir="", kubeconfig="k",
        )  # fmt: skip
        (self.run_dir / CONFIG_NAME).write_bytes(encode_effective(config, ""))
        manifest = new_manifest(self.run_dir)
        write_manifest(manifest)
        buses = {name: ProcessBus(name, manifest) for name in ("podsync", "sources", "status")}
        self.admitted = buses["podsync"].own(PODS_VOLUMES)
        self.mounted: FollowedStream[MountedVolumes] = FollowedStream(buses["podsync"], VOLUMES_MOUNTED)
        self.changed = buses["sources"].own(OBJECTS_CHANGED)
        buses["sources"].answer(GetObject, self._get)
        buses["status"].answer(RequestToken, self._issue)
        for bus in buses.values():
            await bus.start()
        self.admitted.mark_complete()
        try:
            await self.spawn()
            yield
        finally:
            if self._process is not None and self._process.returncode is None:
                self._process.kill()
                await self._process.wait()
            for bus in buses.values():
                await bus.stop()

    async def spawn(self) -> None:
        """Start volume; as if it had never been killed, for the back-off of crash-looping processes."""
        (self.run_dir / "locks" / "volume.lock").unlink(missing_ok=True)
        environment = {**os.environ, "BULKHEAD_HOME": str(self.home), "CRASH_AT": f"@{self.crash}"}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "services.volume", cwd=CHECKOUT, env=environment
        )

    async def crashed(self) -> None:
        assert self._process is not None
        assert await asyncio.wait_for(self._process.wait(), WAIT_SECONDS) == -9

    def admit(self, state: PodState, *volumes: str) -> None:
        pod = {"metadata": {"name": "web", "namespace": "default", "uid": UID}, "spec": SPEC}
        self.admitted.put(
            UID, PodVolumes(uid=UID, name="web", namespace="default", state=state, pod=pod, volumes=volumes)
        )

    def change(self) -> dict[str, str]:
        """The next version of both objects, each with a key of its own; the content they lead to."""
        self.version += 1
        for kind, name in (("Secret", "s"), ("ConfigMap", "c")):
            self.changed.put(f"{kind}/default/{name}", ChangedObject(resource_version=str(self.version)))
        return self.data()

    def data(self) -> dict[str, str]:
        return {"same": f"v{self.version}", f"only{self.version}": "x", "large": str(self.version) * 100_000}

    def directory(self, volume: str) -> Path:
        folder = "projected" if volume == "all" else "configmap"
        return self.root / "pods" / UID / "volumes" / f"kubernetes.io~{folder}" / volume

    def read(self, volume: str) -> dict[str, str]:
        found = {}
        for entry in self.directory(volume).iterdir():
            if not entry.name.startswith(".."):
                with contextlib.suppress(FileNotFoundError):
                    found[entry.name] = entry.read_text()
        found.pop("token", None)
        return found

    async def until_shown(self, content: dict[str, str]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while any(self.read(volume) != content or self.clutter(volume) for volume in ("all", "cfg")):
                await asyncio.sleep(0.01)

    def clutter(self, volume: str) -> list[str]:
        """What is there beside the files that are shown and what shows them."""
        directory = self.directory(volume)
        shown = str((directory / "..data").readlink())
        names = {entry.name for entry in directory.iterdir()}
        return sorted(names - {"..data", shown, "token"} - self.data().keys())

    async def _get(self, request: GetObject) -> FoundObject:
        data = self.data()
        if request.kind == "Secret":
            data = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        return FoundObject(object={"metadata": {"resourceVersion": str(self.version)}, "data": data})

    async def _issue(self, request: RequestToken) -> IssuedToken:
        return IssuedToken(token="jwt", expiration="2100-01-01T00:00:00Z")


@pytest.fixture
async def arena(tmp_path: Path) -> AsyncIterator[Arena]:
    arena = Arena(tmp_path)
    async with arena.running():
        yield arena
    for point in below(mount_table(), str(tmp_path)):
        unmount(Path(point))


def mounts(arena: Arena) -> list[str]:
    return below(mount_table(), str(arena.root / "pods"))


async def mounted(arena: Arena) -> None:
    await arena.mounted.until(
        lambda state: UID in state and {v.state for v in state[UID].volumes.values()} == {VolumeState.MOUNTED}
    )


async def gone(arena: Arena) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while (arena.root / "pods" / UID).exists():
            await asyncio.sleep(0.01)
    assert mounts(arena) == []


async def test_a_kill_at_any_step_of_a_change_shows_old_or_new_and_the_next_process_finishes(arena: Arena) -> None:
    old = arena.change()
    arena.admit(PodState.SYNC, "all", "cfg")
    await mounted(arena)
    container = os.open(arena.directory("all"), os.O_DIRECTORY)
    try:
        for step in STEPS:
            arena.crash.write_text(f"volume.writer.{step}")
            new = arena.change()
            await arena.crashed()
            for volume in ("all", "cfg"):
                assert arena.read(volume) in (old, new), (step, volume)
            await arena.spawn()
            await arena.until_shown(new)
            assert mounts(arena) == [str(arena.directory("all"))], step
            assert (Path(f"/proc/self/fd/{container}") / "same").read_text() == new["same"], step
            old = new
    finally:
        os.close(container)
    token = (arena.directory("all") / "token").stat()
    assert (token.st_gid, token.st_mode & 0o777) == (4242, 0o640)
    arena.admit(PodState.TERMINATED)
    await arena.mounted.until(lambda state: not state)
    arena.admit(PodState.FINISHED)
    await gone(arena)


async def test_a_kill_at_any_step_of_a_first_write_is_repaired(arena: Arena) -> None:
    content = arena.change()
    for step in ("directory", "ownership", "links", "rename"):
        arena.crash.write_text(f"volume.writer.{step}")
        arena.admit(PodState.SYNC, "all", "cfg")
        await arena.crashed()
        await arena.spawn()
        await mounted(arena)
        await arena.until_shown(content)
        arena.admit(PodState.TERMINATED)
        await arena.mounted.until(lambda state: not state)
        arena.admit(PodState.FINISHED)
        await gone(arena)
        arena.admitted.delete(UID)


async def test_a_kill_at_the_removal_of_old_files_leaves_none_of_them(arena: Arena) -> None:
    arena.change()
    arena.admit(PodState.SYNC, "all", "cfg")
    await mounted(arena)
    for point in ("volume.calling.RemoveOldFiles", "volume.acted.RemoveOldFiles"):
        arena.crash.write_text(point)
        content = arena.change()
        await arena.crashed()
        await arena.spawn()
        await arena.until_shown(content)
    arena.admit(PodState.FINISHED)
    await gone(arena)


async def test_a_kill_in_a_teardown_leaves_nothing(arena: Arena) -> None:
    for point in ("volume.calling.UnmountVolume", "volume.acted.UnmountVolume"):
        arena.change()
        arena.admit(PodState.SYNC, "all", "cfg")
        await mounted(arena)
        arena.crash.write_text(point)
        arena.admit(PodState.FINISHED)
        await arena.crashed()
        await arena.spawn()
        await gone(arena)
        arena.admitted.delete(UID)
        await arena.mounted.until(lambda state: not state)
