"""Opens one encrypted record of `offlinePods`: its place, its key, its age, and the node and cluster that it is of.
What is in it is decided in `services/sources/core/offline_record.py`; `shared/files/sealed_record.py` encrypts it.

The cluster is the API server's address and certificate authority, as the credentials in force name them: what is known
without an API server. Knows nothing of what the record means. Reading and saving block.
"""

import contextlib
import hashlib
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asyncinotify import Inotify, Mask

from shared.config.effective import EffectiveConfig
from shared.errors import OperatorError
from shared.files.sealed_record import RefusedRecordError, SealedRecord, load_sealing_key
from shared.kube.credentials import credentials_path, load_credentials

PLACE = Path("bulkhead") / "offline"  # below the root directory, and for the time of a full disk the run directory
CREDENTIAL = "bulkhead.offline-pods"  # of the systemd unit
_MORE_BYTES = 1 << 20  # of a file than twice `maxBytes`: a record grows by a third when it is sealed
SAVED = "saved"  # field of each record: seconds since the epoch when the API server had what the record says


def remove_offline_records(config: EffectiveConfig) -> None:
    """Remove the records and their key, which a configuration with `offlinePods` has left. Raises OSError."""
    for directory in (config.root_dir, config.run_dir):
        if (place := Path(directory) / PLACE).exists():
            shutil.rmtree(place)


class OfflineRecord:
    """The record `name` of one process. It is not used after `max_age` seconds."""

    def __init__(self, config: EffectiveConfig, name: str, max_age: float = math.inf) -> None:
        self._config, self._max_age, self._name = config, max_age, name
        self._record: SealedRecord | None = None

    async def wait_for_credentials(self) -> None:
        """Return once the node has credentials, which name its cluster: a plugin may provide them late."""
        path = credentials_path(self._config.run_dir)
        if path.exists():
            return
        with Inotify() as inotify:
            inotify.add_watch(path.parent.parent, Mask.CREATE | Mask.MOVED_TO)
            while True:
                with contextlib.suppress(FileNotFoundError):  # bootstrap makes the directory, and may remove it
                    inotify.add_watch(path.parent, Mask.MOVED_TO)
                if path.exists():
                    return
                await inotify.get()

    def load(self, wall: float) -> dict[str, Any] | None:
        """Return what was saved last; None = there is no record. A wall clock that is behind the record makes it no
        older. Raises RefusedRecordError, OperatorError and OSError."""
        found = self._opened().load(self._binding())
        if found is None:
            return None
        saved = found.get(SAVED)
        if not isinstance(saved, float) or not math.isfinite(saved):
            raise RefusedRecordError("it is damaged")
        if wall - saved > self._max_age:
            hours = (wall - saved) / 3600
            raise RefusedRecordError(f"the API server confirmed it {hours:.1f} h ago, more than offlinePods.maxAge")
        return found

    def save(self, data: Mapping[str, Any], wall: float) -> str | None:
        """Store the record. Return one line while the disk cannot be written. Raises OperatorError and OSError."""
        record = self._opened()
        record.save({**data, SAVED: float(wall)}, self._binding())
        return record.trouble

    def _opened(self) -> SealedRecord:
        if self._record is None:
            root, run = (Path(directory) / PLACE for directory in (self._config.root_dir, self._config.run_dir))
            secret = load_sealing_key(root, CREDENTIAL)
            limit = 2 * settings.max_bytes + _MORE_BYTES if (settings := self._config.offline_pods) else 0
            self._record = SealedRecord(root / self._name, run / self._name, self._name, secret, limit)
        return self._record

    def _binding(self) -> dict[str, str]:
        credentials = load_credentials(self._config.run_dir)
        authority = Path(credentials.ca_file).read_bytes() if credentials.ca_file else b""
        digest = hashlib.sha256(authority).hexdigest()[:16]
        return {"node": self._config.node_name, "cluster": f"{credentials.server} (CA {digest})"}


RECORD_ERRORS = (RefusedRecordError, OperatorError, OSError)
