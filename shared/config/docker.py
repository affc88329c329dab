"""Reads whether the shim in front of Docker runs, and with what: from the section `docker` of the agent's own document,
and the flags that the kubelet had for its dockershim until 1.23. Pure.
"""

import posixpath
from collections.abc import Mapping
from typing import Any

from shared.agent.places import AgentPaths
from shared.config.effective import Docker
from shared.config.findings import Findings
from shared.config.settings import seconds

DOCKER = "docker"
DEFAULT_ENDPOINT = "unix:///var/run/docker.sock"
DEFAULT_SANDBOX_IMAGE = "registry.k8s.io/pause:3.10"
DEFAULT_CNI_BIN_DIR = "/opt/cni/bin"
DEFAULT_CNI_CONF_DIR = "/etc/cni/net.d"
DEFAULT_PULL_PROGRESS_SECONDS = 60.0
# Each key of the section, and the flag that the kubelet had for it; a flag outranks the section.
FLAG_OF = {
    "endpoint": "docker-endpoint",
    "sandboxImage": "pod-infra-container-image",
    "cniBinDir": "cni-bin-dir",
    "cniConfDir": "cni-conf-dir",
    "imagePullProgressDeadline": "image-pull-progress-deadline",
}


def docker_shim(
    section: Mapping[str, Any], flags: Mapping[str, Any], file: str, places: AgentPaths, findings: Findings
) -> Docker | None:
    """Return the settings of the shim, None where it does not run. `section`: of the document; `flags`: those given, by
    name. Relative paths of the section begin at the directory of `file`."""
    runtime = flags.get("container-runtime")
    if not (runtime == DOCKER or (runtime is None and section.get("enabled", False))):
        return None
    endpoint = flags.get(FLAG_OF["endpoint"]) or section.get("endpoint", DEFAULT_ENDPOINT)
    if not endpoint.startswith("unix:///"):
        what = f'is "{endpoint}", must begin with unix:///'
        place = f"--{FLAG_OF['endpoint']}" if FLAG_OF["endpoint"] in flags else ""
        findings.add(f"{DOCKER}.endpoint", what, "name the socket of a Docker of this machine", place)

    def joined(key: str, default: str) -> str:
        if FLAG_OF[key] in flags:
            return str(flags[FLAG_OF[key]])
        return posixpath.normpath(posixpath.join(posixpath.dirname(file), section.get(key, default)))

    deadline = flags.get(FLAG_OF["imagePullProgressDeadline"])
    if deadline is None and "imagePullProgressDeadline" in section:
        deadline = section["imagePullProgressDeadline"]
    progress = DEFAULT_PULL_PROGRESS_SECONDS if deadline is None else seconds(deadline)
    if progress <= 0:
        findings.add(f"{DOCKER}.imagePullProgressDeadline", "must be longer than 0s", "such as 1m")
    return Docker(
        endpoint=endpoint,
        socket=f"{places.run_dir}/dockershim/dockershim.sock",
        records_dir=f"{places.dockershim_dir}/networks",
        sandbox_image=flags.get(FLAG_OF["sandboxImage"]) or section.get("sandboxImage", DEFAULT_SANDBOX_IMAGE),
        cni_bin_dirs=tuple(part for part in joined("cniBinDir", DEFAULT_CNI_BIN_DIR).split(",") if part),
        cni_conf_dir=joined("cniConfDir", DEFAULT_CNI_CONF_DIR),
        pull_progress_seconds=progress,
    )
