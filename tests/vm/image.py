"""The disks of the VMs: a Debian made from packages by name and kept in the cache, one for each recipe; and for the VM
of the checkout, this checkout with its .venv, new for each run. Needs root. Knows nothing of qemu, nor of what is
checked inside."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.lacking import lack
from tools.home import CHECKOUT

# The checkout's .venv is copied in and runs there under Debian's Python: both must be of one minor version.
SUITES = {(3, 11): "bookworm", (3, 13): "trixie"}
# What boots.
BOOTABLE = ("systemd", "systemd-sysv", "udev", "dbus", "kmod", "linux-image-cloud-amd64", "e2fsprogs")
PACKAGES = (
    *BOOTABLE, "containerd", "runc", "containernetworking-plugins", "busybox-static", "python3", "iproute2", "iptables",
    "procps", "mount",
)  # fmt: skip
ROOT_SIZE, CHECKOUT_SIZE = "4G", "1G"  # both sparse
WHERE = Path("/opt/bulkhead")  # the checkout in there, as the unit expects it
COPIED = ("bus", "services", "shared", "systemd", "tests", "tools", "supervisord.conf", "README.md")
# What only development needs, and is large. Everything else of the .venv goes in.
LEFT_OUT = (
    "numpy",
    "numpy.libs",
    "matplotlib",
    "fontTools",
    "mypy",
    "mypyc",
    "PIL",
    "pillow.libs",
    "hypothesis",
    "grimp",
)

NETWORK = {
    "etc/systemd/network/10-any.network": "[Match]\nName=e*\n[Network]\nDHCP=ipv4\nGateway=10.0.2.2\n",
    "etc/systemd/system.conf.d/vm.conf": "[Manager]\nDefaultTimeoutStartSec=300\nDefaultTimeoutStopSec=20\n",
}
_FILES = {
    **NETWORK,
    "etc/hostname": "vm\n",
    "etc/fstab": "/dev/vda / ext4 defaults 0 1\n/dev/vdb /opt/bulkhead ext4 defaults 0 2\n",
    # Starts when the machine is up as far as it will be, so that a check never races with the boot itself.
    "etc/systemd/system/vm-checks.service": """\
[Unit]
After=multi-user.target
RequiresMountsFor=/opt/bulkhead
[Service]
Type=exec
WorkingDirectory=/opt/bulkhead
ExecStart=/opt/bulkhead/.venv/bin/python -P -m tests.vm.inside
Environment=PYTHONUNBUFFERED=1 PYTHONPATH=/opt/bulkhead
StandardOutput=journal+console
StandardError=journal+console
""",
}
# `$1`: the root. A timer of apt, or a check of the file system, would slow down what is emulated.
CUSTOMIZE = """\
set -e
systemctl --root="$1" enable systemd-networkd systemd-networkd-wait-online >/dev/null 2>&1
systemctl --root="$1" disable apt-daily.timer apt-daily-upgrade.timer >/dev/null 2>&1 || true
systemctl --root="$1" mask serial-getty@ttyS1.service e2scrub_reap.service >/dev/null 2>&1
"""
SMALLER = 'rm -rf "$1"/usr/share/doc "$1"/usr/share/locale "$1"/usr/share/man\n'
_CUSTOMIZE = f"""\
{CUSTOMIZE}
systemctl --root="$1" disable containerd >/dev/null 2>&1
ln -sf ../vm-checks.service "$1/etc/systemd/system/multi-user.target.wants/vm-checks.service"
mkdir -p "$1/opt/bulkhead"
{SMALLER}"""


@dataclass(frozen=True)
class Recipe:
    """What an image is made of. `files`: text by path below the root; `customize`: a script of sh, whose `$1` is the
    root with all packages and files; `options`: further ones of mmdebstrap."""

    name: str
    packages: tuple[str, ...]
    customize: str
    files: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    size: str = ROOT_SIZE

    @property
    def key(self) -> str:
        """Names the image in the cache; changes with what it is made of."""
        made_from = repr((suite(), self, sorted(self.files.items())))
        return f"{self.name}-{hashlib.sha256(made_from.encode()).hexdigest()[:16]}"


CHECKED = Recipe("checkout", PACKAGES, _CUSTOMIZE, _FILES)


@dataclass(frozen=True)
class Image:
    """What a boot needs: `root`, the file system, to be copied; its kernel and initrd."""

    root: Path
    kernel: Path
    initrd: Path


def suite() -> str:
    """The release of Debian whose Python runs our .venv."""
    found = SUITES.get(sys.version_info[:2])
    if found is None or os.uname().machine != "x86_64":
        lack(f"no Debian for a .venv of Python {sys.version_info[0]}.{sys.version_info[1]} on {os.uname().machine}")
    return found


def base(recipe: Recipe = CHECKED) -> Image:
    """The image from the cache; built first where what it is made of has changed (3 minutes, from package sources)."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bulkhead-vm"
    kept = cache / recipe.key
    if not kept.exists():
        cache.mkdir(parents=True, exist_ok=True)
        scratch = cache / f"building-{os.getpid()}"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            _build(recipe, scratch)
            scratch.rename(kept)
            for older in cache.glob(f"{recipe.name}-*"):
                if older != kept:
                    shutil.rmtree(older)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return Image(kept / "root.ext4", kept / "vmlinuz", kept / "initrd")


def _build(recipe: Recipe, directory: Path) -> None:
    tree, extra, hook = directory / "tree", directory / "extra", directory / "customize.sh"
    for name, text in recipe.files.items():
        (extra / name).parent.mkdir(parents=True, exist_ok=True)
        (extra / name).write_text(text)
    hook.write_text(recipe.customize)
    _quiet("mmdebstrap", "--variant=minbase", "--format=directory", f"--include={','.join(recipe.packages)}",
           f"--customize-hook=copy-in {' '.join(str(path) for path in sorted(extra.iterdir()))} /",
           f'--customize-hook=sh {hook} "$1"', *recipe.options, suite(), str(tree))  # fmt: skip
    for name, kept in (("vmlinuz-*", "vmlinuz"), ("initrd.img-*", "initrd")):
        (found,) = (tree / "boot").glob(name)
        found.rename(directory / kept)
    file_system(tree, directory / "root.ext4", recipe.size)
    for left in (tree, extra):
        shutil.rmtree(left)


def copy_of_root(image: Image, disk: Path) -> None:
    """The disk a machine writes to."""
    _quiet("cp", "--sparse=always", "--reflink=auto", str(image.root), str(disk))


def checkout_disk(disk: Path) -> None:
    """A disk with this checkout as it is now, and a .venv for Debian's Python beside it."""
    tree = disk.with_suffix(".tree")
    tree.mkdir()
    try:
        unwanted = shutil.ignore_patterns("__pycache__", ".pytest_cache")
        for name in COPIED:
            source = CHECKOUT / name
            if source.is_dir():
                shutil.copytree(source, tree / name, ignore=unwanted, symlinks=True)
            else:
                shutil.copy2(source, tree / name)
        _venv(tree / ".venv")
        file_system(tree, disk, CHECKOUT_SIZE)
    finally:
        shutil.rmtree(tree)


def _venv(venv: Path) -> None:
    packages = Path(tarfile.__file__).parent.name  # python3.11
    source, target = Path(sys.prefix) / f"lib/{packages}/site-packages", venv / f"lib/{packages}/site-packages"
    shutil.copytree(source, target, ignore=lambda at, names: LEFT_OUT if Path(at) == source else (), symlinks=True)
    for link in target.glob("_editable_impl_bulkhead*.pth"):
        link.write_text(f"{WHERE}\n")
    (venv / "bin").mkdir()
    (venv / "bin/python").symlink_to("/usr/bin/python3")
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    for name in ("bulkhead", "kubelet", "supervisord", "supervisorctl"):
        _, _, script = (Path(sys.prefix) / "bin" / name).read_text().partition("\n")
        (venv / "bin" / name).write_text(f"#!{WHERE}/.venv/bin/python\n{script}")
        (venv / "bin" / name).chmod(0o755)


def file_system(tree: Path, disk: Path, size: str) -> None:
    """Make the file of an ext4 with the content of a directory, all of it root's."""
    _quiet("mke2fs", "-q", "-t", "ext4", "-E", "root_owner=0:0", "-d", str(tree), str(disk), size)


def _quiet(*command: str) -> None:
    """Run it; AssertionError with the end of its output where it fails."""
    done = subprocess.run(["nice", "-n", "19", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[0]} failed: {(done.stdout + done.stderr)[-2000:]}"
