"""Compares the taints of the node with what a pod tolerates (pods.md 3.2). Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from shared.model.objects import Object

NO_EXECUTE = "NoExecute"


def tolerates(pod: Object, taint: Mapping[str, Any]) -> bool:
    """Return whether some toleration of the pod fits the taint."""
    return any(_fits(toleration, taint) for toleration in (pod.get("spec") or {}).get("tolerations") or ())


def untolerated(pod: Object, taints: Iterable[Mapping[str, Any]], effect: str) -> bool:
    """Return whether a taint of this effect is not tolerated by the pod."""
    return any(taint.get("effect") == effect and not tolerates(pod, taint) for taint in taints)


def _fits(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return operator == "Equal" and (toleration.get("value") or "") == (taint.get("value") or "")
