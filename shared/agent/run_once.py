"""The record of a run once, from bootstrap, which writes it, to `kubelet`, which prints it.

`<run dir>/run-once.json`, replaced at each change. A record that is not `complete` is of a run that was interrupted.
"""

from pathlib import Path

import msgspec

from shared.files.atomic import write_atomically
from shared.model.run_once import RunOnceRecord

RUN_ONCE_FILE = "run-once.json"


def save_record(run_dir: Path, record: RunOnceRecord) -> None:
    """Replace the record. Raises OSError."""
    write_atomically(run_dir / RUN_ONCE_FILE, msgspec.json.encode(record))


def load_record(run_dir: Path) -> RunOnceRecord | None:
    """Return the record; None where there is none, or it cannot be read."""
    try:
        return msgspec.json.decode((run_dir / RUN_ONCE_FILE).read_bytes(), type=RunOnceRecord)
    except (OSError, msgspec.MsgspecError):
        return None
