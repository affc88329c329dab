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
    return _INSTALLED_PROGRAMS if suite == INSTALLED else _ask(suite)


def find_programs(suite: str) -> str | None:
    """The same without fetching it; None where it is not there."""
    try:
        return _INSTALLED_PROGRAMS if suite == INSTALLED else _ask("--existing", suite)
    except OSError:
        return None


def _ask(*arguments: str) -> str:
    command = [str(CHECKOUT / "tools/newer-containerd"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError((done.stderr.strip().splitlines() or [f"no containerd of {arguments[-1]} in the cache"])[-1])
    return done.stdout.strip()
