"""Records which block of host ids each pod has in `pods/<uid>/userns`, before the ids are used.
A block belongs to a pod from the moment its record is on disk: after a kill before that moment the block is free, and
after a later kill the pod keeps it. It is free again when the record or the pod's directory is gone. The core decides
which block is next.
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
from shared.process.crash import crash_point

log = logging.getLogger(__name__)

_USER = "kubelet"
_MAX_RECORD_BYTES = 4096
_MAX_TOOL_SECONDS = 10.0


class UserNamespaces:
    """Allocates blocks of host ids to pods. Blocks for milliseconds; several threads may call it."""

    def __init__(self, root_dir: Path, *, ids_per_pod: int = BLOCK, max_pods: int = 110) -> None:
        self._root_dir = root_dir
        self._ids_per_pod, self._max_pods = ids_per_pod, max_pods
        self._range: IdRange | None = None  # read when the first pod needs it
        self._lock = threading.Lock()
        self._held: dict[str, Mappings] = {}
        self._broken: dict[str, str] = {}  # pod UID -> why its record is of no use
        self._read_all()

    def find(self, uid: str) -> Mappings | None:
        """Return the pod's block, None where it has none."""
        return self._held.get(uid)

    def allocate(self, uid: str) -> Mappings:
        """Return the pod's block; a pod without one gets a free block. Raises SandboxConfigError."""
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
                block = free_block(self._held.values(), self._range, self._ids_per_pod)
                write_atomically(record, orjson.dumps(recorded(block)), 0o600)
            except UserNamespaceError as error:
                raise SandboxConfigError(str(error)) from error
            except OSError as error:
                raise SandboxConfigError(f"cannot write {record}: {error.strerror or error}") from error
            crash_point("podsync.user_namespace.recorded")
            self._held[uid] = block
            return block

    def release(self, uid: str) -> None:
        """Free the ids of a pod that has ended for good; that it has none is no error. Raises OSError."""
        with self._lock:
            self._broken.pop(uid, None)
            record = self._record(uid)
            if record.exists():
                record.unlink()
                sync_directory(record.parent)
            self._held.pop(uid, None)

    def _drop_vanished(self) -> None:
        """Free the blocks whose record is gone: the directory of a pod is removed when the pod has ended."""
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
                    self._held[uid] = restored(orjson.loads(file.read(_MAX_RECORD_BYTES)))
            except (OSError, ValueError) as error:
                self._broken[uid] = str(error)
                log.error("the record of a user namespace %s is of no use: %s", record, error)


def _range_of_kubelet(ids_per_pod: int, max_pods: int) -> IdRange:
    """Return the subordinate ids of user `kubelet` where that user and the tool getsubids exist, else all ids but the
    host's own. Raises UserNamespaceError."""
    tool = shutil.which("getsubids")
    try:
        pwd.getpwnam(_USER)
    except KeyError:
        return default_range(ids_per_pod)
    if tool is None:
        return default_range(ids_per_pod)
    return checked_range(_run(tool, _USER), _run(tool, "-g", _USER), ids_per_pod=ids_per_pod, max_pods=max_pods)


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_MAX_TOOL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserNamespaceError(f"{' '.join(command)} cannot be asked for the ids of pods: {error}") from error
    if done.returncode != 0:
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        raise UserNamespaceError(
            f"{' '.join(command)}: {reason}; give user {_USER} a range in /etc/subuid and /etc/subgid"
        )
    return done.stdout
