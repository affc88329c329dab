"""Makes and removes a pod's directories and small files: log directories, termination message files, etc-hosts.

pods.md 0.3, 6.8, 6.9; volumes.md 8.2-8.4. Blocks for microseconds: fine in the event loop.
"""

import logging
import os
import re
from pathlib import Path

from msgspec import Struct

from shared.files.tree_removal import remove_tree
from shared.pods.directory import (
    CONTAINERS,
    ETC_HOSTS,
    MODE,
    SUBPATHS,
    VOLUMES,
    make_directory,
    make_pod_directory,
    pod_directory,
)

log = logging.getLogger(__name__)

_LOG_FILE = re.compile(r"^(\d+)\.log(\..*)?$")
_MAX_NAME_BYTES = 255  # of a file name
_MIN_HEAD_CHARACTERS = 100  # of pod and namespace in a link's name, beside the longest container name


class PodDirectories(Struct, frozen=True):
    """Makes and removes the files of this node's pods."""

    root_dir: Path
    pod_logs_dir: Path

    def pod_dir(self, uid: str) -> Path:
        """Return `<root>/pods/<uid>`."""
        return pod_directory(self.root_dir, uid)

    def log_dir(self, namespace: str, name: str, uid: str) -> Path:
        """Return `<pod logs>/<namespace>_<name>_<uid>`."""
        return self.pod_logs_dir / f"{namespace}_{name}_{uid}"

    @property
    def log_links(self) -> Path:
        """The legacy directory of symlinks, `/var/log/containers` beside `/var/log/pods`."""
        return self.pod_logs_dir.parent / "containers"

    def prepare(self, namespace: str, name: str, uid: str, containers: list[str]) -> dict[str, int]:
        """Make the pod's directories, and return the newest attempt among each container's log files."""
        make_pod_directory(self.root_dir, uid)
        if not self.pod_logs_dir.is_dir():  # an existing one keeps the mode that the operator gave it
            make_directory(self.pod_logs_dir, 0o755)
        logs = self.log_dir(namespace, name, uid)
        make_directory(logs, 0o755)
        attempts: dict[str, int] = {}
        for container in containers:
            make_directory(logs / container, 0o755)
            newest = _newest_attempt(logs / container)
            if newest is not None:
                attempts[container] = newest
        return attempts

    def new_termination_file(self, uid: str, container: str, token: str) -> str:
        """Make an empty file, mode 0666, for the container's termination message; `token` is 8 hex digits."""
        directory = self.pod_dir(uid) / CONTAINERS / container
        make_directory(directory.parent, MODE)
        make_directory(directory, MODE)
        path = directory / token
        path.touch()
        path.chmod(0o666)
        return str(path)

    def write_etc_hosts(self, uid: str, text: str) -> str:
        """Write `pods/<uid>/etc-hosts` (0644) in place, because running containers have this file mounted. The space is
        allocated first, so that a full disk leaves the old text."""
        path = self.pod_dir(uid) / ETC_HOSTS
        content = text.encode()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(fd, "r+b", buffering=0) as file:
            if os.fstat(fd).st_size != len(content) or file.read() != content:
                os.posix_fallocate(fd, 0, len(content) or 1)
                os.pwrite(fd, content, 0)
                file.truncate(len(content))
            os.fchmod(fd, 0o644)
        return str(path)

    def link_log(self, namespace: str, pod: str, container: str, container_id: str, log_path: str) -> None:
        """Make the legacy symlink to a container's log; a missing log is no error."""
        if not Path(log_path).exists():
            return
        self.log_links.mkdir(mode=0o755, parents=True, exist_ok=True)
        link = self._link(namespace, pod, container, container_id)
        try:
            link.symlink_to(log_path)
        except FileExistsError:
            pass
        except OSError as error:
            log.warning("cannot make the log link %s: %s", link, error.strerror)

    def _link(self, namespace: str, pod: str, container: str, container_id: str) -> Path:
        tail = f"{container}-{container_id}.log"
        head = f"{pod}_{namespace}_"[: _MAX_NAME_BYTES - len(tail)]
        return self.log_links / f"{head}{tail}"

    def remove_container_logs(self, namespace: str, pod: str, container: str, container_id: str, log_path: str) -> None:
        """Delete a removed container's log files and the symlink that `link_log` made. The clean-up of logs removes a
        link of another name."""
        if log_path:
            path = Path(log_path)
            for file in path.parent.glob(path.name + "*"):
                file.unlink(missing_ok=True)
        self._link(namespace, pod, container, container_id).unlink(missing_ok=True)

    def remove_pod_logs(self, namespace: str, name: str, uid: str) -> None:
        """Delete the pod's log directory and the symlinks into it whose names begin as the pod's."""
        logs = self.log_dir(namespace, name, uid)
        if logs.is_dir() and not logs.is_symlink():
            try:
                remove_tree(logs)
            except OSError as error:  # the clean-up of logs finds what is left
                log.warning("the logs %s stay for now: %s", logs, error)
        if self.log_links.is_dir():
            head = f"{name}_{namespace}_"[:_MIN_HEAD_CHARACTERS]
            with os.scandir(self.log_links) as links:
                ours = [Path(link.path) for link in links if link.name.startswith(head) and link.is_symlink()]
            for link in ours:
                if str(link.readlink()).startswith(f"{logs}/"):
                    link.unlink(missing_ok=True)


def _newest_attempt(logs: Path) -> int | None:
    """Return the highest number among a container's log files; None = there is no log file. Raises OSError."""
    with os.scandir(logs) as entries:
        return max((int(m.group(1)) for m in (_LOG_FILE.match(entry.name) for entry in entries) if m), default=None)


def has_volumes(pod_dir: Path) -> bool:
    """Return whether a volume of the pod, or a subpath, has a directory; True where that cannot be read."""
    try:
        return any(pod_dir.glob(f"{VOLUMES}/*/*")) or any(pod_dir.glob(f"{SUBPATHS}/*/*/*"))
    except OSError:
        return True
