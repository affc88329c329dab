"""Whether a device counts as empty, and which programs make and grow its file system."""

import pytest

from services.volume.core.operations.file_systems import (
    grow_command,
    has_uncorrected_errors,
    make_command,
    type_on_device,
)


@pytest.mark.parametrize(
    ("code", "output", "found"),
    [
        pytest.param(2, "", "", id="nothing"),
        pytest.param(0, "DEVNAME=/dev/loop0 TYPE=xfs", "xfs", id="a file system"),
        pytest.param(0, "PTTYPE=gpt", "unknown data, probably partitions", id="partitions"),
        pytest.param(0, "PTTYPE=dos TYPE=ext4", "unknown data, probably partitions", id="both"),
        pytest.param(0, "DEVNAME=/dev/loop0", None, id="no answer"),
        pytest.param(0, "TYPE=", None, id="an empty answer"),
        pytest.param(4, "blkid: error", None, id="wrong usage"),
        pytest.param(8, "ambivalent TYPE=ext4", None, id="an ambivalent result"),
    ],
)
def test_a_device_is_empty_only_where_blkid_says_that_it_found_nothing(
    code: int, output: str, found: str | None
) -> None:
    assert type_on_device(code, output) == found


@pytest.mark.parametrize(("code", "left"), [(0, False), (1, False), (4, True), (8, False)])
def test_only_errors_that_fsck_left_prevent_a_mount(code: int, left: bool) -> None:
    assert has_uncorrected_errors(code) is left


def test_each_type_has_its_programs() -> None:
    assert make_command("ext4", "/dev/x") == ("mkfs.ext4", "-F", "-m0", "/dev/x")
    assert make_command("xfs", "/dev/x") == ("mkfs.xfs", "-f", "/dev/x")
    assert make_command("btrfs", "/dev/x") == ("mkfs.btrfs", "/dev/x")
    assert grow_command("ext3", "/dev/x", "/m") == ("resize2fs", "/dev/x")
    assert grow_command("xfs", "/dev/x", "/m") == ("xfs_growfs", "-d", "/m")
    assert grow_command("btrfs", "/dev/x", "/m") == ("btrfs", "filesystem", "resize", "max", "/m")
    assert grow_command("vfat", "/dev/x", "/m") is None
