"""Which hosts.toml containerd reads for an image, and how one that it cannot parse is named."""

from pathlib import Path

import pytest

from services.podsync.adapters.images.image_pulls import find_damaged_hosts

DAMAGED, GOOD = 'server = "https://x\n', 'server = "https://x"\n'


def put(root: Path, registry: str, content: str | bytes) -> Path:
    file = root / registry / "hosts.toml"
    file.parent.mkdir(parents=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


@pytest.mark.parametrize(
    ("directory", "image"),
    [
        ("docker.io", "busybox"),
        ("docker.io", "team/app:1"),
        ("r.test", "r.test/app:1"),
        ("r.test:5000", "r.test:5000/app@sha256:" + 64 * "0"),
        ("r.test_5000_", "r.test:5000/app"),
        ("_default", "r.test/app"),
    ],
)
def test_the_file_of_the_images_registry_is_named_with_the_place_of_the_error(
    tmp_path: Path, directory: str, image: str
) -> None:
    file = put(tmp_path, directory, DAMAGED)
    found = find_damaged_hosts(str(tmp_path), image)
    assert found.startswith(f"containerd does not use {file}: ") and "line 1" in found


def test_only_the_first_directory_of_the_registry_counts(tmp_path: Path) -> None:
    put(tmp_path, "r.test", GOOD)
    put(tmp_path, "_default", DAMAGED)
    assert find_damaged_hosts(str(tmp_path), "r.test/app") == ""
    (tmp_path / "s.test").mkdir(parents=True)  # certificates without a hosts.toml
    assert find_damaged_hosts(str(tmp_path), "s.test/app") == ""


def test_no_file_and_other_registries_are_fine_and_bytes_that_are_no_text_are_not(tmp_path: Path) -> None:
    put(tmp_path, "other.test", DAMAGED)
    assert find_damaged_hosts("", "r.test/app") == find_damaged_hosts(str(tmp_path), "r.test/app") == ""
    put(tmp_path, "r.test", b"\xff\xfe")
    assert "utf-8" in find_damaged_hosts(str(tmp_path), "r.test/app")
