"""A path is counted at the mount point above it: two calls where a server may be away, sixteen on a local disk."""

import time

import pytest

from services.volume.core.mount_shares import AT_A_LOCAL_MOUNT, AT_A_MOUNT, MountShares, Share
from services.volume.core.mountinfo import MountPoint

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


@pytest.mark.parametrize(
    ("path", "mount", "places"),
    [
        ("/", "/", AT_A_LOCAL_MOUNT),
        ("/srv/a", "/", AT_A_LOCAL_MOUNT),
        ("/database", "/", AT_A_LOCAL_MOUNT),
        ("", "/", AT_A_LOCAL_MOUNT),
        ("relative", "/", AT_A_LOCAL_MOUNT),
        ("/data", "/data", AT_A_LOCAL_MOUNT),
        ("//data//./b/", "/data", AT_A_LOCAL_MOUNT),
        ("/data/away", "/data/away", AT_A_MOUNT),
        ("/data/away/a/b", "/data/away", AT_A_MOUNT),
        ("/data/away/../b", "/data", AT_A_LOCAL_MOUNT),
        ("/data/away/disk/a", "/data/away/disk", AT_A_LOCAL_MOUNT),
        ("/home/a", "/home", AT_A_MOUNT),
        ("/twice/a", "/twice", AT_A_MOUNT),
        ("/new/a", "/new", AT_A_MOUNT),
    ],
)
def test_a_path_is_counted_at_the_deepest_mount_point_above_it(path: str, mount: str, places: int) -> None:
    assert SHARES.of(path) == Share(mount, places)


def test_without_a_table_every_path_is_counted_at_the_root() -> None:
    assert MountShares().of("/data/a") == Share("/", AT_A_LOCAL_MOUNT)


def test_a_path_of_many_components_costs_no_more_than_its_length() -> None:
    path = "/data/away" + "/a" * 500_000
    began = time.process_time()
    assert SHARES.of(path) == Share("/data/away", AT_A_MOUNT)
    assert time.process_time() - began < 5
