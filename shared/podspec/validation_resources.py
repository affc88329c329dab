"""Finds what is wrong with resource lists: unreadable, negative, or asking for more than the limit."""

from typing import Any

from shared.model.quantity import QuantityError, parse_quantity
from shared.podspec import names
from shared.podspec.field_errors import duplicate, each_invalid, forbidden, invalid, not_found, required, unsupported
from shared.podspec.resources import (
    HUGEPAGES,
    container_totals,
    is_pod_level,
    parse_resources,
    pod_level,
    resource_list,
)
from shared.podspec.schema import at

_STANDARD = ("cpu", "memory", "ephemeral-storage")


def validate_resources(resources: dict[str, Any], path: str, *, of_container: bool = False) -> list[str]:
    """Return messages for limits and requests and for how they go together."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    errors = validate_amounts(limits, f"{path}.limits") + validate_amounts(requests, f"{path}.requests")
    most = parse_resources(limits)
    for name, amount in parse_resources(requests).items():
        if name in most and amount > most[name]:
            detail = f"must be less than or equal to {name} limit of {most[name]}"
            errors.append(invalid(f"{path}.requests", str(amount), detail))
        elif name.startswith(HUGEPAGES) and amount != most.get(name):
            errors.append(invalid(f"{path}.requests", str(amount), f"must be equal to {name} limit"))
    if of_container:
        for kind in ("limits", "requests"):
            for name in resources.get(kind) or {}:
                if "/" not in name and name not in _STANDARD and not name.startswith(HUGEPAGES):
                    detail = "must be a standard resource for containers"
                    errors.append(invalid(at(f"{path}.{kind}", name), name, detail))
    return errors


def validate_pod_level(spec: dict[str, Any]) -> list[str]:
    """Return messages for spec.resources, by itself and against what the containers ask for."""
    resources, path = spec.get("resources") or {}, "spec.resources"
    errors = validate_resources(resources, path)
    for kind in ("limits", "requests"):
        for name in resources.get(kind) or {}:
            if not is_pod_level(name):
                supported = ("cpu", "memory", f"{HUGEPAGES}<size>")
                errors.append(unsupported(at(f"{path}.{kind}", name), name, supported))
    if resources.get("claims"):
        errors.append(forbidden(f"{path}.claims", "claims may not be set for resources at pod-level"))
    if errors:
        return errors
    pod = {"spec": spec}
    given = pod_level(pod, "requests")
    for name, amount in container_totals(pod, "requests").items():
        if name in given and amount > given[name]:
            detail = f"must be greater than or equal to aggregate container requests of {amount}"
            errors.append(invalid(at(f"{path}.requests", name), str(given[name]), detail))
    most = pod_level(pod, "limits")
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or ()):
            for name, amount in resource_list(container, "limits").items():
                if name in most and amount > most[name]:
                    where = at(f"spec.{kind}[{index}].resources.limits", name)
                    detail = f"must be less than or equal to pod limits of {most[name]}"
                    errors.append(invalid(where, str(amount), detail))
    return errors


def validate_claims(spec: dict[str, Any]) -> list[str]:
    """Return messages for the resource claims of containers: each is one of the pod's, and is named once."""
    known = sorted({str(claim["name"]) for claim in spec.get("resourceClaims") or () if claim.get("name")})
    listed = f": {', '.join(known)}" if known else " which is empty"
    detail = f"must be one of the names in pod.spec.resourceClaims{listed}"
    errors = []
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or ()):
            seen: set[tuple[str, str]] = set()
            for number, claim in enumerate((container.get("resources") or {}).get("claims") or ()):
                here = f"spec.{kind}[{index}].resources.claims[{number}]"
                name, request = claim.get("name") or "", claim.get("request") or ""
                if (name, request) in seen:
                    errors.append(duplicate(here, f"{name}/{request}" if request else name))
                if not name:
                    errors.append(required(here))
                elif name not in known:
                    errors.append(f"{not_found(here, name)}: {detail}")
                seen.add((name, request))
    return errors


def validate_amounts(amounts: dict[str, Any], path: str) -> list[str]:
    """Return messages for one list of quantities."""
    errors = []
    for name, value in amounts.items():
        here = at(path, name)
        errors += each_invalid(here, name, names.qualified_name(name))
        try:
            if parse_quantity(value).nanos < 0:
                errors.append(invalid(here, value, "must be greater than or equal to 0"))
        except QuantityError as error:
            errors.append(invalid(here, value, str(error)))
    return errors
