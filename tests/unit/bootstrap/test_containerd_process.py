"""The embedded containerd is found by its noted identity, else by what a container's process does not have."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.bootstrap.adapters import containerd_process
from services.bootstrap.adapters.containerd_process import ContainerdProcess, find_containerd
from shared.config.effective import EmbeddedContainerd
from shared.process.identity import identity_of

_SLEEP = "import signal, time; signal.signal(signal.SIGTERM, {}); print('ready', flush=True); time.sleep(600)"


class Machine:
    """A Python that sleeps plays containerd, and whatever else has its command line."""

    def __init__(self, directory: Path) -> None:
        (directory / "config.toml").touch()
        self.config_file, self.output = str(directory / "config.toml"), directory / "out"
        self.on_term = "signal.SIG_DFL"
        self.processes: list[subprocess.Popen[bytes]] = []

    def arguments(self, config_file: str) -> list[str]:
        return ["-c", _SLEEP.format(self.on_term), config_file]

    def embedded(self) -> EmbeddedContainerd:
        return EmbeddedContainerd(
            path=sys.executable, config_file=self.config_file, root="", state="", socket="", cni_conf_dir=""
        )

    def start(self) -> ContainerdProcess:
        process = ContainerdProcess.start(self.embedded(), self.output)
        assert process._child is not None
        self.processes.append(process._child)
        while "ready" not in self.output.read_text():
            assert process._child.poll() is None
        return process

    def other(self) -> int:
        """Another process with that command line."""
        command = ["tenant", *self.arguments(self.config_file)]
        process = subprocess.Popen(command, executable=sys.executable, stdout=subprocess.PIPE)
        self.processes.append(process)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        return process.pid


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    monkeypatch.setattr(containerd_process, "_arguments", machine.arguments)
    yield machine
    for process in machine.processes:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_one_whose_identity_was_noted_is_found_and_no_other(machine: Machine) -> None:
    older = machine.other()
    process = machine.start()
    found = ContainerdProcess.find(machine.config_file, sys.executable)
    assert found is not None and found.pid == process.pid != older
    assert found.runs_by(machine.embedded())
    found.close()
    process.close()


def test_without_a_note_it_is_found_by_its_command_line_and_executable(machine: Machine) -> None:
    process = machine.start()
    note = Path(machine.config_file).with_name("process")
    assert note.read_text() == identity_of(process.pid)
    for content in (None, "", "boot/1/1", "nonsense"):
        note.unlink(missing_ok=True)
        if content is not None:
            note.write_text(content)
        assert find_containerd(machine.config_file, sys.executable) == process.pid
        assert find_containerd(machine.config_file, "/bin/sh") == 0
        assert find_containerd(f"{machine.config_file}.other", sys.executable) == 0
    process.close()


def test_its_plugins_find_the_iptables_that_bootstrap_has_found(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # as after `su`
    process = machine.start()
    environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    assert b"PATH=/usr/bin:/bin:/usr/sbin:/sbin" in environment
    process.close()


@pytest.mark.parametrize("name", ["mnt", "pid", "user"])
def test_a_process_in_another_namespace_is_not_ours(
    machine: Machine, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, readlink = machine.other(), Path.readlink
    assert find_containerd(machine.config_file, sys.executable) == pid
    elsewhere = Path(f"/proc/{pid}/ns/{name}")
    monkeypatch.setattr(Path, "readlink", lambda path: Path("other") if path == elsewhere else readlink(path))
    assert find_containerd(machine.config_file, sys.executable) == 0


async def test_it_ends_by_sigterm(machine: Machine) -> None:
    process = machine.start()
    async with asyncio.timeout(60):
        await process.end(20)
    assert await process.wait() == -signal.SIGTERM
    process.close()


async def test_one_that_does_not_end_is_killed_and_every_descriptor_given_back(machine: Machine) -> None:
    machine.on_term = "signal.SIG_IGN"
    machine.start().close()
    before = descriptors()
    process = ContainerdProcess.find(machine.config_file)
    assert process is not None
    waiting = asyncio.ensure_future(process.wait())
    async with asyncio.timeout(60):
        await process.end(0.2)
        assert await waiting is None
    process.close()
    assert descriptors() == before
