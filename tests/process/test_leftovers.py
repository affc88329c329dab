"""What `make clean` and the tests remove of an agent that has ended."""

import subprocess
from pathlib import Path

import pytest

from services.volume.adapters.mounts import mount_table
from shared.host.mountinfo import below
from tools.leftovers import unmount_below

pytestmark = pytest.mark.root


def test_mounts_of_any_name_are_unmounted_and_no_other_one(tmp_path: Path) -> None:
    """Pods name them: a line of the mount table may hold what Python takes for the end of a line, and no UTF-8."""
    names = ["plain", "a b", "a\nb", "a\x0cb", "a\x85b", "a\u2028b", "a\udcffb", "a\\b"]
    beside = tmp_path / "home2"
    mounted = [*(tmp_path / "home" / name / "deep" for name in names), beside]
    try:
        for directory in mounted:
            directory.mkdir(parents=True)
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", directory], check=True)
        unmount_below(tmp_path / "home")
        assert below(mount_table(), str(tmp_path)) == [str(beside)]
    finally:
        for directory in mounted:  # not by what is tested
            subprocess.run(["umount", directory], capture_output=True, check=False)
