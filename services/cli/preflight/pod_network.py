"""Examines whether iptables does what the network of the pods asks it for: masquerading and host ports. Only reads."""

import json
import shutil
from pathlib import Path
from typing import Any

from services.cli.preflight.findings import Finding, Section, Severity
from shared.config.docker import DEFAULT_CNI_CONF_DIR
from shared.config.effective import EffectiveConfig
from shared.host.masquerading import masquerading_failure

_ENDINGS = (".conf", ".conflist", ".json")
_MAX_FILE_BYTES = 1 << 20
_IPTABLES = (None, "", "iptables")  # names of a plugin's way to the kernel, of which nftables is another
_NFT_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_NEWER_PLUGINS = "CNI plugins of version 1.6 and later use nft instead, which is installed"
_MISSING = "apt-get install iptables"
_BROKEN = "load the kernel's modules for it, or choose its other kind: update-alternatives --config iptables"


def network_findings(config: EffectiveConfig) -> list[Finding]:
    """Return a finding about iptables where the network of the pods asks it for something: the one that the agent
    writes, that of the shim in front of Docker, or that which a container runtime has by default."""
    if config.embedded_containerd is not None:
        where, effect = "embeddedContainerd", "pods reach this node only, and host ports do not work"
    else:
        directory = config.docker.cni_conf_dir if config.docker is not None else DEFAULT_CNI_CONF_DIR
        where, asked = _first_network(Path(directory))
        if not asked:
            return []
        effect = f"pods do not start that need {' and '.join(asked)}"
    if not (failure := masquerading_failure()):
        return [_finding(Severity.OK, "iptables works, as the network of the pods needs it", where)]
    missing = failure.endswith("not installed")
    if missing and config.embedded_containerd is None and shutil.which("nft", path=_NFT_PATH):
        effect += f" ({_NEWER_PLUGINS})"
    remedy = _MISSING if missing else _BROKEN
    return [_finding(Severity.WARNING, f"{failure}: {effect}", where, remedy)]


def _first_network(directory: Path) -> tuple[str, list[str]]:
    """Return the file of the network that a runtime takes, the first one by its name, and what it asks of iptables."""
    try:
        files = sorted(path for path in directory.iterdir() if path.suffix in _ENDINGS and path.is_file())
        if not files:
            return "", []
        with files[0].open("rb") as file:
            network = json.loads(file.read(_MAX_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return "", []  # of which the runtime says what is wrong
    return str(files[0]), _asked_of_iptables(network)


def _asked_of_iptables(network: Any) -> list[str]:
    """Return what the plugins of a network, or the one of an older file, have iptables do."""
    plugins = network.get("plugins", [network]) if isinstance(network, dict) else None
    named = [plugin for plugin in plugins if isinstance(plugin, dict)] if isinstance(plugins, list) else []
    asked = []
    if any(plugin.get("ipMasq") is True and plugin.get("ipMasqBackend") in _IPTABLES for plugin in named):
        asked.append("masquerading (ipMasq)")
    if any(plugin.get("type") == "portmap" and plugin.get("backend") in _IPTABLES for plugin in named):
        asked.append("host ports (portmap)")
    return asked


def _finding(severity: Severity, what: str, where: str, remedy: str = "") -> Finding:
    return Finding(section=Section.RUNTIME, severity=severity, what=what, where=where, remedy=remedy)
