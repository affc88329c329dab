"""Asks the container runtime whether it is ready and which cgroup driver it uses. Only reads."""

import asyncio
import socket
from pathlib import Path

from services.cli.preflight.findings import Finding, Section, Severity
from shared.config.effective import Docker, EffectiveConfig
from shared.cri.client import CriRuntime
from shared.cri.interface import RuntimeCallError

_STARTS = "containerd starts with the agent (embeddedContainerd)"


def runtime_findings(config: EffectiveConfig, timeout: float) -> list[Finding]:
    """Return the findings about the runtime, within about `timeout` seconds."""
    if config.embedded_containerd is not None:
        return [_finding(Severity.OK, _STARTS)]
    if config.docker is not None:
        return _examine_docker(config.docker, timeout)
    return asyncio.run(_examine_runtime(config, timeout))


def _examine_docker(docker: Docker, timeout: float) -> list[Finding]:
    """Return what is known before the shim runs: whether Docker listens, and whether there is a network for pods."""
    path = docker.endpoint.removeprefix("unix://")
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            connection.connect(path)
        found = [
            _finding(Severity.OK, "Docker listens; the shim in front of it starts with the agent", docker.endpoint)
        ]
    except OSError as error:
        what = f"Docker cannot be reached: {error.strerror or error}"
        found = [_finding(Severity.PROBLEM, what, docker.endpoint, "start Docker, or correct docker.endpoint")]
    if not any(Path(docker.cni_conf_dir).glob("*.conf*")):
        what, remedy = "has no network for pods: they wait for one", "install a network plugin (CNI)"
        found.append(_finding(Severity.WARNING, what, docker.cni_conf_dir, remedy))
    return found


async def _examine_runtime(config: EffectiveConfig, timeout: float) -> list[Finding]:
    endpoint = config.container_runtime_endpoint
    runtime = CriRuntime(endpoint, config.image_service_endpoint, timeout)
    try:
        async with asyncio.timeout(timeout):
            version = await runtime.version()
            found = [_finding(Severity.OK, f"{version.name} {version.version}, CRI {version.api_version}", endpoint)]
            for condition in await runtime.status():
                if not condition.status:
                    severity = Severity.PROBLEM if condition.type == "RuntimeReady" else Severity.WARNING
                    what = f"{condition.type} is false: {condition.reason} {condition.message}"
                    found.append(
                        _finding(severity, what, endpoint, "see the log of the runtime, and its CNI configuration")
                    )
            return [*found, *_driver(await runtime.runtime_config(), config)]
    except RuntimeCallError as error:
        return [_finding(Severity.PROBLEM, error.description, endpoint, "start the runtime, or correct the endpoint")]
    except TimeoutError:
        return [_finding(Severity.PROBLEM, f"does not answer within {timeout:.0f} s", endpoint, "restart the runtime")]
    finally:
        await runtime.close()


def _driver(reported: str | None, config: EffectiveConfig) -> list[Finding]:
    """Return a finding where the runtime and the configuration name different cgroup drivers; that of the runtime is
    used."""
    if reported is None:
        what = f"does not report its cgroup driver (RuntimeConfig); the configuration has {config.cgroup_driver}"
        remedy = "see that both are the same; Kubernetes 1.38 needs a runtime that reports it, such as containerd 2"
        return [_finding(Severity.WARNING, what, remedy=remedy)]
    if reported == config.cgroup_driver:
        return [_finding(Severity.OK, f"cgroup driver {reported}, as in the configuration")]
    what = f"cgroup driver {reported}, and {config.cgroup_driver} in the configuration: that of the runtime is used"
    return [_finding(Severity.WARNING, what, remedy=f"set cgroupDriver to {reported}")]


def _finding(severity: Severity, what: str, where: str = "", remedy: str = "") -> Finding:
    return Finding(section=Section.RUNTIME, severity=severity, what=what, where=where, remedy=remedy)
