"""A pod with every field of the protobuf table at once, each with a value of its own. No API server would admit it."""

from typing import Any

from shared.plugin_grpc.pod_encoding import message_fields

TIME = "2026-11-20T13:28:14Z"


def whole_message(kind: str = "Pod", name: str = "") -> dict[str, Any]:
    """Return JSON data of the message with all its fields; `name` makes strings differ from those elsewhere."""
    fields = message_fields(kind)
    whole: dict[str, Any] = {}
    for field in fields.inline:
        whole |= whole_message(field.kind, f"{name}.{field.name}")
    for field in fields.by_name.values():
        value = _value(field.kind, field.number, f"{name}.{field.name}"[-60:])
        if field.of_map:
            value = {"a": value, "b": value}
        elif field.repeated:
            value = [value, value]
        whole[field.name] = value
    return whole


def _value(kind: str, number: int, name: str) -> Any:
    scalars = {"": name, "i": -number, "l": 1 << 40 | number, "b": True, "Time": TIME, "Quantity": f"{number}m"}
    if kind == "IntOrString":
        return name if number % 2 else number
    return scalars[kind] if kind in scalars else whole_message(kind, name)
