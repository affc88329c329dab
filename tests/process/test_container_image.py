"""The container image of a release: the same bytes twice, and a node that is ready in a container of it."""

import hashlib
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.lacking import require_command
from tests.process.supervised import CHECKOUT, eventually
from tools.leftovers import end_processes

pytestmark = [pytest.mark.root, pytest.mark.night, pytest.mark.timeout(1800)]

CONFIG = """\
version = 2
root = "{0}/root"
state = "{0}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{0}/c.sock"
"""


def build(output: Path) -> Path:
    require_command("mmdebstrap")
    command = [sys.executable, "-m", "tools.release", "--fast", "--image", f"--output={output}"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [image] = output.glob("*.oci.tar")
    return image


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("release"))


def test_two_builds_have_the_same_bytes(image: Path, tmp_path: Path) -> None:
    again = build(tmp_path)
    sums = [hashlib.sha256(file.read_bytes()).hexdigest() for file in (image, again)]
    again.unlink()
    assert sums[0] == sums[1]
    with tarfile.open(image) as archive:
        index = json.load(archive.extractfile("index.json"))  # type: ignore[arg-type]
    assert index["manifests"][0]["annotations"]["io.containerd.image.name"].startswith("localhost/bulkhead/node:")


class Container:
    """A container of the image, privileged, with a network of its own; `home` holds the containerd that runs it."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def ctr(self, *arguments: str) -> str:
        command = ["ctr", "--address", f"{self.home}/c.sock", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def run(self, name: str, *command: str) -> str:
        """What a command in the container prints; `name`: unique for each."""
        return self.ctr("tasks", "exec", "--exec-id", name, "node", *command)


@pytest.fixture
def container(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    home = tmp_path_factory.mktemp("c")
    (home / "config.toml").write_text(CONFIG.format(home))
    (home / "state-of-node").mkdir()
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(["containerd", "--config", home / "config.toml"], stdout=log, stderr=log)
    running = Container(home)
    try:
        version = ["ctr", "--address", f"{home}/c.sock", "version"]
        answers = partial(subprocess.run, version, capture_output=True, check=False)
        eventually(lambda: answers().returncode == 0, "containerd answers")
        running.ctr("images", "import", str(image))
        [name] = running.ctr("images", "ls", "--quiet").split()
        mount = f"--mount=type=bind,src={home}/state-of-node,dst=/var/lib/bulkhead,options=rbind:rw"
        running.ctr("run", "--privileged", "--detach", mount, name, "node")
        yield running
    finally:
        # With its rootfs unmounted, and its shim ended.
        delete = ["ctr", "--address", f"{home}/c.sock", "tasks", "delete", "--force", "node"]
        subprocess.run(delete, capture_output=True, check=False)
        subprocess.run(["umount", "--quiet", *home.glob("state/*/*/node/rootfs")], check=False)
        end_processes([process.pid])
        process.wait()


def test_a_node_is_ready_in_a_container(container: Container) -> None:
    container.run("loopback", "ip", "link", "set", "lo", "up")
    assert "node " in container.run("ready", "bulkhead", "status", "--wait-ready=60")
