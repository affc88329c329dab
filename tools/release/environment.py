"""Builds a Python environment that needs no other file than the system's interpreter: the wheel and the packages of
requirements.lock, compiled.

It works only in its final place, whatever directory it is built in. Knows nothing of Debian's packages."""

import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from shared.errors import OperatorError
from tools.home import CHECKOUT
from tools.release.source import Source

PLACE = Path("/opt/bulkhead")
PROGRAMS = ("bulkhead", "kubelet", "supervisorctl", "supervisord")
# These are large, and no part of the agent imports them.
_UNUSED = ("kubernetes/aio", "*/tests")
# An installer writes these for itself, partly with the directory in which it worked.
_OF_THE_INSTALLER = ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json")


def interpreter_version(interpreter: str) -> str:
    """Return the version of an interpreter, as "3.11". Raises OperatorError where it is absent or older than that."""
    try:
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        version = subprocess.run([interpreter, "-Ic", code], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise OperatorError(f"does not run: {error}", where=interpreter, remedy="install python3") from error
    if tuple(map(int, version.split("."))) < (3, 11):
        raise OperatorError(f"is Python {version}", where=interpreter, remedy="name one of 3.11 or later")
    return version


def build_environment(root: Path, interpreter: str, source: Source, wheel: Path) -> None:
    """Make the environment `PLACE` below `root` for the interpreter. Raises CalledProcessError, OperatorError."""
    version = interpreter_version(interpreter)
    top = root / PLACE.relative_to("/")
    packages = top / f"lib/python{version}/site-packages"
    packages.mkdir(parents=True)
    _install_locked(packages, interpreter, source)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages, [name for name in archive.namelist() if ".data/" not in name])
    for name in _OF_THE_INSTALLER:
        for path in packages.glob(f"*.dist-info/{name}"):
            path.unlink()
    (top / "bin").mkdir()
    (top / "bin/python").symlink_to(f"/usr/bin/python{version}")
    (top / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    for name, module, function in _entry_points(packages):
        script = top / "bin" / name
        script.write_text(
            f"#!{PLACE}/bin/python\nimport sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"
        )
        script.chmod(0o755)
    _compile(root, top, interpreter)


def data_of(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the data files of the wheel: path relative to the prefix, and content."""
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if (path := name.partition(".data/data/")[2]) and not path.endswith("/"):
                yield path, archive.read(name)


def _install_locked(packages: Path, interpreter: str, source: Source) -> None:
    uv = shutil.which("uv") or str(CHECKOUT / ".uv/bin/uv")
    lock = source.directory / "requirements.lock"
    command = [uv, "pip", "install", "--quiet", "--python", interpreter, "--target", str(packages), "--link-mode=copy",
               "--no-deps", "--require-hashes", "--only-binary=:all:", "--requirements", str(lock)]  # fmt: skip
    # `make venv` has put all packages into uv's cache, unless it was emptied since.
    if subprocess.run([*command, "--offline"], capture_output=True, check=False).returncode:
        subprocess.run(command, check=True)
    shutil.rmtree(packages / "bin", ignore_errors=True)
    for pattern in _UNUSED:
        for path in packages.glob(pattern):
            shutil.rmtree(path)
    (packages / ".lock").unlink(missing_ok=True)


def _entry_points(packages: Path) -> list[tuple[str, str, str]]:
    """Yield program, module and function of each of PROGRAMS."""
    found = {}
    for distribution in distributions(path=[str(packages)]):
        assert isinstance(distribution, Distribution)
        for point in distribution.entry_points.select(group="console_scripts"):
            found[point.name] = (point.name, point.module, point.attr)
    return [found[name] for name in PROGRAMS]


def _compile(root: Path, top: Path, interpreter: str) -> None:
    """Compile the sources. The compiled files stay valid whatever the times of the sources; only sources and their
    order decide the bytes."""
    environment = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    command = [interpreter, "-m", "compileall", "-q", "--invalidation-mode=unchecked-hash", "-s", str(root), "-p", "/"]
    subprocess.run([*command, str(top / "lib")], env=environment, check=True)


def debian_version(version: str) -> str:
    """Return the version in Debian's order: 0.2.0rc1 is before 0.2.0."""
    return re.sub(r"(a|b|rc|\.dev)(\d+)$", r"~\1\2", version).replace("~.", "~")
