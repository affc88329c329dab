"""Volumes of files on the machine's own kernel: a fast reader, a full disk, and a hundred pods at once.

Each prints its figure (pytest -s).
"""

import asyncio
import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodState, PodVolumes
from bus.messages.volume import VolumeState
from services.volume.adapters.mounts import mount_table, unmount_all
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.core.files.files_source import Files
from services.volume.core.files.payload import PayloadFile
from services.volume.plugins.config_map import ConfigMapPlugin
from services.volume.plugins.projected import ProjectedPlugin
from shared.host.mountinfo import below
from shared.time.clock import SystemClock
from tests.service.volume.cluster import ACCESS, CFG, KEY, Cluster
from tests.support.installed.lacking import require_command
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.timeout(900)]

FILES = Files(parts=(), default_mode=0o644, size=4 << 20)
READS = 1500
UPDATES = 50
PODS = 100
# Reads the file every millisecond, as often as asked for and until another file is there. A token is one letter,
# repeated as often as its first line states.
READER = """
import json, os, sys, time
counts, seen = {"reads": 0, "absent": 0, "torn": 0}, set()
print("ready", flush=True)
while counts["reads"] < int(sys.argv[2]) or not os.path.exists(sys.argv[3]):
    try:
        with open(sys.argv[1]) as file:
            length, _, token = file.read().partition("\\n")
        if not length.isdecimal() or len(token) != int(length) or len(set(token)) != 1:
            counts["torn"] += 1
        seen.add((length, token[:1]))
    except OSError:
        counts["absent"] += 1
    counts["reads"] += 1
    time.sleep(0.001)
print(json.dumps({**counts, "seen": len(seen)}))
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for point in below(mount_table(), str(tmp_path)):
        unmount_all(Path(point))
    assert below(mount_table(), str(tmp_path)) == []


def token(number: int) -> dict[str, PayloadFile]:
    length = 200 + number * 37 % 20000
    return {"token": PayloadFile(f"{length}\n{chr(97 + number % 26) * length}".encode(), 0o600)}


def test_a_reader_at_1_khz_finds_each_token_complete(place: Path) -> None:
    volumes = ProjectedPlugin(PodDirectories(str(place / "root")), SystemClock())
    path, updated = Path(volumes.show("u", "access", FILES, token(0))), place / "updated"
    command = [sys.executable, "-c", READER, str(path / "token"), str(READS), str(updated)]
    reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    try:
        assert reader.stdout.readline() == "ready\n"
        updates = 0
        while reader.poll() is None:
            updates += 1
            volumes.show("u", "access", FILES, token(updates))
            if updates == UPDATES:
                updated.touch()
            time.sleep(0.01)  # a hundred updates a second: as many old directories are kept
        found = json.loads(reader.stdout.readline())
    finally:
        reader.kill()
        reader.wait()
        reader.stdout.close()
    print(f"\n{found['reads']} reads during {updates} updates: {found['absent']} absent, {found['torn']} half-written")
    assert (found["absent"], found["torn"]) == (0, 0)
    assert found["reads"] >= READS and updates >= UPDATES and found["seen"] > 1


def test_a_full_disk_in_the_middle_of_an_update_leaves_the_old_files_and_nothing_else(place: Path) -> None:
    require_command("mkfs.ext4")
    image, root = place / "disk.img", place / "root"
    image.write_bytes(b"")
    os.truncate(image, 1 << 20)
    root.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(root)], check=True)
    volumes = ConfigMapPlugin(PodDirectories(str(root)), SystemClock())
    old = {"a": PayloadFile(b"a" * 100_000, 0o644), "b": PayloadFile(b"b", 0o644)}
    path = Path(volumes.show("u", "v", FILES, old))
    before = sorted(entry.name for entry in path.iterdir())
    new = {"a": PayloadFile(b"A", 0o644), "large": PayloadFile(b"l" * (1 << 20), 0o644), "z": PayloadFile(b"z", 0o644)}
    for _ in range(3):
        with pytest.raises(OSError) as full:
            volumes.show("u", "v", FILES, new)
        assert full.value.errno == errno.ENOSPC
        assert {name: (path / name).read_bytes() for name in ("a", "b")} == {n: f.content for n, f in old.items()}
        assert sorted(entry.name for entry in path.iterdir()) == before
    with pytest.raises(OSError):
        volumes.show("u", "other", FILES, new)  # a first set-up: nothing of it stays
    assert not path.with_name("other").exists()
    volumes.show("u", "v", FILES, {"a": new["a"]})
    assert [entry.name for entry in path.iterdir() if not entry.name.startswith("..")] == ["a"]


def admitted(uid: str, state: PodState) -> PodVolumes:
    """A pod with a tmpfs, a Secret, a ConfigMap and a token; without them from TERMINATED on."""
    cache: dict[str, Any] = {"name": "cache", "emptyDir": {"medium": "Memory"}}
    volumes = [ACCESS, KEY, CFG, cache]
    pod = {
        "metadata": {"name": f"web-{uid}", "namespace": "shop", "uid": uid},
        "spec": {"volumes": volumes, "containers": [{"name": "c"}], "serviceAccountName": "builder"},
    }
    names = tuple(volume["name"] for volume in volumes) if state is PodState.SYNC else ()
    return PodVolumes(uid=uid, name=f"web-{uid}", namespace="shop", state=state, pod=pod, volumes=names)


async def test_a_hundred_pods_with_four_volumes_each_leave_no_mount(place: Path) -> None:
    cluster = Cluster(place)
    await cluster.start()
    cluster.put("ConfigMap", "ca", "1", **{"ca.crt": "CA"})
    cluster.put("ConfigMap", "x", "1", a="1")
    cluster.put("Secret", "s", "1", password="hunter2")
    cluster.admitted.mark_complete()
    uids = [f"u{number}" for number in range(PODS)]
    async with cluster.volume():
        await cluster.mounted.until_complete()
        began = time.monotonic()
        for uid in uids:
            cluster.admitted.put(uid, admitted(uid, PodState.SYNC))
        async with asyncio.timeout(5 * WAIT_SECONDS):
            await cluster.mounted.until(
                lambda state: all(
                    uid in state and len(state[uid].volumes) == 4
                    and all(volume.state is VolumeState.MOUNTED for volume in state[uid].volumes.values())
                    for uid in uids
                )
            )  # fmt: skip
        mounted = time.monotonic() - began
        mounts = below(mount_table(), str(cluster.root / "pods"))
        assert len(mounts) == 3 * PODS  # a ConfigMap is on the disk
        began = time.monotonic()
        for uid in uids:
            cluster.admitted.put(uid, admitted(uid, PodState.FINISHED))
        async with asyncio.timeout(5 * WAIT_SECONDS):
            while any((cluster.root / "pods").iterdir()):
                await asyncio.sleep(0.01)
        removed = time.monotonic() - began
    assert below(mount_table(), str(cluster.root / "pods")) == []
    count = 4 * PODS
    print(
        f"\n{count} volumes: {1000 * mounted / count:.1f} ms each to mount, {1000 * removed / count:.1f} ms to remove"
    )
