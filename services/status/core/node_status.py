"""Sets the status of an existing Node from the facts, by setters in the kubelet's order (node.md 1.6).

Fields whose facts are not known are left as they are; a setter that fails does not stop the others.
"""

import copy
from collections.abc import Callable
from typing import Any

from services.status.core.node_addresses import (
    PROVIDED_NODE_IP,
    AddressError,
    existing_addresses,
    node_addresses,
    provided_node_ip,
)
from services.status.core.node_capacity import set_capacity
from services.status.core.node_conditions import Condition
from services.status.core.node_facts import NodeFacts
from shared.model.fields import dictionaries, dictionary
from shared.model.objects import Object
from shared.podspec.gated import BIND_MOUNT_OPTIONS

MAX_NAMES_PER_IMAGE = 5
OS_LABELS = ("kubernetes.io/os", "kubernetes.io/arch")


def with_status(node: Object, facts: NodeFacts) -> tuple[Object, tuple[str, ...]]:
    """Return a copy of the Node with the status that follows from the facts, and one line for each error."""
    node = copy.deepcopy(node)
    problems = []
    status = map_at(node, "status")
    for setter in _SETTERS:
        try:
            setter(node, status, facts)
        except AddressError as error:
            problems.append(str(error))
    return node, tuple(problems)


def map_at(obj: Object, key: str) -> Object:
    """Return the map under `key`; make one where there is none, or where the value is no map."""
    if not isinstance(obj.get(key), dict):
        obj[key] = {}
    found: Object = obj[key]
    return found


def rebooted(node: Object, facts: NodeFacts) -> str:
    """Return the message of the event Rebooted if the Node has another boot id than the machine, else ""."""
    info = dictionary(dictionary(node.get("status")).get("nodeInfo"))
    before, now = info.get("bootID"), facts.machine.boot_id
    if not before or not now or before == now:
        return ""
    return f"Node {facts.identity.name} has been rebooted, boot id: {now}"


def is_ready(node: Object) -> bool:
    """Return whether the Node's condition Ready is True."""
    conditions = dictionaries(dictionary(node.get("status")).get("conditions"))
    return any(found.get("type") == "Ready" and found.get("status") == "True" for found in conditions)


def is_unschedulable(node: Object) -> bool:
    """Return whether the Node is cordoned."""
    return dictionary(node.get("spec")).get("unschedulable") is True


def _set_addresses(node: Object, status: Object, facts: NodeFacts) -> None:
    if facts.network is None:
        return
    addresses = node_addresses(facts.identity, facts.network, existing_addresses(status))
    if facts.identity.external_cloud_provider:
        annotations = map_at(map_at(node, "metadata"), "annotations")
        if provided := provided_node_ip(facts.identity):
            annotations[PROVIDED_NODE_IP] = provided
        else:
            annotations.pop(PROVIDED_NODE_IP, None)
    status["addresses"] = addresses


def _set_machine(node: Object, status: Object, facts: NodeFacts) -> None:
    if facts.resources is not None:
        set_capacity(status, facts.resources, facts.devices, facts.given)
    machine, info = facts.machine, map_at(status, "nodeInfo")
    info |= {"machineID": machine.machine_id, "systemUUID": machine.system_uuid, "bootID": machine.boot_id}
    if machine.swap_capacity:
        info["swap"] = {"capacity": machine.swap_capacity}
    else:
        info.pop("swap", None)


def _set_versions(node: Object, status: Object, facts: NodeFacts) -> None:
    machine, info, observed = facts.machine, map_at(status, "nodeInfo"), facts.observed
    info |= {"kernelVersion": machine.kernel_version, "osImage": machine.os_image}
    if observed is not None and observed.runtime_name:
        info["containerRuntimeVersion"] = f"{observed.runtime_name}://{observed.runtime_version or 'Unknown'}"
    info.setdefault("containerRuntimeVersion", "")
    info |= {"kubeletVersion": facts.identity.kubelet_version, "kubeProxyVersion": ""}


def _set_daemon_endpoints(node: Object, status: Object, facts: NodeFacts) -> None:
    map_at(status, "daemonEndpoints")["kubeletEndpoint"] = {"Port": facts.identity.port}


def _set_images(node: Object, status: Object, facts: NodeFacts) -> None:
    if facts.images is None:
        return
    shown = facts.images if facts.identity.max_images < 0 else facts.images[: facts.identity.max_images]
    images: list[dict[str, Any]] = []
    for image in shown:
        names = list(image.names[:MAX_NAMES_PER_IMAGE])
        images.append({**({"names": names} if names else {}), "sizeBytes": image.size_bytes})
    if images:
        status["images"] = images
    else:
        status.pop("images", None)


def _set_platform(node: Object, status: Object, facts: NodeFacts) -> None:
    map_at(status, "nodeInfo").update(operatingSystem="linux", architecture=facts.machine.architecture)
    labels = map_at(map_at(node, "metadata"), "labels")
    labels.update(zip(OS_LABELS, ("linux", facts.machine.architecture), strict=True))


def _set_runtime_handlers(node: Object, status: Object, facts: NodeFacts) -> None:
    if facts.observed is None or facts.observed.runtime_handlers is None:
        return
    handlers = [
        {
            "name": handler.name,
            "features": {
                "recursiveReadOnlyMounts": handler.recursive_read_only_mounts,
                "userNamespaces": handler.user_namespaces,
            },
        }
        for handler in facts.observed.runtime_handlers
    ]
    if handlers:
        status["runtimeHandlers"] = handlers
    else:
        status.pop("runtimeHandlers", None)


def _set_features(node: Object, status: Object, facts: NodeFacts) -> None:
    if facts.observed is not None and facts.observed.supplemental_groups_policy is not None:
        status["features"] = {"supplementalGroupsPolicy": facts.observed.supplemental_groups_policy}


def _set_conditions(node: Object, status: Object, facts: NodeFacts) -> None:
    conditions = dictionaries(status.get("conditions"))
    for ours in facts.conditions:
        places = [number for number, c in enumerate(conditions) if c.get("type") == ours["type"]]
        written = _written(conditions[places[0]] if places else None, ours, facts.now)
        if places:
            conditions[places[0]] = written
        else:
            conditions.append(written)
    if conditions:
        status["conditions"] = conditions


def _written(existing: Object | None, ours: Condition, now: str) -> Object:
    """Return our condition with the moment of its last transition, which is the API server's where the status is the
    same."""
    written: Object = {**ours, "lastHeartbeatTime": now, "lastTransitionTime": now}
    if existing is None:
        return {**written, "lastTransitionTime": ours.get("lastTransitionTime") or now}
    if existing.get("status") != ours["status"]:
        return written
    kept = ("lastTransitionTime",) if ours["type"] == "Ready" else ("lastTransitionTime", "reason", "message")
    return {**written, **{name: existing[name] for name in kept if isinstance(existing.get(name), str)}}


def _set_declared_features(node: Object, status: Object, facts: NodeFacts) -> None:
    if facts.identity.declared_features is None:
        return
    features = list(facts.identity.declared_features)
    if facts.identity.bind_mount_options and _takes_mount_options(status, facts):
        features.append(BIND_MOUNT_OPTIONS)
    status["declaredFeatures"] = sorted(features)


def _takes_mount_options(status: Object, facts: NodeFacts) -> bool:
    """Return whether the runtime takes them: until it is known, what the Node says stays."""
    if facts.observed is not None:
        return facts.observed.mount_options
    listed = status.get("declaredFeatures")
    return isinstance(listed, list) and BIND_MOUNT_OPTIONS in listed


def _set_volumes_in_use(node: Object, status: Object, facts: NodeFacts) -> None:
    if facts.volumes_in_use:
        status["volumesInUse"] = list(facts.volumes_in_use)
    elif facts.volumes_in_use is not None:
        status.pop("volumesInUse", None)


def _set_config(node: Object, status: Object, facts: NodeFacts) -> None:
    """Set status.config as config.md 4.2 has it, where the Node's configuration is known."""
    if facts.config is None:
        return
    sources = {
        "assigned": facts.config.assigned,
        "active": facts.config.active,
        "lastKnownGood": facts.config.last_known_good,
    }
    config: Object = {name: source.as_object() for name, source in sources.items() if source is not None}
    status["config"] = {**config, "error": facts.config.error} if facts.config.error else config


_SETTERS: tuple[Callable[[Object, Object, NodeFacts], None], ...] = (
    _set_addresses,
    _set_machine,
    _set_versions,
    _set_daemon_endpoints,
    _set_images,
    _set_platform,
    _set_runtime_handlers,
    _set_features,
    _set_conditions,
    _set_declared_features,
    _set_volumes_in_use,
    _set_config,
)


def volumes_in_use(node: Object) -> tuple[str, ...]:
    """Return status.volumesInUse of a Node of any shape."""
    listed = (node.get("status") or {}).get("volumesInUse")
    return tuple(name for name in listed if isinstance(name, str)) if isinstance(listed, list) else ()
