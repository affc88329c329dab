"""A path is counted at the mount point above it: two calls where a server may be away, sixteen on a local disk."""

import time

import pytest

from services.volume.core.operations.mount_shares import (
    MAX_CALLS_PER_LOCAL_MOUNT,
    MAX_CALLS_PER_MOUNT,
    MountShares,
    Share,
)
from shared.host.mountinfo import MountPoint

TABLE = [
    ("/", "nfs4"),
    ("/data", "xfs"),
    ("/data/away", "nfs"),
    ("/data/away/disk", "ext4"),
    ("/home", "autofs"),
    ("/twice", "ext4"),
    ("/twice", "fuse.sshfs"),
    ("/new", "of a kind that is not known"),
]
SHARES = MountShares(MountPoint(path, filesystem, shared=False) for path, filesystem in TABLE)


def test_a_path_is_counted_at_the_deepest_mount_point_above_it(subtests: pytest.Subtests) -> None:
    for path, mount, places in [
        ("/", "/", MAX_CALLS_PER_LOCAL_MOUNT),
        ("/srv/a", "/", MAX_CALLS_PER_LOCAL_MOUNT),
        ("/database", "/", MAX_CALLS_PER_LOCAL_MOUNT),
        ("", "/", MAX_CALLS_PER_LOCAL_MOUNT),
        ("relative", "/", MAX_CALLS_PER_LOCAL_MOUNT),
        ("/data", "/data", MAX_CALLS_PER_LOCAL_MOUNT),
        ("//data//./b/", "/data", MAX_CALLS_PER_LOCAL_MOUNT),
        ("/data/away", "/data/away", MAX_CALLS_PER_MOUNT),
        ("/data/away/a/b", "/data/away", MAX_CALLS_PER_MOUNT),
        ("/data/away/../b", "/data", MAX_CALLS_PER_LOCAL_MOUNT),
        ("/data/away/disk/a", "/data/away/disk", MAX_CALLS_PER_LOCAL_MOUNT),
        ("/home/a", "/home", MAX_CALLS_PER_MOUNT),
        ("/twice/a", "/twice", MAX_CALLS_PER_MOUNT),
        ("/new/a", "/new", MAX_CALLS_PER_MOUNT),
    ]:
        with subtests.test(path):
            assert SHARES.share_of(path) == Share(mount, places)


def test_without_a_table_every_path_is_counted_at_the_root() -> None:
    assert MountShares().share_of("/data/a") == Share("/", MAX_CALLS_PER_LOCAL_MOUNT)


def test_a_path_of_many_components_costs_no_more_than_its_length() -> None:
    path = "/data/away" + "/a" * 500_000
    began = time.process_time()
    assert SHARES.share_of(path) == Share("/data/away", MAX_CALLS_PER_MOUNT)
    assert time.process_time() - began < 5


def test_the_exports_of_one_server_share_its_places() -> None:
    shares = MountShares()
    assert shares.share_of("storage:/a") == shares.share_of("storage:/b") == Share("storage", MAX_CALLS_PER_MOUNT)
    assert shares.share_of("other:/a") != shares.share_of("storage:/a")
