"""Sets the SELinux labels of the directories that the embedded containerd keeps for containers: their file systems and
the files of sandboxes.

A policy for containers labels these directories only below `/var/lib/containerd`. A new file has the type of its
directory, so that a label before the first start of containerd is enough.
"""

import logging
import os
from pathlib import Path

from shared.host.selinux import container_file_label

log = logging.getLogger(__name__)

_ATTRIBUTE = "security.selinux"


def label_directories(root: Path, snapshotter: str) -> bool:
    """Make and label the directories below the root of containerd that hold files of containers; return whether all
    have their label. Where they have not, programs of images could not run with the label of a container: one warning
    names the remedy. What a directory holds already is not labelled."""
    directories = (  # with the mode that containerd gives them, and the one before them
        (root / f"io.containerd.snapshotter.v1.{snapshotter}" / "snapshots", 0o700, container_file_label()),
        (root / "io.containerd.grpc.v1.cri" / "sandboxes", 0o755, container_file_label(read_only=True)),
    )
    for path, mode, label in directories:
        try:
            problem = _label(path, mode, label)
        except OSError as error:
            problem = f"the SELinux label {label} cannot be set: {error.strerror}"
        if problem:
            log.warning(
                "%s: %s; containers run without SELinux labels: label it (semanage fcontext -a -e /var/lib/containerd "
                "%s && restorecon -R %s), then restart this containerd",
                path, problem, root, root,
            )  # fmt: skip
            return False
    return True


def _label(path: Path, mode: int, label: str) -> str:
    """Return what keeps the directory from having the label, "" = nothing. Raises OSError."""
    for directory in (path.parent, path):
        directory.mkdir(mode=mode, exist_ok=True)
    if _type_of(os.getxattr(path, _ATTRIBUTE).decode(errors="replace")) == _type_of(label):
        return ""
    with os.scandir(path) as entries:
        if any(entries):
            return f"its content was created without the SELinux label {label}"
    os.setxattr(path, _ATTRIBUTE, label.encode())
    return ""


def _type_of(label: str) -> str:
    return label.rstrip("\0").split(":", 3)[2] if label.count(":") > 1 else ""
