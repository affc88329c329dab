"""Reads the Node from the API server with the kubelet's own kubeconfig, which works whichever kubelet runs."""

import time
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from services.bootstrap.adapters.kubeconfig import resolve_in_child
from services.bootstrap.adapters.resolved_credentials import ResolvedCredentials
from services.cli.preflight.api_server import ApiServer, ReadError
from shared.errors import OperatorError

TIMEOUT_SECONDS = 20.0  # of one request


class NodeReady(Struct, frozen=True, kw_only=True):
    """The Node's condition Ready. `written`: wall seconds of its last heartbeat, 0 = none."""

    ready: bool
    written: float


def node_ready(kubeconfig: str, name: str) -> NodeReady:
    """Read the Node. Raises OperatorError where the API server cannot be asked or has no such Node."""
    changed = 0
    with suppress(OSError):
        changed = Path(kubeconfig).stat().st_mtime_ns
    credentials = _credentials(kubeconfig, changed)
    try:
        with ApiServer(credentials.server, credentials, time.monotonic() + TIMEOUT_SECONDS) as api:
            return ready_of(api.node(name))
    except ReadError as error:
        if error.code == 401:  # the credentials have expired
            _credentials.cache_clear()
        if not error.code:
            raise OperatorError(str(error), where="the API server") from error
        remedy = (
            f"is {name} the name of the Node?" if error.code == 404 else f"do the credentials of {kubeconfig} work?"
        )
        raise OperatorError(str(error), where="the API server", remedy=remedy) from error


@lru_cache(maxsize=1)
def _credentials(kubeconfig: str, _changed: int) -> ResolvedCredentials:
    """Return the credentials of a kubeconfig, whose last change was at `_changed`. They stay in memory, because a
    takeover asks often and the child that resolves them takes a while. Raises OperatorError."""
    report = resolve_in_child(kubeconfig)
    if report.material is None:
        raise OperatorError(report.problems[0] if report.problems else f"{kubeconfig}: has no credentials")
    return report.material


def ready_of(node: dict[str, Any]) -> NodeReady:
    """Return the condition of a Node object; one without it is not Ready."""
    status = node.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict) and condition.get("type") == "Ready":
            return NodeReady(ready=condition.get("status") == "True", written=_seconds(condition))
    return NodeReady(ready=False, written=0.0)


def _seconds(condition: dict[str, Any]) -> float:
    try:
        return datetime.fromisoformat(str(condition.get("lastHeartbeatTime")).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0
