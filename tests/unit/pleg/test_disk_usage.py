"""What the files of a pod use, counted from directories as the kubelet lays them out."""

import itertools
import math
import os
from pathlib import Path

import pytest

from bus.codec import decode, encode
from bus.messages.usage import (
    MAX_AMOUNT,
    CgroupUsage,
    ContainerUsage,
    FilesystemUsage,
    NodeUsage,
    PodUsage,
    VolumeUsage,
)
from services.pleg.adapters import disk_usage as adapter
from services.pleg.adapters.disk_usage import ENTRIES_AT_ONCE, PodCount
from services.pleg.adapters.file_statuses import FileStatuses
from services.pleg.adapters.filesystem_reader import read_filesystem
from services.pleg.core.mountpoints import Mountpoints, mountpoints_of
from services.pleg.core.pod_files import DiskUse, PodFiles, at_least, with_files, with_runtime_files, with_use
from services.volume.adapters.volume_usage import usage_of_filesystem
from shared.cri.interface import FilesystemFiles, RuntimeFilesystems
from shared.model.frozen_copy import replace
from tests.unit.pleg.counted import Chain, disk_usage, measure_pod

UID = "u"
VOLUMES = Path("pods", UID, "volumes")
NODEFS = FilesystemUsage(time=1.0, available=50, capacity=100, used=50, inodes=10, inodes_free=4, inodes_used=6)
IMAGEFS = FilesystemUsage(time=1.0, available=500, capacity=1000, used=500)
NODE = NodeUsage(
    read_at=1.0, started_at=0.0, cgroup=CgroupUsage(time=2.0), nodefs=NODEFS, imagefs=IMAGEFS, containerfs=IMAGEFS
)
TOGETHER = Mountpoints("/images", "/images")
POD = PodUsage(
    uid=UID,
    name="web",
    namespace="ns",
    created_at=1,
    read_at=1.0,
    containers=(ContainerUsage(id="c", name="main", created_at=1),),
)


def write(path: Path, size: int = 5000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


def blocks(*paths: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in paths)


@pytest.fixture
def large_filesystem(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the filesystem of every volume use more than any volume: the test's own one may be in memory and almost
    empty."""
    full = FilesystemUsage(time=3.0, capacity=1 << 40, used=1 << 39)
    monkeypatch.setattr(adapter, "read_filesystem", lambda *_: full)


def test_a_directory_uses_its_blocks_and_inodes(tmp_path: Path) -> None:
    root = tmp_path / "root"
    files = [write(root / "a"), write(root / "b" / "c", 100_000)]
    assert disk_usage(root) == DiskUse(blocks(root, root / "b", *files), 4)


def test_a_file_with_two_links_counts_once_and_a_symlink_is_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    file, outside = write(root / "a"), write(tmp_path / "outside", 1_000_000)
    os.link(file, root / "b")
    (root / "c").symlink_to(outside)
    (root / "d").symlink_to(tmp_path)
    assert disk_usage(root) == DiskUse(blocks(root, file, root / "c", root / "d"), 4)


@pytest.mark.long
def test_a_million_links_hide_nothing_that_is_found_after_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root := tmp_path / "root").mkdir()
    one = write(root / "linked", 1)
    os.link(one, root / "again")
    link = os.lstat(one)
    big = os.lstat(write(root / "big", 1_000_000))
    monkeypatch.setattr(adapter, "FileStatuses", lambda *_: itertools.chain(itertools.repeat(link, 1_100_000), [big]))
    assert disk_usage(root) == DiskUse((link.st_blocks + big.st_blocks) * 512, 2)


def test_links_beyond_those_that_are_kept_count_by_their_shares(tmp_path: Path) -> None:
    (root := tmp_path / "root").mkdir()
    files = [write(root / f"file{number}", 5_000 + 9_000 * number) for number in range(7)]
    for number, file in enumerate(files):
        for link in range(number + 1):
            os.link(file, root / f"link{number}-{link}")
    expected = DiskUse(blocks(root, *files), 8)
    assert [disk_usage(root, most_linked=most) for most in (100, 3, 0)] == [expected] * 3


def test_what_is_not_there_uses_nothing(tmp_path: Path) -> None:
    assert disk_usage(tmp_path / "none") == DiskUse()
    found = measure_pod(tmp_path, tmp_path / "none", UID)
    assert found == PodFiles(time=3.0, logs={}, volumes=(), other=DiskUse())


def test_logs_volumes_and_etc_hosts_are_counted_apart(tmp_path: Path) -> None:
    logs = tmp_path / "logs" / "ns_web_u"
    log, stray = write(logs / "main" / "0.log"), write(logs / "stray")
    hosts = write(tmp_path / "pods" / UID / "etc-hosts")
    scratch = write(tmp_path / VOLUMES / "kubernetes.io~empty-dir" / "scratch" / "file")
    secret = write(tmp_path / VOLUMES / "kubernetes.io~secret" / "key" / "file")
    write(tmp_path / VOLUMES / "kubernetes.io~csi" / "pv" / "mount" / "file")
    found = measure_pod(tmp_path, logs, UID)
    assert found.logs == {"main": DiskUse(blocks(log.parent, log), 2)}
    assert found.other == DiskUse(blocks(stray, hosts), 2)
    shown = {volume.name: (volume.filesystem.used, volume.ephemeral) for volume in found.volumes}
    assert shown == {
        "scratch": (blocks(scratch.parent, scratch), True),
        "key": (blocks(secret.parent, secret), False),
    }
    assert all((volume.filesystem.capacity or 0) > 0 for volume in found.volumes)
    assert measure_pod(tmp_path, logs, UID, volumes=False).volumes == ()


@pytest.mark.usefixtures("large_filesystem")
def test_a_volume_without_end_shows_what_was_counted_so_far_and_hides_no_other_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / VOLUMES / "kubernetes.io~empty-dir"
    endless, others = write(plugin / "endless" / "file"), [write(plugin / name / "file") for name in "abc"]

    class Statuses(FileStatuses):
        def __next__(self) -> os.stat_result:
            try:
                return super().__next__()
            except StopIteration:
                if self._root.name == "endless":  # the pod makes files ahead of the count
                    return endless.lstat()
                raise

    monkeypatch.setattr(adapter, "FileStatuses", Statuses)
    count, seconds, used = PodCount(str(tmp_path), tmp_path / "none", UID, 3.0, volumes=True), itertools.count(), [-1]
    for _ in range(2 + len(others)):
        assert not count.count(1.0, lambda: float(next(seconds)))
        shown = {volume.name: volume.filesystem.used or 0 for volume in count.sum_up().volumes}
        used.append(shown.pop("endless"))
    assert shown == {file.parent.name: blocks(file.parent, file) for file in others}
    assert used == sorted(used) and used[-1] >= 2 * ENTRIES_AT_ONCE * blocks(endless)


@pytest.mark.long
@pytest.mark.usefixtures("large_filesystem")
def test_directories_that_a_pod_makes_ahead_of_the_count_hide_no_file_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "ENTRIES_AT_ONCE", 10)
    directories = [tmp_path / VOLUMES / "kubernetes.io~empty-dir/v" / name for name in "abcd"]
    large = [write(directory / "x/large", 1_000_000) for directory in directories]
    chains = [Chain(directory) for directory in directories]
    seconds = itertools.count()

    def monotonic() -> float:
        for chain in chains:
            chain.extend(11)
        return float(next(seconds))

    count = PodCount(str(tmp_path), tmp_path / "none", UID, 3.0, volumes=True)
    assert not any(count.count(1.0, monotonic) for _ in range(8 * len(chains)))
    assert (count.sum_up().volumes[0].filesystem.used or 0) >= blocks(*large)
    for chain in chains:
        chain.close()


def test_a_volume_that_is_being_counted_shows_no_more_than_its_filesystem_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "ENTRIES_AT_ONCE", 10)
    scratch = tmp_path / VOLUMES / "kubernetes.io~empty-dir/v"
    for number in range(15):
        write(scratch / f"file{number}")
    files = DiskUse(blocks(scratch, *scratch.iterdir()), 16)
    now = FilesystemUsage(time=3.0, capacity=1 << 40, used=4096, inodes=100, inodes_used=2)
    monkeypatch.setattr(adapter, "read_filesystem", lambda *_: now)
    count, seconds, shown = PodCount(str(tmp_path), tmp_path / "none", UID, 3.0, volumes=True), itertools.count(), []
    now = replace(now, used=8192)  # read at the end of the turn
    for _ in range(2):
        count.count(1.0, lambda: 2.0 * next(seconds))
        filesystem = count.sum_up().volumes[0].filesystem
        shown.append(DiskUse(filesystem.used or 0, filesystem.inodes_used or 0))
    assert shown == [DiskUse(8192, 2), files]  # counted to its end it shows what was counted, as du


def test_a_filesystem_without_numbers_bounds_no_figure() -> None:
    without_inodes = FilesystemUsage(time=1.0, capacity=10, used=5, inodes=0, inodes_used=0)
    assert DiskUse(9, 8).at_most(without_inodes) == DiskUse(5, 8)
    assert DiskUse(9, 8).at_most(FilesystemUsage(time=1.0)) == DiskUse(9, 8)


def test_the_files_with_several_links_that_are_kept_are_so_many_for_a_pod_until_their_volume_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "MAX_LINKED_FILES", 4)
    plugin = tmp_path / VOLUMES / "kubernetes.io~empty-dir"
    for name in "ab":
        for number in range(4):
            # Each of these files has two links, so that the share of one link is half a file.
            os.link(write(plugin / name / f"file{number}"), tmp_path / f"{name}{number}")

    def inodes() -> list[int]:
        return sorted(volume.filesystem.inodes_used or 0 for volume in count.sum_up().volumes)

    count = PodCount(str(tmp_path), tmp_path / "none", UID, 3.0, volumes=True)
    assert count.count(math.inf, lambda: 0.0) and inodes() == [5, 5]
    monkeypatch.setattr(adapter, "ENTRIES_AT_ONCE", 5)
    count, seconds = PodCount(str(tmp_path), tmp_path / "none", UID, 3.0, volumes=True), itertools.count()
    assert not any(count.count(1.0, lambda: 2.0 * next(seconds)) for _ in range(2))
    assert inodes() == [3, 5]
    count.close()


def test_what_was_counted_so_far_lowers_no_figure() -> None:
    def files(logs: dict[str, DiskUse], *volumes: VolumeUsage, other: int = 0) -> PodFiles:
        return PodFiles(time=5.0, logs=logs, volumes=volumes, other=DiskUse(other, 1))

    old = files({"main": DiskUse(10, 9), "side": DiskUse(3, 1)}, volume("a", 7, ephemeral=True), other=4)
    new = files({"main": DiskUse(20, 2)}, volume("a", 6, ephemeral=True), volume("b", 1, ephemeral=True), other=3)
    assert at_least(new, None) == new
    together = at_least(replace(new, time=6.0), old)
    assert together.logs == {"main": DiskUse(20, 9), "side": DiskUse(3, 1)}
    assert {volume.name: volume.filesystem.used for volume in together.volumes} == {"a": 7, "b": 1}
    assert (together.other, together.time) == (DiskUse(4, 1), 6.0)


def volume(name: str, used: int, *, ephemeral: bool) -> VolumeUsage:
    return VolumeUsage(name=name, filesystem=FilesystemUsage(time=1.0, used=used, inodes_used=1), ephemeral=ephemeral)


def test_ephemeral_storage_is_the_sum_of_what_counts() -> None:
    files = PodFiles(
        time=5.0,
        logs={"main": DiskUse(10, 1)},
        volumes=(volume("scratch", 200, ephemeral=True), volume("key", 4000, ephemeral=False)),
        other=DiskUse(3, 2),
    )
    layers = {"c": FilesystemFiles(mountpoint="/images", used=7, inodes_used=4)}
    pod = with_files(POD, files, layers, NODE, TOGETHER)
    (container,) = pod.containers
    assert container.rootfs == FilesystemUsage(time=2.0, available=500, capacity=1000, used=7, inodes_used=4)
    assert container.logs is not None and (container.logs.used, container.logs.capacity) == (10, 100)
    storage = pod.ephemeral_storage
    assert storage is not None
    assert (storage.used, storage.inodes_used, storage.available, storage.time) == (220, 8, 50, 5.0)
    assert pod.volumes == files.volumes


def test_a_pod_that_was_not_measured_has_its_writable_layers_alone() -> None:
    layers = {"c": FilesystemFiles(mountpoint="/elsewhere", used=7)}
    pod = with_files(POD, None, layers, NODE, TOGETHER)
    assert pod.containers[0].rootfs == FilesystemUsage(time=2.0, used=7)
    assert (pod.containers[0].logs, pod.ephemeral_storage, pod.volumes) == (None, None, ())


def test_images_and_layers_in_one_place_use_what_the_runtime_reports() -> None:
    images = FilesystemFiles(mountpoint="/images", used=9, inodes_used=2)
    for reported in (RuntimeFilesystems(images=(images,)), RuntimeFilesystems(images=(images,), containers=(images,))):
        assert mountpoints_of(reported) == TOGETHER and not TOGETHER.split
        node = with_runtime_files(NODE, reported)
        assert node.imagefs is not None and node.imagefs == node.containerfs
        assert (node.imagefs.used, node.imagefs.inodes_used, node.imagefs.capacity) == (9, 2, 1000)
    assert with_runtime_files(NODE, RuntimeFilesystems()) == NODE
    assert mountpoints_of(RuntimeFilesystems()) == Mountpoints("", "")


def test_on_a_split_disk_images_and_writable_layers_have_figures_of_their_own() -> None:
    images = FilesystemFiles(mountpoint="/images", used=9)
    layers = FilesystemFiles(mountpoint="/containers", used=4, inodes_used=1)
    reported = RuntimeFilesystems(images=(images,), containers=(layers,))
    split = mountpoints_of(reported)
    assert split == Mountpoints("/images", "/containers") and split.split
    node = with_runtime_files(replace(NODE, containerfs=NODEFS), reported)
    assert node.imagefs is not None and node.containerfs is not None
    assert (node.imagefs.used, node.imagefs.capacity) == (9, 1000)
    assert (node.containerfs.used, node.containerfs.inodes_used, node.containerfs.capacity) == (4, 1, 100)
    pod = with_files(POD, None, {"c": FilesystemFiles(mountpoint="/containers", used=7)}, node, split)
    rootfs = pod.containers[0].rootfs
    assert rootfs is not None and (rootfs.used, rootfs.capacity) == (7, 100)


def test_figures_that_no_message_can_hold_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = os.statvfs_result((1 << 20, 1 << 20, 2**64 - 1, 2**64 - 1, 2**64 - 1, 2**63, 2**64 - 1, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: endless)
    filesystem = read_filesystem(str(tmp_path), 1.0)
    assert filesystem == usage_of_filesystem(tmp_path, 1.0)
    assert filesystem == FilesystemUsage(
        time=1.0,
        available=MAX_AMOUNT,
        capacity=MAX_AMOUNT,
        used=0,
        inodes=MAX_AMOUNT,
        inodes_free=MAX_AMOUNT,
        inodes_used=0,
    )
    volumes = (VolumeUsage(name="v", filesystem=with_use(filesystem, DiskUse(2**65, 2**65)), ephemeral=True),) * 3
    files = PodFiles(time=1.0, logs={}, volumes=volumes, other=DiskUse(MAX_AMOUNT, 1))
    usage = with_files(POD, files, {}, NODE, None)
    assert decode(encode(usage), PodUsage) == usage
    assert usage.ephemeral_storage is not None and usage.ephemeral_storage.used == MAX_AMOUNT
