"""The strategic merge patch that makes one Node another, and whether it is news (node.md 1.4, 1.5)."""

from services.status.core.node_addresses import existing_addresses
from services.status.core.node_status import OS_LABELS
from services.status.core.strategic_patch import NODE, two_way_patch
from shared.model.objects import Object

_ADDRESSES_ORDER = "$setElementOrder/addresses"


def node_patch(old: Object, new: Object) -> Object:
    """The difference of metadata and status. The uid in it makes it apply to no other Node of the same name."""
    before, after = ({"metadata": _map(node, "metadata"), "status": _map(node, "status")} for node in (old, new))
    patch = two_way_patch(before, after, NODE)
    status = _map(patch, "status")
    if "addresses" in status or _ADDRESSES_ORDER in status:
        # Two addresses may share a type, which is the merge key: only the complete list is unambiguous.
        wanted, had = existing_addresses(after["status"]), existing_addresses(before["status"])
        status.pop(_ADDRESSES_ORDER, None)
        status["addresses"] = [*wanted, {"$patch": "replace"}] if had else wanted
    if uid := before["metadata"].get("uid"):
        patch.setdefault("metadata", {})["uid"] = uid
    return patch


def reported_changes(old: Object, new: Object) -> Object:
    """What of the difference counts as a change: the status but for heartbeats, and the labels of OS and
    architecture. {} = nothing. Other metadata rides along with the next patch."""
    before, after = ({"status": _without_heartbeats(_map(node, "status"))} for node in (old, new))
    changed = two_way_patch(before, after, NODE)
    was, now = (_map(_map(node, "metadata"), "labels") for node in (old, new))
    labels = {label: now.get(label) for label in OS_LABELS if was.get(label) != now.get(label)}
    return {**changed, **({"labels": labels} if labels else {})}


def metadata_differs(old: Object, new: Object) -> bool:
    """Labels or annotations differ."""
    before, after = _map(old, "metadata"), _map(new, "metadata")
    return any(_map(before, key) != _map(after, key) for key in ("labels", "annotations"))


def is_newer(one: Object, other: Object) -> bool:
    """Whether `one` is a later version of the same Node than `other`; False where they cannot be compared."""
    mine, theirs = _map(one, "metadata"), _map(other, "metadata")
    if mine.get("uid") != theirs.get("uid"):
        return False
    versions = str(mine.get("resourceVersion", "")), str(theirs.get("resourceVersion", ""))
    return all(v.isascii() and v.isdecimal() for v in versions) and int(versions[0]) > int(versions[1])


def _without_heartbeats(status: Object) -> Object:
    conditions = status.get("conditions")
    if not isinstance(conditions, list):
        return status
    kept = [{k: v for k, v in c.items() if k != "lastHeartbeatTime"} for c in conditions if isinstance(c, dict)]
    return {**status, "conditions": sorted(kept, key=lambda c: str(c.get("type")))}


def _map(obj: Object, key: str) -> Object:
    found = obj.get(key)
    return found if isinstance(found, dict) else {}
