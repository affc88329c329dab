"""The environment of one container (reference pods.md 6.3).

Values come from the pod, the node's facts and the services' variables given; nothing is read.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from services.podsync.core.config_errors import ContainerConfigError
from services.podsync.core.node_facts import NodeFacts
from shared.model.objects import Object
from shared.podspec.expansion import expand
from shared.podspec.field_ref import FieldError, field_value, resource_value

_NOT_READ = {"configMapKeyRef": "ConfigMap", "secretKeyRef": "Secret", "fileKeyRef": "file"}


def container_environment(
    pod: Object, container: Object, *, facts: NodeFacts, pod_ips: Sequence[str], service_env: Mapping[str, str]
) -> dict[str, str]:
    """The final environment: the container's own variables in order, the last of one name wins; then the services'
    that are not among them. `pod_ips` is not looked at for hostNetwork pods. Raises ContainerConfigError."""
    spec = pod.get("spec") or {}
    if spec.get("enableServiceLinks") is None:
        raise ContainerConfigError("nil pod.spec.enableServiceLinks encountered, cannot construct envvars")
    if container.get("envFrom"):
        raise ContainerConfigError("envFrom is not supported yet: this agent does not read ConfigMaps and Secrets")
    status = _status_fields(pod, facts, pod_ips)
    env: dict[str, str] = {}
    for variable in container.get("env") or ():
        name = variable["name"]
        if variable.get("value"):
            env[name] = expand(variable["value"], env, service_env)
        elif source := variable.get("valueFrom"):
            env[name] = _value_from(pod, container, name, source, facts, status)
        else:
            env[name] = ""
    return env | {name: value for name, value in service_env.items() if name not in env}


def _value_from(
    pod: Object, container: Object, name: str, source: dict[str, Any], facts: NodeFacts, status: Mapping[str, str]
) -> str:
    for kind, what in _NOT_READ.items():
        if kind in source:
            raise ContainerConfigError(f"environment variable {name}: values from a {what} are not supported yet")
    try:
        if "fieldRef" in source:
            return field_value(pod, str(source["fieldRef"].get("fieldPath") or ""), status)
        if "resourceFieldRef" in source:
            return resource_value(pod, container, source["resourceFieldRef"], facts.allocatable)
    except FieldError as error:
        raise ContainerConfigError(str(error)) from error
    return ""


def _status_fields(pod: Object, facts: NodeFacts, pod_ips: Sequence[str]) -> dict[str, str]:
    """What the pod's status will say of addresses: a pod on the host's network has the host's."""
    of_host = (pod.get("spec") or {}).get("hostNetwork")
    ips = facts.node_ips if of_host else ordered_ips(pod_ips, facts.node_ips)
    return {
        "status.hostIP": facts.node_ips[0] if facts.node_ips else "",
        "status.hostIPs": ",".join(facts.node_ips),
        "status.podIP": ips[0] if ips else "",
        "status.podIPs": ",".join(ips),
    }


def ordered_ips(pod_ips: Sequence[str], node_ips: Sequence[str]) -> tuple[str, ...]:
    """One address of each family, that of the node's first address before the other."""
    if not pod_ips:
        return ()
    prefers_v6 = ":" in (node_ips or pod_ips)[0]
    families = [[ip for ip in pod_ips if (":" in ip) is v6] for v6 in (prefers_v6, not prefers_v6)]
    return tuple(family[0] for family in families if family)
