"""The machines that the other tests of this lane boot: what runs in them, what a reboot and a power cut leave, and that
one which fails is noticed within a minute and leaves nothing on this machine."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machine.guest import QUIET_SECONDS, MachineError
from tests.machine.left import interface_names, left_of, processes_of
from tests.machine.machine import Machine
from tests.machine.network import MachineNetwork
from tests.machine.root import cached_root

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]

_LISTEN = """\
use IO::Socket::INET; $s = IO::Socket::INET->new(Listen => 1, LocalPort => 7000) or die;
open F, ">", "/run/listens"; close F; $c = $s->accept; print $c "from the other\n"; close $c"""
_CONNECT = "use IO::Socket::INET; print IO::Socket::INET->new(PeerAddr => $ARGV[0], Timeout => 10)->getline"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with Machine(tmp_path_factory.mktemp("machine") / "one") as machine:
        yield machine


def test_a_command_returns_its_outputs_and_its_exit_code(machine: Machine) -> None:
    done = machine.call("sh", "-c", 'printf "%s|" "$@"; echo no >&2; exit 3', "sh", "two words", "", "a\nline", "ü")
    assert (done.returncode, done.stdout, done.stderr) == (3, "two words||a\nline|ü|", "no\n")
    assert machine.call("sh", "-c", "kill -TERM $$").returncode == -15
    assert machine.call("no-such-command").returncode == 127
    assert machine.call("sh", "-c", "echo $COLOR", COLOR="red").stdout == "red\n"
    assert len(machine.must("head", "-c", "300000", "/dev/zero")) == 300000


def test_a_command_has_ended_when_its_first_process_has(machine: Machine) -> None:
    began = time.monotonic()
    assert machine.must("sh", "-c", "sleep 100 & echo begun") == "begun\n"
    assert time.monotonic() - began < 50


def test_a_command_that_takes_too_long_is_ended_and_the_machine_goes_on(machine: Machine) -> None:
    with pytest.raises(MachineError, match=r"not done within 2 s: .*sleep 1000"):
        machine.run("sleep", "1000", seconds=2)
    assert machine.must("sh", "-c", "ps -e -o args= | grep -c '^[s]leep 1000' || true") == "0\n"


def test_the_machine_is_what_users_have(machine: Machine) -> None:
    assert machine.must("cat", "/proc/1/comm") == "systemd\n"
    assert set(machine.must("cat", "/sys/fs/cgroup/cgroup.controllers").split()) >= {"cpu", "io", "memory", "pids"}
    assert " cgroup " not in machine.must("cat", "/proc/mounts")
    assert "apparmor" in machine.must("cat", "/sys/kernel/security/lsm")
    assert machine.must("systemctl", "--failed", "--no-legend") == ""
    assert machine.call("python3", "--version").returncode == 127
    (machine.shared / "file").write_text("from outside")
    assert machine.must("cat", "/host/file") == "from outside"


def test_a_reboot_keeps_the_disk_and_a_power_cut_only_what_was_synced(machine: Machine) -> None:
    machine.must("sh", "-c", "echo kept > /root/written; echo gone > /run/written")
    machine.reboot()
    assert machine.must("cat", "/root/written") == "kept\n"
    assert not machine.exists("/run/written")
    assert machine.must("cat", "/sys/class/net/vec0/operstate") in ("up\n", "unknown\n")
    assert f" {machine.ip}/24 " in machine.must("ip", "-4", "address", "show", "dev", "vec0")
    machine.must("sh", "-c", "echo synced > /root/synced; sync; echo lost > /root/lost")
    machine.cut()
    assert machine.must("cat", "/root/written", "/root/synced") == "kept\nsynced\n"
    assert machine.call("cat", "/root/lost").stdout == ""


def test_a_full_disk_fails_the_command_and_not_the_machine(machine: Machine) -> None:
    full = machine.run("sh", "-c", "fallocate -l 1T /root/full || cat /dev/zero > /root/full", seconds=60)
    assert full.returncode != 0 and "No space left on device" in full.stderr, full
    assert machine.must("sh", "-c", "rm /root/full && echo goes on") == "goes on\n"


def test_a_machine_for_whose_disk_there_is_no_room_fails_the_test_and_leaves_nothing(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", tmp_path], check=True)
    try:
        reason = "no disk for a machine: .*No space left on device"
        with pytest.raises(AssertionError, match=reason), Machine(tmp_path / "large"):
            pytest.fail("it has booted")
        assert left_of(tmp_path / "large") == []
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_disk_out_here_that_fills_under_a_machine_fails_the_test_within_a_minute_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    """The disk of a machine is sparse out here: what it writes needs room."""
    image, host = tmp_path / "image", tmp_path / "host"
    with image.open("wb") as file:
        file.truncate(cached_root().disk.stat().st_blocks * 512 + (192 << 20))
    subprocess.run(["mkfs.ext4", "-q", "-m0", image], check=True)
    host.mkdir()
    subprocess.run(["mount", "-o", "loop", image, host], check=True)
    try:
        began = 0.0
        reason = "(?s)no answer to: .*console's end:.*space allocation error, dev ubda"
        with pytest.raises(MachineError, match=reason), Machine(host / "filled") as machine:
            began = time.monotonic()
            machine.call("sh", "-c", "cat /dev/zero > /root/full; sync")
        assert 0 < time.monotonic() - began < 60
        assert left_of(host / "filled") == []
    finally:
        subprocess.run(["umount", host], check=True)  # refused where something of the machine has a file open


def test_machines_of_one_network_reach_each_other_and_leave_nothing(tmp_path: Path) -> None:
    before = interface_names()
    with (
        MachineNetwork() as network,
        Machine(tmp_path / "a", name="a", network=network) as first,
        Machine(tmp_path / "b", name="b", network=network) as second,
    ):
        assert [machine.must("hostname") for machine in (first, second)] == ["a\n", "b\n"]
        first.must("sh", "-c", 'perl -e "$1" & until [ -e /run/listens ]; do sleep 0.1; done', "sh", _LISTEN)
        assert second.must("perl", "-e", _CONNECT, f"{first.ip}:7000") == "from the other\n"
        assert not (interface_names() - before) & {"tap2", "tap3"}  # they are in the namespace of the network
        assert left_of(tmp_path / "a")
    assert [left_of(tmp_path / name) for name in "ab"] == [[], []]


def test_networks_with_an_address_of_this_machine_are_apart_and_leave_no_interface() -> None:
    with MachineNetwork(with_host=True) as first, MachineNetwork(with_host=True) as second:
        networks = (first, second)
        assert len({network.host_ip for network in networks}) == 2
        devices = [Path("/sys/class/net", network.host_device) for network in networks]
        assert all(device.exists() for device in devices)
        for network in networks:
            subprocess.run(network.inside("busybox", "ping", "-q", "-c", "1", network.host_ip), check=True)
    assert not any(device.exists() for device in devices)


def test_a_machine_that_is_killed_fails_the_test_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    began = 0.0
    reason = r"(?s)no answer to: .*the machine has ended.*console's end:.*systemd"
    with pytest.raises(MachineError, match=reason), Machine(tmp_path / "killed") as machine:
        began = time.monotonic()
        os.kill(machine.power.pid, signal.SIGKILL)
        machine.call("sleep", "100")
    assert 0 < time.monotonic() - began < QUIET_SECONDS
    assert left_of(tmp_path / "killed") == []
    assert (tmp_path / "killed/power-on-1/console.log").exists()


def test_a_machine_that_hangs_fails_the_test_within_a_minute(tmp_path: Path) -> None:
    began = 0.0
    reason = r"(?s)no answer to: .*no sign of progress for 30 s.*console's end:"
    with pytest.raises(MachineError, match=reason), Machine(tmp_path / "hung") as machine:
        began = time.monotonic()
        for process in processes_of(tmp_path / "hung"):
            os.kill(process, signal.SIGSTOP)
        machine.call("true")
    assert 0 < time.monotonic() - began < 60
    assert left_of(tmp_path / "hung") == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        pytest.param(("init=/no/such/program",), "the machine has ended.*Kernel panic", id="panic"),
        pytest.param(("init=/bin/sleep", "infinity"), "no sign of progress for 30 s.*Run /bin/sleep", id="hang"),
    ],
)
def test_a_machine_that_does_not_boot_fails_the_test_within_a_minute(
    tmp_path: Path, options: tuple[str, ...], reason: str
) -> None:
    began = time.monotonic()
    with (
        pytest.raises(MachineError, match=f"(?s)the machine does not boot: {reason}"),
        Machine(tmp_path / "dead", options=options),
    ):
        pytest.fail("it has booted")
    assert time.monotonic() - began < 60
    assert left_of(tmp_path / "dead") == []
