"""Strategic merge patches as the API server applies them, for the objects a node agent patches. Pure.

Lists with a merge key are merged element by element; `$patch`, `$setElementOrder/<list>`, `$retainKeys` and
`$deleteFromPrimitiveList/<list>` are directives; null deletes. All other lists are replaced.
"""

from typing import Any

from shared.model.objects import Object

# Kind -> path of a list (list elements are transparent) -> merge key; "" = a list of plain values that are joined.
_METADATA = {"metadata.finalizers": "", "metadata.ownerReferences": "uid"}
_CONTAINER = {"ports": "containerPort", "env": "name", "volumeMounts": "mountPath", "volumeDevices": "devicePath"}
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_MERGE_KEYS: dict[str, dict[str, str]] = {
    "Pod": {
        "status.conditions": "type",
        "status.podIPs": "ip",
        "status.hostIPs": "ip",
        "spec.volumes": "name",
        "spec.imagePullSecrets": "name",
        "spec.hostAliases": "ip",
        **{f"spec.{containers}": "name" for containers in _CONTAINERS},
        **{f"spec.{containers}.{field}": key for containers in _CONTAINERS for field, key in _CONTAINER.items()},
    },
    "Node": {"status.conditions": "type", "status.addresses": "type", "spec.podCIDRs": ""},
    "PersistentVolumeClaim": {"status.conditions": "type"},
    "Service": {"spec.ports": "port", "status.conditions": "type"},
    "ServiceAccount": {"secrets": "name", "imagePullSecrets": "name"},
}


def strategic_merge(kind: str, original: Object, patch: Object) -> Object:
    """The object after the patch; ValueError for a list element without its merge key or an unknown `$patch`."""
    return _merge_map(original, patch, "", {**_METADATA, **_MERGE_KEYS.get(kind, {})})


def merge_patch(original: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(original) if isinstance(original, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def _merge_map(original: Object, patch: Object, path: str, keys: dict[str, str]) -> Object:
    match patch.get("$patch"):
        case None | "merge":
            merged = dict(original)
        case "replace":
            return {name: value for name, value in patch.items() if name != "$patch"}
        case "delete":
            return {}
        case unknown:
            raise ValueError(f"unknown patch type: {unknown}")
    if (retained := patch.get("$retainKeys")) is not None:
        merged = {name: value for name, value in merged.items() if name in retained}
    for name, value in patch.items():
        if name.startswith("$deleteFromPrimitiveList/"):
            field = name.partition("/")[2]
            merged[field] = [item for item in merged.get(field, []) if item not in value]
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        below = f"{path}.{name}" if path else name
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            had = merged.get(name)
            merged[name] = _merge_map(had if isinstance(had, dict) else {}, value, below, keys)
        elif isinstance(value, list) and below in keys:
            merged[name] = _merge_list(merged.get(name) or [], value, keys[below], below, keys)
        else:
            merged[name] = value
    for name, value in patch.items():
        if name.startswith("$setElementOrder/"):
            field = name.partition("/")[2]
            key = keys.get(f"{path}.{field}" if path else field, "")
            wanted = [_identity(item, key) for item in value]
            before = [_identity(item, key) for item in original.get(field) or []]
            if field in merged:
                merged[field] = _in_order(merged[field], wanted, before, key)
    return merged


def _merge_list(original: list[Any], patch: list[Any], key: str, path: str, keys: dict[str, str]) -> list[Any]:
    if not key:
        merged = [*original, *(item for item in patch if item not in original)]
        return _in_order(merged, patch, original, key)
    directives = [item for item in patch if "$patch" in item and item["$patch"] != "merge"]
    patched = [item for item in patch if item not in directives]
    if any(item["$patch"] == "replace" for item in directives):
        return patched
    for item in patched + directives:
        if key not in item:
            raise ValueError(f"map: {item} does not contain declared merge key: {key}")
    deleted = {_identity(item, key) for item in directives}
    merged = [item for item in original if _identity(item, key) not in deleted]
    for item in patched:
        at = next((i for i, had in enumerate(merged) if _identity(had, key) == item[key]), None)
        if at is None:
            merged.append(_merge_map({}, item, path, keys))
        else:
            merged[at] = _merge_map(merged[at], item, path, keys)
    return _in_order(merged, [item[key] for item in patched], [_identity(item, key) for item in original], key)


def _identity(item: Any, key: str) -> Any:
    return item.get(key) if key and isinstance(item, dict) else item


def _in_order(items: list[Any], wanted: list[Any], before: list[Any], key: str) -> list[Any]:
    """What the patch names in its order, new things first; the others keep their place relative to what was there."""
    named = [i for i in items if _identity(i, key) in wanted]
    named.sort(key=lambda item: wanted.index(_identity(item, key)))
    others = [i for i in items if _identity(i, key) not in wanted]
    ordered: list[Any] = []
    while named and others:
        left, right = _identity(named[0], key), _identity(others[0], key)
        other_first = left in before and right in before and before.index(right) < before.index(left)
        ordered.append((others if other_first else named).pop(0))
    return ordered + named + others
