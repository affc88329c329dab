"""Builds the container image: Debian's packages that a node needs, and the Debian package of the release, as one layer.

Made with mmdebstrap, which needs root and Debian's package sources. The same sources and commit give the same bytes.
"""

import gzip
import os
import subprocess
from pathlib import Path

from shared.errors import OperatorError
from tools.oci_image import Image, archive_of_layer
from tools.release.environment import debian_version, interpreter_version
from tools.release.source import EPOCH, Source

_PACKAGES = ("busybox-static", "ca-certificates", "containerd", "containernetworking-plugins", "iproute2", "iptables",
             "mount", "procps", "runc")  # fmt: skip
# In a container no systemd can make the slices of pods.
_CUSTOMIZE = """\
set -e
cp "$PACKAGE" "$1/tmp/bulkhead.deb"
DEBIAN_FRONTEND=noninteractive chroot "$1" dpkg --install /tmp/bulkhead.deb >/dev/null
sed -i 's/^cgroupDriver: systemd$/cgroupDriver: cgroupfs/' "$1/etc/bulkhead/kubelet.yaml"
cd "$1"
rm -rf tmp/* run/* etc/*- var/log/* var/lib/apt/lists/* var/lib/dpkg/*-old var/cache/apt/* var/cache/ldconfig/* \\
    var/cache/debconf/*-old
: > etc/machine-id
"""


def build_image(source: Source, package: Path, scratch: Path, output: Path, *, interpreter: str) -> Path:
    """Build the image as an OCI archive into `output`, and return its path. Raises CalledProcessError,
    OperatorError."""
    if os.geteuid() != 0:
        raise OperatorError(
            "mmdebstrap needs root", where="the container image", remedy="run it as root, or without --image"
        )
    layer, hook = scratch / "layer.tar", scratch / "customize.sh"
    hook.write_text(_CUSTOMIZE)
    packages = ",".join((*_PACKAGES, f"python{interpreter_version(interpreter)}"))
    command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--format=tar", f"--include={packages}",
               f'--customize-hook=sh {hook} "$1"', _suite(), str(layer)]  # fmt: skip
    environment = {**os.environ, EPOCH: str(source.epoch), "PACKAGE": str(package), "TMPDIR": str(scratch)}
    subprocess.run(command, env=environment, check=True)
    content = layer.read_bytes()
    layer.unlink()
    image = Image(
        name=f"localhost/bulkhead/node:{source.version}",
        command=("/opt/bulkhead/bin/kubelet",),
        environment=(
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "BULKHEAD_REFUSE_OPEN_ACCESS=1",
        ),
        volumes=("/var/lib/bulkhead", "/var/log/bulkhead"),
    )
    architecture = package.stem.rpartition("_")[2]
    file = output / f"bulkhead-node_{debian_version(source.version)}_{architecture}.oci.tar"
    file.write_bytes(archive_of_layer(image, content, architecture, gzip.compress(content, 6, mtime=0)))
    return file


def _suite() -> str:
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    if release.get("ID", "").strip('"') != "debian" or "VERSION_CODENAME" not in release:
        raise OperatorError("the image is made of Debian's packages", where="/etc/os-release", remedy="build on Debian")
    return release["VERSION_CODENAME"].strip('"')
