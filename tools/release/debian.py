"""Builds the Debian package with dpkg-deb.

It has the environment in /opt/bulkhead, and what connects that with the system: commands, unit, man pages, completion,
configuration, maintainer scripts."""

import gzip
import hashlib
import os
import subprocess
from email.utils import formatdate
from pathlib import Path

from services.cli.command import main as bulkhead
from services.cli.completion import completion_script
from tools.man_pages import pages
from tools.release.environment import PLACE, build_environment, data_of, debian_version, interpreter_version
from tools.release.source import EPOCH, Source

NAME = "bulkhead"
_SCRIPTS = ("config", "postinst", "postrm", "prerm")
# The directories in which the shells look for completions.
_COMPLETION = {
    "bash": "usr/share/bash-completion/completions/{}",
    "fish": "usr/share/fish/vendor_completions.d/{}.fish",
    "zsh": "usr/share/zsh/vendor-completions/_{}",
}


def build_package(source: Source, wheel: Path, scratch: Path, output: Path, *, interpreter: str, fast: bool) -> Path:
    """Build the package into `output`, and return its path. `scratch`: a directory that is made; `fast`: compress less,
    in a tenth of the time.

    Raises CalledProcessError, OperatorError."""
    build_environment(scratch, interpreter, source, wheel)
    _link_to_the_system(scratch, source, wheel)
    package = output / f"{NAME}_{debian_version(source.version)}_{_architecture()}.deb"
    _control(scratch, source, interpreter)
    _level_times(scratch, source.epoch)
    compression = ["-Zzstd", "-z1"] if fast else ["-Zxz", "-z6"]
    command = ["dpkg-deb", "--build", "--root-owner-group", *compression, str(scratch), str(package)]
    environment = {**os.environ, EPOCH: str(source.epoch)}
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return package


def _link_to_the_system(root: Path, source: Source, wheel: Path) -> None:
    documents = "usr/share/doc/bulkhead"
    for path, content in data_of(wheel):
        if path.startswith("share/"):
            _write(root / "usr" / path, content)
    unit = unit_of_package(source.text("systemd/bulkhead.service"))
    _write(root / "usr/lib/systemd/system/bulkhead.service", unit.encode())
    for name, text in pages().items():
        _write(root / f"usr/share/man/man{name[-1]}/{name}.gz", _zipped(text))
    for shell, place in _COMPLETION.items():
        for program in ("bulkhead", "kubelet"):
            _write(root / place.format(program), (completion_script(shell, program, bulkhead) + "\n").encode())
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/bulkhead").symlink_to(PLACE / "bin/bulkhead")
    _write(root / "usr/bin/kubectl-bulkhead", source.text("tools/kubectl-bulkhead").encode(), 0o755)
    for name in ("kubelet.args", "kubelet.yaml"):
        _write(root / "etc/bulkhead" / name, source.text(f"packaging/etc/{name}").encode())
    (root / "etc/bulkhead/manifests").mkdir()
    _write(root / documents / "copyright", source.text("packaging/debian/copyright").encode())
    _write(root / documents / "changelog.gz", _zipped(_changelog(source)))
    overrides = source.text("packaging/debian/lintian-overrides")
    _write(root / "usr/share/lintian/overrides/bulkhead", overrides.encode())


def unit_of_package(text: str) -> str:
    """Return the unit of the checkout for the package. Raises ValueError where it has another shape than expected."""
    head, _, unit = text.partition("\n")
    for of_checkout, of_package in (
        (f"ExecStart={PLACE}/.venv/bin/kubelet\n", f"ExecStart={PLACE}/bin/kubelet\n"),
        (f"Documentation=file://{PLACE}/README.md\n", "Documentation=man:bulkhead(1) man:bulkhead-kubelet(8)\n"),
    ):
        if unit.count(of_checkout) != 1:
            raise ValueError(f"bulkhead.service no longer contains {of_checkout!r}")
        unit = unit.replace(of_checkout, of_package)
    if not head.startswith("#") or ".venv" in unit:
        raise ValueError("bulkhead.service does not begin with the comment about the checkout")
    return unit


def _control(root: Path, source: Source, interpreter: str) -> None:
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    fixed = (path for path in files if not path.is_relative_to(root / "etc"))  # an operator edits the other files
    sums = (f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}\n" for path in fixed)
    control = source.text("packaging/debian/control")
    for field, value in (
        ("VERSION", debian_version(source.version)),
        ("ARCHITECTURE", _architecture()),
        ("SIZE", str(sum(-(-path.stat().st_size // 1024) for path in files))),
        ("PYTHON", f"python{interpreter_version(interpreter)}"),
    ):
        control = control.replace(f"@{field}@", value)
    _write(root / "DEBIAN/md5sums", "".join(sums).encode())
    _write(root / "DEBIAN/control", control.encode())
    for name in ("conffiles", "templates"):
        _write(root / "DEBIAN" / name, source.text(f"packaging/debian/{name}").encode())
    for name in _SCRIPTS:
        _write(root / "DEBIAN" / name, source.text(f"packaging/debian/{name}").encode(), 0o755)


def _changelog(source: Source) -> str:
    date = formatdate(source.epoch)
    return (
        f"{NAME} ({debian_version(source.version)}) stable; urgency=medium\n\n"
        "  * The changes are in CHANGELOG.md beside this file.\n\n"
        f" -- Bulkhead maintainers <maintainers@bulkhead.example>  {date.replace('-0000', '+0000')}\n"
    )


def _write(path: Path, content: bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def _zipped(text: str) -> bytes:
    return gzip.compress(text.encode(), 9, mtime=0)


def _level_times(root: Path, epoch: int) -> None:
    """Set times that do not depend on the moment of the build, and modes that do not depend on the umask: no file of a
    Python package is executable."""
    for path in [root, *root.rglob("*")]:
        if not path.is_symlink():
            executable = path.stat().st_mode & 0o100 and "site-packages" not in path.parts
            path.chmod(0o755 if path.is_dir() or executable else 0o644)
        os.utime(path, (epoch, epoch), follow_symlinks=False)


def _architecture() -> str:
    done = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True)
    return done.stdout.strip()
