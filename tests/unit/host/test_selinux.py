"""Whether SELinux is on, and the label of container files, are read from files of the host."""

from pathlib import Path

import pytest

from shared.host.selinux import container_file_label, policy_has_label, selinux_enabled


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


LABEL = "system_u:object_r:container_file_t:s0"
CONTEXTS = f'''# of containers
process = "system_u:system_r:container_t:s0"
file = "{LABEL}"
'''


@pytest.mark.parametrize("path", ["contexts", "etc/mls/contexts/lxc_contexts"])
def test_the_label_of_files_is_that_of_the_contexts_of_containers(tmp_path: Path, path: str) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "config").write_text("# targeted or mls\nSELINUX=enforcing\nSELINUXTYPE=mls\n")
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(CONTEXTS)
    assert container_file_label(tmp_path / "contexts", tmp_path / "etc") == LABEL


def test_files_that_containers_only_read_have_a_label_of_their_own_where_the_contexts_name_one(tmp_path: Path) -> None:
    (tmp_path / "contexts").write_text(CONTEXTS)
    assert container_file_label(tmp_path / "contexts", tmp_path, read_only=True) == LABEL
    read_only = LABEL.replace("file_t", "ro_file_t")
    (tmp_path / "contexts").write_text(f'{CONTEXTS}ro_file="{read_only}"\n')
    assert container_file_label(tmp_path / "contexts", tmp_path, read_only=True) == read_only
    assert container_file_label(tmp_path / "contexts", tmp_path) == LABEL


@pytest.mark.parametrize("content", [None, "", f'file = "{LABEL}"\n', "\xff\n= =\n"])
def test_there_is_no_label_without_contexts_of_containers(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "contexts").write_text(content)
    assert container_file_label(tmp_path / "contexts", tmp_path / "etc") == ""


def test_the_kernel_is_asked_whether_its_policy_has_a_label(tmp_path: Path) -> None:
    context = tmp_path / "context"
    assert not policy_has_label(LABEL, tmp_path)  # SELinux is off
    context.touch()
    assert policy_has_label(LABEL, tmp_path)
    assert context.read_text() == LABEL
    assert not policy_has_label("", tmp_path)
    context.unlink()
    context.symlink_to("/dev/full")  # a write fails, as with a label that the policy does not have
    assert not policy_has_label(LABEL, tmp_path)
