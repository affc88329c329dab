"""The patch between two objects: small, and applied to the old one it gives the new one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.status.core.strategic_patch import NODE, POD, Schema, same_json, two_way_patch, without_nulls

SCHEMA: Schema = {"status.conditions": "type", "status.podIPs": "ip", "status.conditions.inner": "k"}


def applied(old: Any, patch: Any, schema: Schema, path: str = "") -> Any:
    """What a server makes of it: a plain reading of the strategic merge rules."""
    result = dict(old)
    for key, value in patch.items():
        if key.startswith("$setElementOrder/"):
            continue
        below = f"{path}.{key}" if path else key
        order = patch.get(f"$setElementOrder/{key}")
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = applied(result[key], value, schema, below)
        elif isinstance(value, list) and isinstance(result.get(key), list) and below in schema:
            result[key] = merged(result[key], value, schema, below)
        else:
            result[key] = value
        if order is not None:
            result[key] = ordered(result[key], order, schema[below])
    for key in patch:
        field = key.removeprefix("$setElementOrder/")
        if field != key and field not in patch:
            below = f"{path}.{field}" if path else field
            result[field] = ordered(result[field], patch[key], schema[below])
    return result


def merged(old: list[Any], patch: list[Any], schema: Schema, path: str) -> list[Any]:
    if any(element.get("$patch") == "replace" for element in patch if isinstance(element, dict)):
        return [element for element in patch if element != {"$patch": "replace"}]
    name, result = schema[path], list(old)
    for element in patch:
        at = next((i for i, e in enumerate(result) if e[name] == element[name]), None)
        if element.get("$patch") == "delete":
            del result[at or 0]
        elif at is None:
            result.append(element)
        else:
            result[at] = applied(result[at], element, schema, path)
    return result


def ordered(elements: list[Any], order: list[Any], name: str) -> list[Any]:
    places = [entry[name] for entry in order]
    return sorted(elements, key=lambda element: places.index(element[name]))


scalars = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "b"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


def named(name: str, *, unique: bool = True) -> st.SearchStrategy[list[Any]]:
    element = st.fixed_dictionaries(
        {name: st.sampled_from("vwxyz")}, optional={"status": scalars, "message": scalars, "deep": values}
    )
    return st.lists(element, max_size=4, unique_by=(lambda e: e[name]) if unique else None)


conditions = named("type") | named("type", unique=False) | st.lists(values, max_size=2)
objects = st.fixed_dictionaries(
    {},
    optional={
        "a": values,
        "status": st.fixed_dictionaries({}, optional={"conditions": conditions, "podIPs": named("ip"), "b": values}),
    },
)


@pytest.mark.long
@given(objects, objects)
def test_the_patch_applied_to_the_old_object_gives_the_new_one(old: Any, new: Any) -> None:
    patch = two_way_patch(old, new, SCHEMA)
    assert without_nulls(applied(without_nulls(old), patch, SCHEMA)) == without_nulls(new)


@pytest.mark.long
@given(objects)
def test_an_object_needs_no_patch_to_become_itself(thing: Any) -> None:
    assert two_way_patch(thing, thing, SCHEMA) == {}
    assert two_way_patch(thing, without_nulls(thing), SCHEMA) == {}


READY = {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "m", "lastTransitionTime": "t0"}
SCHEDULED = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}


def pod(**status: Any) -> Any:
    return {"status": status}


CASES: dict[str, tuple[Any, Any, Any]] = {
    "a condition has only what changed, cleared fields as null, and the complete order": (
        pod(conditions=[SCHEDULED, READY]),
        pod(conditions=[{"type": "Ready", "status": "True", "lastTransitionTime": "t1"}, SCHEDULED]),
        pod(
            **{"$setElementOrder/conditions": [{"type": "Ready"}, {"type": "PodScheduled"}]},
            conditions=[
                {"type": "Ready", "status": "True", "reason": None, "message": None, "lastTransitionTime": "t1"}
            ],
        ),
    ),
    "an address that went is deleted by name": (
        pod(podIP="10.0.0.1", podIPs=[{"ip": "10.0.0.1"}]),
        pod(podIP="10.0.0.2", podIPs=[{"ip": "10.0.0.2"}]),
        pod(
            **{"$setElementOrder/podIPs": [{"ip": "10.0.0.2"}]},
            podIP="10.0.0.2",
            podIPs=[{"ip": "10.0.0.2"}, {"$patch": "delete", "ip": "10.0.0.1"}],
        ),
    ),
    "container statuses are one value": (
        pod(containerStatuses=[{"name": "a", "ready": False}, {"name": "b", "ready": True}]),
        pod(containerStatuses=[{"name": "a", "ready": True}, {"name": "b", "ready": True}]),
        pod(containerStatuses=[{"name": "a", "ready": True}, {"name": "b", "ready": True}]),
    ),
    "null and absent are the same": (pod(conditions=[SCHEDULED]), pod(conditions=[{**SCHEDULED, "reason": None}]), {}),
    "a field that went is null": (pod(reason="Evicted", phase="Failed"), pod(phase="Failed"), pod(reason=None)),
    "another order alone": (
        pod(podIPs=[{"ip": "1"}, {"ip": "2"}]),
        pod(podIPs=[{"ip": "2"}, {"ip": "1"}]),
        pod(**{"$setElementOrder/podIPs": [{"ip": "2"}, {"ip": "1"}]}),
    ),
    "a new list is given completely": ({}, pod(podIPs=[{"ip": "1"}]), pod(podIPs=[{"ip": "1"}])),
}


@pytest.mark.parametrize(("old", "new", "patch"), CASES.values(), ids=CASES.keys())
def test_the_patch_between_two_objects(old: Any, new: Any, patch: Any) -> None:
    assert two_way_patch(old, new, POD) == patch


@pytest.mark.parametrize("schema", [NODE, {"status.addresses": "type"}], ids=["of nodes", "by type"])
def test_two_addresses_of_one_type_cannot_be_merged_by_type(schema: Schema) -> None:
    both = [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "fd00::1"}]
    patch = two_way_patch(pod(addresses=both[:1]), pod(addresses=both), schema)
    assert patch == pod(addresses=[*both, {"$patch": "replace"}])


def test_the_addresses_of_a_node_are_always_given_completely() -> None:
    old = [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n1"}]
    new = [{"type": "InternalIP", "address": "10.0.0.2"}, {"type": "Hostname", "address": "n1"}]
    assert two_way_patch(pod(addresses=old), pod(addresses=new), NODE) == pod(addresses=[*new, {"$patch": "replace"}])
    assert two_way_patch(pod(), pod(addresses=new), NODE) == pod(addresses=new)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": [1, {"c": None}]}, {"b": [1, {"c": None}], "a": 1}, True),
        ([1, 2], (1, 2), True),
        ({"a": [1.0]}, {"a": [1]}, True),
        ({"a": True}, {"a": 1}, False),
        ({"a": []}, {"a": {}}, False),
        ({"a": 2**70}, {"a": 2**70}, True),
        ({"a": 1}, {"a": 1, "b": 1}, False),
    ],
)
def test_two_values_are_compared_as_json(one: Any, other: Any, same: bool) -> None:
    assert same_json(one, other) is same
