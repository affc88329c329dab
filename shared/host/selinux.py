"""Reads whether SELinux is on, and the label of files that containers use by default. Changes nothing."""

import os
from pathlib import Path

_CONTEXTS = Path("/usr/share/containers/selinux/contexts")  # else in the directory of the policy
_SELINUXFS = Path("/sys/fs/selinux")
_MAX_FILE_BYTES = 1 << 20  # of a file


def selinux_enabled(selinuxfs: Path = _SELINUXFS, own_label: Path = Path("/proc/self/attr/current")) -> bool:
    """Return whether SELinux is on: its file system is mounted and may be written to, and a policy has given this
    process a label. False too where that cannot be read.
    """
    try:
        writable = not os.statvfs(selinuxfs).f_flag & os.ST_RDONLY
        return (selinuxfs / "enforce").exists() and writable and own_label.read_text().rstrip("\0\n") != "kernel"
    except OSError:
        return False


def container_file_label(
    contexts: Path = _CONTEXTS, etc: Path = Path("/etc/selinux"), *, read_only: bool = False
) -> str:
    """Return the label of files that containers use, as `system_u:object_r:container_file_t:s0`; "" = the policy of the
    node names none. `contexts`: the file of container-selinux; `etc`: the configuration of SELinux. `read_only`: of
    files that they only read, as `system_u:object_r:container_ro_file_t:s0`, where the policy makes the difference."""
    policy = _settings(etc / "config").get("SELINUXTYPE", "targeted")
    for path in (contexts, etc / policy / "contexts" / "lxc_contexts"):
        if settings := _settings(path):
            if not settings.get("process"):
                return ""
            return (settings.get("ro_file", "") if read_only else "") or settings.get("file", "")
    return ""


def policy_has_label(label: str, selinuxfs: Path = _SELINUXFS) -> bool:
    """Return whether the loaded policy has the label: a distribution may name one for containers in its configuration
    and leave the types of it to another package. False too for "" and where the policy cannot be asked."""
    try:
        with (selinuxfs / "context").open("r+b", buffering=0) as file:
            file.write(label.encode())
    except OSError:  # EINVAL: it has not
        return False
    return bool(label)


def _settings(path: Path) -> dict[str, str]:
    """Return the lines `key = "value"` of a file; {} where it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = file.read(_MAX_FILE_BYTES).splitlines()
    except OSError:
        return {}
    pairs = (line.split("=", 1) for line in lines if "=" in line and line.strip()[:1] not in ("#", ";"))
    return {key.strip(): value.strip().strip('"') for key, value in pairs}
