"""The directories a kubelet makes, and their modes."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.bootstrap.adapters import layout
from services.bootstrap.adapters.layout import make_layout
from shared.config.effective import EffectiveConfig
from shared.errors import OperatorError
from shared.model.frozen_copy import replace


@pytest.fixture(params=[0o077, 0o022, 0o000])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def config(tmp_path: Path) -> EffectiveConfig:
    return EffectiveConfig(
        node_name="n",
        root_dir=f"{tmp_path}/lib/kubelet",
        run_dir=f"{tmp_path}/run",
        log_dir=f"{tmp_path}/log",
        cert_dir=f"{tmp_path}/lib/kubelet/pki",
        pod_logs_dir=f"{tmp_path}/log/pods",
    )


def modes(tmp_path: Path) -> dict[str, int]:
    return {str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}


@pytest.mark.usefixtures("umask")
def test_modes_are_the_kubelets_whatever_the_umask(tmp_path: Path) -> None:
    make_layout(config(tmp_path))
    assert modes(tmp_path) == {
        "lib": 0o750,
        "lib/kubelet": 0o750,
        "lib/kubelet/pods": 0o750,
        "lib/kubelet/plugins": 0o750,
        "lib/kubelet/plugins_registry": 0o750,
        "lib/kubelet/device-plugins": 0o750,
        "lib/kubelet/pod-resources": 0o750,
        "lib/kubelet/pods-api": 0o750,
        "lib/kubelet/checkpoints": 0o700,
        "lib/kubelet/pki": 0o755,
        "log": 0o750,
        "log/pods": 0o750,
        "log/containers": 0o755,
    }


def test_the_directory_of_the_pods_api_is_not_made_without_its_gate(tmp_path: Path) -> None:
    make_layout(replace(config(tmp_path), feature_gates={"PodsAPI": False}))
    assert "lib/kubelet/pods-api" not in modes(tmp_path)


def test_what_exists_keeps_its_mode(tmp_path: Path) -> None:
    for name, mode in (("lib/kubelet/pods", 0o700), ("log/containers", 0o711)):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name).chmod(mode)
    make_layout(config(tmp_path))
    make_layout(config(tmp_path))
    assert modes(tmp_path)["lib/kubelet/pods"] == 0o700
    assert modes(tmp_path)["log/containers"] == 0o711


def test_a_link_to_a_directory_is_one(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "lib").symlink_to(tmp_path / "elsewhere")
    make_layout(config(tmp_path))
    assert (tmp_path / "elsewhere/kubelet/pods").is_dir()


def test_a_file_in_the_way_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "lib").touch()
    with pytest.raises(OperatorError, match=r"^[^\n]*lib: cannot be made: File exists \(repair it[^\n]*\)$"):
        make_layout(config(tmp_path))


@pytest.mark.parametrize("enabled", [True, False])
def test_with_selinux_the_directories_of_plugins_get_the_label_of_container_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enabled: bool
) -> None:
    labels = dict[str, tuple[str, bytes]]()

    def setxattr(path: Path, attribute: str, value: bytes) -> None:
        assert path.is_dir()
        labels[path.name] = (attribute, value)

    monkeypatch.setattr(layout, "selinux_enabled", lambda: enabled)
    monkeypatch.setattr(os, "setxattr", setxattr)
    make_layout(config(tmp_path))
    label = ("security.selinux", b"system_u:object_r:container_file_t:s0")
    assert labels == (dict.fromkeys(("plugins", "plugins_registry", "device-plugins"), label) if enabled else {})


def test_a_label_that_cannot_be_set_is_one_warning_for_each_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def setxattr(path: Path, attribute: str, value: bytes) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(layout, "selinux_enabled", lambda: True)
    monkeypatch.setattr(os, "setxattr", setxattr)
    make_layout(config(tmp_path))
    warnings = [record.getMessage() for record in caplog.records]
    assert [line.partition(":")[0] for line in warnings] == [
        f"{tmp_path}/lib/kubelet/{name}" for name in ("plugins", "plugins_registry", "device-plugins")
    ]
    assert all("Operation not supported" in line and "chcon" in line for line in warnings)
