"""Makes the CSINode, and the annotation and topology labels of the Node that come from CSI drivers (volumes.md 14.2);
pure.

A driver is removed only when it is known to be gone: it was registered in this start of the agent, and is not any more.
A driver whose socket is absent when the machine or the agent starts returns once its pod runs. A value that is there
already is not written again.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from bus.messages.volume import CsiNode
from shared.model import objects
from shared.model.fields import dictionaries, dictionary
from shared.model.objects import Object

NODE_IDS = "csi.volume.kubernetes.io/nodeid"
# An annotation of the CSINode: the controllers attach volumes of these in-tree plugins by their CSI drivers.
MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
MIGRATED_PLUGINS = ",".join(
    f"kubernetes.io/{name}"
    for name in ("aws-ebs", "azure-disk", "azure-file", "cinder", "gce-pd", "portworx-volume", "vsphere-volume")
)
Drivers = Mapping[str, CsiNode]  # by name


def collisions(node: Object, drivers: Drivers) -> dict[str, str]:
    """Return the drivers whose topology contradicts a label of the Node, each with the kubelet's text."""
    labels = dictionary(dictionary(node.get("metadata")).get("labels"))
    texts = {}
    for name, driver in sorted(drivers.items()):
        for key, value in sorted(driver.topology.items()):
            if key in labels and labels[key] != value:
                theirs, ours = f"{_quoted(key)}:{_quoted(value)}", f"{_quoted(key)}:{_quoted(str(labels[key]))}"
                why = f"driver reported {theirs} but existing label is {ours}"
                texts[name] = f"detected topology value collision: {why}"
    return texts


def node_patch(node: Object, drivers: Drivers, gone: Collection[str]) -> Object:
    """Return the strategic merge patch for the Node; {} = it is as it should be. `gone`: the names of drivers that were
    deregistered."""
    metadata = dictionary(node.get("metadata"))
    annotation = dictionary(metadata.get("annotations")).get(NODE_IDS)
    before = _node_ids(annotation)
    after = {name: node_id for name, node_id in before.items() if not _is_gone(name, drivers, gone)}
    after |= {name: driver.node_id for name, driver in drivers.items()}
    labels = dictionary(metadata.get("labels"))
    topology = {key: value for driver in drivers.values() for key, value in driver.topology.items()}
    missing = {key: value for key, value in sorted(topology.items()) if labels.get(key) != value}
    changed: Object = {}
    if after != before or (annotation is not None and not after):
        changed["annotations"] = {
            NODE_IDS: json.dumps(dict(sorted(after.items())), separators=(",", ":")) if after else None
        }
    if missing:
        changed["labels"] = missing
    return {"metadata": {"uid": objects.uid(node), **changed}} if changed else {}


def is_of_another_node(csi_node: Object, node_uid: str) -> bool:
    """Return whether the CSINode belongs to an earlier Node of this name."""
    owners = dictionaries(dictionary(csi_node.get("metadata")).get("ownerReferences"))
    return any(owner.get("kind") == "Node" and owner.get("uid") != node_uid for owner in owners)


def new_csi_node(name: str, node_uid: str, drivers: Drivers) -> Object:
    """Return the CSINode to create."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name, "annotations": {MIGRATED: MIGRATED_PLUGINS}, "ownerReferences": [owner]},
        "spec": {"drivers": [_driver(driver, drivers[driver]) for driver in sorted(drivers)]},
    }


def updated_csi_node(csi_node: Object, drivers: Drivers, gone: Collection[str]) -> Object | None:
    """Return the CSINode to write in place of this one; None = it is as it should be. `gone`: as for `node_patch`."""
    spec = dictionary(csi_node.get("spec"))
    before = dictionaries(spec.get("drivers"))
    kept = [driver for driver in before if not _is_gone(str(driver.get("name")), drivers, gone)]
    wanted = {name: _driver(name, driver) for name, driver in sorted(drivers.items())}
    after = [wanted.pop(str(driver.get("name")), driver) for driver in kept]
    after += wanted.values()
    metadata = dictionary(csi_node.get("metadata"))
    annotations = {**objects.annotations(csi_node), MIGRATED: MIGRATED_PLUGINS}
    is_same = [_without_nulls(driver) for driver in after] == [_without_nulls(driver) for driver in before]
    if is_same and annotations == objects.annotations(csi_node):
        return None
    return {**csi_node, "metadata": {**metadata, "annotations": annotations}, "spec": {**spec, "drivers": after}}


def _driver(name: str, driver: CsiNode) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "nodeID": driver.node_id, "topologyKeys": sorted(driver.topology) or None}
    if driver.max_volumes > 0:
        entry["allocatable"] = {"count": driver.max_volumes}
    return entry


def _without_nulls(driver: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in driver.items() if value is not None}


def _is_gone(name: str, drivers: Drivers, gone: Collection[str]) -> bool:
    return name not in drivers and name in gone


def _node_ids(annotation: object) -> dict[str, str]:
    """Return the annotation's value; {} where it is not valid."""
    try:
        found = json.loads(annotation) if isinstance(annotation, str) else {}
    except ValueError:
        return {}
    return {str(name): str(node_id) for name, node_id in found.items()} if isinstance(found, dict) else {}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
