"""The kernel settings of a kubelet, read from a tree of files (node.md 4.8)."""

from pathlib import Path

import pytest

from shared.host.kernel_settings import (
    KUBELET_SETTINGS,
    SYSCTLS,
    differing_settings,
    in_user_namespace,
    read_kernel_settings,
)


def tree(root: Path, **values: str) -> Path:
    """Files with these values, by the last part of the setting's name; the others are those of a kubelet."""
    for setting, wanted in KUBELET_SETTINGS.items():
        file = root / SYSCTLS / setting
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{values.get(file.name, wanted)}\n")
    return root


def test_the_values_are_those_of_the_reference() -> None:
    page = Path(__file__).parents[3] / "docs/reference/node.md"
    named = ", ".join(f"{setting}={value}" for setting, value in KUBELET_SETTINGS.items())
    assert f"{named}." in page.read_text()


def test_settings_with_other_values_differ(tmp_path: Path) -> None:
    found = read_kernel_settings(tree(tmp_path, panic="0", overcommit_memory="2", root_maxkeys="200"))
    assert differing_settings(found) == {"vm/overcommit_memory": 2, "kernel/panic": 0, "kernel/keys/root_maxkeys": 200}


def test_a_negative_value_differs(tmp_path: Path) -> None:
    assert differing_settings(read_kernel_settings(tree(tmp_path, panic="-1"))) == {"kernel/panic": -1}


@pytest.mark.parametrize("text", ["", "one", "\u00e9"])
def test_what_cannot_be_read_does_not_differ(tmp_path: Path, text: str) -> None:
    tree(tmp_path, panic=text)
    (tmp_path / SYSCTLS / "kernel/keys/root_maxkeys").unlink()  # a kernel without keys
    found = read_kernel_settings(tmp_path)
    assert len(found) == len(KUBELET_SETTINGS) - 2
    assert differing_settings(found) == {}
    assert read_kernel_settings(tmp_path / "nowhere") == {}


@pytest.mark.parametrize(
    ("mapping", "own"),
    [
        ("         0          0 4294967295\n", False),
        ("         0       1000          1\n         1     100000      65536\n", True),
        ("         0     100000 4294967295\n", True),
        ("", False),
    ],
)
def test_the_mapping_of_user_ids_shows_a_user_namespace(tmp_path: Path, mapping: str, own: bool) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/uid_map").write_text(mapping)
    assert in_user_namespace(tmp_path) is own


def test_without_a_mapping_there_is_no_user_namespace(tmp_path: Path) -> None:
    assert not in_user_namespace(tmp_path)
