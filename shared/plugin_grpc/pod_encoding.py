"""Encodes a pod from JSON data as v1.Pod in protobuf, as the API server and Go's clients do.

A field that the table does not have is left out, as a Go program drops what its types lack, and so is a value that is
not of its field's type. The descriptors are built at the first pod, in the process that encodes one.
"""

from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message
from msgspec import Struct

from shared.model.objects import Object
from shared.model.quantity import QuantityError, parse_quantity
from shared.plugin_grpc.core_v1_fields import MESSAGES

_PROTO = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "": _PROTO.TYPE_STRING,
    "i": _PROTO.TYPE_INT32,
    "l": _PROTO.TYPE_INT64,
    "b": _PROTO.TYPE_BOOL,
}
_BITS = {"i": 32, "l": 64}
_UNFIT = object()  # a value that is not of its field's type


class Field(Struct, frozen=True):
    """`kind`: one of _SCALARS, or the name of a message."""

    name: str
    number: int
    kind: str
    repeated: bool
    of_map: bool
    inline: bool


class Fields(Struct, frozen=True):
    """Has the fields of one message by their name in JSON, and those whose own fields stand beside these."""

    by_name: dict[str, Field]
    inline: tuple[Field, ...]


def encode_pod(pod: Object) -> bytes:
    """Return the pod in protobuf, without apiVersion and kind, which v1.Pod does not have there."""
    return _pod_type()(**_message("Pod", pod)).SerializeToString()


def decode_pod(data: bytes) -> Any:
    """Return the message of an encoded pod. Raises google.protobuf.message.DecodeError."""
    message = _pod_type()()
    message.ParseFromString(data)
    return message


def message_fields(kind: str) -> Fields:
    """Return the fields of the message of that name in the table."""
    return _table()[kind]


def _message(kind: str, value: Object) -> dict[str, Any]:
    """Return the values of a message's fields, as its constructor takes them."""
    fields = _table()[kind]
    shaped: dict[str, Any] = {}
    for key, item in value.items():
        field = fields.by_name.get(key)
        if field is None or item is None:
            continue
        if field.of_map:
            shaped[key] = _fitting_map(field.kind, item)
        elif field.repeated:
            shaped[key] = _fitting_items(field.kind, item)
        elif (fitting := _value(field.kind, item)) is not _UNFIT:
            shaped[key] = fitting
    for field in fields.inline:
        shaped[field.name] = _message(field.kind, value)
    return shaped


def _fitting_items(kind: str, value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        return []
    return [item for each in value if (item := _value(kind, each)) is not _UNFIT]


def _fitting_map(kind: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    shaped = {key: _value(kind, item) for key, item in value.items() if isinstance(key, str)}
    return {key: item for key, item in shaped.items() if item is not _UNFIT}


def _value(kind: str, value: Any) -> Any:
    """Return the value of a field, or of one item of it; _UNFIT = it is none."""
    if kind == "":
        return value if isinstance(value, str) else _UNFIT
    if kind == "b":
        return value if isinstance(value, bool) else _UNFIT
    if kind in _BITS:
        return value if _is_whole(value, _BITS[kind]) else _UNFIT
    if kind in _CONVERTERS:
        return _CONVERTERS[kind](value)
    return _message(kind, value) if isinstance(value, dict) else _UNFIT


def _is_whole(value: Any, bits: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits - 1) <= value < 1 << bits - 1


def _quantity(value: Any) -> Any:
    """Quantities are texts in their canonical form."""
    try:
        return {"string": str(parse_quantity(value))}
    except QuantityError:
        return _UNFIT


def _time(value: Any) -> Any:
    """Times have whole seconds: Go's metav1.Time writes no others."""
    try:
        moment = datetime.fromisoformat(value)
        return {"seconds": int(moment.timestamp() // 1), "nanos": 0} if moment.tzinfo is not None else _UNFIT
    except (TypeError, ValueError, OverflowError):
        return _UNFIT


def _int_or_string(value: Any) -> Any:
    if isinstance(value, str):
        return {"type": 1, "strVal": value}
    return {"type": 0, "intVal": value} if _is_whole(value, 32) else _UNFIT


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "Quantity": _quantity,
    "Time": _time,
    "IntOrString": _int_or_string,
}


@cache
def _table() -> dict[str, Fields]:
    rows = " ".join(line if line.startswith(" ") else f"\n{line}" for line in MESSAGES.splitlines())
    messages = {}
    for name, _, listed in (row.partition(":") for row in rows.split("\n") if row.strip()):
        fields = [_field(text) for text in listed.split()]
        by_name = {field.name: field for field in fields if not field.inline}
        messages[name] = Fields(by_name, tuple(field for field in fields if field.inline))
    return messages


def _field(text: str) -> Field:
    """Return the field of a text such as `containers=2:Container*`."""
    name, _, rest = text.partition("=")
    number, _, kind = rest.rstrip("*^").partition(":")
    of_map = kind.startswith("{")
    return Field(name, int(number), kind.strip("{}"), rest.endswith("*"), of_map, rest.endswith("^"))


@cache
def _pod_type() -> type[Message]:
    file = descriptor_pb2.FileDescriptorProto(name="core_v1", package="core.v1", syntax="proto2")
    for name, fields in _table().items():
        message = file.message_type.add(name=name)
        for field in (*fields.by_name.values(), *fields.inline):
            _describe(message, field)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("core.v1.Pod"))


def _describe(message: Any, field: Field) -> None:
    described = message.field.add(name=field.name, number=field.number, label=_PROTO.LABEL_OPTIONAL)
    if not field.of_map:
        _set_type(described, field.kind)
    else:
        entry = message.nested_type.add(name=f"{field.name[0].upper()}{field.name[1:]}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_PROTO.LABEL_OPTIONAL, type=_PROTO.TYPE_STRING)
        _set_type(entry.field.add(name="value", number=2, label=_PROTO.LABEL_OPTIONAL), field.kind)
        described.type, described.type_name = _PROTO.TYPE_MESSAGE, f".core.v1.{message.name}.{entry.name}"
    if field.repeated or field.of_map:
        described.label = _PROTO.LABEL_REPEATED


def _set_type(described: Any, kind: str) -> None:
    if kind in _SCALARS:
        described.type = _SCALARS[kind]
    else:
        described.type, described.type_name = _PROTO.TYPE_MESSAGE, f".core.v1.{kind}"
