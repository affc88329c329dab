"""An image with a small static program that probes can be aimed at: gRPC health, HTTP and bare connections."""

import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.support.installed.lacking import require_command
from tools.oci_image import Image

SOURCE = Path(__file__).parents[2] / "programs" / "probe_target.c"
TARGET_IMAGE = "localhost/bulkhead/probe-target:1"


@cache
def build() -> bytes:
    """Build the program, linked statically; the test that asks is refused where there is no compiler."""
    require_command("gcc")
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "probe-target"
        flags = ("-O2", "-static", "-s", "-Wall", "-Wextra", "-Werror")
        subprocess.run(["gcc", *flags, "-o", str(program), str(SOURCE)], check=True)
        return program.read_bytes()


def target_image() -> Image:
    """Return what TARGET_IMAGE names, for the agent's `import_images`."""
    return Image(name=TARGET_IMAGE, command=("/bin/probe-target", "80"), files={"/bin/probe-target": (build(), 0o755)})
