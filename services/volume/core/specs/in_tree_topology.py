"""Translates where a volume of an in-tree plugin may be used into the labels of its CSI driver (volumes.md 15); pure.

The node affinity of the volume counts before the zone in its labels, and today's names of both before those of the
beta. Zones are separated by `__` in a label.
"""

from collections.abc import Mapping
from typing import Any

from shared.model.fields import dictionaries, dictionary, text
from shared.model.objects import Object

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
SEPARATOR = "__"


def translated_affinity(affinity: Any, labels: Mapping[str, str], key: str) -> Object:
    """Return the node affinity of a PersistentVolume that names zones by `key`, the label of the driver; {} = the
    volume has none. `labels`: of the PersistentVolume."""
    terms = dictionaries(dictionary(dictionary(affinity).get("required")).get("nodeSelectorTerms"))
    zone, region = _names(terms, labels)
    if _values(terms, zone):
        terms = _renamed(terms, zone, key)
    elif zones := sorted({name.strip() for name in labels.get(zone, "").split(SEPARATOR)} - {""}):
        added = {"key": key, "operator": "In", "values": zones}
        terms = [
            {**term, "matchExpressions": [*dictionaries(term.get("matchExpressions")), added]} for term in terms or [{}]
        ]
    if region == BETA_REGION and _values(terms, region):
        terms = _renamed(terms, region, REGION)
    if not terms:
        return dictionary(affinity)
    return {**dictionary(affinity), "required": {"nodeSelectorTerms": terms}}


def _names(terms: list[Object], labels: Mapping[str, str]) -> tuple[str, str]:
    """Return the labels of zone and region that the volume uses."""
    used = {text(one.get("key")) for one in _expressions(terms)}
    for found in (used, labels):
        for zone, region in ((ZONE, REGION), (BETA_ZONE, BETA_REGION)):
            if zone in found:
                return zone, region
    return ZONE, REGION


def _expressions(terms: list[Object]) -> list[Object]:
    return [one for term in terms for one in dictionaries(term.get("matchExpressions"))]


def _values(terms: list[Object], key: str) -> list[Any]:
    return [one["values"] for one in _expressions(terms) if one.get("key") == key and one.get("values")]


def _renamed(terms: list[Object], old: str, new: str) -> list[Object]:
    def renamed(one: Object) -> Object:
        return {**one, "key": new} if one.get("key") == old else one

    return [
        {**term, "matchExpressions": [renamed(one) for one in dictionaries(term.get("matchExpressions"))]}
        if "matchExpressions" in term
        else term
        for term in terms
    ]
