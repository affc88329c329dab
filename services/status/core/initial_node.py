"""Makes the Node object that we register, and corrects an existing one at the start (node.md 1.2, 1.3)."""

import copy

from services.status.core.node_capacity import reset_extended_resources, without_vanished_hugepages
from services.status.core.node_facts import NodeFacts
from services.status.core.node_status import map_at, with_status
from shared.model.objects import Object

MANAGED_ATTACH = "volumes.kubernetes.io/controller-managed-attach-detach"
EXTERNAL_CLOUD_TAINT = {
    "key": "node.cloudprovider.kubernetes.io/uninitialized",
    "value": "true",
    "effect": "NoSchedule",
}
# The labels that a start corrects on an existing Node; all others are set only at its creation.
RECONCILED_LABELS = (
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
)


def initial_node(facts: NodeFacts) -> Object:
    """Return the Node to create, with its status."""
    identity, arch = facts.identity, facts.machine.architecture
    labels = {
        "kubernetes.io/hostname": identity.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": arch,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": arch,
        **identity.labels,
    }
    metadata: Object = {"name": identity.name, "labels": labels}
    if identity.controller_attach_detach:
        metadata["annotations"] = {MANAGED_ATTACH: "true"}
    taints = [dict(taint) for taint in identity.taints]
    if identity.external_cloud_provider:
        taints.append(dict(EXTERNAL_CLOUD_TAINT))
    spec: Object = {}
    if taints:
        spec["taints"] = taints
    if identity.provider_id:
        spec["providerID"] = identity.provider_id
    node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}
    made = with_status(node, facts)[0]
    for name in ("declaredFeatures", "config"):  # only updates set these (node.md 1.6, config.md 4.5)
        made["status"].pop(name, None)
    return made


def reconciled(node: Object, facts: NodeFacts) -> Object:
    """Return a copy of an existing Node with the corrections of a start: annotation, default labels, extended resources
    of an earlier machine, huge pages."""
    node = copy.deepcopy(node)
    metadata = map_at(node, "metadata")
    annotations, labels = map_at(metadata, "annotations"), map_at(metadata, "labels")
    if facts.identity.controller_attach_detach:
        annotations[MANAGED_ATTACH] = "true"
    else:
        annotations.pop(MANAGED_ATTACH, None)
    fresh = initial_node(facts)["metadata"]["labels"]
    for label in RECONCILED_LABELS:
        if fresh.get(label):
            labels[label] = fresh[label]
        elif label in fresh:
            labels.pop(label, None)
    if facts.resources is not None:
        if facts.recreated:
            reset_extended_resources(map_at(node, "status"), facts.resources)
        without_vanished_hugepages(map_at(node, "status"), facts.resources)
    return node
