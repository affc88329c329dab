"""What a newcomer does first: `make run`, look, Ctrl-C, `make run` again, `make clean`; with ports of our own."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from services.volume.adapters.mounts import mount_table
from shared.host.address_translation import address_translation
from tests.support.agents.first_run_home import home_of_our_own, run_clean
from tests.support.waits.deadline import WAIT_SECONDS
from tools import leftovers
from tools.home import CHECKOUT

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]


class Terminal:
    """One `make run` in a terminal: what it prints, and Ctrl-C. Without make, which would only add its own lines."""

    def __init__(self, home: Path) -> None:
        self.output = home.with_suffix(".out")
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-m", "tools.first_run"],
                cwd=CHECKOUT,
                env={**os.environ, "BULKHEAD_HOME": str(home)},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self.output.read_text()

    def wait_for(self, words: str, seconds: float = 2 * WAIT_SECONDS) -> str:
        """Wait until the words are printed; all that was printed."""
        leftovers.wait_until(lambda: words in self.text or self.process.poll() is not None, seconds)
        assert words in self.text, self.text
        return self.text

    def press_ctrl_c(self) -> str:
        """Ctrl-C, and all that was printed until the end."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(WAIT_SECONDS)
        return self.text


@pytest.fixture
def home() -> Iterator[Path]:
    with home_of_our_own() as path:
        yield path


def traces_of(home: Path, bridge: str) -> list[str]:
    """Processes, mounts, interfaces, cgroups and CNI records that still carry this home or its network."""
    found = [f"process {pid}" for pid in (*leftovers.agent_processes_of(home), *leftovers.shims_of(home))]
    found += [str(mount) for mount in mount_table() if f"{home}/" in str(mount)]
    found += address_translation(bridge)
    found += [f"bridge {bridge}"] if Path(f"/sys/class/net/{bridge}").exists() else []
    for record in leftovers.RESULTS.glob("*"):
        with suppress(FileNotFoundError):  # of a pod of another test
            found += [str(record)] if f'"{bridge}"' in record.read_text() else []
    return found + ([str(home)] if home.exists() else [])


def name_of_network_namespace(process: int) -> Path:
    """Return the file in /run/netns that names the network namespace of the process. Its inode number may be used again
    for another namespace, its name is not."""
    number = Path(f"/proc/{process}/ns/net").stat().st_ino
    for entry in Path("/run/netns").glob("*"):
        with suppress(FileNotFoundError):  # of a pod of another test
            if entry.stat().st_ino == number:
                return entry
    raise AssertionError(f"the network namespace of process {process} has no name")


def content_of(url: str) -> bytes:
    """Return the body of the answer; b"" while nothing listens, because the pod runs before its server does."""
    try:
        with urllib.request.urlopen(url, timeout=WAIT_SECONDS) as answer:
            return bytes(answer.read())
    except OSError:
        return b""


def container_of(home: Path) -> int:
    """First process of the one container of the one pod."""
    (pid,) = leftovers.running_containers(home / "containerd" / "state")
    return pid


def test_the_example_pod_runs_survives_ctrl_c_and_a_second_run_and_is_cleaned_away(home: Path) -> None:
    bridge = re.findall(r"bridge: (\S+)", (home / "kubelet.yaml").read_text())[0]
    first = Terminal(home)
    shown = first.wait_for("Ctrl-C stops the agent")
    assert re.search(r"default/hello-\S+ .* Running .* web: running", shown)
    logs = "".join(path.read_text() for path in (home / "log").glob("*.log"))
    assert "FailedCreatePodSandBox" not in logs, "a pod was started before its images were there"
    (url,) = re.findall(r"curl (http://10\.\S+/)", shown)
    assert leftovers.wait_until(lambda: content_of(url).startswith(b"Hello from hello-"), WAIT_SECONDS)
    container = container_of(home)

    assert "The agent is stopped.\nIts pods are still running (1 container)" in first.press_ctrl_c()
    assert first.process.returncode == 0
    assert not leftovers.agent_processes_of(home)
    assert container_of(home) == container

    second = Terminal(home)
    second.wait_for("Ctrl-C stops the agent")
    assert container_of(home) == container
    second.press_ctrl_c()
    assert container_of(home) == container

    cleaned = run_clean(home)
    assert cleaned.returncode == 0, cleaned.stderr
    assert (cleaned.stdout[:8], cleaned.stderr) == ("Removed:", "")
    assert traces_of(home, bridge) == []


def test_cleaning_while_the_agent_runs_ends_it_too(home: Path) -> None:
    bridge = re.findall(r"bridge: (\S+)", (home / "kubelet.yaml").read_text())[0]
    terminal = Terminal(home)
    terminal.wait_for("Ctrl-C stops the agent")
    assert run_clean(home).returncode == 0
    terminal.process.wait(WAIT_SECONDS)
    assert traces_of(home, bridge) == []


@pytest.mark.parametrize("damage", [pytest.param("garbled", marks=pytest.mark.night), "missing", "no run directory"])
def test_cleaning_works_without_the_configuration_in_force(home: Path, damage: str) -> None:
    bridge = re.findall(r"bridge: (\S+)", (home / "kubelet.yaml").read_text())[0]
    terminal = Terminal(home)
    terminal.wait_for("Ctrl-C stops the agent")
    container = container_of(home)
    namespace = name_of_network_namespace(container)
    (uid,) = [path.name for path in (home / "kubelet" / "pods").iterdir()]
    terminal.press_ctrl_c()
    config = home / "run" / "config.json"
    if damage == "garbled":
        config.write_text("{")
    elif damage == "missing":
        config.unlink()
    else:
        shutil.rmtree(home / "run")  # no containerd can be started again: only the shims are left to go by

    cleaned = run_clean(home)
    assert (cleaned.returncode, cleaned.stderr) == (0, "")
    assert traces_of(home, bridge) == []
    assert not leftovers.alive(container)
    assert not namespace.exists()
    assert not [
        top for top, _, _ in os.walk(leftovers.CGROUPS) if top.endswith(f"/pod{uid}")
    ]  # others vanish meanwhile


def test_a_port_in_use_is_one_line_that_names_it(home: Path) -> None:
    (port,) = re.findall(r"readOnlyPort: (\d+)", (home / "kubelet.yaml").read_text())
    with socket.create_server(("127.0.0.1", int(port))):
        terminal = Terminal(home)
        terminal.process.wait(WAIT_SECONDS)
    assert terminal.process.returncode == 1
    assert f"readOnlyPort: 127.0.0.1:{port} is in use" in terminal.text
    assert "Traceback" not in terminal.text


def test_a_mistake_in_the_configuration_is_one_line_that_names_it(home: Path) -> None:
    file = home / "kubelet.yaml"
    file.write_text(file.read_text().replace("staticPodPath:", "maxPods: many\nstaticPodPaht:"))
    terminal = Terminal(home)
    terminal.process.wait(WAIT_SECONDS)
    assert terminal.process.returncode == 1
    for key in ("staticPodPaht", "maxPods"):
        (line,) = [line for line in terminal.text.splitlines() if key in line]
        assert f"{file}:" in line and "Traceback" not in terminal.text


def test_an_edited_configuration_is_kept_and_deleted_manifests_stay_deleted(home: Path) -> None:
    (home / "manifests").mkdir()
    terminal = Terminal(home)
    terminal.wait_for("Ctrl-C stops the agent")
    terminal.press_ctrl_c()
    assert not list((home / "manifests").iterdir())
    assert "bkt" in (home / "kubelet.yaml").read_text()
