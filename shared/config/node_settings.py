"""Decides what the configuration gives the Node object: labels, taints, addresses, reservations (config.md 2, 3.8).

Pure: texts in; settings out, problems into the findings.
"""

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from shared.config.findings import Findings
from shared.model.cpu_list import parse_cpus
from shared.model.quantity import parse_quantity
from shared.model.sysctls import namespace_of, normalised
from shared.podspec.names import label_value, qualified_name

_LABEL_KEYS = frozenset(
    (
        "kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    )
)  # fmt: skip
_LABEL_NAMESPACES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
MAX_SYSCTL_CHARACTERS = 253  # of a name or a prefix
_NAMESPACED = ("kernel.shm", "kernel.msg", "fs.mqueue.", "net.")  # and kernel.sem
_IPV4 = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){3}", re.ASCII)  # zeros may lead
_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*([a-z0-9][-_a-z0-9]*|([a-z0-9][-_a-z0-9]*)?\*)")


def node_labels(labels: Mapping[str, str], findings: Findings) -> dict[str, str]:
    """`--node-labels`, key to value; a key alone has the empty value."""
    place = "--node-labels"
    if unknown := sorted(key for key in labels if _is_reserved(key)):
        remedy = f"only these may be set: {', '.join(sorted(_LABEL_KEYS))}, and keys below {_LABEL_NAMESPACES[0]}"
        what = f"{', '.join(unknown)}: in a domain that belongs to Kubernetes"
        findings.add("", what, f"{remedy} or {_LABEL_NAMESPACES[1]}", place=place)
        return dict(labels)
    for key, value in labels.items():
        for problem in qualified_name(key):
            findings.add("", f'key "{key}": {problem}', "write key=value,key=value", place=place)
        for problem in label_value(value):
            findings.add("", f'value "{value}": {problem}', "write key=value,key=value", place=place)
    return dict(labels)


def _is_reserved(key: str) -> bool:
    namespace = key.partition("/")[0] if "/" in key else ""
    if not _is_within(namespace, ("kubernetes.io", "k8s.io")):
        return False
    return key not in _LABEL_KEYS and not _is_within(namespace, _LABEL_NAMESPACES)


def _is_within(namespace: str, domains: tuple[str, ...]) -> bool:
    return any(namespace == domain or namespace.endswith(f".{domain}") for domain in domains)


def check_taints(data: dict[str, Any], findings: Findings) -> tuple[dict[str, str], ...]:
    """`registerWithTaints`, each with key, value and effect."""
    place, seen, taints = findings.place_of("registerWithTaints"), set(), []
    for index, given in enumerate(data.get("registerWithTaints") or ()):
        dotted = f"registerWithTaints[{index}]" if not place.startswith("--") else f"taint {index + 1}"

        def add(what: str, remedy: str, dotted: str = dotted) -> None:
            findings.add("", f"{dotted}: {what}", remedy, place=place)

        given = given or {}
        taint = {name: given.get(name) or "" for name in ("key", "value", "effect")}
        for problem in qualified_name(taint["key"]):
            add(f'key "{taint["key"]}": {problem}', "such as example.com/dedicated")
        for problem in label_value(taint["value"]):
            add(f'value "{taint["value"]}": {problem}', "a value is like that of a label")
        if taint["effect"] not in _EFFECTS:
            add(f'effect is "{taint["effect"]}", must be one of {", ".join(_EFFECTS)}', "names are case-sensitive")
        if given.get("timeAdded"):
            add("timeAdded is set, which only the cluster may", "remove it")
        if (taint["key"], taint["effect"]) in seen:
            add(f"a second taint {taint['key']}:{taint['effect']}", "remove one of them")
        seen.add((taint["key"], taint["effect"]))
        taints.append(taint)
    return tuple(taints)


def node_ips(text: str, findings: Findings) -> tuple[tuple[str, ...], list[str]]:
    """Return the addresses of `--node-ip` in the order given, and remarks about what is none."""
    place = "--node-ip"
    parsed: list[_Address] = []
    remarks = []
    for item in (part.strip() for part in text.split(",")):
        if address := parse_address(item):
            parsed.append(address)
        elif item:
            remarks.append(f'{place}: "{item}" is no IP address and is ignored')
    if len(parsed) > 2 or (len(parsed) == 2 and parsed[0].version == parsed[1].version):
        findings.add("", f'is "{text}", must be one address, or one IPv4 and one IPv6', "leave out the others", place)
    elif len(parsed) == 2 and any(address.is_unspecified for address in parsed):
        findings.add("", f'is "{text}": two addresses must both be concrete', "name both, or give one", place)
    return tuple(str(address) for address in parsed), remarks


def parse_address(text: str) -> _Address | None:
    """Return an IP address as the kubelet reads those it is given: zeros may lead, IPv4 in IPv6 is IPv4, there are no
    zones.

    None when it is none.
    """
    if _IPV4.fullmatch(text):
        text = ".".join(str(int(part)) for part in text.split("."))
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return None if address.scope_id is not None else address.ipv4_mapped or address
    return address


def reservations(data: dict[str, Any], findings: Findings) -> tuple[dict[str, str], dict[str, str]]:
    """`systemReserved` and `kubeReserved`, as reservedSystemCPUs changes them."""
    found = []
    for key in ("systemReserved", "kubeReserved"):
        reserved: dict[str, str] = data.get(key) or {}
        for resource, text in reserved.items():
            dotted = f"{key}.{resource}"
            if resource not in _RESERVABLE:
                findings.add(dotted, f'cannot reserve "{resource}" resource', f"known are {', '.join(_RESERVABLE)}")
            elif not _is_amount(text):
                findings.add(dotted, f'is "{text}", must be a quantity that is not negative', 'such as "500m" or "1Gi"')
        found.append(dict(reserved))
    system, kube = found
    if listed := data.get("reservedSystemCPUs"):
        cpus = parse_cpus(listed)
        if cpus is None:
            findings.add("reservedSystemCPUs", f'is "{listed}", must be a list of CPUs', 'such as "0-1,4"')
        else:
            kube.pop("cpu", None)
            system["cpu"] = str(len(cpus))
        for key in ("systemReservedCgroup", "kubeReservedCgroup"):
            if data.get(key):
                findings.add(key, "cannot be set together with reservedSystemCPUs", "remove one of them")
    return system, kube


def check_sysctls(data: dict[str, Any], findings: Findings) -> tuple[str, ...]:
    """`allowedUnsafeSysctls`: names of sysctls that a pod can have of its own, or prefixes that end in `*`."""
    place, patterns = findings.place_of("allowedUnsafeSysctls"), tuple(data.get("allowedUnsafeSysctls") or ())
    for pattern in patterns:
        if len(pattern) > MAX_SYSCTL_CHARACTERS or not _SYSCTL.fullmatch(pattern):
            what = f'"{pattern}" is neither the name of a sysctl nor a prefix with *'
            findings.add("allowedUnsafeSysctls", what, "such as kernel.msg* or net.core.somaxconn", place)
        elif not _is_namespaced(pattern):
            what = f'"{pattern}" is not known to be namespaced: setting it would change the whole node'
            remedy = "such as kernel.sem, or below kernel.shm, kernel.msg, fs.mqueue. or net."
            findings.add("allowedUnsafeSysctls", what, remedy, place)
    return patterns


def default_sysctls(data: dict[str, Any]) -> dict[str, str]:
    """`defaultPodSysctls`: normalised name to value."""
    return {normalised(name): value or "" for name, value in (data.get("defaultPodSysctls") or {}).items()}


def check_default_sysctls(data: dict[str, Any], gates: Mapping[str, bool], findings: Findings) -> None:
    """`defaultPodSysctls` names each sysctl that a pod can have of its own once."""
    given, names = data.get("defaultPodSysctls") or {}, dict[str, str]()
    if given and not gates.get("DefaultPodSysctls"):
        what = "is set while feature gate DefaultPodSysctls is off"
        findings.add("defaultPodSysctls", what, "switch the gate on, or leave this out")
    for name in given:
        first = names.setdefault(normalised(name), name)
        if len(name) > MAX_SYSCTL_CHARACTERS or "*" in name or not _SYSCTL.fullmatch(name):
            what = f'"{name[:MAX_SYSCTL_CHARACTERS]}" is not the name of a sysctl'
            findings.add("defaultPodSysctls", what, "such as net.core.somaxconn")
        elif namespace_of(normalised(name)) is None:
            what = f'"{name}" is not known to be namespaced: setting it would change the whole node'
            remedy = "such as kernel.sem, kernel.domainname, or below kernel.shm, kernel.msg, fs.mqueue., net. or user."
            findings.add("defaultPodSysctls", what, remedy)
        elif first != name:
            findings.add("defaultPodSysctls", f'"{first}" and "{name}" are one sysctl', "remove one of them")


def _is_namespaced(pattern: str) -> bool:
    if (first := re.search(r"[./]", pattern)) and first[0] == "/":  # then dots and slashes stand for one another
        pattern = pattern.translate({ord("."): "/", ord("/"): "."})
    return pattern == "kernel.sem" or pattern.removesuffix("*").startswith(_NAMESPACED)


def _is_amount(text: str | None) -> bool:
    try:
        return text is not None and parse_quantity(text).nanos >= 0
    except ValueError:
        return False
