"""Finds what is wrong with probes and with the lifecycle hooks of a container."""

import re
from typing import Any

from shared.podspec import names
from shared.podspec.field_errors import each_invalid, forbidden, in_range, invalid, not_negative, one_of, required

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_MAX_PORT = 65535
_HEADER = re.compile(r"[-A-Za-z0-9]+", re.ASCII)


def validate_lifecycle(lifecycle: dict[str, Any], path: str, grace: int | None) -> list[str]:
    """Return messages for postStart and preStop; `grace`: the pod's grace period in seconds, which no sleep may
    exceed."""
    errors = []
    for hook in ("postStart", "preStop"):
        handler = lifecycle.get(hook)
        if handler is None:
            continue
        here = f"{path}.{hook}"
        errors += _handler(handler, here, ("exec", "httpGet", "tcpSocket", "sleep"))
        seconds = (handler.get("sleep") or {}).get("seconds")
        if seconds is not None and (seconds < 0 or (grace is not None and seconds > grace)):
            detail = f"must be non-negative and no more than terminationGracePeriodSeconds ({grace})"
            errors.append(invalid(f"{here}.sleep.seconds", seconds, detail))
    return errors


def validate_probe(probe: dict[str, Any], path: str) -> list[str]:
    """Return messages for one probe."""
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
    if kind == "grpc":
        errors += one_of(f"{here}.mode", action.get("mode"), ("Plaintext", "TLS"))
    if kind == "httpGet":
        errors += [] if action.get("path") else [required(f"{here}.path")]
        errors += one_of(f"{here}.scheme", action.get("scheme"), ("HTTP", "HTTPS"))
        errors += one_of(f"{here}.protocol", action.get("protocol"), ("HTTP1", "HTTP2"))
        for index, header in enumerate(action.get("httpHeaders") or ()):
            where, name = f"{here}.httpHeaders[{index}].name", header.get("name") or ""
            if not name:
                errors.append(required(where))
            elif not _HEADER.fullmatch(name):
                errors.append(
                    invalid(where, name, "a valid HTTP header must consist of alphanumeric characters or '-'")
                )
            if any(character in (header.get("value") or "") for character in "\r\n"):
                detail = "must not contain line breaks"
                errors.append(invalid(f"{here}.httpHeaders[{index}].value", header["value"], detail))
    return errors


def _handler_port(port: int | str | None, path: str) -> list[str]:
    if port is None:
        return [required(path)]
    if isinstance(port, str):
        return each_invalid(path, port, names.port_name(port))
    return in_range(path, port, 1, _MAX_PORT)
