"""Reads the section `embeddedContainerd` of the agent's own document: whether supervisord runs a containerd for us, and
which. Pure.
"""

import ipaddress
import posixpath
from typing import Any

from shared.agent.places import AgentPaths
from shared.config.effective import HANDLERS, EmbeddedContainerd
from shared.config.findings import Findings

REGISTRY_CONFIG_PATH = "certs.d"


def embedded_containerd(
    given: dict[str, Any], file: str, places: AgentPaths, findings: Findings
) -> EmbeddedContainerd | None:
    """Return the containerd that the section asks for; None where it asks for none, or something is wrong in it.
    Relative paths begin at the directory of `file`."""
    _check(given, findings)
    if findings.lines or not given.get("enabled", False):
        return None

    def joined(name: str, default: str) -> str:
        return posixpath.normpath(posixpath.join(posixpath.dirname(file), given.get(name, default)))

    runtime, path = f"{places.run_dir}/containerd", given.get("path", "containerd")
    return EmbeddedContainerd(
        root=joined("root", places.containerd_root),
        state=joined("state", places.containerd_state),
        socket=f"{runtime}/containerd.sock",
        config_file=f"{runtime}/config.toml",
        cni_conf_dir=f"{runtime}/cni",
        cni_bin_dir=joined("cniBinDir", EmbeddedContainerd.cni_bin_dir),
        bridge=given.get("bridge", EmbeddedContainerd.bridge),
        pod_cidr=given.get("podCIDR", EmbeddedContainerd.pod_cidr),
        sandbox_image=given.get("sandboxImage", EmbeddedContainerd.sandbox_image),
        path=joined("path", path) if "/" in path else path,
        default_runtime=given.get("defaultRuntime", EmbeddedContainerd.default_runtime),
        registry_config_path=joined("registryConfigPath", REGISTRY_CONFIG_PATH),
    )


def _check(given: dict[str, Any], findings: Findings) -> None:
    if ":" in (path := given.get("registryConfigPath", "")):
        what = f'is "{path}", must be one directory'
        findings.add("embeddedContainerd.registryConfigPath", what, "containerd 2.1 reads no list of them")
    if (runtime := given.get("defaultRuntime", EmbeddedContainerd.default_runtime)) not in HANDLERS:
        what = f'is "{runtime}", must be {" or ".join(HANDLERS)}'
        findings.add("embeddedContainerd.defaultRuntime", what, "name a program that runs containers")
    bridge = given.get("bridge", EmbeddedContainerd.bridge)
    if not 0 < len(bridge) <= 15 or "/" in bridge or bridge.strip() != bridge:
        what = f'is "{bridge}", must be a network interface name'
        findings.add("embeddedContainerd.bridge", what, "at most 15 characters, no / or space")
    try:
        network = ipaddress.IPv4Network(given.get("podCIDR", EmbeddedContainerd.pod_cidr))
        wide_enough = network.prefixlen <= 29
    except ValueError:
        wide_enough = False
    if not wide_enough:
        what = f'is "{given.get("podCIDR")}", must be an IPv4 network of /29 or wider'
        findings.add("embeddedContainerd.podCIDR", what, "such as 10.89.0.0/16")
