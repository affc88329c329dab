"""Values that fieldRef and resourceFieldRef name, for environments and downward volumes (pods.md 6.3).

status.* fields are not read from the pod: what they are is known only to the caller.
"""

import re
from collections.abc import Mapping

from shared.model.objects import Object, annotations, name, namespace, uid
from shared.model.quantity import ZERO, Quantity, QuantityError, parse_quantity
from shared.podspec.resources import HUGEPAGES, main_containers

_SUBSCRIPT = re.compile(r"(metadata\.(?:labels|annotations))\['(.*)'\]\Z", re.DOTALL)
STATUS_FIELDS = ("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")
_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.host",
    "spec.serviceAccountName",
)
_SHORT = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_SHORT |= {'"': '\\"', "\\": "\\\\"}
_FROM_NODE = ("cpu", "memory", "ephemeral-storage")


class FieldError(ValueError):
    """The reference names nothing; the text is the kubelet's."""


def is_field(path: str) -> bool:
    """Return whether an environment variable may name this field."""
    return path in _FIELDS or path in STATUS_FIELDS or _SUBSCRIPT.match(path) is not None


def field_value(pod: Object, path: str, status: Mapping[str, str] | None = None) -> str:
    """Return the field's text; `status` has the STATUS_FIELDS. A missing label or annotation is "". Raises
    FieldError."""
    spec = pod.get("spec") or {}
    labels = (pod.get("metadata") or {}).get("labels") or {}
    if subscript := _SUBSCRIPT.match(path):
        held = labels if subscript[1] == "metadata.labels" else annotations(pod)
        return str(held.get(subscript[2], ""))
    if status is not None and path in status:
        return status[path]
    match path:
        case "metadata.name":
            return name(pod)
        case "metadata.namespace":
            return namespace(pod)
        case "metadata.uid":
            return uid(pod)
        case "metadata.labels":
            return format_map(labels)
        case "metadata.annotations":
            return format_map(annotations(pod))
        case "spec.nodeName" | "spec.host":
            return str(spec.get("nodeName") or "")
        case "spec.serviceAccountName":
            return str(spec.get("serviceAccountName") or "")
    raise FieldError(f"unsupported fieldPath: {path}")


def format_map(values: Mapping[str, str]) -> str:
    """Sorted `key="value"` lines with Go's quoting."""
    return "\n".join(f"{key}={go_quote(str(values[key]))}" for key in sorted(values))


def go_quote(text: str) -> str:
    """Return the text as Go's %q prints it."""
    return f'"{text.translate(_Quoted())}"'


class _Quoted(dict[int, str]):
    """Code point -> how Go quotes it; each is worked out once in a text."""

    def __missing__(self, code: int) -> str:
        self[code] = quoted = _quoted(chr(code))
        return quoted


def _quoted(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if character.isprintable():
        return character
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def is_resource(path: str) -> bool:
    """Return whether resourceFieldRef may name this, as `limits.cpu`."""
    kind, _, resource = path.partition(".")
    return kind in ("limits", "requests") and (resource in _FROM_NODE or resource.startswith(HUGEPAGES))


def resource_value(pod: Object, container: Object, reference: Object, allocatable: Mapping[str, str]) -> str:
    """Return the number resourceFieldRef stands for, rounded up to whole divisors. A limit that is not set is the
    pod's, else what the node can allocate. Raises FieldError.
    """
    path = str(reference.get("resource") or "")
    if not is_resource(path):
        raise FieldError(f"unsupported container resource : {path}")
    kind, _, resource = path.partition(".")
    holder = _container(pod, container, str(reference.get("containerName") or ""))
    amount = _amount((holder.get("resources") or {}).get(kind), resource)
    if amount is None and kind == "limits" and resource in _FROM_NODE:
        if resource != "ephemeral-storage":
            amount = _amount(((pod.get("spec") or {}).get("resources") or {}).get("limits"), resource)
        amount = amount or _amount(allocatable, resource)
    return _divided(amount or ZERO, reference.get("divisor"), by_milli=resource == "cpu")


def _container(pod: Object, container: Object, wanted: str) -> Object:
    if not wanted or wanted == container.get("name"):
        return container
    for other in main_containers(pod):
        if other.get("name") == wanted:
            return other
    raise FieldError(f"container {wanted} not found")


def _amount(resources: Mapping[str, object] | None, resource: str) -> Quantity | None:
    """Return the one amount of the list; None where it is absent or no quantity."""
    try:
        return parse_quantity((resources or {})[resource])
    except (KeyError, QuantityError):
        return None


def _divided(amount: Quantity, divisor: object, *, by_milli: bool) -> str:
    try:
        unit = parse_quantity(divisor or "0")
    except QuantityError as error:
        raise FieldError(str(error)) from error
    unit = unit or Quantity.of_base(1)
    total, step = (amount.milli(), unit.milli()) if by_milli else (amount.base(), unit.base())
    return str(-(-total // step))
