"""Finds what the API server would refuse in a new pod, as far as it matters to a node (pods.md 1.2.9).

Takes a defaulted pod, whatever its types, and answers with messages; never raises, never changes the pod.
"""

import re
from typing import Any

from shared.model.objects import Object
from shared.podspec import names
from shared.podspec.field_errors import (
    duplicate,
    each_invalid,
    forbidden,
    in_range,
    invalid,
    not_negative,
    one_of,
    required,
)
from shared.podspec.ports import host_ports
from shared.podspec.resources import is_sidecar
from shared.podspec.schema import type_errors
from shared.podspec.validation_container import validate_container
from shared.podspec.validation_placement import validate_placement
from shared.podspec.validation_resources import validate_amounts, validate_claims, validate_pod_level
from shared.podspec.validation_restart import validate_resize_beside
from shared.podspec.validation_security import validate_profile
from shared.podspec.validation_volume import validate_volumes

_UID = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]{0,126}[A-Za-z0-9])?", re.ASCII)
_MAX_SEARCHES_CHARACTERS = 2048  # with a blank between two
_MAX_INT32 = 2**31 - 1
_MAX_HOSTNAME_CHARACTERS = 64
_MAX_ANNOTATIONS_BYTES = 256 * 1024  # keys and values together


def validate_pod(pod: Object) -> list[str]:
    """Return messages in Kubernetes' form, the field's path first; empty when the pod can be taken on.

    Wrong types are reported alone: the rules that follow need the types to be right.
    """
    if errors := type_errors(pod):
        return errors
    return _metadata(pod.get("metadata") or {}) + _spec(pod.get("spec") or {}, pod)


def _metadata(metadata: dict[str, Any]) -> list[str]:
    errors = []
    if name := metadata.get("name"):
        errors += each_invalid("metadata.name", name, names.dns_subdomain(name))
    else:
        errors.append(required("metadata.name", "name or generateName is required"))
    if namespace := metadata.get("namespace"):
        errors += each_invalid("metadata.namespace", namespace, names.dns_label(namespace))
    else:
        errors.append(required("metadata.namespace"))
    if (uid := metadata.get("uid")) and not _UID.fullmatch(uid):
        # Stricter than the API server, which makes its own: this one becomes a directory and a cgroup.
        errors.append(invalid("metadata.uid", uid, "must be letters, digits, '-' and '.', at most 128 characters"))
    for key, value in (metadata.get("labels") or {}).items():
        errors += each_invalid("metadata.labels", key, names.qualified_name(key))
        errors += each_invalid("metadata.labels", value, names.label_value(value))
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        errors += each_invalid("metadata.annotations", key, names.qualified_name(key.lower()))
    size = sum(len(f"{key}{value}".encode(errors="replace")) for key, value in annotations.items())
    if size > _MAX_ANNOTATIONS_BYTES:
        errors.append(f"metadata.annotations: Too long: may not be more than {_MAX_ANNOTATIONS_BYTES} bytes")
    return errors


def _spec(spec: dict[str, Any], pod: Object) -> list[str]:
    errors, volume_names = validate_volumes(spec.get("volumes") or ())
    errors += _containers(spec, volume_names)
    if spec.get("ephemeralContainers"):
        errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("schedulingGates") and spec.get("nodeName"):
        errors.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    errors += one_of("spec.restartPolicy", spec.get("restartPolicy"), ("Always", "OnFailure", "Never"))
    errors += not_negative("spec.terminationGracePeriodSeconds", spec.get("terminationGracePeriodSeconds"))
    errors += in_range("spec.activeDeadlineSeconds", spec.get("activeDeadlineSeconds"), 1, _MAX_INT32)
    errors += one_of("spec.os.name", (spec.get("os") or {}).get("name"), ("linux", "windows"))
    errors += validate_amounts(spec.get("overhead") or {}, "spec.overhead")
    errors += validate_pod_level(spec) + validate_claims(spec)
    errors += _naming(spec) + _security(spec) + _host_users(spec) + validate_placement(spec)
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.append(invalid("spec.shareProcessNamespace", True, detail))
    seen = set()
    for port in host_ports(pod):
        if port in seen:
            errors.append(duplicate("spec.containers.ports.hostPort", "/".join(map(str, port))))
        seen.add(port)
    return errors


def _containers(spec: dict[str, Any], volume_names: set[str]) -> list[str]:
    errors: list[str] = []
    taken: set[str] = set()
    host_network, grace = bool(spec.get("hostNetwork")), spec.get("terminationGracePeriodSeconds")
    if not spec.get("containers"):
        errors.append(required("spec.containers"))
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or ()):
            path = f"spec.{kind}[{index}]"
            init = kind == "initContainers"
            errors += validate_container(
                container, path, volume_names=volume_names, host_network=host_network, grace=grace
            )
            policies, never = container.get("resizePolicy") or (), spec.get("restartPolicy") == "Never"
            errors += validate_resize_beside(
                policies, f"{path}.resizePolicy", never=never and not is_sidecar(container)
            )
            if init and not is_sidecar(container):
                present = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe", "resizePolicy")
                detail = "may not be set for init containers without restartPolicy=Always"
                errors += [forbidden(f"{path}.{field}", detail) for field in present if container.get(field)]
            name = container.get("name")
            if name and name in taken:
                errors.append(duplicate(f"{path}.name", name))
            taken.add(name)
    return errors


def _naming(spec: dict[str, Any]) -> list[str]:
    """Host names and name resolution."""
    policies = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
    errors = one_of("spec.dnsPolicy", spec.get("dnsPolicy"), policies)
    config = spec.get("dnsConfig") or {}
    servers, searches = config.get("nameservers") or (), config.get("searches") or ()
    if spec.get("dnsPolicy") == "None" and not servers:
        detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        errors.append(required("spec.dnsConfig.nameservers", detail))
    if len(servers) > 3:
        errors.append(invalid("spec.dnsConfig.nameservers", servers, "must not have more than 3 nameservers"))
    for index, server in enumerate(servers):
        errors += each_invalid(f"spec.dnsConfig.nameservers[{index}]", server, names.ip_address(server))
    if len(searches) > 32:
        errors.append(invalid("spec.dnsConfig.searches", searches, "must not have more than 32 search paths"))
    for index, search in enumerate(searches):
        here = f"spec.dnsConfig.searches[{index}]"
        if search != ".":
            errors += each_invalid(here, search, names.dns_subdomain(search.removesuffix(".").replace("_", "x")))
    if sum(map(len, searches)) + len(searches) - 1 > _MAX_SEARCHES_CHARACTERS:
        errors.append(
            invalid(
                "spec.dnsConfig.searches", searches, f"must not have more than {_MAX_SEARCHES_CHARACTERS} characters"
            )
        )
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            errors.append(required(f"spec.dnsConfig.options[{index}]", "must not be empty"))
    for field in ("hostname", "subdomain"):
        if spec.get(field):
            errors += each_invalid(f"spec.{field}", spec[field], names.dns_label(spec[field]))
    if override := spec.get("hostnameOverride"):
        here = "spec.hostnameOverride"
        errors += each_invalid(here, override, names.dns_subdomain(override))
        if len(override) > _MAX_HOSTNAME_CHARACTERS:
            errors.append(invalid(here, override, f"must be no more than {_MAX_HOSTNAME_CHARACTERS} characters"))
        for field in ("setHostnameAsFQDN", "hostNetwork"):
            if spec.get(field):
                errors.append(forbidden(here, f"may not be set when {field} is true"))
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        path, ip = f"spec.hostAliases[{index}]", alias.get("ip") or ""
        errors += each_invalid(f"{path}.ip", ip, names.ip_address(ip))
        for host in alias.get("hostnames") or ():
            errors += each_invalid(f"{path}.hostnames", host, names.dns_subdomain(host))
    return errors


def _host_users(spec: dict[str, Any]) -> list[str]:
    """Return what goes with a user namespace of the pod's own, and what needs one."""
    errors = []
    own = spec.get("hostUsers") is False
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if own and spec.get(field):
            errors.append(forbidden(f"spec.{field}", "may not be true when `hostUsers` is false"))
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or ()):
            path = f"spec.{kind}[{index}]"
            if own and container.get("volumeDevices"):
                errors.append(forbidden(f"{path}.volumeDevices", "may not be set when `hostUsers` is false"))
            unmasked = (container.get("securityContext") or {}).get("procMount") == "Unmasked"
            if unmasked and not own:
                detail = "`hostUsers` must be false to use `Unmasked`"
                errors.append(invalid(f"{path}.securityContext.procMount", "Unmasked", detail))
    return errors


def _security(spec: dict[str, Any]) -> list[str]:
    context, path = spec.get("securityContext") or {}, "spec.securityContext"
    errors = []
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        errors += in_range(f"{path}.{field}", context.get(field), 0, _MAX_INT32)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        errors += in_range(f"{path}.supplementalGroups[{index}]", group, 0, _MAX_INT32)
    policy = f"{path}.supplementalGroupsPolicy"
    errors += one_of(policy, context.get("supplementalGroupsPolicy"), ("Merge", "Strict"))
    errors += one_of(f"{path}.fsGroupChangePolicy", context.get("fsGroupChangePolicy"), ("Always", "OnRootMismatch"))
    change = f"{path}.seLinuxChangePolicy"
    errors += one_of(change, context.get("seLinuxChangePolicy"), ("Recursive", "MountOption"))
    errors += validate_profile(context.get("seccompProfile"), f"{path}.seccompProfile")
    errors += validate_profile(context.get("appArmorProfile"), f"{path}.appArmorProfile")
    seen: set[str] = set()
    for index, sysctl in enumerate(context.get("sysctls") or ()):
        here, name = f"{path}.sysctls[{index}].name", (sysctl.get("name") or "").replace("/", ".")
        if not name:
            errors.append(required(here))
        elif not re.fullmatch(r"[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*", name):
            errors.append(invalid(here, sysctl["name"], "must be the name of a kernel parameter"))
        elif name in seen:
            errors.append(duplicate(here, name))
        seen.add(name)
    return errors
