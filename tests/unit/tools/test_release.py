"""What a release derives from the checkout: Debian's version, the unit of the package."""

import itertools
import subprocess

import pytest

from tests.architecture.checkout import text_of
from tools.release.debian import unit_of_package
from tools.release.environment import debian_version


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
