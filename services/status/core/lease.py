"""Makes the node's Lease for its creation and for every renewal (node.md 2)."""

import copy

from shared.model.fields import dictionaries, dictionary
from shared.model.objects import Object

RENEW_FRACTION = 0.25  # of the lease duration
JITTER = 0.04  # of the renewal interval
# Of the lease duration: after the renewal interval and a read without an answer, time is left for another read.
READ_FRACTION = 0.625


def renew_interval(duration: float) -> float:
    """Return the seconds between two renewals, before jitter."""
    return duration * RENEW_FRACTION


def read_timeout(duration: float) -> float:
    """Return the timeout in seconds of a GET for the Lease: 25 for a duration of 40, so that an API server that takes
    20 seconds is still read. The kubelet has 10 seconds, as for the renewal itself."""
    return duration * READ_FRACTION


def new_lease(node_name: str, duration: float, now: str, owner_uid: str) -> Object:
    """Return the Lease to create. `now`: RFC3339 with microseconds; `duration`: seconds."""
    lease: Object = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node_name, "namespace": "kube-node-lease"},
    }
    return renewed(lease, node_name, duration, now, owner_uid)


def renewed(lease: Object, node_name: str, duration: float, now: str, owner_uid: str) -> Object:
    """Return a copy of the Lease that is renewed at `now`. `owner_uid`: the Node's uid, "" = not known: then the owner
    stays."""
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
    """Return whether the Lease has an owner, with which it is garbage collected."""
    return bool(_owners(lease))


def needs_owner(lease: Object, node_name: str, owner_uid: str) -> bool:
    """Return whether the Lease has no owner, or is owned by an earlier Node of our name, with which it would be
    collected."""
    owners = _owners(lease)
    nodes = [owner for owner in owners if owner.get("kind") == "Node" and owner.get("name") == node_name]
    return not owners or any(owner.get("uid") != owner_uid for owner in nodes)


def _owners(lease: Object) -> list[Object]:
    return dictionaries(dictionary(lease.get("metadata")).get("ownerReferences"))
