"""Interpreters of other Python versions, for tests of what depends on the interpreter: from PATH, pyenv or Debian."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SUITES = {"3.11": "bookworm", "3.13": "trixie", "3.14": "sid"}  # Debian's suites; none has 3.12
_PACKAGES = ("python{0}-minimal", "libpython{0}-stdlib")
_UNPACK_SECONDS, _RUN_SECONDS = 600.0, 120.0


@dataclass(frozen=True)
class Interpreter:
    """The program that is it, or starts it."""

    program: str

    def run(self, *arguments: str, **environment: str) -> str:
        """Run the interpreter and return its standard output. It finds no installed packages. Raises AssertionError,
        TimeoutExpired."""
        command = [self.program, "-S", "-B", *arguments]
        variables = {**os.environ, **environment}
        done = subprocess.run(command, check=False, env=variables, capture_output=True, text=True, timeout=_RUN_SECONDS)
        if done.returncode:
            raise AssertionError(f"{self.program}: exit code {done.returncode}\n{done.stderr}")
        return done.stdout


def installed(version: str) -> Interpreter | None:
    """Return the interpreter of this version ("3.13") on PATH or of pyenv; None where there is none."""
    pyenv = sorted((Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions").glob(f"{version}.*"))
    for command in (f"python{version}", *(str(one / "bin" / "python") for one in pyenv)):
        if shutil.which(command) is None:
            continue
        found = Interpreter(command)
        try:
            if found.run("-c", "import sys, ssl; print('%d.%d' % sys.version_info[:2])").strip() == version:
                return found
        except (AssertionError, OSError, subprocess.SubprocessError):  # a shim of pyenv without a version
            continue
    return None


def from_debian(version: str) -> Interpreter | None:
    """The interpreter from Debian's packages, unpacked into the cache and started there by its own loader; None where
    no suite has it. Needs root, mmdebstrap and the package archive."""
    if (suite := SUITES.get(version)) is None:
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bulkhead-pythons"
    tree = cache / version
    if not tree.exists():
        cache.mkdir(parents=True, exist_ok=True)
        scratch = cache / f"building-{os.getpid()}"
        packages = ",".join(package.format(version) for package in _PACKAGES)
        try:
            subprocess.run(
                ["mmdebstrap", "--quiet", "--variant=extract", "--mode=root", f"--include={packages}",
                 "--aptopt=Acquire::Check-Valid-Until false", "--format=directory", suite, str(scratch)],
                check=True, capture_output=True, timeout=_UNPACK_SECONDS,
            )  # fmt: skip
            scratch.rename(tree)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    libraries = [*tree.glob("lib/*-linux-gnu"), *tree.glob("usr/lib/*-linux-gnu")]
    loader = next(path for directory in libraries for path in directory.glob("ld-linux-*.so.2"))
    paths = ":".join(str(directory) for directory in libraries)
    python = tree / f"usr/bin/python{version}"
    program, written = cache / f"python{version}", cache / f"writing-{os.getpid()}"
    written.write_text(f'#!/bin/sh\nexec {loader} --argv0 {python} --library-path {paths} {python} "$@"\n')
    written.chmod(0o755)
    written.rename(program)
    return Interpreter(str(program))
