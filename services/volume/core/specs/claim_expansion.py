"""Reads from the status of a claim how its volume is to be expanded on this node, and makes the patches of that status
(volumes.md 17); pure."""

from typing import Any

from services.volume.core.specs.expansion import Expansion, ExpansionFailure
from services.volume.core.specs.persistent_volume import PersistentVolume
from shared.model import objects
from shared.model.fields import dictionaries, dictionary, text
from shared.model.objects import Object
from shared.model.quantity import QuantityError, parse_quantity

_PENDING, _IN_PROGRESS, _INFEASIBLE = "NodeResizePending", "NodeResizeInProgress", "NodeResizeInfeasible"
_ENDED = ("FileSystemResizePending", "Resizing", "ControllerResizeError", "NodeResizeError")  # conditions
_NOT_REQUIRED = "volume.kubernetes.io/node-expansion-not-required"  # an annotation of a claim


def expansion_of(persistent: PersistentVolume) -> Expansion | None:
    """Return how the volume is to be expanded on this node; None = it is not."""
    claim, before = persistent.claim, persistent.claim_capacity
    status = dictionary(claim.get("status"))
    allocated = text(dictionary(status.get("allocatedResources")).get("storage"))
    state = text(dictionary(status.get("allocatedResourceStatuses")).get("storage"))
    recovery = bool(allocated or status.get("allocatedResources") or status.get("allocatedResourceStatuses"))
    requested = text(
        dictionary(dictionary(dictionary(claim.get("spec")).get("resources")).get("requests")).get("storage")
    )
    quantity = allocated or text(dictionary(persistent.spec.get("capacity")).get("storage"))
    size, updated = _bytes(quantity), 0 < persistent.capacity <= before
    if not (before and size) or (updated and not (recovery and _is_expanded_everywhere(persistent))):
        return None
    if recovery and not updated and state not in (_PENDING, _IN_PROGRESS):
        return None
    found = {text(condition.get("type")) for condition in dictionaries(status.get("conditions"))}
    return Expansion(
        namespace=objects.namespace(claim),
        claim=objects.name(claim),
        uid=objects.uid(claim),
        version=text(dictionary(claim.get("metadata")).get("resourceVersion")),
        node=persistent.node.name,
        size=size,
        before=min(before, size - 1),
        quantity=quantity,
        recovery=recovery,
        status=state,
        updated=updated,
        superseded=bool(requested) and _bytes(requested) != size,
        conditions=tuple(name for name in _ENDED if name in found),
    )


def patch_before(expansion: Expansion) -> Object | None:
    """Return the patch of the claim's status before the volume is expanded; None = there is none."""
    if not expansion.recovery or expansion.updated or expansion.status == _IN_PROGRESS:
        return None
    return {"allocatedResourceStatuses": {"storage": _IN_PROGRESS}}


def patch_after_success(expansion: Expansion) -> Object | None:
    """Return the patch of the claim's status after the volume was expanded; None = there is none."""
    if expansion.updated:
        return None
    patch: dict[str, Any] = {"capacity": {"storage": expansion.quantity}}
    if expansion.recovery:
        patch["allocatedResourceStatuses"] = {"storage": None}
    if expansion.conditions:
        patch["conditions"] = [{"$patch": "delete", "type": name} for name in expansion.conditions]
    return patch


def patch_after_failure(
    expansion: Expansion, failure: ExpansionFailure | None, error: str, now: str, *, again: bool
) -> Object | None:
    """Return the patch of the claim's status after a failure; None = there is none. `now`: RFC 3339; `again`: it has
    failed finally before."""
    if not expansion.recovery or failure in (None, ExpansionFailure.IN_USE):
        return None
    condition = {
        "type": "NodeResizeError",
        "status": "True",
        "lastTransitionTime": now,
        "message": f"failed to expand pvc with {error}",
    }
    if is_infeasible(expansion, failure, again=again):
        return {"allocatedResourceStatuses": {"storage": _INFEASIBLE}, "conditions": [condition]}
    return {"conditions": [condition]}


def is_infeasible(expansion: Expansion, failure: ExpansionFailure | None, *, again: bool) -> bool:
    """Return whether the claim's protocol counts this failure as final: no other attempt can succeed."""
    if failure is ExpansionFailure.INFEASIBLE:
        return expansion.recovery
    return expansion.recovery and expansion.superseded and again and failure is ExpansionFailure.FINAL


def _is_expanded_everywhere(persistent: PersistentVolume) -> bool:
    """Return whether each node expands the volume, also after the first one has reported the new size."""
    annotations = objects.annotations(persistent.claim)
    return "ReadWriteMany" in persistent.access_modes and _NOT_REQUIRED not in annotations


def _bytes(quantity: str) -> int:
    try:
        return max(0, parse_quantity(quantity).base()) if quantity else 0
    except QuantityError:
        return 0
