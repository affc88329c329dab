"""What is wrong with resource lists: unreadable, negative, or asking for more than the limit."""

from typing import Any

from shared.podspec import names
from shared.podspec.field_errors import each_invalid, invalid
from shared.podspec.quantity import QuantityError, parse_quantity
from shared.podspec.resources import parse_resources
from shared.podspec.schema import at


def validate_resources(resources: dict[str, Any], path: str) -> list[str]:
    """Messages for limits and requests and for how they go together."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    errors = validate_amounts(limits, f"{path}.limits") + validate_amounts(requests, f"{path}.requests")
    most = parse_resources(limits)
    for name, amount in parse_resources(requests).items():
        if name in most and amount > most[name]:
            detail = f"must be less than or equal to {name} limit of {most[name]}"
            errors.append(invalid(f"{path}.requests", str(amount), detail))
    return errors


def validate_amounts(amounts: dict[str, Any], path: str) -> list[str]:
    """Messages for one list of quantities."""
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
