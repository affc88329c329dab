"""A start of the executable `kubelet` on a machine with the kernel settings of a Debian, which are files of the test
in a mount namespace: they get the values of a kubelet, or the start is refused in one line."""

from pathlib import Path

import pytest

from shared.host.kernel_settings import KUBELET_SETTINGS
from tests.process.kubelet_process import Kubelet
from tests.support.machines.systemd_machine import KERNEL_SETTINGS
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.no_runtime]

_CHANGES = {"BULKHEAD_KEEP_KERNEL_SETTINGS": "0"}
# $1: the directory with a file for each setting, by the last part of its name; $2: "rw" or "ro"
_SCRIPT = """\
set -e
directory=$1 mode=$2; shift 2
for setting in {settings}; do
  [ -e /proc/sys/$setting ] || continue
  mount --bind $directory/${{setting##*/}} /proc/sys/$setting
  mount -o remount,bind,$mode /proc/sys/$setting
done
exec "$@"
""".format(settings=" ".join(KERNEL_SETTINGS))


def start(kubelet: Kubelet, *flags: str, mode: str = "rw") -> dict[str, Path]:
    """Start it where the settings are files; return them."""
    directory = kubelet.home / "settings"
    directory.mkdir(exist_ok=True)
    files = {setting: directory / setting.rpartition("/")[2] for setting in KERNEL_SETTINGS}
    for setting, file in files.items():
        if not file.exists():
            file.write_text(f"{KERNEL_SETTINGS[setting]}\n")
    there = ["unshare", "--mount", "--propagation=private", "bash", "-c", _SCRIPT, "bash", str(directory), mode]
    kubelet.start(argv=[*there, *kubelet.command(*flags)], environment=_CHANGES)
    return {setting: file for setting, file in files.items() if Path("/proc/sys", setting).exists()}


def values(files: dict[str, Path]) -> dict[str, int]:
    return {setting: int(file.read_text()) for setting, file in files.items()}


def refusal(kubelet: Kubelet) -> str:
    """The line that says why it did not start."""
    assert kubelet.process.wait(WAIT_SECONDS) == 1
    [line] = [line for line in kubelet.stderr().splitlines() if "command failed" in line]
    return line


def test_the_settings_get_the_values_of_a_kubelet(kubelet: Kubelet) -> None:
    files = start(kubelet)
    kubelet.wait_all()
    assert values(files) == {setting: KUBELET_SETTINGS[setting] for setting in files}
    assert kubelet.end() == 0
    assert values(files) == {setting: KUBELET_SETTINGS[setting] for setting in files}, "a stop changes none"


def test_protected_settings_that_differ_refuse_the_start(kubelet: Kubelet) -> None:
    files = start(kubelet, "--protect-kernel-defaults")
    line = refusal(kubelet)
    assert "invalid kernel flag: kernel/panic, expected value: 10, actual value: 0" in line
    assert "(run sysctl -w vm.overcommit_memory=1 kernel.panic=10 kernel.panic_on_oops=1, or set it to false)" in line
    assert values(files) == {setting: KERNEL_SETTINGS[setting] for setting in files}


def test_read_only_settings_that_differ_refuse_the_start(kubelet: Kubelet) -> None:
    files = start(kubelet, mode="ro")
    assert "kernel.panic_on_oops=1 cannot be set: Read-only file system (run sysctl -w " in refusal(kubelet)
    assert values(files) == {setting: KERNEL_SETTINGS[setting] for setting in files}
