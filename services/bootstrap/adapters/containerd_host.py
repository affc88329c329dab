"""What the machine offers to the embedded containerd, and which of its parts are not installed."""

import shutil
from pathlib import Path

from services.bootstrap.core.containerd_config import Machine
from shared.config.effective import EmbeddedContainerd
from shared.mountinfo import containing, parse

_CAP_SYS_RESOURCE = 24
_SOCKET_LIMIT = 107
_INSTALL = "apt-get install containerd runc containernetworking-plugins"


def look(embedded: EmbeddedContainerd) -> Machine:
    """The facts, now."""
    return Machine(
        may_lower_oom_score=has_capability(_CAP_SYS_RESOURCE),
        overlay_works=_file_system_of(Path(embedded.root)) not in ("overlay", "fuse.fuse-overlayfs", "nfs", "nfs4"),
        has_iptables=shutil.which("iptables") is not None,
        has_portmap=(Path(embedded.cni_bin_dir) / "portmap").exists(),
        has_apparmor=Path("/sys/module/apparmor/parameters/enabled").exists() and bool(shutil.which("apparmor_parser")),
    )


def find_missing(embedded: EmbeddedContainerd) -> list[str]:
    """One line for everything without which the embedded containerd cannot run."""
    lines = []
    if shutil.which(embedded.path) is None:
        lines.append(f"embeddedContainerd.path: {embedded.path} is not an executable ({_INSTALL}, or name another)")
    if shutil.which("runc") is None:
        lines.append(f"embeddedContainerd: runc is not in PATH ({_INSTALL})")
    for plugin in ("bridge", "host-local", "loopback"):
        if not (Path(embedded.cni_bin_dir) / plugin).exists():
            where = Path(embedded.cni_bin_dir) / plugin
            lines.append(
                f"embeddedContainerd.cniBinDir: {where} does not exist ({_INSTALL}, or name another directory)"
            )
    longest = f"{embedded.socket}.ttrpc"
    if len(longest.encode()) > _SOCKET_LIMIT:
        over = len(longest.encode()) - _SOCKET_LIMIT
        lines.append(f"embeddedContainerd: {longest} is too long for a socket (shorten the run directory by {over})")
    return lines


def has_capability(number: int) -> bool:
    """Whether this process may use the capability."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def _file_system_of(path: Path) -> str:
    """Type of the file system that holds the path, or will hold it."""
    mount = containing(parse(Path("/proc/self/mountinfo").read_bytes().decode(errors="surrogateescape")), str(path))
    return mount.filesystem if mount is not None else ""
