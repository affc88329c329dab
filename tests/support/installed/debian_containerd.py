"""The containerds of the tests: the installed one, of Debian 12, and those of newer Debians, from the cache."""

import subprocess

from tools.home import CHECKOUT

INSTALLED = "bookworm"  # the suite whose containerd is installed
SUITES = (INSTALLED, "trixie", "sid")  # containerd 1.6, 1.7 and 2.1
NEWEST = SUITES[-1]
_INSTALLED_PROGRAMS = "/usr/bin"


def fetch_programs(suite: str) -> str:
    """Return the directory with the containerd of this Debian suite and its shim; what is not in the cache is fetched.
    Raises OSError with the reason where that fails."""
    return _INSTALLED_PROGRAMS if suite == INSTALLED else _ask(suite)


def find_programs(suite: str) -> str | None:
    """Return the directory with the containerd of this Debian suite and its shim; None where it is not in the cache."""
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
