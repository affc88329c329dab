"""The Node as the API server has it, read with the kubelet's own kubeconfig: works whichever kubelet runs."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kubernetes import client, config
from kubernetes.client.rest import urllib3
from kubernetes.config.config_exception import ConfigException
from yaml import YAMLError

from shared.errors import OperatorError

TIMEOUT = 20.0  # seconds of one request


@dataclass(frozen=True, kw_only=True)
class NodeReady:
    """The Node's condition Ready. `written`: wall seconds of its last heartbeat, 0 = none."""

    ready: bool
    written: float


def node_ready(kubeconfig: str, name: str) -> NodeReady:
    """Read the Node. Raises OperatorError where the API server cannot be asked or has no such Node."""
    try:
        settings = client.Configuration()
        settings.retries = False  # the pool of connections takes it over when it is made
        config.load_kube_config(kubeconfig, client_configuration=settings, persist_config=False)
        if not settings.verify_ssl:  # as the kubeconfig has it
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        with client.ApiClient(settings) as connection:
            answer = client.CoreV1Api(connection).read_node(name, _request_timeout=TIMEOUT, _preload_content=False)
            return ready_of(json.loads(answer.data))
    except client.ApiException as error:
        remedy = (
            f"is {name} the name of the Node?" if error.status == 404 else f"do the credentials of {kubeconfig} work?"
        )
        raise OperatorError(f"answers {error.status} {error.reason}", where="the API server", remedy=remedy) from error
    except (ConfigException, YAMLError, OSError, ValueError, TypeError, KeyError) as error:
        raise OperatorError(f"cannot be used: {_line(error)}", where=kubeconfig) from error
    except urllib3.exceptions.HTTPError as error:
        raise OperatorError(f"does not answer: {_line(error)}", where="the API server") from error


def ready_of(node: dict[str, Any]) -> NodeReady:
    """The condition of a Node object; one without it is not Ready."""
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            return NodeReady(ready=condition.get("status") == "True", written=_seconds(condition))
    return NodeReady(ready=False, written=0.0)


def _seconds(condition: dict[str, Any]) -> float:
    try:
        return datetime.fromisoformat(str(condition.get("lastHeartbeatTime")).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
