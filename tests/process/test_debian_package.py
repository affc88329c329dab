"""The release as it is built, and the Debian package on a machine with systemd: installed, started, upgraded,
downgraded, removed and purged while pods run. No step before the last one may change the tasks of containerd."""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.process.silences import Silences
from tests.process.supervised import CHECKOUT, eventually
from tests.support.installed.lacking import require_command
from tests.support.machines.installed_machine import InstalledMachine
from tests.support.machines.installed_node import CONTAINERD, LOGIN
from tests.support.machines.release_build import build_release, checkout_of_the_first_release, packed, relabelled
from tests.support.machines.systemd_machine import KERNEL_SETTINGS
from tests.support.waits.deadline import WAIT_SECONDS
from tools.release.source import copy_source

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]

NIGHT = bool(os.environ.get("NIGHT"))
PODS = 30 if NIGHT else 5
# What the release is exchanged with: the first one that was a package, or its own code with a later version.
OTHER = "earlier" if NIGHT else "later"
_POLL = """\
import time, urllib.request
while True:
    try:
        urllib.request.urlopen("http://127.0.0.1:10248/healthz", timeout=2).read()
        print(time.monotonic(), flush=True)
    except OSError:
        pass
    time.sleep(0.05)
"""
# Start the shim $1 as the containerd at the socket $2 would, without a container. It is also the reader of its `log`.
_START_SHIM = """\
mkdir -p "/run/bundles/$1"
cd "/run/bundles/$1"
echo '{"annotations": {}}' > config.json
mkfifo log
exec 9<> log
TTRPC_ADDRESS="$2.ttrpc" containerd-shim-runc-v2 -namespace k8s.io -id "$1" -address "$2" start
test -s address
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the files of a release."""
    return build(tmp_path_factory, 0o022, {})


@pytest.fixture(scope="module")
def package(built: Path) -> Path:
    """Its Debian package."""
    [path] = built.glob("*.deb")
    return path


def build(directories: pytest.TempPathFactory, umask: int, environment: dict[str, str]) -> Path:
    """Build a release in a process with this umask and these variables; the directory with its files."""
    output, scratch = directories.mktemp("release"), directories.mktemp("scratch")
    build_release(output, environment={"TMPDIR": str(scratch), **environment}, umask=umask)
    assert not list(scratch.iterdir()), "nothing is left of the build"
    return output


@pytest.fixture(scope="module")
def tree(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The unpacked package, with its control files in DEBIAN."""
    directory = tmp_path_factory.mktemp("package") / "tree"
    subprocess.run(["dpkg-deb", "-R", package, directory], check=True)
    yield directory
    shutil.rmtree(directory)


def test_a_release_names_its_files_and_their_sums(built: Path) -> None:
    files = {line.split("  ")[1] for line in (built / "SHA256SUMS").read_text().splitlines()}
    assert files == {path.name for path in built.iterdir()} - {"SHA256SUMS"}
    assert {Path(name).suffix for name in files} == {".whl", ".deb"}
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=built, check=True)


@pytest.mark.night
def test_two_builds_have_the_same_bytes(built: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "1", "LC_ALL": "C"}
    again = build(tmp_path_factory, 0o077, other)
    assert (again / "SHA256SUMS").read_text() == (built / "SHA256SUMS").read_text()
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=again, check=True)
    shutil.rmtree(again)


def test_the_package_has_the_times_modes_and_owners_of_a_release(package: Path, tmp_path: Path) -> None:
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    listed = subprocess.run(
        f"{' '.join(command)} | tar --list --verbose --verbose --numeric-owner --full-time --utc",
        shell=True, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    epoch = copy_source(tmp_path).epoch
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(epoch))
    executable = set()
    for line in listed.splitlines():
        mode, owner, _, date, clock, path = line.split(None, 5)
        assert (owner, f"{date} {clock}") == ("0/0", moment), line
        assert mode[0] == "l" or mode in ("drwxr-xr-x", "-rwxr-xr-x", "-rw-r--r--"), line
        if mode == "-rwxr-xr-x":
            executable.add(path)
    programs = {f"./opt/bulkhead/bin/{name}" for name in ("bulkhead", "kubelet", "supervisorctl", "supervisord")}
    assert executable == {*programs, "./usr/bin/kubectl-bulkhead"}


def test_the_package_names_no_file_of_the_machine_that_built_it(tree: Path) -> None:
    for place in (str(CHECKOUT), "bulkhead-release-"):
        found = subprocess.run(["grep", "-rlF", place, tree], capture_output=True, text=True, check=False)
        assert (found.returncode, found.stdout) == (1, ""), place


def test_every_module_is_compiled_and_valid_whatever_its_time(tree: Path) -> None:
    sources = set((tree / "opt/bulkhead/lib").rglob("*.py"))
    for path in sources:
        [compiled] = (path.parent / "__pycache__").glob(f"{path.stem}.cpython-*.pyc")
        assert compiled.read_bytes()[4:8] == b"\x01\0\0\0", compiled  # a hash that is not checked
    assert len(sources) > 500


def test_the_maintainer_scripts_pass_shellcheck(tree: Path) -> None:
    require_command("shellcheck")
    scripts = [tree / "DEBIAN" / name for name in ("config", "postinst", "postrm", "prerm")]
    done = subprocess.run(["shellcheck", "--exclude=SC1091", *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout  # SC1091: debconf is not a file of ours


@pytest.mark.night
def test_lintian_finds_no_error(tree: Path, tmp_path: Path) -> None:
    assert lintian_errors(packed(tree, tmp_path / "bulkhead.deb", "xz")) == []


def lintian_errors(package: Path) -> list[str]:
    require_command("lintian")
    command = ["lintian", "--allow-root", "--fail-on=none", "--tag-display-limit=0", str(package)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if line.startswith("E:")]


# From here on one machine, in this order.


@pytest.fixture(scope="module")
def machine(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledMachine]:
    directory = tmp_path_factory.mktemp("machine")
    shutil.copy(package, directory / "first.deb")
    other_release(package, directory)
    with InstalledMachine(directory) as machine:
        yield machine


def other_release(package: Path, directory: Path) -> None:
    """Build OTHER in the directory. `package`: that of the release."""
    if OTHER == "later":
        relabelled(package, "99", directory / "later.deb")
        return
    checkout = directory / "checkout"
    checkout_of_the_first_release(checkout)
    relabelled(build_release(directory / "release", checkout=checkout), "0.0.1", directory / "earlier.deb")
    shutil.rmtree(checkout)


def dpkg(machine: InstalledMachine, *arguments: str) -> str:
    """Run dpkg in there; both outputs."""
    done = machine.call("dpkg", "--force-unsafe-io", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def version(machine: InstalledMachine) -> str:
    return machine.must("bulkhead", "--version").strip()


@contextmanager
def session(machine: InstalledMachine) -> Iterator[Callable[[], bool]]:
    """An exec session with a pod, and whether it answers."""
    command = machine.login("bulkhead", "exec", "-i", "pod-0", "--", "cat")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:

        def answers() -> bool:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(b"a line\n")
            readable, _, _ = select.select([process.stdout], [], [], WAIT_SECONDS)
            return bool(readable) and process.stdout.read(100) == b"a line\n"

        try:
            yield answers
        finally:
            process.kill()


@dataclass(frozen=True)
class Absence:
    """How long an agent was absent in a change, in seconds: the longest time without a good answer of /healthz, the
    longest time between two beats of each service (one that works sends one a second), and from the signal to the main
    process until READY."""

    unanswered: float
    silent: dict[str, float]
    not_ready: float

    def __str__(self) -> str:
        service = max(self.silent, key=self.silent.__getitem__)
        return (
            f"/healthz {self.unanswered:.1f} s, no beat {self.silent[service]:.1f} s ({service}), "
            f"until READY {self.not_ready:.1f} s, load {os.getloadavg()[0]:.0f}"
        )


def absence(machine: InstalledMachine, change: Callable[[], object]) -> Absence:
    """Of the agent, from before the change until each service has sent another beat after it."""
    command = ["nsenter", "-t", str(machine.pid), "-n", sys.executable, "-c", _POLL]
    with (
        Silences(machine.path("/run/bulkhead")) as silences,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as poll,
    ):
        try:
            assert poll.stdout is not None
            answers = [float(poll.stdout.readline())]
            change()
            done = time.monotonic()
            silent = silences.by_service()
            while answers[-1] < done:
                answers.append(float(poll.stdout.readline()))
        finally:
            poll.kill()
    moments = ("ActiveExitTimestampMonotonic", "ActiveEnterTimestampMonotonic")
    shown = machine.show("bulkhead", *moments)
    ended, ready = (int(shown[name]) / 1e6 for name in moments)
    return Absence(max(after - before for before, after in pairwise(answers)), silent, ready - ended)


def test_the_package_is_installed_and_nothing_is_started(machine: InstalledMachine) -> None:
    output = dpkg(machine, "--install", str(machine.directory / "first.deb"))
    assert "systemctl enable --now bulkhead" in output
    assert machine.call("systemctl", "is-active", "bulkhead").stdout.strip() == "inactive"
    assert machine.call("systemctl", "is-enabled", "bulkhead").stdout.strip() == "disabled"
    assert version(machine) == f"bulkhead {version_of_the_checkout()}"
    # The agent imports it only for a kubeconfig with an exec plugin.
    machine.must("/opt/bulkhead/bin/python", "-c", "import kubernetes.config.exec_provider")
    checked = machine.must("bulkhead", "config", "check")
    assert checked.startswith("/etc/bulkhead/kubelet.yaml: good")
    verified = machine.call("systemd-analyze", "verify", "bulkhead.service")
    assert "bulkhead" not in verified.stdout + verified.stderr
    assert "bulkhead status" in machine.must("man", "bulkhead-status")


def version_of_the_checkout() -> str:
    [line] = [one for one in (CHECKOUT / "pyproject.toml").read_text().splitlines() if one.startswith("version = ")]
    return str(json.loads(line.partition(" = ")[2]))


def test_the_node_is_ready_after_one_command(machine: InstalledMachine) -> None:
    began = time.monotonic()
    machine.must("systemctl", "enable", "--now", "bulkhead")
    machine.must("bulkhead", "status", f"--wait-ready={WAIT_SECONDS:g}")
    print(f"ready {time.monotonic() - began:.1f} s after `systemctl enable --now bulkhead`")
    assert KERNEL_SETTINGS["kernel/panic"] == 0, "as the machine booted"
    assert machine.must("cat", "/proc/sys/kernel/panic", "/proc/sys/vm/overcommit_memory") == "10\n1\n"
    machine.import_images()
    for number in range(PODS):
        machine.add_pod(f"pod-{number}")
    eventually(
        lambda: len(found := machine.states()) == PODS and set(found.values()) == {"Running"},
        "the pods run",
        5 * WAIT_SECONDS,
    )
    assert len(machine.tasks()) == 2 * PODS


@pytest.mark.parametrize("release", [OTHER, "first"])
def test_an_upgrade_and_a_downgrade_restart_no_container(machine: InstalledMachine, release: str) -> None:
    before, old = machine.tasks(), (version(machine), machine.show("bulkhead", "MainPID"))
    containerd = machine.path("/run/bulkhead/containerd/process")
    identity = containerd.read_text()
    package = str(machine.directory / f"{release}.deb")
    with session(machine) as answers:
        assert answers()
        absent = absence(machine, lambda: dpkg(machine, "--install", package))
        assert (
            OTHER == "earlier" or answers()
        )  # the first package stops the agent, and reads no sessions after a restart
    print(f"{PODS} pods, {old[0]} -> {version(machine)}: {absent}")
    assert version(machine) != old[0] and machine.show("bulkhead", "MainPID") != old[1]
    machine.must("bulkhead", "status", f"--wait-ready={WAIT_SECONDS:g}")
    eventually(lambda: set(machine.states().values()) == {"Running"}, "the agent shows its pods")
    assert machine.tasks() == before
    assert (containerd.read_text() == identity) == (release != "earlier"), "services work until they are replaced"
    # On a busy machine; what is claimed is printed.
    assert max(absent.unanswered, *absent.silent.values()) < WAIT_SECONDS


def test_a_restart_stops_and_starts_the_agent_and_no_container(machine: InstalledMachine) -> None:
    before = machine.tasks()
    absent = absence(machine, lambda: machine.must("systemctl", "restart", "bulkhead"))
    print(f"{PODS} pods, systemctl restart: {absent}")
    machine.must("bulkhead", "status", f"--wait-ready={WAIT_SECONDS:g}")  # its containerd was restarted, too
    assert machine.tasks() == before
    assert max(absent.unanswered, *absent.silent.values()) < WAIT_SECONDS


def test_a_removal_ends_also_the_services_of_a_killed_agent_and_leaves_the_pods(machine: InstalledMachine) -> None:
    before = {line.split()[1] for line in machine.tasks()}
    eventually(lambda: machine.call("bulkhead", "status").returncode == 0, "the agent is ready after its restart")
    shown = json.loads(machine.must("bulkhead", "status", "-o", "json"))["processes"]
    services = {str(process["pid"]) for process in shown}
    assert len(services) == 7 and services <= machine.processes()
    machine.must("systemctl", "kill", "--kill-who=main", "--signal=KILL", "bulkhead")
    output = dpkg(machine, "--remove", "bulkhead")
    assert "systemctl enable --now kubelet" in output
    assert machine.call("systemctl", "is-active", "bulkhead").stdout.strip() == "inactive"
    assert not machine.path("/opt/bulkhead").exists()
    assert not machine.path("/etc/systemd/system/multi-user.target.wants/bulkhead.service").is_symlink()
    assert machine.path("/etc/bulkhead/kubelet.yaml").exists()
    assert before <= machine.processes()
    eventually(lambda: not services & machine.processes(), "systemd has noticed the end of the services")


def test_a_purge_keeps_the_state_without_an_answer_and_while_pods_run(machine: InstalledMachine) -> None:
    question = "bulkhead bulkhead/remove-state boolean true"
    for answered in (False, True):
        if answered:
            dpkg(machine, "--install", str(machine.directory / "first.deb"))
            machine.must("sh", "-c", f"echo {question} | debconf-set-selections")
        output = dpkg(machine, "--purge", "bulkhead")
        assert ("the state stays" in output) == answered
        assert machine.path("/var/lib/bulkhead/kubelet/pods").exists()
        assert not machine.path("/etc/bulkhead/kubelet.yaml").exists()


def test_a_purge_removes_the_state_of_pods_that_have_ended(machine: InstalledMachine) -> None:
    before = machine.processes()
    dpkg(machine, "--install", str(machine.directory / "first.deb"))
    machine.must("systemctl", "start", "bulkhead")
    eventually(lambda: len(machine.states()) == PODS and set(machine.states().values()) == {"Running"}, "the pods run")
    assert len(machine.tasks()) == 2 * PODS
    assert {line.split()[1] for line in machine.tasks()} <= before, "a later installation continues with the pods"
    for path in machine.path("/etc/bulkhead/manifests").iterdir():
        path.unlink()
    eventually(lambda: not machine.states() and not machine.tasks(), "the pods have ended", 2 * WAIT_SECONDS)
    dpkg(machine, "--remove", "bulkhead")
    machine.must("umount", "/var/lib/bulkhead/containerd")  # the test's own mount
    machine.must("sh", "-c", _START_SHIM, "sh", "idle", CONTAINERD)
    machine.must("sh", "-c", _START_SHIM, "sh", "of-another", "/run/containerd/containerd.sock")
    assert {"idle", "of-another"} <= shims(machine)
    shown = answered(machine, "[yes/no]", "yes", "dpkg", "--force-unsafe-io", "--purge", "bulkhead")
    assert "Remove the state of the Bulkhead node agent?" in shown
    for place in ("/var/lib/bulkhead", "/var/log/bulkhead", "/run/bulkhead", "/etc/bulkhead", "/opt/bulkhead"):
        assert not machine.path(place).exists(), place
    eventually(lambda: shims(machine) == {"of-another"}, "the purge has ended the shim of the embedded containerd")


def answered(machine: InstalledMachine, question: str, answer: str, *command: str) -> str:
    """Run a command in there on a terminal, answer its question, and return what the terminal shows."""
    script = ("script", "--quiet", "--return", f"--command={' '.join(command)}", "/dev/null")
    line = machine.inside("env", "-i", *LOGIN, "TERM=dumb", *script)
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as terminal:
        assert terminal.stdin is not None and terminal.stdout is not None
        shown = b""
        while question.encode() not in shown:
            read = terminal.stdout.read(4096)
            assert read, (command, shown)
            shown += read
        terminal.stdin.write(f"{answer}\n".encode())
        while read := terminal.stdout.read(4096):
            shown += read
    assert terminal.returncode == 0, (command, shown)
    return shown.decode()


def shims(machine: InstalledMachine) -> set[str]:
    """The ids of the shims that run in there."""
    listed = machine.must("sh", "-c", "ps -e -o args= | grep '[c]ontainerd-shim-runc-v2 -namespace' || true")
    return {line.split(" -id ")[1].split()[0] for line in listed.splitlines()}
