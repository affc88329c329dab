"""Bind mounts and unmounts as the kernel carries them out."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.volume.adapters.mounts import bind_with_options, is_mount_point, mount_table, unmount, unmount_all

pytestmark = [pytest.mark.root, pytest.mark.no_runtime]


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs with nosuid and nodev."""
    source = tmp_path / "source"
    source.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nosuid,nodev", "tmpfs", str(source)], check=True)
    yield source
    subprocess.run(["umount", str(source)], check=True)


def test_a_read_only_bind_mount_keeps_nosuid_and_nodev_of_its_source(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    bind_with_options(source, target, ["ro"])
    try:
        [mount] = [mount for mount in mount_table() if mount.path == str(target)]
        assert {"ro", "nosuid", "nodev"} <= mount.options
    finally:
        unmount(target)


@pytest.mark.parametrize("end", [unmount, unmount_all])
def test_a_planted_link_to_a_mount_is_not_followed_by_an_unmount(source: Path, tmp_path: Path, end: object) -> None:
    link = tmp_path / "link"
    link.symlink_to(source)
    assert callable(end)
    end(link)
    assert is_mount_point(source)
