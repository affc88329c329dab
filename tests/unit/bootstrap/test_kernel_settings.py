"""The kernel settings that the agent changes at its start, in a directory in place of the machine's."""

import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from services.bootstrap.adapters.kernel_settings import change_kernel_settings
from shared.config.effective import EffectiveConfig
from shared.errors import OperatorError
from shared.host.kernel_settings import KUBELET_SETTINGS, SYSCTLS, read_kernel_settings

DEBIANS = {
    "vm/overcommit_memory": 0,
    "vm/panic_on_oom": 0,
    "kernel/panic": 0,
    "kernel/panic_on_oops": 0,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
IN_USER_NAMESPACE = "         0     100000      65536\n"
CHANGED = "vm.overcommit_memory=1 (was 0), kernel.panic=10 (was 0), kernel.panic_on_oops=1 (was 0)"
ALL = "vm.overcommit_memory=1 kernel.panic=10 kernel.panic_on_oops=1"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with the settings of a Debian, where no variable keeps the agent from changing them."""
    monkeypatch.delenv("BULKHEAD_KEEP_KERNEL_SETTINGS", raising=False)
    for setting, value in DEBIANS.items():
        file = tmp_path / SYSCTLS / setting
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
    (tmp_path / "proc/self").mkdir()
    (tmp_path / "proc/self/uid_map").write_text("         0          0 4294967295\n")
    return tmp_path


def config(**fields: Any) -> EffectiveConfig:
    return EffectiveConfig(node_name="n", root_dir="/r", run_dir="/u", log_dir="/l", cert_dir="/c", **fields)


def refuse(file: Path, text: str) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(file))


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_settings_that_differ_get_the_values_of_a_kubelet(machine: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    change_kernel_settings(config(), root=machine)
    assert read_kernel_settings(machine) == KUBELET_SETTINGS
    assert lines(caplog) == [f"kernel settings were changed: {CHANGED}"]


def test_on_a_machine_that_a_kubelet_has_set_up_nothing_is_written(
    machine: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    change_kernel_settings(config(), root=machine)
    caplog.clear()
    change_kernel_settings(config(), root=machine, write=refuse)
    assert lines(caplog) == []


def test_a_setting_that_the_kernel_does_not_have_is_left_out(machine: Path) -> None:
    missing = machine / SYSCTLS / "kernel/keys/root_maxkeys"
    missing.unlink()
    change_kernel_settings(config(), root=machine)
    assert read_kernel_settings(machine)["kernel/panic"] == 10
    assert not missing.exists()


@pytest.mark.parametrize(
    ("fields", "variable"),
    [({"protect_kernel_defaults": True}, ""), ({"run_once": True}, ""), ({}, "1")],
    ids=["protectKernelDefaults", "runOnce", "variable"],
)
def test_they_stay_as_they_are_where_that_is_configured(
    machine: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], variable: str
) -> None:
    monkeypatch.setenv("BULKHEAD_KEEP_KERNEL_SETTINGS", variable)
    change_kernel_settings(config(**fields), root=machine)
    assert read_kernel_settings(machine) == DEBIANS


def test_where_they_are_read_only_the_start_is_refused_in_one_line(machine: Path) -> None:
    with pytest.raises(OperatorError) as refused:
        change_kernel_settings(config(), root=machine, write=refuse)
    assert str(refused.value) == (
        f"/proc/sys: {ALL} cannot be set: Read-only file system"
        f" (run sysctl -w {ALL} on the host, or set BULKHEAD_KEEP_KERNEL_SETTINGS=1)"
    )


def test_one_that_cannot_be_set_does_not_keep_the_others_from_their_values(machine: Path) -> None:
    def write(file: Path, text: str) -> None:
        if file.name == "panic":
            refuse(file, text)
        file.write_text(text)

    with pytest.raises(OperatorError, match=r"^/proc/sys: kernel\.panic=10 cannot be set: Read-only file system \("):
        change_kernel_settings(config(), root=machine, write=write)
    assert read_kernel_settings(machine) == {**KUBELET_SETTINGS, "kernel/panic": 0}


def test_in_a_user_namespace_the_line_names_the_feature_gate(machine: Path) -> None:
    (machine / "proc/self/uid_map").write_text(IN_USER_NAMESPACE)
    with pytest.raises(OperatorError, match=r"\(enable the feature gate KubeletInUserNamespace, or set BULKHEAD_KEEP_"):
        change_kernel_settings(config(feature_gates={"KubeletInUserNamespace": False}), root=machine, write=refuse)


def test_in_a_user_namespace_with_the_feature_gate_the_agent_starts(
    machine: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (machine / "proc/self/uid_map").write_text(IN_USER_NAMESPACE)
    change_kernel_settings(config(feature_gates={"KubeletInUserNamespace": True}), root=machine, write=refuse)
    assert lines(caplog) == [
        f"{ALL} cannot be set: Read-only file system; ignored in a user namespace (feature gate KubeletInUserNamespace)"
    ]


def test_outside_of_a_user_namespace_the_feature_gate_changes_nothing(machine: Path) -> None:
    with pytest.raises(OperatorError):
        change_kernel_settings(config(feature_gates={"KubeletInUserNamespace": True}), root=machine, write=refuse)
