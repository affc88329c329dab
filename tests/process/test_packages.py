"""The wheel and the source distribution: what they hold, and that an agent starts from the wheel alone."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from tests.architecture.checkout import tracked_files
from tests.process.kubelet_process import Kubelet
from tests.process.supervised import CHECKOUT
from tests.support.installed.pythons import installed
from tests.support.machines.release_build import build_release
from tests.support.waits.deadline import WAIT_SECONDS

SCRATCH = ("notes.txt", "scratch/probe.py", "bench-results/run.json", ".mypy_cache/x.json", "docs-old.md")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with both packages, built from a copy of the checkout that has scratch files in it."""
    copy, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("dist")
    for name in tracked_files():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, copy / name)
    for name in SCRATCH:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("not ours")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "--directory", str(out)], cwd=copy, check=True)
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    [path] = built.glob("*.whl")
    return path


def test_the_source_distribution_holds_the_checkout_and_no_scratch_file(built: Path) -> None:
    [path] = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    expected = {name for name in tracked_files() if not name.startswith(".ci/")}
    assert held == expected | {"PKG-INFO"}


def test_the_wheel_holds_the_product_the_unit_the_documents_and_the_examples(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
        headers = HeaderParser().parsestr(archive.read(metadata).decode())
    data = {name.partition(".data/data/")[2] for name in names if ".data/data/" in name}
    installed = [name for name in tracked_files() if name.startswith(("docs/", "examples/"))]
    documents = {f"share/doc/bulkhead/{name}" for name in installed if not name.startswith("docs/reference/")}
    assert len(documents) < len(installed)
    top = {f"share/doc/bulkhead/{name}" for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md")}
    assert data == {"lib/systemd/system/bulkhead.service", *documents, *top}
    modules = {name for name in names if ".data/" not in name and ".dist-info/" not in name}
    product = {name for name in tracked_files() if name.startswith(("bus/", "services/", "shared/"))}
    assert modules == {*product, "services/kubelet/supervisord.conf"} - {"bus/PROTOCOL.md"}
    assert {"Programming Language :: Python :: 3.11", "Operating System :: POSIX :: Linux"} <= set(
        headers.get_all("Classifier") or ()
    )


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that holds the wheel and what requirements.lock names."""
    directory = tmp_path_factory.mktemp("bare")
    venv.create(directory, symlinks=True)
    uv = shutil.which("uv") or str(CHECKOUT / ".uv/bin/uv")
    # Copies: a hard link to a file of uv's cache touches the file in our environment as well, and an agent that is
    # starting then forks no service, because its modules may have changed.
    options = ["--quiet", "--no-deps", "--link-mode=copy"]
    target = [uv, "pip", "install", *options, "--python", str(directory / "bin/python")]
    locked = [*target, "--require-hashes", "-r", str(CHECKOUT / "requirements.lock")]
    # `make venv` has left all of it in uv's cache, unless that was emptied since.
    if subprocess.run([*locked, "--offline"], capture_output=True, check=False).returncode:
        subprocess.run(locked, check=True)
    subprocess.run([*target, "--offline", str(wheel)], check=True)
    return directory / "bin"


def test_an_agent_starts_from_the_wheel_in_an_environment_without_development_packages(bare: Path) -> None:
    with Kubelet() as kubelet:
        kubelet.start(argv=[str(bare / "kubelet"), f"--config={kubelet.config}"])
        services = kubelet.wait_all()
        for pid in services.values():
            mapped = Path(f"/proc/{pid}/maps").read_text()
            assert str(bare.parent) in mapped and str(CHECKOUT / ".venv") not in mapped
        assert kubelet.end() == 0


def test_the_command_bulkhead_works_from_the_wheel(bare: Path, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "BULKHEAD_HOME": str(tmp_path)}
    command = [str(bare / "bulkhead"), "config", "show", "--read-only-port=0"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    assert "maxPods: 110" in done.stdout


@pytest.mark.night
def test_a_package_for_another_debian_depends_on_its_python_and_runs_with_it(tmp_path: Path) -> None:
    if (python := installed("3.13")) is None:
        pytest.skip("no python3.13 on PATH or in pyenv")
    package = build_release(tmp_path / "release", f"--interpreter={python.program}")
    depends = subprocess.run(["dpkg-deb", "-f", package, "Depends"], capture_output=True, text=True, check=True).stdout
    assert [one for one in depends.strip().split(", ") if one.startswith("python")] == ["python3.13"]
    subprocess.run(["dpkg-deb", "-x", package, tmp_path / "tree"], check=True)
    assert (tmp_path / "tree/opt/bulkhead/bin/python").readlink() == Path("/usr/bin/python3.13")
    packages = str(tmp_path / "tree/opt/bulkhead/lib/python3.13/site-packages")
    modules = "cryptography.x509, msgspec, orjson, uvloop, zmq, services.cli.command"
    assert python.run("-c", f"import {modules}; print('imported')", PYTHONPATH=packages) == "imported\n"
