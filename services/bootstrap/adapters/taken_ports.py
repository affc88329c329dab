"""Checks whether the ports of the configuration are free, and finds the processes that have them. It keeps no socket
open."""

import errno
from collections.abc import Callable
from pathlib import Path

from shared.agent.places import PAGE_ADDRESS
from shared.config.effective import EffectiveConfig
from shared.host.listening_address import bind
from shared.host.listening_sockets import listening, owner_of


def find_taken(config: EffectiveConfig, server: Callable[[], int | None]) -> tuple[list[str], list[str]]:
    """Return problems and remarks about ports that are taken, one line each. A port that our own server process has
    counts as free; `server` returns its PID, and is called after a port was found taken, because server may have been
    restarted just now.

    The health port and that of the node page are only remarks, because server keeps trying to get them (config.md
    5.10).
    """
    problems: list[str] = []
    remarks: list[str] = []
    wanted = [("port", config.address, config.port, problems)] if config.enable_server else []
    wanted.append(("readOnlyPort", config.address, config.read_only_port, problems))
    wanted.append(("healthzPort", config.healthz_bind_address, config.healthz_port, remarks))
    wanted.append(("--node-page-port", PAGE_ADDRESS, config.node_page_port, remarks))
    for key, address, port, lines in wanted:
        if port and (reason := _cannot_bind(address, port, server)):
            lines.append(f"{key}: {address}:{port} {reason}")
    return problems, remarks


def _cannot_bind(address: str, port: int, server: Callable[[], int | None]) -> str:
    try:
        bind(address, port).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return f"cannot be listened on: {error.strerror} (choose an address and port of this machine)"
        for _ in range(2):  # the server may end between the two questions, and its successor have the port
            owner = owner_of(listening(port))
            if owner is not None and owner == server():
                return ""
        return f"is in use{_named(owner)} (stop that process, or choose another port)"
    return ""


def _named(pid: int | None) -> str:
    if pid is None:
        return ""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
    return f" by {name} (process {pid})"
