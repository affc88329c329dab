"""Reads the conditions in the status of a pod or node."""

from shared.model.objects import Object


def is_ready(obj: Object) -> bool:
    """Return whether the condition Ready of a pod or node is True."""
    return condition_of(obj, "Ready").get("status") == "True"


def condition_of(obj: Object, kind: str) -> Object:
    """Return a condition by its type; {} where there is none."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == kind), {})
