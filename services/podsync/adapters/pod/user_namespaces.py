"""Which host ids which pod has: `pods/<uid>/userns`, written before the ids are used and read again at the start.

Crash first: a block is a pod's from the moment its record is on disk, so a kill before that costs nothing and a kill
after it leaves the same block to the same pod. It is free again when the record or the pod's directory is gone. The
core decides which block is next.
"""

import logging
import pwd
import shutil
import subprocess
import threading
from pathlib import Path

import orjson

from services.podsync.core.cri.config_errors import SandboxConfigError
from services.podsync.core.cri.user_namespaces import (
    BLOCK,
    IdRange,
    Mappings,
    UserNamespaceError,
    checked_range,
    default_range,
    free_block,
    recorded,
    restored,
)
from shared.files.atomic import sync_directory, write_atomically
from shared.pods.directory import USER_NAMESPACE, pod_directory, pods_directory

log = logging.getLogger(__name__)

_USER, _LARGEST = "kubelet", 4096
_SECONDS = 10.0


class UserNamespaces:
    """One instance per process. Blocks for milliseconds; safe to call from several threads."""

    def __init__(self, root_dir: Path, *, ids_per_pod: int = BLOCK, max_pods: int = 110) -> None:
        self._root_dir = root_dir
        self._ids_per_pod, self._max_pods = ids_per_pod, max_pods
        self._range: IdRange | None = None  # looked up when the first pod needs it
        self._lock = threading.Lock()
        self._held: dict[str, Mappings] = {}
        self._broken: dict[str, str] = {}  # pod UID -> why its record is of no use
        self._read_all()

    def of(self, uid: str) -> Mappings | None:
        """What the pod has; None where it has nothing."""
        return self._held.get(uid)

    def give(self, uid: str) -> Mappings:
        """What the pod has, or a block of its own from now on. Raises SandboxConfigError."""
        with self._lock:
            self._drop_vanished()
            if uid in self._held:
                return self._held[uid]
            record = self._record(uid)
            if uid in self._broken:
                raise SandboxConfigError(
                    f"the record of the pod's user namespace {record} is of no use: {self._broken[uid]}; "
                    "remove it once nothing of the pod runs"
                )
            try:
                if self._range is None:
                    self._range = _range_of_kubelet(self._ids_per_pod, self._max_pods)
                given = free_block(self._held.values(), self._range, self._ids_per_pod)
                write_atomically(record, orjson.dumps(recorded(given)), 0o600)
            except UserNamespaceError as error:
                raise SandboxConfigError(str(error)) from error
            except OSError as error:
                raise SandboxConfigError(f"cannot write {record}: {error.strerror or error}") from error
            self._held[uid] = given
            return given

    def release(self, uid: str) -> None:
        """The pod has ended for good: its ids are free. Nothing to release is no error; raises OSError."""
        with self._lock:
            self._broken.pop(uid, None)
            record = self._record(uid)
            if record.exists():
                record.unlink()
                sync_directory(record.parent)
            self._held.pop(uid, None)

    def _drop_vanished(self) -> None:
        """A block without a record is free: the directory of a pod is removed when the pod has ended."""
        for uid in [uid for uid in (*self._held, *self._broken) if not self._record(uid).exists()]:
            self._held.pop(uid, None)
            self._broken.pop(uid, None)

    def _record(self, uid: str) -> Path:
        return pod_directory(self._root_dir, uid) / USER_NAMESPACE

    def _read_all(self) -> None:
        for record in pods_directory(self._root_dir).glob(f"*/{USER_NAMESPACE}"):
            uid = record.parent.name
            try:
                with record.open("rb") as file:
                    self._held[uid] = restored(orjson.loads(file.read(_LARGEST)))
            except (OSError, ValueError) as error:
                self._broken[uid] = str(error)
                log.error("the record of a user namespace %s is of no use: %s", record, error)


def _range_of_kubelet(ids_per_pod: int, max_pods: int) -> IdRange:
    """The ids of user `kubelet` where there is one and a tool to ask, else all but the host's own. Raises
    UserNamespaceError."""
    tool = shutil.which("getsubids")
    try:
        pwd.getpwnam(_USER)
    except KeyError:
        return default_range(ids_per_pod)
    if tool is None:
        return default_range(ids_per_pod)
    return checked_range(_asked(tool, _USER), _asked(tool, "-g", _USER), ids_per_pod=ids_per_pod, max_pods=max_pods)


def _asked(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserNamespaceError(f"{' '.join(command)} cannot be asked for the ids of pods: {error}") from error
    if done.returncode != 0:
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        raise UserNamespaceError(
            f"{' '.join(command)}: {reason}; give user {_USER} a range in /etc/subuid and /etc/subgid"
        )
    return done.stdout
