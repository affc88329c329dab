"""The maintainer scripts of the Debian package, run with doubles of every program that changes the machine: which units
they stop and restart, and what they advise. Neither a busy mount nor a failing restart is an error of dpkg."""

import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from services.bootstrap.core.containerd_config import Machine as ContainerdMachine
from services.bootstrap.core.containerd_config import render_network
from shared.config.effective import EmbeddedContainerd
from tests.architecture.checkout import text_of
from tests.support.machines.installed_node import CONTAINERD
from tests.support.waits.deadline import WAIT_SECONDS

OURS = "{ path=/opt/bulkhead/bin/kubelet ; argv[]=/opt/bulkhead/bin/kubelet ; }"
FOREIGN = "{ path=/usr/bin/kubelet ; argv[]=/usr/bin/kubelet ; }"
ROOT = "/var/lib/bulkhead/kubelet"
PROCESS = "4711"
# What systemd shows of a unit as it is installed, whose agent runs as PROCESS.
SHOWN = {
    "KillMode": "process",
    "MainPID": PROCESS,
    "EnvironmentFiles": "",
    "Environment": "BULKHEAD_REFUSE_OPEN_ACCESS=1",
}
REPLACED = ["systemctl kill --kill-who=main --signal=USR1 bulkhead.service", "systemctl restart bulkhead.service"]
STOPPED_SLICES = "systemctl stop kubepods-besteffort.slice kubepods-burstable.slice kubepods.slice"
REMOVED = "rm -rf --one-file-system /run/bulkhead /var/lib/bulkhead /var/log/bulkhead"
NETWORK_PLUGINS = ContainerdMachine(may_lower_oom_score=True, overlay_works=True, has_portmap=True,
                                    has_apparmor=False)  # fmt: skip
STOPPED = ["deb-systemd-invoke restart bulkhead.service"]
# Variables of a shell with which `bulkhead config check` would check another agent than that of the unit.
_OTHER_AGENT = "$KUBELET_ARGS$BULKHEAD_HOME$BULKHEAD_RUN_DIR"
# Answers every command of debconf as the operator does; the questions are not of interest.
_DEBCONF = "".join(f"db_{name}() {{ :; }}\n" for name in ("fset", "input", "go", "purge", "stop"))


@dataclass
class Machine:
    """A machine with these units: name -> ActiveState and ExecStart=. `mounts`: mount points; `failing`: programs that
    fail; `answer`: that to the question of a purge."""

    directory: Path
    units: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    drop_ins: tuple[Path, ...] = ()
    mounts: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    answer: str = "false"
    shown: Mapping[str, str] = field(default_factory=dict)  # other properties of the units
    denied: bool = False  # there is a policy about starts of services
    variables: Mapping[str, str] = field(default_factory=dict)  # of the shell

    def run(self, script: str, *arguments: str) -> tuple[list[str], str]:
        """Run the script, which must succeed; what it changed, by command line, and what it printed."""
        programs, systemd = self.directory / "programs", self.directory / "systemd"
        programs.mkdir()
        systemd.mkdir()
        self.calls = self.directory / "calls"
        self.calls.touch()
        for name in ("cat", "find", "grep", "head", "ls", "readlink", "rmdir", "sed", "tr"):
            (programs / name).symlink_to(str(shutil.which(name)))
        shown = "".join(
            f"'show --property=ActiveState --value {name}') echo {state};;"
            f"'show --property=ExecStart --value {name}') echo '{start}';;"
            f"'is-active --quiet {name}') [ {state} = active ];;"
            for name, (state, start) in self.units.items()
        )
        shown += "".join(
            f"'show --property={name} --value '*) echo '{value}';;" for name, value in {**SHOWN, **self.shown}.items()
        )
        dropped = f"'show --property=DropInPaths --value kubelet.service') echo '{' '.join(map(str, self.drop_ins))}';;"
        self.double(
            programs / "systemctl",
            f'case "$*" in {shown}{dropped} show*) echo;; is-active*) exit 3;; '
            f"restart*) {self.record()}; {self.result('restart', ':')};; *) {self.record()};; esac",
        )
        self.double(programs / "cut", "".join(f"echo {mount};" for mount in self.mounts) or ":")
        mounted = self.directory / "mounted"
        mounted.write_text("yes" if ROOT in self.mounts else "")
        self.double(programs / "mountpoint", f"[ -s {mounted} ]")
        self.double(programs / "umount", f"{self.record()}; {self.result('umount', f': > {mounted}')}")
        for name in ("deb-systemd-invoke", "ip", "python", "rm"):
            self.double(programs / name, f"{self.record()}; {self.result(name, ':')}")
        self.double(programs / "bulkhead", f'[ -z "{_OTHER_AGENT}" ] || exit 1; {self.result("bulkhead", ":")}')
        policy, process = self.directory / "policy", self.directory / "supervisord.pid"
        process.write_text(f"{PROCESS}\n")
        if self.denied:
            self.double(policy, "exit 101")
        confmodule = self.directory / "confmodule"
        confmodule.write_text(_DEBCONF + "db_get() { RET=$ANSWER; }\n")
        text = text_of(f"packaging/debian/{script}")
        for place, double in (
            ("/run/systemd/system", systemd),
            ("/sys/", f"{self.directory}/sys/"),
            ("/proc/[", f"{self.directory}/proc/["),
            ("/run/bulkhead/containerd/cni/", f"{self.directory}/cni/"),
            ("/usr/share/debconf/confmodule", confmodule),
            ("/usr/sbin/policy-rc.d", policy),
            ("/run/bulkhead/supervisord.pid", process),
            ("/opt/bulkhead/bin/bulkhead", programs / "bulkhead"),
            ("/opt/bulkhead/bin/python", programs / "python"),
        ):
            text = text.replace(place, str(double))
        file = self.directory / script
        file.write_text(text)
        # No program of the machine is reachable but these.
        environment = {"PATH": str(programs), "ANSWER": self.answer, **self.variables}
        done = subprocess.run(
            ["/bin/sh", file, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return self.calls.read_text().splitlines(), done.stderr

    def record(self) -> str:
        """A command that records its name and arguments."""
        return f'echo "${{0##*/}} $*" >> {self.calls}'

    def result(self, name: str, effect: str) -> str:
        """The effect, or a failure."""
        return "exit 1" if name in self.failing else effect

    @staticmethod
    def double(path: Path, body: str) -> None:
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)


@pytest.mark.parametrize("state", ["active", "activating", "reloading"])
def test_an_upgrade_restarts_the_agent_while_its_services_work_on(tmp_path: Path, state: str) -> None:
    calls, _ = Machine(tmp_path, {"bulkhead.service": (state, OURS)}).run("postinst", "configure", "0.1.0")
    assert calls == ["systemctl daemon-reload", *REPLACED]


@pytest.mark.parametrize("state", ["active", "activating", "reloading"])
def test_an_upgrade_stops_and_starts_a_kubelets_unit(tmp_path: Path, state: str) -> None:
    calls, _ = Machine(tmp_path, {"kubelet.service": (state, OURS)}).run("postinst", "configure", "0.1.0")
    assert calls == ["systemctl daemon-reload", "deb-systemd-invoke restart kubelet.service"]


@pytest.mark.parametrize(
    "shown",
    [
        {"KillMode": "mixed"},
        {"MainPID": "12"},
        {"EnvironmentFiles": "/etc/default/bulkhead (ignore_errors=no)"},
        {"Environment": "A=b BULKHEAD_HOME=/srv"},
        {"Environment": "BULKHEAD_RUN_DIR=/srv/run"},
    ],
)
def test_services_that_the_next_agent_might_not_find_are_stopped(tmp_path: Path, shown: dict[str, str]) -> None:
    units = {"bulkhead.service": ("active", OURS)}
    calls, _ = Machine(tmp_path, units, shown=shown).run("postinst", "configure", "0.1.0")
    assert calls == ["systemctl daemon-reload", *STOPPED]


def test_an_agent_whose_configuration_the_new_version_refuses_is_stopped(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {"bulkhead.service": ("active", OURS)}, failing=("bulkhead",))
    calls, _ = machine.run("postinst", "configure", "0.1.0")
    assert calls == ["systemctl daemon-reload", *STOPPED]


@pytest.mark.parametrize("name", ["KUBELET_ARGS", "BULKHEAD_HOME", "BULKHEAD_RUN_DIR"])
def test_the_configuration_that_is_checked_is_not_that_of_the_shell(tmp_path: Path, name: str) -> None:
    units = {"bulkhead.service": ("active", OURS)}
    calls, _ = Machine(tmp_path, units, variables={name: "/srv"}).run("postinst", "configure", "0.1.0")
    assert calls == ["systemctl daemon-reload", *REPLACED]


def test_a_policy_about_starts_of_services_is_followed(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {"bulkhead.service": ("active", OURS)}, denied=True)
    calls, _ = machine.run("postinst", "configure", "0.1.0")
    assert calls == ["systemctl daemon-reload", *STOPPED]


def test_an_upgrade_leaves_a_stopped_unit_and_the_kubelet_of_another_program(tmp_path: Path) -> None:
    units = {"bulkhead.service": ("inactive", OURS), "kubelet.service": ("active", FOREIGN)}
    calls, _ = Machine(tmp_path, units).run("postinst", "configure", "0.1.0")
    assert calls == ["systemctl daemon-reload"]


@pytest.mark.parametrize("denied", [True, False])
def test_an_agent_that_does_not_become_ready_after_an_upgrade_leaves_the_package_configured(
    tmp_path: Path, *, denied: bool
) -> None:
    units = {"bulkhead.service": ("active", OURS)}
    machine = Machine(tmp_path, units, failing=("deb-systemd-invoke", "restart"), denied=denied)
    calls, printed = machine.run("postinst", "configure", "0.1.0")
    assert len(calls) == (2 if denied else 3)
    assert "journalctl -u bulkhead.service" in printed


def test_the_first_installation_starts_nothing(tmp_path: Path) -> None:
    units = {"bulkhead.service": ("inactive", OURS), "kubelet.service": ("active", FOREIGN)}
    calls, printed = Machine(tmp_path, units).run("postinst", "configure", "")
    assert calls == ["systemctl daemon-reload"]
    assert "systemctl enable --now bulkhead" in printed


def test_an_upgrade_stops_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {"bulkhead.service": ("active", OURS), "kubelet.service": ("inactive", OURS)})
    assert machine.run("prerm", "upgrade", "0.2.0") == ([], "")


def test_a_removal_stops_the_agent_and_not_the_kubelet_of_another_program(tmp_path: Path) -> None:
    units = {"bulkhead.service": ("active", OURS), "kubelet.service": ("inactive", FOREIGN)}
    calls, printed = Machine(tmp_path, units).run("prerm", "remove")
    orphans = "python -m services.kubelet.orphans /run/bulkhead"
    assert calls == ["deb-systemd-invoke stop bulkhead.service", orphans, "systemctl --quiet disable bulkhead.service"]
    assert "systemctl enable --now kubelet" in printed


def test_a_removal_leaves_the_unit_of_a_checkout(tmp_path: Path) -> None:
    checkout = "{ path=/opt/bulkhead/.venv/bin/kubelet ; argv[]=/opt/bulkhead/.venv/bin/kubelet ; }"
    assert Machine(tmp_path, {"bulkhead.service": ("active", checkout)}).run("prerm", "remove") == ([], "")


def test_the_removal_from_a_node_that_was_taken_over_names_the_drop_in_to_remove(tmp_path: Path) -> None:
    own, foreign = tmp_path / "90-bulkhead.conf", tmp_path / "10-kubeadm.conf"
    own.write_text("[Service]\nExecStart=\nExecStart=/opt/bulkhead/bin/kubelet $KUBELET_KUBEADM_ARGS\n")
    foreign.write_text("[Service]\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_KUBEADM_ARGS\n")
    units = {"bulkhead.service": ("inactive", OURS), "kubelet.service": ("active", OURS)}
    calls, printed = Machine(tmp_path, units, drop_ins=(foreign, own)).run("prerm", "remove")
    assert calls[0] == "deb-systemd-invoke stop kubelet.service"
    assert [line.strip() for line in printed.splitlines() if "rm " in line] == [f"rm {own}"]
    assert "systemctl daemon-reload && systemctl restart kubelet" in printed
    assert "enable" not in printed, "a unit without a program"


def test_a_purge_without_an_answer_removes_nothing(tmp_path: Path) -> None:
    assert Machine(tmp_path, mounts=(ROOT,)).run("postrm", "purge") == ([], "")


def test_a_purge_removes_the_state_on_request(tmp_path: Path) -> None:
    calls, printed = Machine(tmp_path, mounts=("/", ROOT), answer="true").run("postrm", "purge")
    assert calls == [f"umount {ROOT}", STOPPED_SLICES, REMOVED]
    assert printed == ""


def make_cgroups(tmp_path: Path, *names: str, v2: bool = True) -> list[Path]:
    """Make these cgroups of the machine, without a process, and return their directories."""
    root = tmp_path / "sys/fs/cgroup"
    directories = [root / name for name in names]
    for directory in directories:
        directory.mkdir(parents=True)
    if v2:
        (root / "cgroup.controllers").write_text("cpu memory\n")
    return directories


@pytest.mark.parametrize(
    ("name", "v2"),
    [
        ("kubepods.slice/kubepods-burstable.slice", True),
        ("kubepods/burstable", True),
        ("cpu/kubepods/burstable", False),
        ("systemd/kubepods.slice/kubepods-burstable.slice", False),
    ],
)
def test_a_purge_on_request_removes_the_empty_cgroups_of_the_pods_and_then_their_slices(
    tmp_path: Path, name: str, *, v2: bool
) -> None:
    make_cgroups(tmp_path, name, v2=v2)
    calls, printed = Machine(tmp_path, answer="true").run("postrm", "purge")
    assert (calls, printed) == ([STOPPED_SLICES, REMOVED], "")
    assert not list((tmp_path / "sys/fs/cgroup").rglob("*kubepods*"))


@pytest.mark.parametrize("v2", [True, False])
def test_a_purge_leaves_all_cgroups_of_pods_where_a_pod_of_another_runtime_runs(tmp_path: Path, *, v2: bool) -> None:
    top = "kubepods.slice" if v2 else "cpu/kubepods.slice"
    occupied, *empty = cgroups = make_cgroups(
        tmp_path,
        f"{top}/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/cri-1.scope",
        f"{top}/kubepods-burstable.slice",
        f"{top}/kubepods-besteffort.slice/kubepods-besteffort-pod2.slice",
        *([] if v2 else ["pids/kubepods.slice"]),
        v2=v2,
    )
    (occupied / "cgroup.procs").write_text(f"{PROCESS}\n")
    calls, _ = Machine(tmp_path, answer="true").run("postrm", "purge")
    assert calls == [REMOVED]
    assert all(cgroup.exists() for cgroup in cgroups), [cgroup for cgroup in empty if not cgroup.exists()]


@pytest.mark.parametrize("program", ["kubelet", "kubelite", "k3s", "k3s-server", "k3s-agent", "rke2", "k0s"])
def test_a_purge_leaves_the_cgroups_to_a_kubelet_that_runs(tmp_path: Path, program: str) -> None:
    cgroups = make_cgroups(tmp_path, "kubepods.slice/kubepods-burstable.slice", "kubepods/burstable")
    (tmp_path / "proc" / PROCESS).mkdir(parents=True)
    (tmp_path / "proc" / PROCESS / "comm").write_text(f"{program}\n")
    assert Machine(tmp_path, answer="true").run("postrm", "purge")[0] == [REMOVED]
    assert all(cgroup.exists() for cgroup in cgroups)


def test_a_purge_leaves_the_cgroups_of_pods_in_the_slice_of_somebody_else(tmp_path: Path) -> None:
    [foreign] = make_cgroups(tmp_path, "machine.slice/kubepods.slice")
    calls, _ = Machine(tmp_path, answer="true").run("postrm", "purge")
    assert calls == [STOPPED_SLICES, REMOVED]
    assert foreign.exists()


@pytest.mark.parametrize(("ports", "removed"), [((), ["ip link delete pods7"]), (("veth1",), [])])
def test_a_purge_on_request_removes_the_bridge_that_no_pod_is_at(
    tmp_path: Path, ports: tuple[str, ...], removed: list[str]
) -> None:
    embedded = EmbeddedContainerd(root="", state="/run/s", socket="", config_file="", cni_conf_dir="", bridge="pods7",
                                  pod_cidr="10.88.0.0/24")  # fmt: skip
    (tmp_path / "cni").mkdir()
    (tmp_path / "cni/10-pods.conflist").write_text(render_network(embedded, NETWORK_PLUGINS))
    for directory in ("bridge", "brif", *(f"brif/{port}" for port in ports)):
        (tmp_path / "sys/class/net/pods7" / directory).mkdir(parents=True)
    calls, printed = Machine(tmp_path, answer="true").run("postrm", "purge")
    assert (calls, printed) == ([STOPPED_SLICES, *removed, REMOVED], "")


@dataclass(frozen=True)
class Shim:
    """What /proc shows of a shim."""

    socket: str = CONTAINERD
    mounts: str = field(default_factory=lambda: str(Path("/proc/self/ns/mnt").readlink()))
    children: tuple[str, ...] = ()

    def show(self, proc: Path, pid: str) -> None:
        """Make the files, below a directory that stands for /proc."""
        arguments = ["/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-id", "1", "-address", self.socket]
        process = proc / pid
        (process / "ns").mkdir(parents=True)
        (process / "ns/mnt").symlink_to(self.mounts)
        (process / "comm").write_text("containerd-shim\n")
        (process / "cmdline").write_text("".join(f"{argument}\0" for argument in arguments))
        for child in self.children:
            (proc / child).mkdir()
            (proc / child / "comm").write_text("sleep\n")
            (proc / child / "status").write_text(f"Name:\tsleep\nPPid:\t{pid}\nTracerPid:\t0\n")


@pytest.mark.parametrize(
    ("shim", "ended"),
    [
        pytest.param(Shim(), True, id="idle"),
        pytest.param(Shim(children=("4711",)), False, id="with a container"),
        pytest.param(Shim("/run/containerd/containerd.sock"), False, id="of another containerd"),
        pytest.param(Shim(f"/kind{CONTAINERD}"), False, id="of another agent"),
        pytest.param(Shim(mounts="mnt:[1]"), False, id="in a container"),
    ],
)
def test_a_purge_on_request_ends_the_idle_shims_of_the_embedded_containerd(
    tmp_path: Path, shim: Shim, *, ended: bool
) -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            shim.show(tmp_path / "proc", str(process.pid))
            calls, printed = Machine(tmp_path, answer="true").run("postrm", "purge")
            assert (calls, printed) == ([STOPPED_SLICES, REMOVED], "")
            if ended:
                assert process.wait(WAIT_SECONDS) == -signal.SIGKILL
            assert process.poll() == (-signal.SIGKILL if ended else None)
        finally:
            process.kill()


def test_a_purge_keeps_the_state_while_the_unit_of_a_checkout_runs(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {"bulkhead.service": ("active", FOREIGN)}, mounts=(ROOT,), answer="true")
    calls, printed = machine.run("postrm", "purge")
    assert calls == []
    assert "bulkhead.service runs" in printed


@pytest.mark.parametrize("mount", ["/run/bulkhead/containerd/c/rootfs", f"{ROOT}/pods/u/volumes/v"])
def test_a_purge_keeps_the_state_while_something_is_mounted_in_it(tmp_path: Path, mount: str) -> None:
    calls, printed = Machine(tmp_path, mounts=("/", ROOT, mount), answer="true").run("postrm", "purge")
    assert calls == []
    assert "the state stays" in printed


@pytest.mark.parametrize(("program", "line"), [("umount", "the state stays"), ("rm", "what rm names stays")])
def test_a_purge_succeeds_where_the_state_is_in_use_or_a_file_system_of_its_own(
    tmp_path: Path, program: str, line: str
) -> None:
    machine = Machine(tmp_path, mounts=(ROOT,), answer="true", failing=(program,))
    calls, printed = machine.run("postrm", "purge")
    assert line in printed
    assert calls[-1].startswith(program)
