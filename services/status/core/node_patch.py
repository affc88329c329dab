"""Makes the strategic merge patch between two Nodes, and decides whether it has to be sent (node.md 1.4, 1.5)."""

from services.status.core.node_addresses import existing_addresses
from services.status.core.node_status import OS_LABELS
from services.status.core.strategic_patch import NODE, two_way_patch
from shared.model.fields import dictionary
from shared.model.objects import Object

_ADDRESSES_ORDER = "$setElementOrder/addresses"


def node_patch(old: Object, new: Object) -> Object:
    """Return the patch of metadata and status. Its uid ensures that it applies to no other Node of the same name."""
    before, after = ({part: dictionary(node.get(part)) for part in ("metadata", "status")} for node in (old, new))
    patch = two_way_patch(before, after, NODE)
    status = dictionary(patch.get("status"))
    if "addresses" in status or _ADDRESSES_ORDER in status:
        # Two addresses may share a type, which is the merge key: only the complete list is unambiguous.
        wanted, had = existing_addresses(after["status"]), existing_addresses(before["status"])
        status.pop(_ADDRESSES_ORDER, None)
        status["addresses"] = [*wanted, {"$patch": "replace"}] if had else wanted
    if uid := before["metadata"].get("uid"):
        patch.setdefault("metadata", {})["uid"] = uid
    return patch


def reported_changes(old: Object, new: Object) -> Object:
    """Return the part of the difference that has to be sent: the status without heartbeats, and the labels of OS and
    architecture; {} = none. Other metadata is sent with the next patch."""
    before, after = ({"status": _without_heartbeats(dictionary(node.get("status")))} for node in (old, new))
    changed = two_way_patch(before, after, NODE)
    was, now = (dictionary(dictionary(node.get("metadata")).get("labels")) for node in (old, new))
    labels = {label: now.get(label) for label in OS_LABELS if was.get(label) != now.get(label)}
    return {**changed, **({"labels": labels} if labels else {})}


def metadata_differs(old: Object, new: Object) -> bool:
    """Return whether labels or annotations differ."""
    before, after = dictionary(old.get("metadata")), dictionary(new.get("metadata"))
    return any(dictionary(before.get(key)) != dictionary(after.get(key)) for key in ("labels", "annotations"))


def is_newer(node: Object, than: Object) -> bool:
    """Return whether a Node is a later version of the same Node `than`; False where they cannot be compared."""
    newer, older = dictionary(node.get("metadata")), dictionary(than.get("metadata"))
    if newer.get("uid") != older.get("uid"):
        return False
    versions = str(newer.get("resourceVersion", "")), str(older.get("resourceVersion", ""))
    return all(v.isascii() and v.isdecimal() for v in versions) and int(versions[0]) > int(versions[1])


def _without_heartbeats(status: Object) -> Object:
    conditions = status.get("conditions")
    if not isinstance(conditions, list):
        return status
    kept = [{k: v for k, v in c.items() if k != "lastHeartbeatTime"} for c in conditions if isinstance(c, dict)]
    return {**status, "conditions": sorted(kept, key=lambda c: str(c.get("type")))}
