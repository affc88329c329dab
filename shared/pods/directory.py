"""`pods/<uid>` below the root directory: the one place that defines its layout and how it is made.

volume makes and removes it, and owns what it mounts there; podsync also makes it, and owns its own files in it. The
names are those of the kubelet (volumes.md 8.2), so that each agent finds what the other left.
"""

import errno
import os
import stat
from pathlib import Path

MODE = 0o750
# What volume owns.
VOLUMES = "volumes"
DEVICES = "volumeDevices"
PLUGINS = "plugins"
SUBPATHS = "volume-subpaths"
# What podsync owns.
CONTAINERS = "containers"
ETC_HOSTS = "etc-hosts"
USER_NAMESPACE = "userns"


def pods_directory(root_dir: str | Path) -> Path:
    """Return the directory of all pods."""
    return Path(root_dir) / "pods"


def pod_directory(root_dir: str | Path, uid: str) -> Path:
    """Return `pods/<uid>`."""
    return pods_directory(root_dir) / uid


def make_pod_directory(root_dir: str | Path, uid: str) -> Path:
    """Make `pods/<uid>`, 0750 whatever the umask, and return it; one that exists is used. Raises OSError."""
    directory = pod_directory(root_dir, uid)
    for path in (directory.parent, directory):
        make_directory(path, MODE)
    return directory


def make_directory(path: Path, mode: int) -> None:
    """Make a directory, and its parents, with this mode whatever the umask. One that a killed run made with another
    mode gets this one. Raises OSError."""
    try:
        found = path.stat().st_mode
    # Mkdir is not tried first: it would wait for other directories that are made beside this one, and for their
    # journal.
    except FileNotFoundError:
        path.mkdir(mode, parents=True, exist_ok=True)
        found = path.stat().st_mode
    if not stat.S_ISDIR(found):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    if stat.S_IMODE(found) & 0o777 != mode:
        path.chmod(mode)
