"""A node of kubeadm's files under a systemd of its own: the Go kubelet, its pods, and commands that take it over."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from bench.agents import GoKubelet
from bench.site import AT_ONCE, Site
from bench.watch import ready
from services.cli.takeover.account import Account
from services.cli.takeover.exchange import Options, take_over
from shared.kube import paths
from shared.kube.interface import PatchType
from shared.model.objects import Object
from tests.support.agents.agent import BIN
from tests.support.agents.conditions import is_ready
from tests.support.agents.world import busybox_pod
from tests.support.kubeadm.unit import DROP_IN, UNIT, moved
from tests.support.waits.deadline import WAIT_SECONDS

NODE = "joined"
UNITS = Path("/etc/systemd/system")
PACKAGED = Path("/usr/lib/systemd/system")  # where the packages of kubeadm 1.29 and newer have unit and drop-in
OURS = UNITS / "kubelet.service.d/90-bulkhead.conf"
RECORD = Path("/var/lib/bulkhead/takeover.json")
POD_CIDR = "10.244.1.0/24"
LONG = 4 * WAIT_SECONDS  # seconds for what takes some on an idle machine
_COMMAND_SECONDS = 15 * WAIT_SECONDS  # for a takeover of many pods
COUNT = int(os.environ.get("TAKEOVER_PODS", "5"))
# This machine has no sysinit.target and no journal.
_OF_THE_MACHINE = "[Unit]\nDefaultDependencies=no\n[Service]\nStandardOutput=append:{log}\nStandardError=append:{log}\n"


class KubeadmNode:
    """A node that kubeadm's files describe, with a Go kubelet under systemd."""

    def __init__(self, site: Site, go: GoKubelet) -> None:
        self.site, self.go = site, go
        self.home = go.home
        self.command = go.command
        self.crash_file = self.home / "crash"
        self.cpu = 0.0  # seconds of CPU of the last command, with its children
        self.unit_files: dict[str, str] = {}  # by path below a directory of units

    async def join(self) -> None:
        """Write the files, start the unit, and wait until the node is Ready and its pods run."""
        home = self.home
        document = yaml.safe_load((home / "kubelet.yaml").read_text())
        (home / "manifests").mkdir()
        document |= {"cgroupRoot": "/", "staticPodPath": str(home / "manifests")}
        # How full the machine's disk is decides nothing.
        document |= {"evictionHard": {"memory.available": "10Mi"}}
        (home / "kubelet.yaml").write_text(yaml.safe_dump(document))
        program, *flags = self.command
        kubeadm = [flag for flag in flags if not flag.startswith(("--config=", "--kubeconfig="))]
        (home / "kubeadm-flags.env").write_text(f'KUBELET_KUBEADM_ARGS="{" ".join(kubeadm)}"\n')
        (home / "kubelet.conf").write_text(next(
            Path(flag.partition("=")[2]).read_text() for flag in flags if flag.startswith("--kubeconfig=")
        ))  # fmt: skip
        (home / "default").write_text("KUBELET_EXTRA_ARGS=--v=2\n")
        places = {
            "/usr/bin/kubelet": program,
            "/etc/kubernetes": str(home),
            "/var/lib/kubelet/config.yaml": str(home / "kubelet.yaml"),
            "/var/lib/kubelet": str(home),
            "/etc/default/kubelet": str(home / "default"),
        }
        self.unit_files = {
            "kubelet.service": moved(UNIT, places),
            "kubelet.service.d/10-kubeadm.conf": moved(DROP_IN, places),
            "kubelet.service.d/00-machine.conf": _OF_THE_MACHINE.format(log=home / "kubelet.log"),
        }
        self.lay_out_units(PACKAGED)
        expected = self.site.watch.node(NODE, ready, "to be Ready")
        systemctl("start", "kubelet.service")
        await expected.within(LONG)
        # As with a pod network: a Go kubelet then writes Ready with its first status after a start.
        network = {"spec": {"podCIDR": POD_CIDR, "podCIDRs": [POD_CIDR]}}
        await self.site.plane.admin.patch(paths.node(NODE), network, PatchType.MERGE)
        (home / "manifests/steady.yaml").write_text(yaml.safe_dump(busybox_pod("static")))
        for number in range(COUNT):
            pod = busybox_pod(f"web-{number}", *AT_ONCE, nodeName=NODE)
            await self.site.plane.admin.create(paths.pods("default"), pod)
        await self.all_ready()

    def lay_out_units(self, directory: Path) -> None:
        """Write the unit and its drop-ins below `directory` alone, and let systemd read them."""
        for other in (UNITS, PACKAGED):
            (other / "kubelet.service").unlink(missing_ok=True)
            shutil.rmtree(other / "kubelet.service.d", ignore_errors=True)
        (directory / "kubelet.service.d").mkdir()
        for name, text in self.unit_files.items():
            (directory / name).write_text(text)
        systemctl("daemon-reload")

    async def all_ready(self) -> None:
        """Wait until every pod is ready in the API server."""
        deadline = time.monotonic() + LONG
        while True:
            listed = (await self.site.plane.admin.get(paths.pods("default"))).get("items") or ()
            if len(listed) == COUNT + 1 and all(is_ready(pod) for pod in listed):
                return
            assert time.monotonic() < deadline, [(pod["metadata"]["name"], pod.get("status")) for pod in listed]
            await asyncio.sleep(0.1)

    async def node_object(self) -> Object:
        """Return the Node."""
        return await self.site.plane.admin.get(paths.node(NODE))

    async def running(self) -> dict[str, str]:
        """Return `pod/container` of the pods of the API server -> the id of the container that runs."""
        seen = await self.site.runtime.observe()
        return {
            f"{pod.name}/{one.name}": one.id
            for pod in seen.values()
            for one in pod.containers
            if one.state == "RUNNING" and not pod.name.startswith("static")
        }

    async def static_containers(self) -> list[str]:
        """Return the ids of the containers of the static pod that run, under whichever UID."""
        pods = (await self.site.runtime.observe()).values()
        found = (one for pod in pods if pod.name.startswith("static") for one in pod.containers)
        return [one.id for one in found if one.state == "RUNNING"]

    async def only_static_container(self) -> str:
        """Wait until one static container runs, and return its id: after a give-back the Go kubelet starts its own
        before that of Bulkhead has ended."""
        deadline = time.monotonic() + LONG
        while len(found := await self.static_containers()) != 1:
            assert time.monotonic() < deadline, f"static containers run: {found}"
            await asyncio.sleep(0.1)
        return found[0]

    def bulkhead(self, *arguments: str, crash_at: str = "") -> subprocess.CompletedProcess[str]:
        """Run the command; `crash_at`: the point at which it is killed."""
        environment = dict(os.environ)
        if arguments[0] in ("takeover", "give-back"):
            environment |= self.elsewhere()
        if crash_at:
            self.crash_file.write_text(crash_at)
            environment["CRASH_AT"] = f"@{self.crash_file}"
        began, used = time.monotonic(), cpu_of_children()
        done = subprocess.run(
            [BIN / "bulkhead", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=_COMMAND_SECONDS,
            env=environment,
        )
        took, self.cpu = time.monotonic() - began, cpu_of_children() - used
        figures = f"{done.returncode}, {took:.1f} s, {self.cpu:.2f} s of CPU"
        print(f"$ bulkhead {' '.join(arguments)} [{figures}]\n{done.stdout[:2000]}{done.stderr}")
        return done

    def does(self, *arguments: str) -> str:
        """Run the command, which must succeed; return its standard output."""
        done = self.bulkhead(*arguments)
        assert done.returncode == 0, f"bulkhead {arguments[0]}: exit code {done.returncode}: {done.stderr[-1500:]}"
        return done.stdout

    def print_state(self) -> None:
        """Print what both kubelets logged, and what systemd and the agent show."""
        log = self.home / "kubelet.log"
        show("tail", "--lines=100", str(log))
        show("grep", "--extended-regexp", "^[EFW][0-9]{4} ", str(log))
        show("bash", "-c", "tail --lines=100 /var/log/bulkhead/*.log")
        show("systemctl", "status", "--no-pager", "--full", "kubelet.service")
        show("systemctl", "cat", "--no-pager", "kubelet.service")
        show(str(BIN / "bulkhead"), "status")

    def shell(self, commands: str) -> None:
        """Run commands with `bulkhead` on the path; each must succeed."""
        began, script = time.monotonic(), f"set -e; PATH={BIN}:$PATH; {commands}"
        done = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, check=False, timeout=_COMMAND_SECONDS
        )
        print(f"{time.monotonic() - began:6.1f} s  {commands.splitlines()[0]}")
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"

    async def refuses(self, reason: str) -> None:
        """Check that a takeover is refused for this reason, in one line, and that the kubelet continues."""
        before = main_process()
        lines: list[str] = []
        code = await asyncio.to_thread(take_over, Options(), Account("takeover", lines.append, lines.append))
        assert code == 1, lines
        assert [line for line in lines if reason in line and "\n" not in line], lines
        assert main_process() == before
        assert not RECORD.exists()

    @contextmanager
    def changed(self, path: Path, text: str) -> Iterator[None]:
        """Give the file another text in the block. Afterwards it has its own again, or is absent with its directory if
        it was."""
        before = path.read_text() if path.exists() else None
        created = not path.parent.exists()
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        try:
            yield
        finally:
            if before is None:
                path.unlink()
            else:
                path.write_text(before)
            if created:
                path.parent.rmdir()

    def timed(self, *arguments: str) -> float:
        """Run the command, which must succeed; return the seconds that it took."""
        began = time.monotonic()
        self.does(*arguments)
        return time.monotonic() - began

    def elsewhere(self) -> dict[str, str]:
        """Return variables of a shell whose user has an agent of their own, with other directories than the unit's."""
        return {"BULKHEAD_HOME": str(self.home / "nowhere"), "BULKHEAD_RUN_DIR": str(self.home / "nowhere/run")}

    async def kill(self, command: str, point: str) -> None:
        """Run the command until it is killed at the point; one kubelet runs after it, never two."""
        done = self.bulkhead(command, crash_at=point)
        assert done.returncode == -signal.SIGKILL, f"{command} did not reach {point}: {done.stderr[-1500:]}"
        deadline = time.monotonic() + LONG
        while len(found := self.kubelets()) != 1:
            assert len(found) < 2, found
            assert time.monotonic() < deadline, "no kubelet runs"
            await asyncio.sleep(0.1)
        print(f"one kubelet runs {time.monotonic() + LONG - deadline:.1f} s after the kill")

    async def wait_for_one(self, *, of_bulkhead: bool) -> None:
        """Wait until one kubelet runs, ours or the node's own."""
        await self.wait_for(lambda: self.ours_runs if of_bulkhead else self.own_runs, "one kubelet")

    def kubelets(self) -> list[str]:
        """Return what runs as a kubelet in this machine: the Go program and our supervisord, by their command lines."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0") if entry.name.isdigit() else []
            except OSError:
                continue
            parent = _parent(entry)
            if parent != 1:  # a child that is not executed yet has the command line of its parent
                continue
            if words[:1] == [self.command[0]] or str(BIN / "kubelet") in words[:2]:
                found.append(words[0] if words[0] == self.command[0] else words[1])
        return found

    async def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the condition is true."""
        deadline = time.monotonic() + LONG
        while not condition():
            assert time.monotonic() < deadline, what
            await asyncio.sleep(0.1)

    @property
    def ours_runs(self) -> bool:
        """Return whether one kubelet runs and it is Bulkhead."""
        return self.kubelets() == [str(BIN / "kubelet")]

    @property
    def own_runs(self) -> bool:
        """Return whether one kubelet runs and it is the Go one."""
        return self.kubelets() == [self.command[0]]


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return -1


def _lock_of_bootstrap() -> dict[str, Any]:
    try:
        return dict(json.loads(Path("/run/bulkhead/locks/bootstrap.lock").read_bytes()))
    except (OSError, ValueError):  # not there, or being written
        return {"pid": 0, "starts": []}


def back_offs() -> list[float]:
    """Return the seconds that bootstrap waited before each of its last starts, as its lock has them."""
    return [0.0, *(delay for _, delay in _lock_of_bootstrap()["starts"])]


def crashes_of_bootstrap() -> Callable[[], bool]:
    """Return a condition that kills each bootstrap once, until one has a back-off of 4 s."""
    killed = {0}

    def condition() -> bool:
        lock = _lock_of_bootstrap()
        if max(back_offs()) >= 4:
            return True
        if lock["starts"] and lock["pid"] not in killed:
            killed.add(lock["pid"])
            os.kill(lock["pid"], signal.SIGKILL)
        return False

    return condition


def cpu_of_children() -> float:
    """Return the seconds of CPU of the ended children of this process."""
    times = os.times()
    return times.children_user + times.children_system


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def show(*command: str) -> None:
    """Print what the command prints, the last 10,000 characters."""
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, timeout=2 * WAIT_SECONDS
    )
    print(f"$ {' '.join(command)} [{done.returncode}]\n{(done.stdout + done.stderr)[-10_000:]}")


def systemctl(*arguments: str) -> str:
    return run("systemctl", *arguments)


def main_process() -> str:
    return systemctl("show", "kubelet.service", "--property=MainPID")


def interrupted(number: signal.Signals) -> tuple[int, str]:
    """Return the exit code and errors of a takeover that gets the signal while it waits for the node."""
    pipe = subprocess.PIPE
    command_line = [
        "env",
        "--default-signal",
        str(BIN / "bulkhead"),
        "takeover",
    ]  # nohup and background jobs ignore some
    with subprocess.Popen(command_line, stdout=pipe, stderr=pipe, text=True) as command:
        assert command.stdout is not None
        for line in command.stdout:
            if "4/4" in line:
                command.send_signal(number)
                break
        _, errors = command.communicate()
    return command.returncode, errors
