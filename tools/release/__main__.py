"""`python -m tools.release` builds the files of a release into build/release, with their SHA256SUMS."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from shared.errors import OperatorError
from tools.home import CHECKOUT
from tools.release.debian import build_package
from tools.release.environment import interpreter_version
from tools.release.image import build_image
from tools.release.source import build_wheel, copy_source

_OF_THIS_DEBIAN = "/usr/bin/python3"
_BUILT = ("bulkhead_kubelet-*.whl", "bulkhead_*.deb", "bulkhead-node_*.oci.tar", "SHA256SUMS")


@click.command()
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=CHECKOUT / "build/release",
    help="An earlier release in it is removed first.",
)
@click.option(
    "--interpreter",
    default=_OF_THIS_DEBIAN,
    help="The Python that the Debian package is for, such as a python3.13 for Debian 13.",
)
@click.option("--image", is_flag=True, help="Build the container image, too: needs root and package sources.")
@click.option("--fast", is_flag=True, help="Compress the Debian package less, in a tenth of the time.")
def main(output: Path, interpreter: str, image: bool, fast: bool) -> None:
    """Build the wheel, the Debian package and, with --image, the container image from the files that git tracks.

    \b
    Exit codes: 0 = built, 1 = it cannot be built, 2 = wrong usage.
    """
    try:
        release(output, interpreter=interpreter, image=image, fast=fast)
    except OperatorError as error:
        sys.exit(f"bulkhead: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"bulkhead: {error.cmd[0]} failed with exit code {error.returncode}; its output is above")


def release(output: Path, *, interpreter: str, image: bool, fast: bool) -> list[Path]:
    """Build into the directory, in place of an earlier release, and return the files. Raises CalledProcessError,
    OperatorError."""
    if image and (version := interpreter_version(interpreter)) != interpreter_version(_OF_THIS_DEBIAN):
        what = f"this Debian has no python{version}, which the image would have"
        raise OperatorError(what, where=interpreter, remedy="leave out --image, or build on the Debian that has it")
    output.mkdir(parents=True, exist_ok=True)
    remove_earlier(output)
    with tempfile.TemporaryDirectory(prefix="bulkhead-release-") as scratch:
        source = copy_source(Path(scratch) / "source")
        wheel = build_wheel(source, output)
        tree = Path(scratch) / "tree"
        package = build_package(source, wheel, tree, output, interpreter=interpreter, fast=fast)
        built = [wheel, package]
        if image:
            shutil.rmtree(tree)
            built.append(build_image(source, package, Path(scratch), output, interpreter=interpreter))
    built.sort()
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in built)
    (output / "SHA256SUMS").write_text(sums)
    print(sums, end="")
    return built


def remove_earlier(output: Path) -> None:
    """Remove the files of a release from the directory, and no other file: it may be one of the operator's."""
    for pattern in _BUILT:
        for file in output.glob(pattern):
            file.unlink()


if __name__ == "__main__":
    main()
