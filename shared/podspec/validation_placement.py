"""Finds what is wrong with the placement of a pod: selectors, affinity, tolerations, classes."""

from typing import Any

from shared.podspec import names
from shared.podspec.field_errors import each_invalid, forbidden, in_range, invalid, one_of, required

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_MAX_INT32 = 2**31 - 1


def validate_placement(spec: dict[str, Any]) -> list[str]:
    """Return messages for all of it."""
    errors = _node_selector(spec.get("nodeSelector") or {}) + _affinity(spec.get("affinity") or {})
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        errors += _toleration(toleration, f"spec.tolerations[{index}]")
    for index, spread in enumerate(spec.get("topologySpreadConstraints") or ()):
        errors += _spread(spread, f"spec.topologySpreadConstraints[{index}]")
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        kind = gate.get("conditionType") or ""
        errors += each_invalid(f"spec.readinessGates[{index}].conditionType", kind, names.qualified_name(kind))
    for field in ("runtimeClassName", "priorityClassName", "serviceAccountName"):
        if value := spec.get(field):
            errors += each_invalid(f"spec.{field}", value, names.dns_subdomain(value))
    errors += one_of("spec.preemptionPolicy", spec.get("preemptionPolicy"), ("PreemptLowerPriority", "Never"))
    return errors


def _node_selector(selector: dict[str, str]) -> list[str]:
    errors = []
    for key, value in selector.items():
        errors += each_invalid("spec.nodeSelector", key, names.qualified_name(key))
        errors += each_invalid("spec.nodeSelector", value, names.label_value(value))
    return errors


def _affinity(affinity: dict[str, Any]) -> list[str]:
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    wanted = (affinity.get("nodeAffinity") or {}).get(field)
    if wanted is None:
        return []
    path = f"spec.affinity.nodeAffinity.{field}.nodeSelectorTerms"
    terms = wanted.get("nodeSelectorTerms") or ()
    errors = [] if terms else [required(path, "must have at least one node selector term")]
    for index, term in enumerate(terms):
        for kind in ("matchExpressions", "matchFields"):
            for number, expression in enumerate(term.get(kind) or ()):
                errors += _expression(expression, f"{path}[{index}].{kind}[{number}]", of_fields=kind == "matchFields")
    return errors


def _expression(expression: dict[str, Any], path: str, *, of_fields: bool) -> list[str]:
    key, operator, values = (expression.get(field) for field in ("key", "operator", "values"))
    supported = ("In", "NotIn") if of_fields else _OPERATORS
    errors = one_of(f"{path}.operator", operator, supported) if operator else [required(f"{path}.operator")]
    if of_fields:
        errors += one_of(f"{path}.key", key or "", ("metadata.name",))
        if len(values or ()) != 1:
            errors.append(required(f"{path}.values", "must be only one value when matching a field"))
        return errors
    errors += each_invalid(f"{path}.key", key or "", names.qualified_name(key or ""))
    if operator in ("In", "NotIn") and not values:
        errors.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    if operator in ("Exists", "DoesNotExist") and values:
        errors.append(forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
    if operator in ("Gt", "Lt") and len(values or ()) != 1:
        errors.append(required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
    return errors


def _toleration(toleration: dict[str, Any], path: str) -> list[str]:
    key, operator, effect = (toleration.get(field) or "" for field in ("key", "operator", "effect"))
    errors = each_invalid(f"{path}.key", key, names.qualified_name(key)) if key else []
    errors += one_of(f"{path}.operator", operator or None, ("Equal", "Exists", "Lt", "Gt"))
    if not key and operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.append(invalid(f"{path}.operator", operator, detail))
    if operator == "Exists" and toleration.get("value"):
        detail = "value must be empty when `operator` is 'Exists'"
        errors.append(invalid(f"{path}.operator", operator, detail))
    errors += one_of(f"{path}.effect", effect or None, _EFFECTS)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        errors.append(invalid(f"{path}.effect", effect, detail))
    return errors


def _spread(spread: dict[str, Any], path: str) -> list[str]:
    errors = in_range(f"{path}.maxSkew", spread.get("maxSkew") or 0, 1, _MAX_INT32)
    errors += in_range(f"{path}.minDomains", spread.get("minDomains"), 1, _MAX_INT32)
    errors += [] if spread.get("topologyKey") else [required(f"{path}.topologyKey", "can not be empty")]
    return errors + one_of(
        f"{path}.whenUnsatisfiable", spread.get("whenUnsatisfiable") or "", ("DoNotSchedule", "ScheduleAnyway")
    )
