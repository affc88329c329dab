"""What `preflight` and `takeover` find of a container runtime whose socket is there and which answers nothing."""

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.cli.preflight.findings import Severity
from services.cli.preflight.runtime import runtime_findings
from services.cli.takeover import containers as takeover_containers
from services.cli.takeover.containers import running_containers
from shared.config.effective import EffectiveConfig
from shared.errors import OperatorError


@pytest.fixture
def endpoint() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="bkr", dir="/tmp") as directory, socket.socket(socket.AF_UNIX) as listener:
        path = Path(directory, "containerd.sock")
        listener.bind(str(path))
        listener.listen(8)
        yield f"unix://{path}"


def test_the_containers_of_a_runtime_that_hangs_are_one_line(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover_containers, "TIMEOUT_SECONDS", 0.5)
    with pytest.raises(OperatorError, match=f"the container runtime at {endpoint}") as raised:
        running_containers(endpoint)
    assert "\n" not in str(raised.value)


def test_a_runtime_that_hangs_is_a_problem(endpoint: str) -> None:
    config = EffectiveConfig(
        node_name="n1", cert_dir="", root_dir="/nowhere", run_dir="/nowhere", log_dir="/nowhere",
        container_runtime_endpoint=endpoint,
    )  # fmt: skip
    [finding] = runtime_findings(config, 0.5)
    assert (finding.severity, finding.where) == (Severity.PROBLEM, endpoint)
