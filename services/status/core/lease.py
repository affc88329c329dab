"""The node's Lease: what is written at its creation and at every renewal (node.md 2)."""

import copy

from shared.model.objects import Object

RENEW_FRACTION = 0.25  # of the lease duration
JITTER = 0.04
# Of the lease duration: with the renewal interval before it, a read without an answer leaves time for another one.
READ_FRACTION = 0.625


def renew_interval(duration: float) -> float:
    """Seconds between two renewals, before jitter."""
    return duration * RENEW_FRACTION


def read_timeout(duration: float) -> float:
    """Return the seconds for a GET on behalf of the Lease: 25 for 40 seconds, so that an API server that takes 20 is
    still read. The kubelet has 10 seconds, as for the renewal itself."""
    return duration * READ_FRACTION


def new_lease(node_name: str, duration: float, now: str, owner_uid: str) -> Object:
    """The Lease to create. `now`: RFC3339 with microseconds; `duration`: seconds."""
    lease: Object = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node_name, "namespace": "kube-node-lease"},
    }
    return renewed(lease, node_name, duration, now, owner_uid)


def renewed(lease: Object, node_name: str, duration: float, now: str, owner_uid: str) -> Object:
    """A copy with this moment in it. `owner_uid`: the Node's uid as far as it is known, "" = leave the owner."""
    lease = copy.deepcopy(lease)
    for part in ("metadata", "spec"):
        if not isinstance(lease.get(part), dict):
            lease[part] = {}
    lease["spec"] |= {"holderIdentity": node_name, "leaseDurationSeconds": int(duration), "renewTime": now}
    if owner_uid and needs_owner(lease, node_name, owner_uid):
        owner = {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": owner_uid}
        lease["metadata"]["ownerReferences"] = [owner]
    return lease


def has_owner(lease: Object) -> bool:
    """Whether the Lease has an owner, so that it is garbage collected with it."""
    return bool(_owners(lease))


def needs_owner(lease: Object, node_name: str, owner_uid: str) -> bool:
    """Whether it has no owner, or an earlier Node object of our name: the Lease would be collected with it."""
    owners = _owners(lease)
    earlier = [o for o in owners if o.get("kind") == "Node" and o.get("name") == node_name]
    return not owners or any(owner.get("uid") != owner_uid for owner in earlier)


def _owners(lease: Object) -> list[Object]:
    metadata = lease.get("metadata")
    owners = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    return [owner for owner in owners if isinstance(owner, dict)] if isinstance(owners, list) else []
