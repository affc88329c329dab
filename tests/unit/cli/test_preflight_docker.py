"""What preflight says of a node whose containers Docker runs, before the shim runs."""

import socket
from pathlib import Path

from services.cli.preflight.findings import Severity
from services.cli.preflight.runtime import runtime_findings
from shared.config.effective import Docker, EffectiveConfig
from shared.model.frozen_copy import replace
from tests.unit.config.test_docker import given


def config_of(tmp_path: Path) -> EffectiveConfig:
    config = given(tmp_path, "", "--container-runtime=docker")
    assert isinstance(config.docker, Docker)
    docker = replace(config.docker, endpoint=f"unix://{tmp_path}/d.sock", cni_conf_dir=str(tmp_path / "net.d"))
    return replace(config, docker=docker)


def test_a_docker_that_is_away_is_a_problem_and_a_missing_network_a_warning(tmp_path: Path) -> None:
    docker, network = runtime_findings(config_of(tmp_path), 1.0)
    assert (docker.severity, docker.what) == (Severity.PROBLEM, "Docker cannot be reached: No such file or directory")
    assert (network.severity, network.where) == (Severity.WARNING, str(tmp_path / "net.d"))


def test_a_docker_that_listens_and_a_network_are_fine(tmp_path: Path) -> None:
    (tmp_path / "net.d").mkdir()
    (tmp_path / "net.d" / "10-pods.conflist").touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "d.sock"))
        listener.listen()
        (found,) = runtime_findings(config_of(tmp_path), 1.0)
    assert found.severity is Severity.OK
