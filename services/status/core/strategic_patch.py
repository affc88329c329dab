"""Makes the smallest strategic merge patch between two objects (pods.md B.3, node.md 2). Pure.

It contains only what the server has to change, so that it overwrites nothing that others write meanwhile.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from shared.model.objects import Object

Schema = Mapping[str, str]
"""Maps the dotted path of a list that is merged element by element to the field that names an element. Every other list
is replaced as one value."""

REPLACED = ""  # in a schema: the server merges the list, but the patch always contains all of it
POD: Schema = {"status.conditions": "type", "status.podIPs": "ip", "status.hostIPs": "ip"}
NODE: Schema = {"status.conditions": "type", "status.addresses": REPLACED}  # two addresses may share a type

_ORDER = "$setElementOrder/"


def two_way_patch(old: Object, new: Object, schema: Schema) -> Object:
    """Return the patch that changes `old` into `new`; {} when they are equal. A null in either counts as a missing
    field.

    The patch names an element that is only in `old` for deletion, and contains the complete order of a merged list that
    changes. A merged list with two elements of one name, or with an element without a name, is replaced.
    """
    return patch_without_nulls(without_nulls(old), without_nulls(new), schema)


def patch_without_nulls(old: Object, new: Object, schema: Schema) -> Object:
    """Return the patch as `two_way_patch` does, for objects that contain no null."""
    return _maps(old, new, "", schema)


def without_nulls(value: Any) -> Any:
    """Return the value without the fields, at any depth, that are null; the value itself where there are none."""
    try:
        if b"null" not in orjson.dumps(value):  # most values have none, and this costs a fiftieth of a copy
            return value
    except TypeError:  # a number or text that orjson does not encode
        pass
    return _copy_without_nulls(value)


def _copy_without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy_without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_copy_without_nulls(inner) for inner in value]
    return value


def _maps(old: Object, new: Object, path: str, schema: Schema) -> Object:
    patch: Object = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if key in old and same_json(before, value):
            continue
        below = f"{path}.{key}" if path else key
        if isinstance(before, dict) and isinstance(value, dict):
            patch[key] = _maps(before, value, below, schema)
        elif isinstance(before, list) and isinstance(value, list) and below in schema:
            patch |= _lists(key, before, value, below, schema)
        else:
            patch[key] = value
    return patch


def _lists(key: str, old: list[Any], new: list[Any], path: str, schema: Schema) -> Object:
    name = schema[path]
    before, after = _by_name(old, name), _by_name(new, name)
    if before is None or after is None:
        return {key: [*new, {"$patch": "replace"}]}
    elements = []
    for named, element in after.items():
        if named not in before:
            elements.append(element)
        elif change := _maps(before[named], element, path, schema):
            elements.append({**change, name: named})
    elements += [{"$patch": "delete", name: named} for named in before if named not in after]
    order = {f"{_ORDER}{key}": [{name: named} for named in after]}
    return {**order, key: elements} if elements else order


def _by_name(elements: list[Any], name: str) -> dict[str, Object] | None:
    """Return the elements by their names; None when one has no name or two have the same."""
    if name == REPLACED:
        return None
    named: dict[str, Object] = {}
    for element in elements:
        key = element.get(name) if isinstance(element, dict) else None
        if not isinstance(key, str) or key in named:
            return None
        named[key] = element
    return named


def same_json(left: Any, right: Any) -> bool:
    """Return whether both values are the same JSON: true does not equal 1, but 1.0 does."""
    try:
        if orjson.dumps(left, option=orjson.OPT_SORT_KEYS) == orjson.dumps(right, option=orjson.OPT_SORT_KEYS):
            return True
    except TypeError:  # a number or text that orjson does not encode
        pass
    return _same(left, right)


def _same(left: Any, right: Any) -> bool:
    if left is right:
        return True
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)
