"""Decides whether the node has the labels that a pod or a PersistentVolume requires (pods.md 3.1, volumes.md 5.5);
pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from shared.model.objects import Object


def matches_node(pod: Object, node_name: str, labels: Mapping[str, str]) -> bool:
    """Return whether the node has what spec.nodeSelector and spec.affinity.nodeAffinity of the pod require."""
    spec = pod.get("spec") or {}
    wanted = spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return matches_terms(required.get("nodeSelectorTerms") or (), node_name, labels)


def matches_terms(terms: Iterable[Mapping[str, Any]], node_name: str, labels: Mapping[str, str]) -> bool:
    """Return whether the node matches one of the terms of a NodeSelector."""
    return any(_term(term, node_name, labels) for term in terms)


def _term(term: Mapping[str, Any], node_name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False  # an empty term selects nothing
    of_node = {"metadata.name": node_name}
    return all(holds(one, labels) for one in expressions) and all(holds(one, of_node) for one in fields)


def holds(requirement: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    """Return whether the labels `values` meet one expression: `key`, `operator`, `values`. An operator that is not
    known is met by none."""
    key, wanted = str(requirement.get("key") or ""), [str(v) for v in requirement.get("values") or ()]
    value = values.get(key)
    match requirement.get("operator"):
        case "In":
            return value is not None and value in wanted
        case "NotIn":
            return value is None or value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            found, limit = _integer(value), _integer(wanted[0] if len(wanted) == 1 else None)
            if found is None or limit is None:
                return False
            return found > limit if operator == "Gt" else found < limit
        case _:
            return False


def _integer(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None
