"""The container image of a release: the same bytes twice, and a node that is ready in a container of it; the same of
the image that packaging/Containerfile describes."""

import hashlib
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.machine.root import debian_suite
from tests.process.supervised import CHECKOUT, eventually
from tests.support.agents.kept_machine import KEPT_MACHINE
from tests.support.installed.lacking import require_command
from tests.support.machines.release_build import build_release
from tests.support.waits.deadline import WAIT_SECONDS
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


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the files of a release."""
    require_command("mmdebstrap")
    output = tmp_path_factory.mktemp("release")
    build_release(output, "--image")
    return output


def image_of(release: Path) -> Path:
    [image] = release.glob("*.oci.tar")
    return image


def test_two_builds_have_the_same_bytes(release: Path, tmp_path: Path) -> None:
    build_release(tmp_path, "--image")
    sums = [hashlib.sha256(image_of(output).read_bytes()).hexdigest() for output in (release, tmp_path)]
    image_of(tmp_path).unlink()
    assert sums[0] == sums[1]
    with tarfile.open(image_of(release)) as archive:
        index = json.load(archive.extractfile("index.json"))  # type: ignore[arg-type]
    assert index["manifests"][0]["annotations"]["io.containerd.image.name"].startswith("localhost/bulkhead/node:")


def built_by_buildah(release: Path, directory: Path) -> Path:
    """The image of packaging/Containerfile, as an OCI archive. Its base is made of packages: no registry is needed."""
    require_command("buildah")
    base, context, image = directory / "base.tar", directory / "context", directory / "image.oci.tar"
    run("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--format=tar", debian_suite(), str(base))
    context.mkdir()
    [package] = release.glob("*.deb")
    for file in (package, CHECKOUT / "packaging/Containerfile"):
        shutil.copy(file, context)
    buildah = ("buildah", f"--root={directory}/storage", f"--runroot={directory}/state", "--storage-driver=vfs")
    container = run(*buildah, "from", "scratch").strip()
    run(*buildah, "add", "--quiet", container, str(base), "/")
    run(*buildah, "commit", "--quiet", "--rm", container, "localhost/debian")
    run(
        *buildah,
        "build",
        "--isolation=chroot",
        "--from=localhost/debian",
        "--tag=localhost/bulkhead/node",
        str(context),
    )
    run(*buildah, "push", "--quiet", "localhost/bulkhead/node", f"oci-archive:{image}:localhost/bulkhead/node:built")
    run(*buildah, "rmi", "--all", "--force")
    return image


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


class Container:
    """A container of the image, privileged, with a network of its own; `home` holds the containerd that runs it."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def ctr(self, *arguments: str) -> str:
        command = ["ctr", "--address", f"{self.home}/c.sock", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5 * WAIT_SECONDS)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def run(self, name: str, *command: str) -> str:
        """What a command in the container prints; `name`: unique for each."""
        return self.ctr("tasks", "exec", "--exec-id", name, "node", *command)


@pytest.fixture(params=["make release", "buildah"])
def container(
    request: pytest.FixtureRequest, release: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Container]:
    home = tmp_path_factory.mktemp("c")
    image = image_of(release) if request.param == "make release" else built_by_buildah(release, home)
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
        # By default runc has one directory for the containers of every containerd.
        variables = [f"--env={variable}={value}" for variable, value in KEPT_MACHINE.items()]
        running.ctr("run", f"--runc-root={home}/runc", "--privileged", "--detach", mount, *variables, name, "node")
        yield running
    finally:
        # With its rootfs unmounted, and its shim ended.
        delete = ["ctr", "--address", f"{home}/c.sock", "tasks", "delete", "--force", "node"]
        subprocess.run(delete, capture_output=True, check=False)
        for rootfs in home.glob("state/*/*/node/rootfs"):
            subprocess.run(["umount", "--quiet", rootfs], check=False)
        end_processes([process.pid])
        process.wait()


def test_a_node_is_ready_in_a_container(container: Container) -> None:
    assert container.run("version", "/opt/bulkhead/bin/kubelet", "--version").startswith("Kubernetes v")
    container.run("loopback", "ip", "link", "set", "lo", "up")
    assert "node " in container.run("ready", "bulkhead", "status", "--wait-ready=60")
