"""Finds out what the machine offers to the embedded containerd, and which of its parts are not installed."""

import logging
import shutil
import subprocess
from pathlib import Path

from services.bootstrap.core.containerd_config import OLDEST_CONTAINERD, Machine, read_version
from shared.config.effective import HANDLERS, EmbeddedContainerd
from shared.host.capabilities import CAP_SYS_RESOURCE, has_capability
from shared.host.masquerading import masquerading_failure
from shared.host.mountinfo import containing, parse
from shared.host.selinux import container_file_label, policy_has_label, selinux_enabled

log = logging.getLogger(__name__)

_MAX_SOCKET_PATH_BYTES = 107
_MAX_VERSION_SECONDS = 10.0  # for `containerd --version`, which takes 20 ms
_INSTALL = "apt-get install containerd runc containernetworking-plugins"


def look(embedded: EmbeddedContainerd) -> Machine:
    """Return what the machine offers now."""
    return Machine(
        may_lower_oom_score=has_capability(CAP_SYS_RESOURCE),
        overlay_works=_file_system_of(Path(embedded.root)) not in ("overlay", "fuse.fuse-overlayfs", "nfs", "nfs4"),
        has_portmap=(Path(embedded.cni_bin_dir) / "portmap").exists(),
        has_apparmor=Path("/sys/module/apparmor/parameters/enabled").exists() and bool(shutil.which("apparmor_parser")),
        masquerading_failure=masquerading_failure(),
        has_selinux=selinux_enabled() and policy_has_label(container_file_label()),
        handlers=tuple(name for name in HANDLERS if shutil.which(name)),
        containerd_version=_read_version(embedded.path),
    )


def find_missing(embedded: EmbeddedContainerd) -> list[str]:
    """Return one line for everything that the embedded containerd needs and that is not installed."""
    lines = []
    if shutil.which(embedded.path) is None:
        lines.append(f"embeddedContainerd.path: {embedded.path} is not an executable ({_INSTALL}, or name another)")
    if shutil.which(embedded.default_runtime) is None:
        install = _INSTALL.replace("runc", embedded.default_runtime)
        lines.append(f"embeddedContainerd: {embedded.default_runtime} is not in PATH ({install})")
    for plugin in ("bridge", "host-local", "loopback"):
        if not (Path(embedded.cni_bin_dir) / plugin).exists():
            where = Path(embedded.cni_bin_dir) / plugin
            lines.append(
                f"embeddedContainerd.cniBinDir: {where} does not exist ({_INSTALL}, or name another directory)"
            )
    longest = f"{embedded.socket}.ttrpc"
    if len(longest.encode()) > _MAX_SOCKET_PATH_BYTES:
        over = len(longest.encode()) - _MAX_SOCKET_PATH_BYTES
        lines.append(f"embeddedContainerd: {longest} is too long for a socket (shorten the run directory by {over})")
    return lines


def _read_version(path: str) -> tuple[int, int]:
    """Return the major and minor version that this containerd prints. Where it prints none, return the oldest
    supported one: each later containerd reads the configuration of that one, too."""
    reason: object = "prints no version"
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_MAX_VERSION_SECONDS,
            check=False,
        )
        if (version := read_version(done.stdout.decode(errors="replace"))) is not None:
            return version
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = error
    log.warning("%s --version: %s; it gets the configuration of containerd 1.6", path, reason)
    return OLDEST_CONTAINERD


def _file_system_of(path: Path) -> str:
    """Return the type of the file system that contains the path, or will contain it."""
    mount = containing(parse(Path("/proc/self/mountinfo").read_bytes().decode(errors="surrogateescape")), str(path))
    return mount.filesystem if mount is not None else ""
