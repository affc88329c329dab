"""Builds the CRI PodSandboxConfig of a pod (pods.md 6.1). Sends nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from services.podsync.core.cgroups.pod_cgroup import pod_cgroup_name
from services.podsync.core.cri.config_errors import SandboxConfigError
from services.podsync.core.cri.container_resources import sandbox_overhead, sandbox_resources
from services.podsync.core.cri.dns import pod_dns
from services.podsync.core.cri.hosts_file import HostnameError, kernel_hostname
from services.podsync.core.cri.message import ExplicitMessage, message
from services.podsync.core.cri.security_context import sandbox_security_context
from services.podsync.core.cri.user_namespaces import Mappings
from services.podsync.core.node.node_facts import NodeFacts
from shared.cri.interface import Message
from shared.model.objects import Object, annotations, name, namespace, uid
from shared.model.sysctls import SysctlNamespace, namespace_of, normalised

POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"


def sandbox_config(
    pod: Object,
    *,
    facts: NodeFacts,
    attempt: int,
    mappings: Mappings | None = None,
    volume_groups: Sequence[int] = (),
) -> Message:
    """Return the message for RunPodSandbox, which CreateContainer and PullImage get, too. `mappings`: ids of the pod's
    user namespace, None = it has none of its own; `volume_groups`: group ids of its persistent volumes. `dns.pod_dns`
    has the warnings about name resolution. Raises SandboxConfigError."""
    spec = pod.get("spec") or {}
    linux = message(
        cgroup_parent=pod_cgroup_name(pod, facts) if facts.cgroups_per_qos else "",
        security_context=ExplicitMessage(
            sandbox_security_context(pod, facts, mappings=mappings, volume_groups=volume_groups)
        ),
        sysctls={**_default_sysctls(spec, facts.default_sysctls), **_sysctls(spec.get("securityContext") or {})},
        overhead=ExplicitMessage(sandbox_overhead(pod, facts)),
        resources=ExplicitMessage(sandbox_resources(pod, facts)),
    )
    return message(
        metadata=message(name=name(pod), namespace=namespace(pod), uid=uid(pod), attempt=attempt),
        hostname="" if spec.get("hostNetwork") else _hostname(pod, facts),
        log_directory=log_directory(pod, facts),
        dns_config=ExplicitMessage(pod_dns(pod, facts).config),
        port_mappings=[mapping for container in spec.get("containers") or () for mapping in _ports(container)],
        labels={**((pod.get("metadata") or {}).get("labels") or {}), **pod_labels(pod)},
        annotations=annotations(pod),
        linux=linux,
    )


def log_directory(pod: Object, facts: NodeFacts) -> str:
    """Return `<podLogsDir>/<namespace>_<name>_<uid>`, which is made 0755 before RunPodSandbox."""
    return f"{facts.pod_logs_dir}/{namespace(pod)}_{name(pod)}_{uid(pod)}"


def pod_labels(pod: Object) -> dict[str, str]:
    """Return the labels by which the kubelet and its tools find what belongs to the pod."""
    return {POD_NAME: name(pod), POD_NAMESPACE: namespace(pod), POD_UID: uid(pod)}


def _hostname(pod: Object, facts: NodeFacts) -> str:
    try:
        return kernel_hostname(pod, facts.cluster_domain)
    except HostnameError as error:
        raise SandboxConfigError(str(error)) from error


def _default_sysctls(spec: dict[str, Any], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return those of the node's default sysctls (pods.md 3.4) whose namespace the pod does not share with the host."""
    of_host = {
        SysctlNamespace.NET: bool(spec.get("hostNetwork")),
        SysctlNamespace.UTS: bool(spec.get("hostNetwork")),  # as runtimes do it
        SysctlNamespace.IPC: bool(spec.get("hostIPC")),
        SysctlNamespace.USER: spec.get("hostUsers") is not False,
    }
    return {
        sysctl: value
        for sysctl, value in defaults.items()
        if (space := namespace_of(sysctl)) is not None and not of_host[space]
    }


def _sysctls(context: dict[str, Any]) -> dict[str, str]:
    """Return the sysctls with dots in their names: `net/ipv4/x` is `net.ipv4.x`."""
    return {
        normalised(sysctl["name"]): sysctl.get("value") or ""
        for sysctl in context.get("sysctls") or ()
        if sysctl.get("name")
    }


def _ports(container: Object) -> list[Message]:
    """Return the PortMappings of one container, without duplicates by name, or without a name by all their fields."""
    mappings: dict[str, Message] = {}
    for port in container.get("ports") or ():
        protocol = port.get("protocol") or "TCP"
        host_ip = port.get("hostIP") or ""
        inside, outside = port.get("containerPort") or 0, port.get("hostPort") or 0
        family = "any"
        if host_ip:
            family = "v6" if ":" in host_ip else "v4"
        key = port.get("name") or f"{family}-{protocol}-{host_ip}:{inside}:{outside}"
        mapping = message(
            protocol=protocol if protocol in ("UDP", "SCTP") else "",  # TCP is the zero value
            container_port=inside,
            host_port=outside,
            host_ip=host_ip,
        )
        mappings.setdefault(key, mapping)
    return list(mappings.values())
