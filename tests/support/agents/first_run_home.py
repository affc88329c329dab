"""A home for `make run` that differs from the example's only in ports and network; nothing of it is left afterwards."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.agents.free_ports import free_ports
from tests.support.runtime.containerd import network_of_our_own
from tests.support.waits.deadline import WAIT_SECONDS
from tools import leftovers
from tools.home import CHECKOUT


@contextmanager
def home_of_our_own() -> Iterator[Path]:
    """Give the block the directory with its kubelet.yaml; at the end `make clean` has removed it."""
    path = Path(tempfile.mkdtemp(prefix="bkf", dir="/tmp"))
    (path / leftovers.HOME_MARKER).touch()
    port, read_only_port, healthz_port = free_ports(3)
    bridge, subnet = network_of_our_own()
    text = (CHECKOUT / "examples" / "kubelet.yaml").read_text()
    text = text.replace(
        "readOnlyPort: 10255", f"readOnlyPort: {read_only_port}\nport: {port}\nhealthzPort: {healthz_port}"
    )
    (path / "kubelet.yaml").write_text(f"{text}  bridge: {bridge}\n  podCIDR: {subnet}\n")
    yield path
    run_clean(path)
    path.with_suffix(".out").unlink(missing_ok=True)


def run_clean(home: Path) -> subprocess.CompletedProcess[str]:
    """Run `make clean`."""
    environment = {**os.environ, "BULKHEAD_HOME": str(home)}
    command = [sys.executable, "-m", "tools.clean"]
    return subprocess.run(
        command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=5 * WAIT_SECONDS, check=False
    )
