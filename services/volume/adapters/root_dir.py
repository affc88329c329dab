"""Gives the root directory shared mount propagation, which Bidirectional container mounts need (volumes.md 8.1)."""

import os
from pathlib import Path

from services.volume.adapters.mounts import bind_to_itself, make_shared, mount_table
from shared.host.mountinfo import containing


def prepare(root_dir: str) -> str | None:
    """Make the directory (0750) where it is missing, and put it on a shared mount. Return one line where it cannot be
    shared: then everything except mount propagation works. Raises OSError when it cannot be made."""
    root = Path(os.path.realpath(root_dir))
    if not root.exists():
        root.mkdir(parents=True)
        root.chmod(0o750)
    mount = containing(mount_table(), str(root))
    if mount is not None and mount.shared:
        return None
    try:
        if mount is None or mount.path != str(root):
            bind_to_itself(root)
        make_shared(root)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return f"{root}: cannot be made a shared mount: {reason}; Bidirectional volume mounts will not work"
    return None
