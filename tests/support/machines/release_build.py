"""Builds releases for tests as `make release` does, but compresses them less."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.support.installed.lacking import lack
from tools.home import CHECKOUT

_RELEASE = "tools/release/__main__.py"  # the first commit that builds releases added it


def build_release(
    output: Path,
    *options: str,
    checkout: Path = CHECKOUT,
    environment: Mapping[str, str] = MappingProxyType({}),
    umask: int = 0o022,
) -> Path:
    """Build the checkout into a directory, with more options of tools.release and more variables; the Debian package.

    AssertionError with the output where that fails.
    """
    command = [sys.executable, "-m", "tools.release", "--fast", f"--output={output}", *options]
    variables = {**os.environ, "PATH": f"{os.environ['PATH']}:{CHECKOUT}/.uv/bin", **environment}
    done = subprocess.run(
        command, cwd=checkout, capture_output=True, text=True, check=False, env=variables, umask=umask
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [package] = output.glob("*.deb")
    return package


def relabelled(package: Path, version: str, output: Path) -> Path:
    """Make the package again, at a path, as one of another version, as far as dpkg and the program know."""
    tree = output.with_suffix(".tree")
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
    [metadata] = tree.glob("opt/bulkhead/lib/*/site-packages/bulkhead_kubelet-*.dist-info/METADATA")
    for path in (tree / "DEBIAN/control", metadata):
        path.write_text(re.sub(r"(?m)^Version: .*$", f"Version: {version}", path.read_text(), count=1))
    packed(tree, output)
    shutil.rmtree(tree)
    return output


def packed(tree: Path, package: Path, compression: str = "zstd") -> Path:
    """Pack an unpacked package as a package, at a path."""
    command = ["dpkg-deb", "--build", "--root-owner-group", f"-Z{compression}", "-z1", str(tree), str(package)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return package


def checkout_of_the_first_release(directory: Path) -> None:
    """Make a checkout of the first commit that builds releases. Lacks it in a clone without a history."""
    found = _git(CHECKOUT, "log", "--diff-filter=A", "--format=%H", "--", _RELEASE).split()
    if not found or not _git(CHECKOUT, "diff", "--name-only", found[-1], "HEAD"):
        lack("git has no earlier commit that builds a release (git fetch --unshallow)")
    _git(CHECKOUT, "clone", "--quiet", "--shared", "--no-checkout", str(CHECKOUT), str(directory))
    _git(directory, "checkout", "--quiet", "--detach", found[-1])


def _git(directory: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=directory, capture_output=True, text=True, check=True).stdout
