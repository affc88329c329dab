"""Lists what the machine must have, and the Debian package that has it. Knows nothing of the agent.

Runs under a bare system Python, before the virtual environment exists: standard library only.
"""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Prerequisite:
    """A command, or with a slash in `name` a file, that `lane` needs, one of those of tools/install-missing."""

    name: str
    package: str
    lane: str

    @property
    def present(self) -> bool:
        """Return whether it is on PATH, or in the sbin directories that an ordinary user's PATH does not have."""
        if "/" in self.name:
            return Path(self.name).exists()
        return shutil.which(self.name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is not None


PREREQUISITES = (
    Prerequisite("/usr/lib/python3/dist-packages/pip", "python3-pip", "venv"),
    Prerequisite("containerd", "containerd", "run"),
    Prerequisite("ctr", "containerd", "run"),
    Prerequisite("runc", "runc", "run"),
    Prerequisite("/usr/lib/cni/bridge", "containernetworking-plugins", "run"),
    Prerequisite("/usr/lib/cni/host-local", "containernetworking-plugins", "run"),
    Prerequisite("/bin/busybox", "busybox-static", "run"),
    Prerequisite("ip", "iproute2", "run"),
    Prerequisite("iptables", "iptables", "run"),
    Prerequisite("mount", "mount", "run"),
    Prerequisite("mkfs.ext4", "e2fsprogs", "test"),
    Prerequisite("mkfs.xfs", "xfsprogs", "test"),
    Prerequisite("losetup", "mount", "test"),
    Prerequisite("blkid", "util-linux", "test"),
    Prerequisite("wipefs", "util-linux", "test"),
    Prerequisite("systemd-analyze", "systemd", "test"),
    Prerequisite("/lib/systemd/systemd", "systemd", "test"),
    Prerequisite("dbus-daemon", "dbus-daemon", "test"),
    Prerequisite("nsenter", "util-linux", "test"),
    Prerequisite("docker-registry", "docker-registry", "test"),
    Prerequisite("dockerd", "docker.io", "test"),
    Prerequisite("curl", "curl", "test"),
    Prerequisite("openssl", "openssl", "test"),
    Prerequisite("prometheus", "prometheus", "test"),
    Prerequisite("promtool", "prometheus", "test"),
    Prerequisite("zsh", "zsh", "test"),
    Prerequisite("fish", "fish", "test"),
    Prerequisite("man", "man-db", "test"),
    Prerequisite("groff", "groff-base", "test"),
    Prerequisite("chromium-headless-shell", "chromium-headless-shell", "test"),
    Prerequisite("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", "fonts-dejavu-core", "test"),
    Prerequisite("gcc", "gcc", "test"),
    Prerequisite("/usr/include/stdio.h", "libc6-dev", "test"),
    Prerequisite("lintian", "lintian", "night"),
    Prerequisite("shellcheck", "shellcheck", "test"),
    Prerequisite("/usr/share/debconf/confmodule", "debconf", "test"),
    Prerequisite("setpriv", "util-linux", "test"),
    Prerequisite("mmdebstrap", "mmdebstrap", "machine"),
    Prerequisite("mke2fs", "e2fsprogs", "machine"),
    Prerequisite("mmdebstrap", "mmdebstrap", "release"),
    Prerequisite("buildah", "buildah", "night"),
    Prerequisite("crun", "crun", "night"),
)


def missing_packages(*lanes: str) -> list[str]:
    """Return the Debian packages that the named lanes lack, each once, in a stable order."""
    wanted = {item.package: None for item in PREREQUISITES if item.lane in lanes and not item.present}
    return list(wanted)


if __name__ == "__main__":
    print(" ".join(missing_packages(*sys.argv[1:])))
