"""Copies the files that git tracks, with the version and the time of the release. Nothing else is packaged."""

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.errors import OperatorError
from tools.home import CHECKOUT

EPOCH = "SOURCE_DATE_EPOCH"


@dataclass(frozen=True)
class Source:
    """The copy. `directory`: where it is; `epoch`: seconds since 1970 that every packaged file gets as its time."""

    directory: Path
    epoch: int

    @property
    def project(self) -> dict[str, Any]:
        """The table `project` of pyproject.toml."""
        table: dict[str, Any] = tomllib.loads((self.directory / "pyproject.toml").read_text())["project"]
        return table

    @property
    def version(self) -> str:
        """The version of the release, as in pyproject.toml."""
        return str(self.project["version"])

    def text(self, name: str) -> str:
        """Return the text of a file of the checkout."""
        return (self.directory / name).read_text()


def copy_source(directory: Path) -> Source:
    """Copy the tracked files, as they are now, to a new directory.

    Raises OperatorError where the checkout is no git repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        raise OperatorError("git does not list its files", where=str(CHECKOUT), remedy="build from a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        source, target = CHECKOUT / name, directory / name
        if not source.is_file():  # the file is removed, which is not committed yet
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)
    return Source(directory, _epoch())


def build_wheel(source: Source, output: Path) -> Path:
    """Build the wheel into a directory, and return its path. Raises CalledProcessError."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(output)]
    environment = {**os.environ, EPOCH: str(source.epoch)}
    subprocess.run(command, cwd=source.directory, env=environment, stdout=subprocess.DEVNULL, check=True)
    [wheel] = output.glob(f"*-{source.version}-*.whl")
    return wheel


def _epoch() -> int:
    if given := os.environ.get(EPOCH):
        if not given.isdecimal():
            raise OperatorError(f"{given!r} is no number of seconds", where=EPOCH, remedy="unset it")
        return int(given)
    command = ["git", "log", "-1", "--format=%ct"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        raise OperatorError("git has no commit", where=str(CHECKOUT), remedy=f"set {EPOCH}")
    return int(done.stdout)
