"""The disks of the VM of the Debian package: a Debian as it is installed, with neither Python nor a container runtime,
whose apt has downloaded beforehand what the package needs; a medium with the packages and the images of the pods."""

import re
import shutil
import sys
from pathlib import Path

from tests.installed_node import IMAGES
from tests.release_build import build_release, relabelled
from tests.vm.image import BOOTABLE, CUSTOMIZE, NETWORK, SMALLER, Recipe, file_system
from tools.home import CHECKOUT
from tools.oci_image import archive, read_busybox

MEDIUM = "/media/bulkhead"  # where the second disk is mounted in there
FIRST, LATER = f"{MEDIUM}/bulkhead.deb", f"{MEDIUM}/later.deb"
IMAGE_FILES = tuple(f"{MEDIUM}/image-{number}.tar" for number in range(len(IMAGES)))
_MEDIUM_SIZE = "512M"  # sparse
_FILES = {
    **NETWORK,
    "etc/hostname": "debian\n",
    "etc/fstab": f"/dev/vda / ext4 defaults 0 1\n/dev/vdb {MEDIUM} ext4 ro 0 0\n",
    # A power cut loses what was written since the last boot or sync without fsync, however long ago.
    "etc/sysctl.d/vm.conf": "vm.dirty_writeback_centisecs = 0\n",
    # What a drop-in is for: an emulated machine is slow to start.
    "etc/systemd/system/bulkhead.service.d/slow.conf": "[Service]\nTimeoutStartSec=600\n",
}
# The machine has no network but that of qemu, which leads nowhere.
_DOWNLOAD = """\
mkdir -p "$1{medium}"
rm -f "$1"/var/cache/apt/archives/*.deb
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
apt-get --yes --quiet --download-only -o APT::Install-Recommends=true install {packages}
"""


def recipe() -> Recipe:
    """A Debian with its kernel, AppArmor and qemu's guest agent."""
    download = _DOWNLOAD.format(medium=MEDIUM, packages=" ".join(required_packages()))
    return Recipe(
        "package",
        (*BOOTABLE, "apparmor", "qemu-guest-agent"),
        f"{CUSTOMIZE}{SMALLER}{download}",
        _FILES,
        ("--skip=cleanup/apt",),
    )


def required_packages() -> list[str]:
    """What apt installs with the package: of each alternative in Depends and Recommends the first one."""
    control = (CHECKOUT / "packaging/debian/control").read_text()
    control = control.replace("@PYTHON@", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    fields = re.findall(r"^(?:Depends|Recommends): (.*)$", control, re.MULTILINE)
    return [re.match(r"[a-z0-9.+-]+", one.strip())[0] for field in fields for one in field.split(",")]  # type: ignore[index]


def medium(disk: Path) -> None:
    """Build a release of this checkout, and a second one with a higher version, into the file of a disk."""
    tree = disk.with_suffix(".tree")
    tree.mkdir()
    try:
        package = build_release(tree / "release")
        relabelled(package, "99", tree / Path(LATER).name)
        package.rename(tree / Path(FIRST).name)
        shutil.rmtree(tree / "release")
        for image, path in zip(IMAGES, IMAGE_FILES, strict=True):
            (tree / Path(path).name).write_bytes(archive(image, *read_busybox()))
        file_system(tree, disk, _MEDIUM_SIZE)
    finally:
        shutil.rmtree(tree)
