"""What a release derives from the checkout, Debian's version and the unit of the package, and what it removes."""

import itertools
import subprocess
from pathlib import Path

import pytest

from shared.errors import OperatorError
from tests.architecture.checkout import text_of
from tools.release.__main__ import release, remove_earlier
from tools.release.debian import unit_of_package
from tools.release.environment import debian_version
from tools.release.source import copy_source


@pytest.mark.parametrize(
    ("version", "debian"),
    [("0.1.0", "0.1.0"), ("0.2.0a1", "0.2.0~a1"), ("0.2.0rc2", "0.2.0~rc2"), ("0.2.0.dev3", "0.2.0~dev3")],
)
def test_the_version_is_one_of_debian(version: str, debian: str) -> None:
    assert debian_version(version) == debian


def test_debian_orders_the_versions_as_python_does() -> None:
    ordered = [debian_version(version) for version in ("0.2.0a1", "0.2.0b1", "0.2.0rc1", "0.2.0", "0.2.1", "0.10.0")]
    for before, after in itertools.pairwise(ordered):
        assert subprocess.run(["dpkg", "--compare-versions", before, "lt", after], check=False).returncode == 0


def test_the_unit_of_the_package_starts_its_kubelet() -> None:
    unit = unit_of_package(text_of("systemd/bulkhead.service"))
    assert "\nExecStart=/opt/bulkhead/bin/kubelet\n" in unit
    assert unit.startswith("[Unit]\n") and ".venv" not in unit and "checkout" not in unit


def test_a_unit_of_another_shape_is_not_packaged() -> None:
    text = text_of("systemd/bulkhead.service").replace("ExecStart=/opt/bulkhead", "ExecStart=/elsewhere")
    with pytest.raises(ValueError, match="no longer contains"):
        unit_of_package(text)


def test_only_the_files_of_an_earlier_release_are_removed(tmp_path: Path) -> None:
    release = (
        "bulkhead_kubelet-0.1.0-py3-none-any.whl",
        "bulkhead_0.1.0_amd64.deb",
        "bulkhead-node_0.1.0_amd64.oci.tar",
    )
    for name in (*release, "SHA256SUMS", "thesis.odt"):
        (tmp_path / name).touch()
    remove_earlier(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.odt"]


def test_a_time_that_is_no_number_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "today")
    with pytest.raises(OperatorError, match=r"SOURCE_DATE_EPOCH: 'today' is no number of seconds \(unset it\)"):
        copy_source(tmp_path)


def test_an_image_is_refused_at_once_where_its_debian_has_not_the_python_of_the_package(tmp_path: Path) -> None:
    other = tmp_path / "python3.99"
    other.write_text("#!/bin/sh\necho 3.99\n")
    other.chmod(0o755)
    with pytest.raises(OperatorError, match=r"this Debian has no python3\.99, which the image would have"):
        release(tmp_path / "out", interpreter=str(other), image=True, fast=True)
    assert not (tmp_path / "out").exists()
