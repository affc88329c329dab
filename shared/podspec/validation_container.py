"""What is wrong with one container of a pod."""

from typing import Any

from shared.podspec import names
from shared.podspec.field_errors import (
    duplicate,
    each_invalid,
    forbidden,
    in_range,
    invalid,
    not_found,
    not_negative,
    one_of,
    required,
)
from shared.podspec.field_ref import is_field, is_resource
from shared.podspec.quantity import is_quantity
from shared.podspec.validation_resources import validate_resources
from shared.podspec.validation_security import validate_security_context
from shared.podspec.validation_volume import PULL_POLICIES, path_errors

_MAX_PORT = 65535
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_ENV_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_PROPAGATIONS = ("None", "HostToContainer", "Bidirectional")


def validate_container(
    container: dict[str, Any], path: str, *, volume_names: set[str], host_network: bool
) -> list[str]:
    """Messages for a regular or init container at `path`."""
    name, image = container.get("name") or "", container.get("image") or ""
    errors = each_invalid(f"{path}.name", name, names.dns_label(name)) if name else [required(f"{path}.name")]
    if not image.strip():
        errors.append(required(f"{path}.image"))
    elif image != image.strip():
        errors.append(invalid(f"{path}.image", image, "must not have leading or trailing whitespace"))
    errors += one_of(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), PULL_POLICIES)
    errors += one_of(f"{path}.restartPolicy", container.get("restartPolicy"), ("Always", "OnFailure", "Never"))
    policies = ("File", "FallbackToLogsOnError")
    errors += one_of(f"{path}.terminationMessagePolicy", container.get("terminationMessagePolicy"), policies)
    errors += _ports(container, path, host_network=host_network)
    errors += _env(container, path)
    errors += validate_resources(container.get("resources") or {}, f"{path}.resources")
    errors += _mounts(container, path, volume_names)
    errors += validate_security_context(container.get("securityContext") or {}, f"{path}.securityContext")
    for probe in _PROBES:
        if probe in container:
            errors += _probe(container[probe], f"{path}.{probe}")
    for hook in ("postStart", "preStop"):
        handler = (container.get("lifecycle") or {}).get(hook)
        if handler is not None:
            errors += _handler(handler, f"{path}.lifecycle.{hook}", ("exec", "httpGet", "tcpSocket", "sleep"))
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


def _env(container: dict[str, Any], path: str) -> list[str]:
    errors: list[str] = []
    for index, variable in enumerate(container.get("env") or ()):
        here, name = f"{path}.env[{index}]", variable.get("name") or ""
        if not name:
            errors.append(required(f"{here}.name"))
        else:
            errors += each_invalid(f"{here}.name", name, names.env_name(name))
        if "valueFrom" in variable:
            errors += _value_from(variable["valueFrom"], f"{here}.valueFrom", has_value=bool(variable.get("value")))
    for index, source in enumerate(container.get("envFrom") or ()):
        if ("configMapRef" in source) == ("secretRef" in source):
            detail = "must specify one of: `configMapRef` or `secretRef`"
            errors.append(invalid(f"{path}.envFrom[{index}]", "", detail))
    return errors


def _value_from(source: dict[str, Any], path: str, *, has_value: bool) -> list[str]:
    given = [kind for kind in _ENV_SOURCES if kind in source]
    if not given:
        return [invalid(path, "", f"must specify one of: {', '.join(f'`{kind}`' for kind in _ENV_SOURCES)}")]
    errors = []
    if has_value:
        errors.append(invalid(path, "", "may not be specified when `value` is not empty"))
    if len(given) > 1:
        errors.append(invalid(path, "", "may not have more than one field specified at a time"))
    if "fieldRef" in source:
        where, field = f"{path}.fieldRef.fieldPath", source["fieldRef"].get("fieldPath") or ""
        if not field:
            errors.append(required(where))
        elif not is_field(field):
            errors.append(invalid(where, field, "is no field that an environment variable can hold"))
    if "resourceFieldRef" in source:
        reference, where = source["resourceFieldRef"], f"{path}.resourceFieldRef"
        resource = reference.get("resource") or ""
        if not resource:
            errors.append(required(f"{where}.resource"))
        elif not is_resource(resource):
            errors.append(invalid(f"{where}.resource", resource, "must name a request or limit, as `limits.cpu`"))
        if "divisor" in reference and not is_quantity(reference["divisor"]):
            errors.append(invalid(f"{where}.divisor", reference["divisor"], "must be a quantity"))
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
    for index, device in enumerate(container.get("volumeDevices") or ()):
        here, name = f"{path}.volumeDevices[{index}]", device.get("name") or ""
        errors += [] if name in volume_names else [not_found(f"{here}.name", name)]
        errors += [] if device.get("devicePath") else [required(f"{here}.devicePath")]
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


def _probe(probe: dict[str, Any], path: str) -> list[str]:
    errors = _handler(probe, path, ("exec", "httpGet", "tcpSocket", "grpc"))
    for field in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        errors += not_negative(f"{path}.{field}", probe.get(field))
    if not path.endswith("readinessProbe") and probe.get("successThreshold") not in (None, 1):
        errors.append(invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1"))
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and path.endswith("readinessProbe"):
        errors.append(invalid(f"{path}.terminationGracePeriodSeconds", grace, "must not be set for readinessProbes"))
    elif grace is not None and grace <= 0:
        errors.append(invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0"))
    return errors


def _handler(handler: dict[str, Any], path: str, kinds: tuple[str, ...]) -> list[str]:
    given = [kind for kind in kinds if kind in handler]
    if not given:
        return [required(path, "must specify a handler type")]
    errors = [forbidden(f"{path}.{kind}", "may not specify more than 1 handler type") for kind in given[1:]]
    kind, here = given[0], f"{path}.{given[0]}"
    action = handler[kind]
    if kind == "exec" and not action.get("command"):
        errors.append(required(f"{here}.command"))
    if kind in ("httpGet", "tcpSocket", "grpc"):
        errors += _handler_port(action.get("port"), f"{here}.port")
    if kind == "httpGet":
        errors += [] if action.get("path") else [required(f"{here}.path")]
        errors += one_of(f"{here}.scheme", action.get("scheme"), ("HTTP", "HTTPS"))
    if kind == "sleep":
        errors += not_negative(f"{here}.seconds", action.get("seconds"))
    return errors


def _handler_port(port: int | str | None, path: str) -> list[str]:
    if port is None:
        return [required(path)]
    if isinstance(port, str):
        return each_invalid(path, port, names.port_name(port))
    return in_range(path, port, 1, _MAX_PORT)
