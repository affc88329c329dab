"""Decides what the environment alone decides: where run directory, logs and flags are, and what is refused. Reads
no configuration.

`BULKHEAD_HOME` set = one directory holds everything; unset = the places of a system service.
"""

import os
import shlex
from pathlib import Path

from msgspec import Struct

from shared.errors import OperatorError

PLACE_VARIABLES = ("BULKHEAD_HOME", "BULKHEAD_RUN_DIR")  # which `find_places` reads
PAGE_ADDRESS = "127.0.0.1"  # where the node page listens without credentials
LOCAL_SOCKET = "server.sock"  # below the run directory: the HTTP API for the commands of this machine


class AgentPaths(Struct, frozen=True):
    """Defaults for one agent; all paths absolute."""

    run_dir: str
    log_dir: str
    root_dir: str
    cert_dir: str
    pod_logs_dir: str
    args_file: str
    containerd_root: str
    containerd_state: str
    dockershim_dir: str  # of the shim's records, which outlive the machine's power
    refuse_open_access: bool = False  # a server that serves every host without credentials is refused at the start
    keeps_kernel_settings: bool = False  # the agent leaves the machine's kernel settings as they are


def find_places(environment: dict[str, str] | None = None) -> AgentPaths:
    """Return the places by `BULKHEAD_HOME` and `BULKHEAD_RUN_DIR`. The unit sets `BULKHEAD_REFUSE_OPEN_ACCESS=1`;
    `BULKHEAD_KEEP_KERNEL_SETTINGS=1` is for an agent that must change nothing of its machine."""
    given = dict(os.environ) if environment is None else environment
    refuses = given.get("BULKHEAD_REFUSE_OPEN_ACCESS", "") == "1"
    keeps = given.get("BULKHEAD_KEEP_KERNEL_SETTINGS", "") == "1"
    home = given.get("BULKHEAD_HOME", "")
    if home:
        home = str(Path(home).absolute())
        run_dir = str(Path(given.get("BULKHEAD_RUN_DIR") or f"{home}/run").absolute())
        return AgentPaths(
            run_dir=run_dir,
            log_dir=f"{home}/log",
            root_dir=f"{home}/kubelet",
            cert_dir=f"{home}/kubelet/pki",
            pod_logs_dir=f"{home}/log/pods",
            args_file=f"{home}/kubelet.args",
            containerd_root=f"{home}/containerd/root",
            containerd_state=f"{home}/containerd/state",
            dockershim_dir=f"{home}/dockershim",
            refuse_open_access=refuses,
            keeps_kernel_settings=keeps,
        )
    run_dir = str(Path(given.get("BULKHEAD_RUN_DIR") or "/run/bulkhead").absolute())
    return AgentPaths(
        run_dir=run_dir,
        log_dir="/var/log/bulkhead",
        root_dir="/var/lib/kubelet",
        cert_dir="/var/lib/kubelet/pki",
        pod_logs_dir="/var/log/pods",
        args_file="/etc/bulkhead/kubelet.args",
        containerd_root="/var/lib/bulkhead/containerd",
        containerd_state=f"{run_dir}/containerd/state",
        dockershim_dir="/var/lib/bulkhead/dockershim",
        refuse_open_access=refuses,
        keeps_kernel_settings=keeps,
    )


def find_arguments(places: AgentPaths, environment: dict[str, str] | None = None) -> list[str]:
    """Return the kubelet flags: env `KUBELET_ARGS`, else the args file, else none. Raises OperatorError."""
    given = dict(os.environ) if environment is None else environment
    if "KUBELET_ARGS" in given:
        return _split(given["KUBELET_ARGS"], "KUBELET_ARGS")
    try:
        text = Path(places.args_file).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise OperatorError(
            f"cannot be read: {reason}", where=places.args_file, remedy="repair or remove it"
        ) from error
    return _split(text, places.args_file)


def _split(text: str, where: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:  # an open quote runs to the end: the line it begins in is the one to name
        number = 1 + next((n for n, line in enumerate(text.split("\n")) if not _is_closed(line)), 0)
        raise OperatorError(
            f"cannot be split into flags: {error}", where=f"{where}:{number}", remedy="close the quote"
        ) from error


def _is_closed(line: str) -> bool:
    try:
        shlex.split(line, comments=True)
    except ValueError:
        return False
    return True
