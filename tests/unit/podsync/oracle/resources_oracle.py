"""Computes the QoS class and the resources of a drawn pod: written from node.md 4.19, and from nothing else."""

import re
from fractions import Fraction
from functools import cache
from typing import Any

Json = dict[str, Any]
_NONE = Fraction(0)
_UNITS = {"": Fraction(1), "m": Fraction(1, 1000), "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30)}


def compute_qos(pod: Json) -> str:
    """node.md 4.19 "QoS class"."""
    spec = pod["spec"]
    holders = [*spec.get("initContainers", []), *spec["containers"]]
    supported = {
        kind: {name: amount for name, amount in amounts.items() if name in ("cpu", "memory")}
        for kind, amounts in spec.get("resources", {}).items()
    }
    if any(supported.values()):
        holders = [spec]
    sums: dict[str, dict[str, Fraction]] = {"requests": {}, "limits": {}}
    each_limited = True
    for holder in holders:
        resources = holder.get("resources", {})
        for kind, totals in sums.items():
            for name, amount in resources.get(kind, {}).items():
                if name in ("cpu", "memory"):
                    totals[name] = totals.get(name, _NONE) + _amount(amount)
        each_limited &= {"cpu", "memory"} <= resources.get("limits", {}).keys()
    if not sums["requests"] and not sums["limits"]:
        return "BestEffort"
    return "Guaranteed" if each_limited and sums["requests"] == sums["limits"] else "Burstable"


def total_resources(pod: Json, kind: str) -> dict[str, Fraction]:
    """node.md 4.19 "Pod requests" and "Limits": `kind` is requests or limits; amounts in units."""
    spec = pod["spec"]
    running: dict[str, Fraction] = {}
    for container in spec["containers"]:
        _add(running, _amounts(container, kind))
    sidecars: dict[str, Fraction] = {}
    starting: dict[str, Fraction] = {}
    for container in spec.get("initContainers", []):
        if container.get("restartPolicy") == "Always":
            _add(running, _amounts(container, kind))
            _add(sidecars, _amounts(container, kind))
            step = dict(sidecars)
        else:
            step = dict(sidecars)
            _add(step, _amounts(container, kind))
        for name, amount in step.items():
            starting[name] = max(starting.get(name, _NONE), amount)
    total = {name: max(running.get(name, 0), starting.get(name, 0)) for name in running | starting}
    for name, amount in spec.get("resources", {}).get(kind, {}).items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            total[name] = _amount(amount)
    for name, amount in spec.get("overhead", {}).items():
        if kind == "requests" or name in total:
            total[name] = total.get(name, _NONE) + _amount(amount)
    return {name: Fraction(amount) for name, amount in total.items()}


def _amounts(holder: Json, kind: str) -> dict[str, Fraction]:
    return {name: _amount(text) for name, text in holder.get("resources", {}).get(kind, {}).items()}


@cache
def _amount(text: str) -> Fraction:
    number, unit = re.fullmatch(r"([0-9.]+)(\D*)", text).groups()  # type: ignore[union-attr]
    return Fraction(number) * _UNITS[unit]


def _add(total: dict[str, Fraction], more: dict[str, Fraction]) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount
