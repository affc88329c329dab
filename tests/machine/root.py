"""The roots of machines, from the cache: a Debian with systemd, with or without what our package depends on."""

import gzip
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.support.installed.lacking import lack
from tests.support.installed.pythons import from_debian, installed
from tests.support.installed.ran_versions import extract_version
from tests.support.machines.installed_node import InstalledNode
from tests.support.machines.release_build import build_release
from tools.home import CHECKOUT
from tools.prerequisites import missing_packages

# One kind of root for all tests that need more than our package does: a server and a client of NFS, and SELinux.
WITH_MORE = ("nfs-common", "nfs-kernel-server", "policycoreutils", "selinux-policy-default")
_TUN = Path("/dev/net/tun")
_PYTHONS = {"bookworm": "3.11", "trixie": "3.13"}  # of Debian's suites
_OURS = f"{sys.version_info[0]}.{sys.version_info[1]}"


_failures: dict[tuple[str, ...], str] = {}  # command lines of tools/machine-root, and why they failed


@dataclass(frozen=True)
class Root:
    """`disk`: an ext4 that many machines read; `kernel`: the program that is their Linux; `libraries`: a directory that
    it needs before those of this machine, where it is of a newer Debian."""

    disk: Path
    kernel: Path
    libraries: Path | None = None


def debian_suite() -> str:
    """The release of Debian whose Python is that of our .venv; the test is lacking where there is none."""
    found = [suite for suite, version in _PYTHONS.items() if version == _OURS]
    if not found:
        lack(f"no Debian has Python {_OURS}")
    return found[0]


def machine_suite() -> str:
    """The release of Debian of the machines: MACHINE_SUITE of the environment, else that of `debian_suite`."""
    chosen = os.environ.get("MACHINE_SUITE") or debian_suite()
    assert chosen in _PYTHONS, f"MACHINE_SUITE={chosen}: must be one of {', '.join(_PYTHONS)}"
    return chosen


def machine_python() -> str:
    """The version of the Python of the machines, "3.13"."""
    return _PYTHONS[machine_suite()]


def machine_interpreter() -> str:
    """A program out here that is a Python of that version, "" where ours is one. The test is lacking where it can
    neither be found here nor be had from Debian."""
    version = machine_python()
    if version == _OURS:
        return ""
    interpreter = installed(version) or from_debian(version)
    if interpreter is None:
        lack(f"no python{version} on PATH, in pyenv or in a suite of Debian")
    return interpreter.program


def build_for_machines(output: Path) -> Path:
    """Build a release whose Debian package runs in the machines; the package. See `build_release`."""
    interpreter = machine_interpreter()
    return build_release(output, *([f"--interpreter={interpreter}"] if interpreter else []))


def cached_root(packages: Literal["download", "install"] = "download", *more: str) -> Root:
    """The root of `machine_suite`; built first where the cache has none (1 minute). `packages`: whether its apt has
    only downloaded what our package needs, so that it has neither Python nor a container runtime, or has it installed.
    `more`: packages in addition to those.

    Variables of the environment replace parts of it, for `make night` (tools/machine-root): MACHINE_KERNEL,
    MACHINE_CONTAINERD, MACHINE_RUNC, MACHINE_HANDLER. The test is lacking where it cannot be built, such as without
    package sources; that is tried once in a run of pytest.
    """
    if missing := missing_packages("test", "machine"):
        lack(f"missing on this machine: apt-get install {' '.join(missing)}")
    if reason := _check_tun():
        lack(f"machines of the tests need {_TUN} for their network: {reason}")
    command = (str(CHECKOUT / "tools/machine-root"), machine_suite(), packages, *required_packages(), *more)
    if command in _failures:
        lack(_failures[command])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        _failures[command] = done.stderr.strip()
        lack(_failures[command])
    folder = Path(done.stdout.split("\n")[-2])
    libraries = folder / "libraries"
    return Root(folder / "root.ext4", folder / "linux", libraries if libraries.exists() else None)


def chosen_version(package: str, machine: InstalledNode) -> str:
    """Return the version, without what Debian adds, of this package in the suite that MACHINE_<PACKAGE> names, as it is
    unpacked out here. Without that choice it is that of the machine's own Debian, from what its dpkg has installed."""
    suite = os.environ.get(f"MACHINE_{package.upper()}")
    if not suite:
        return extract_version(machine.must("dpkg-query", "--show", "--showformat=${Version}", package))
    command = [str(CHECKOUT / "tools/debian-package"), suite, package]
    folder = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    # Most programs of a newer suite do not run with the libraries of this machine, so they cannot be asked.
    with gzip.open(Path(folder, f"usr/share/doc/{package}/changelog.Debian.gz"), "rt") as changelog:
        return extract_version(changelog.readline())


def _check_tun() -> str:
    """Why interfaces of machines cannot be made, with the remedy; "" where they can."""
    try:
        os.close(os.open(_TUN, os.O_RDWR))
    except PermissionError as error:
        return f"{error.strerror} (a container must be given the device)"
    except OSError as error:
        return f"{error.strerror} (modprobe tun)"
    return ""


def required_packages() -> list[str]:
    """What apt installs with the package: of each alternative in Depends and Recommends the first one."""
    control = (CHECKOUT / "packaging/debian/control").read_text()
    control = control.replace("@PYTHON@", f"python{machine_python()}")
    fields = re.findall(r"^(?:Depends|Recommends): (.*)$", control, re.MULTILINE)
    return [re.match(r"[a-z0-9.+-]+", one.strip())[0] for field in fields for one in field.split(",")]  # type: ignore[index]
