"""Finds what is wrong with how a container is restarted: its own policy, rules on exit codes, and what a resize
does."""

from collections.abc import Sequence
from typing import Any

from shared.podspec.field_errors import duplicate, in_range, invalid, one_of, required

_MAX_RULES, _MAX_EXIT_CODES = 20, 255


def validate_restart_rules(container: dict[str, Any], path: str) -> list[str]:
    """Return messages for restartPolicy and restartPolicyRules of one container."""
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or ()
    errors = one_of(f"{path}.restartPolicy", policy, ("Always", "OnFailure", "Never"))
    here = f"{path}.restartPolicyRules"
    if rules and not policy:
        errors.append(required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used"))
    if len(rules) > _MAX_RULES:
        errors.append(f"{here}: Too many: {len(rules)}: must have at most {_MAX_RULES} items")
    for index, rule in enumerate(rules):
        errors += _rule(rule, f"{here}[{index}]")
    return errors


def _rule(rule: dict[str, Any], path: str) -> list[str]:
    action, condition = rule.get("action"), rule.get("exitCodes")
    errors = one_of(f"{path}.action", action, ("Restart", "RestartAllContainers")) if action else []
    if not action:
        errors.append(required(f"{path}.action"))
    here = f"{path}.exitCodes"
    if condition is None:
        return [*errors, required(here, "must be specified")]
    operator, values = condition.get("operator"), condition.get("values") or ()
    errors += one_of(f"{here}.operator", operator, ("In", "NotIn")) if operator else [required(f"{here}.operator")]
    if not values:
        errors.append(required(f"{here}.values", "must specify at least one value"))
    if len(values) > _MAX_EXIT_CODES:
        errors.append(f"{here}.values: Too many: {len(values)}: must have at most {_MAX_EXIT_CODES} items")
    for index, value in enumerate(values):
        errors += in_range(f"{here}.values[{index}]", value, 0, 255)
        if value in values[:index]:
            errors.append(duplicate(f"{here}.values[{index}]", value))
    return errors


def validate_resize_policy(policies: Sequence[dict[str, Any]], path: str) -> list[str]:
    """Return messages for resizePolicy."""
    errors: list[str] = []
    taken: set[str] = set()
    for index, policy in enumerate(policies):
        here, resource, restart = (
            f"{path}[{index}]",
            policy.get("resourceName") or "",
            policy.get("restartPolicy") or "",
        )
        wanted = one_of(f"{here}.resourceName", resource, ("cpu", "memory"))
        errors += wanted if resource else [required(f"{here}.resourceName")]
        if resource in taken:
            errors.append(duplicate(f"{here}.resourceName", resource))
        taken.add(resource)
        wanted = one_of(f"{here}.restartPolicy", restart, ("NotRequired", "RestartContainer"))
        errors += wanted if restart else [required(f"{here}.restartPolicy")]
    return errors


def validate_resize_beside(policies: Sequence[dict[str, Any]], path: str, *, never: bool) -> list[str]:
    """Return messages for resizePolicy in a pod that restarts nothing."""
    detail = "must not be 'RestartContainer' if `restartPolicy` is 'Never'"
    return [
        invalid(f"{path}[{index}].restartPolicy", policy["restartPolicy"], detail)
        for index, policy in enumerate(policies)
        if never and policy.get("restartPolicy") == "RestartContainer"
    ]
