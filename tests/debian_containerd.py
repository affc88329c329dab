"""The containerds of the tests: the installed one, of Debian 12, and those of newer Debians, from the cache."""

import subprocess

from tools.home import CHECKOUT

INSTALLED = "bookworm"  # the suite whose containerd is installed
SUITES = (INSTALLED, "trixie", "sid")  # containerd 1.6, 1.7 and 2.1
NEWEST = SUITES[-1]
_INSTALLED_PROGRAMS = "/usr/bin"


def programs_of(suite: str) -> str:
    """The directory of the containerd of this Debian suite and of its shim, fetched if need be. Raises OSError with
    the reason where it cannot be had."""
    if suite == INSTALLED:
        return _INSTALLED_PROGRAMS
    done = subprocess.run([CHECKOUT / "tools/newer-containerd", suite], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(done.stderr.strip().splitlines()[-1])
    return done.stdout.strip()
