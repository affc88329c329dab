"""Whether SELinux is on is read from its file system and this process's own label."""

from pathlib import Path

import pytest

from services.podsync.adapters.node.node_facts_reader import selinux_enabled


@pytest.mark.parametrize(
    ("mounted", "label", "enabled"),
    [
        (True, "system_u:system_r:kubelet_t:s0\0", True),
        (True, "kernel\0", False),  # SELinux is in the kernel and no policy is loaded
        (True, None, False),
        (False, "unconfined\0", False),  # the label is another security module's
    ],
)
def test_selinux_is_on_with_its_file_system_and_a_label(
    tmp_path: Path, mounted: bool, label: str | None, enabled: bool
) -> None:
    selinuxfs, own_label = tmp_path / "selinux", tmp_path / "current"
    if mounted:
        selinuxfs.mkdir()
        (selinuxfs / "enforce").write_text("1")
    if label is not None:
        own_label.write_text(label)
    assert selinux_enabled(selinuxfs, own_label) is enabled
