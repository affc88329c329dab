"""Finds what is wrong with one container of a pod."""

from typing import Any

from shared.podspec import names
from shared.podspec.field_errors import (
    duplicate,
    each_invalid,
    forbidden,
    in_range,
    invalid,
    not_found,
    one_of,
    required,
)
from shared.podspec.validation_environment import validate_environment
from shared.podspec.validation_handlers import PROBES, validate_lifecycle, validate_probe
from shared.podspec.validation_resources import validate_resources
from shared.podspec.validation_restart import validate_resize_policy, validate_restart_rules
from shared.podspec.validation_security import validate_security_context
from shared.podspec.validation_volume import PULL_POLICIES, path_errors

_MAX_PORT = 65535
_PROPAGATIONS = ("None", "HostToContainer", "Bidirectional")
_BIND_MOUNT_OPTIONS = ("noexec", "nodev", "nosuid")


def validate_container(
    container: dict[str, Any], path: str, *, volume_names: set[str], host_network: bool, grace: int | None = None
) -> list[str]:
    """Return messages for a regular or init container at `path`; `grace`: the pod's grace period in seconds."""
    name, image = container.get("name") or "", container.get("image") or ""
    errors = each_invalid(f"{path}.name", name, names.dns_label(name)) if name else [required(f"{path}.name")]
    if not image.strip():
        errors.append(required(f"{path}.image"))
    elif image != image.strip():
        errors.append(invalid(f"{path}.image", image, "must not have leading or trailing whitespace"))
    errors += one_of(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), PULL_POLICIES)
    policies = ("File", "FallbackToLogsOnError")
    errors += one_of(f"{path}.terminationMessagePolicy", container.get("terminationMessagePolicy"), policies)
    errors += _ports(container, path, host_network=host_network)
    errors += validate_environment(container, path, volume_names)
    errors += validate_resources(container.get("resources") or {}, f"{path}.resources", of_container=True)
    errors += validate_resize_policy(container.get("resizePolicy") or (), f"{path}.resizePolicy")
    errors += validate_restart_rules(container, path)
    errors += _mounts(container, path, volume_names)
    errors += _devices(container, path, volume_names)
    errors += validate_security_context(container.get("securityContext") or {}, f"{path}.securityContext")
    for probe in PROBES:
        if probe in container:
            errors += validate_probe(container[probe], f"{path}.{probe}")
    errors += validate_lifecycle(container.get("lifecycle") or {}, f"{path}.lifecycle", grace)
    return errors


def _ports(container: dict[str, Any], path: str, *, host_network: bool) -> list[str]:
    errors: list[str] = []
    taken: set[str] = set()
    for index, port in enumerate(container.get("ports") or ()):
        here, name = f"{path}.ports[{index}]", port.get("name") or ""
        if name:
            errors += each_invalid(f"{here}.name", name, names.port_name(name))
            if name in taken:
                errors.append(duplicate(f"{here}.name", name))
            taken.add(name)
        number, on_host = port.get("containerPort"), port.get("hostPort")
        if not number:
            errors.append(required(f"{here}.containerPort"))
        errors += in_range(f"{here}.containerPort", number or None, 1, _MAX_PORT)
        errors += in_range(f"{here}.hostPort", on_host or None, 1, _MAX_PORT)
        if host_network and number and on_host != number:
            errors.append(invalid(f"{here}.hostPort", on_host, "must match `containerPort` when `hostNetwork` is true"))
        errors += one_of(f"{here}.protocol", port.get("protocol"), ("SCTP", "TCP", "UDP"))
        if port.get("hostIP"):
            errors += each_invalid(f"{here}.hostIP", port["hostIP"], names.ip_address(port["hostIP"]))
    return errors


def _mounts(container: dict[str, Any], path: str, volume_names: set[str]) -> list[str]:
    errors: list[str] = []
    taken: set[str] = set()
    privileged = bool((container.get("securityContext") or {}).get("privileged"))
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        here, name, where = f"{path}.volumeMounts[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            errors.append(required(f"{here}.name"))
        elif name not in volume_names:
            errors.append(not_found(f"{here}.name", name))
        if not where:
            errors.append(required(f"{here}.mountPath"))
        elif where in taken:
            errors.append(invalid(f"{here}.mountPath", where, "must be unique"))
        taken.add(where)
        for field in ("subPath", "subPathExpr"):
            errors += path_errors(mount.get(field) or "", f"{here}.{field}")
        if mount.get("subPath") and mount.get("subPathExpr"):
            errors.append(
                invalid(f"{here}.subPathExpr", mount["subPathExpr"], "subPathExpr and subPath are mutually exclusive")
            )
        errors += one_of(f"{here}.mountPropagation", mount.get("mountPropagation"), _PROPAGATIONS)
        if mount.get("mountPropagation") == "Bidirectional" and not privileged:
            detail = "Bidirectional mount propagation is available only to privileged containers"
            errors.append(forbidden(f"{here}.mountPropagation", detail))
        errors += _recursive_read_only(mount, here)
        for number, option in enumerate(mount.get("bindMountOptions") or ()):
            errors += one_of(f"{here}.bindMountOptions[{number}]", option, _BIND_MOUNT_OPTIONS)
    return errors


def _devices(container: dict[str, Any], path: str, volume_names: set[str]) -> list[str]:
    errors: list[str] = []
    mounted = {mount.get("mountPath") for mount in container.get("volumeMounts") or ()}
    taken: set[str] = set()
    for index, device in enumerate(container.get("volumeDevices") or ()):
        here, name, where = f"{path}.volumeDevices[{index}]", device.get("name") or "", device.get("devicePath") or ""
        if not name:
            errors.append(required(f"{here}.name"))
        elif name not in volume_names:
            errors.append(not_found(f"{here}.name", name))
        if not where:
            errors.append(required(f"{here}.devicePath"))
        elif where in taken:
            errors.append(invalid(f"{here}.devicePath", where, "must be unique"))
        elif where in mounted:
            errors.append(invalid(f"{here}.devicePath", where, "must not already exist as a path in volumeMounts"))
        elif ".." in where.split("/"):
            errors.append(invalid(f"{here}.devicePath", where, "must not contain '..'"))
        taken.add(where)
    return errors


def _recursive_read_only(mount: dict[str, Any], path: str) -> list[str]:
    value = mount.get("recursiveReadOnly")
    errors = one_of(f"{path}.recursiveReadOnly", value, ("Disabled", "IfPossible", "Enabled"))
    if value in ("IfPossible", "Enabled"):
        if not mount.get("readOnly"):
            errors.append(forbidden(f"{path}.recursiveReadOnly", "may only be specified when readOnly is true"))
        if mount.get("mountPropagation") not in (None, "None"):
            detail = "may only be specified when mountPropagation is None or not specified"
            errors.append(forbidden(f"{path}.recursiveReadOnly", detail))
    return errors
