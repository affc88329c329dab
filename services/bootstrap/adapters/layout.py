"""Makes the directories that a kubelet makes at its start, with their modes (config.md 5.9), whatever the umask is.

Existing directories keep their modes, as with the kubelet. podsync and volume make what is below a pod's directory.
On a node with SELinux, plugins in containers may make their sockets in `plugins`, `plugins_registry` (volumes.md 8.1)
and `device-plugins` (node.md 4.15).
"""

import logging
import os
from pathlib import Path

from shared.config.effective import EffectiveConfig
from shared.config.gate_releases import enabled
from shared.errors import OperatorError
from shared.host.selinux import selinux_enabled

log = logging.getLogger(__name__)

_PLUGIN_DIRECTORIES = ("plugins", "plugins_registry", "device-plugins")
_PLUGIN_LABEL = "system_u:object_r:container_file_t:s0"


def make_layout(config: EffectiveConfig) -> None:
    """Make what is missing. Raises OperatorError, naming the first directory that cannot be made."""
    for path, mode in directories(config):
        try:
            _make(path, mode)
        except OSError as error:
            where = str(error.filename or path)
            remedy = "repair it, or give another directory with --root-dir, --cert-dir or podLogsDir"
            raise OperatorError(f"cannot be made: {error.strerror}", where=where, remedy=remedy) from error
    if selinux_enabled():
        for name in _PLUGIN_DIRECTORIES:
            _label(Path(config.root_dir) / name)


def directories(config: EffectiveConfig) -> list[tuple[Path, int]]:
    """Return each directory with its mode, parents first."""
    root, pod_logs = Path(config.root_dir), Path(config.pod_logs_dir)
    below_root = ("pods", "plugins", "plugins_registry", "pod-resources", "device-plugins")
    return [
        (root, 0o750),
        *((root / name, 0o750) for name in below_root),
        *([(root / "pods-api", 0o750)] if enabled(config.feature_gates, "PodsAPI") else ()),
        *([(root / "checkpoints", 0o700)] if enabled(config.feature_gates, "ContainerCheckpoint") else ()),
        (pod_logs, 0o750),
        (pod_logs.parent / "containers", 0o755),  # podsync makes links to the logs there
        (Path(config.cert_dir), 0o755),
    ]


def _label(path: Path) -> None:
    """Give the directory the label of files of containers; where that fails, only drivers without privileges cannot use
    it."""
    try:
        os.setxattr(path, "security.selinux", _PLUGIN_LABEL.encode())
    except OSError as error:
        log.warning(
            "%s: the SELinux label %s cannot be set: %s; drivers in containers without privileges may be unable to "
            "make their sockets there: set it with chcon",
            path,
            _PLUGIN_LABEL,
            error.strerror,
        )


def _make(path: Path, mode: int) -> None:
    """Make the directory if it is missing; missing parents get the same mode."""
    if path.is_dir():
        return
    if path.parent != path:
        _make(path.parent, mode)
    try:
        path.mkdir(mode=mode)
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    path.chmod(mode)
