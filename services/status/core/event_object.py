"""Makes the core/v1 Event that is sent to the API server. Its name is the same for the same event after restarts.

Pure; pods.md 13.1, node.md 1.8.
"""

import hashlib
import re

from bus.messages.event import KubeEvent
from services.status.core.event_correlation import CorrelatedEvent
from shared.model.objects import Object
from shared.time.timestamps import parse_rfc3339, rfc3339

COMPONENT = "kubelet"
_HIDDEN = "implicitly required container "
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_MAX_NAME_CHARACTERS = 253
_END_OF_TIME = 2.0**33  # wall seconds: in nanoseconds it still is a number of 64 bits
_NODE_NAMESPACE = "default"


def identity_of(writer: str, key: str, event: KubeEvent) -> str:
    """Return sixteen hex digits that identify this occurrence, also after restarts of status and of the writer."""
    involved = (event.kind, event.namespace, event.name, event.uid, event.field_path)
    parts = (writer, key, event.time, event.type, event.reason, event.message, *involved)
    joined = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(joined, digest_size=8).hexdigest()


def is_recorded(event: KubeEvent) -> bool:
    """Return whether the event is sent to the API server at all."""
    return not event.field_path.startswith(_HIDDEN)


def time_of(event: KubeEvent, otherwise: float) -> float:
    """Return when the event happened, in wall seconds; `otherwise` where it has no valid time."""
    when = parse_rfc3339(event.time)
    return when if when is not None and 0 <= when < _END_OF_TIME else otherwise


def name_of(event: KubeEvent, identity: str, when: float) -> str:
    """Return the name `<object>.<hex>`, where hex looks like nanoseconds since the epoch; the part below the second
    comes from the event's identity."""
    number = int(identity, 16)
    name = f"{event.name}.{int(when) * 10**9 + number % 10**9:x}"
    if len(name) <= _MAX_NAME_CHARACTERS and _SUBDOMAIN.fullmatch(name):
        return name
    digits = hashlib.blake2b(f"{identity} {name}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def namespace_of(event: KubeEvent) -> str:
    """Return the namespace of the Event object, which for an event of the node is `default`."""
    return event.namespace or _NODE_NAMESPACE


def event_object(event: KubeEvent, correlated: CorrelatedEvent, node_name: str) -> Object:
    """Return the complete Event object."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": correlated.name,
            "namespace": namespace_of(event),
            **({"annotations": dict(event.annotations)} if event.annotations else {}),
        },
        "involvedObject": _involved(event),
        "reason": event.reason,
        "source": {"component": COMPONENT, "host": node_name},
        "firstTimestamp": rfc3339(correlated.first_time),
        "type": event.type,
        "reportingComponent": COMPONENT,
        "reportingInstance": node_name,
        **_counted(correlated),
    }


def event_patch(body: Object) -> Object:
    """Return the patch for the Event object when the event has happened again."""
    return {field: body[field] for field in ("count", "lastTimestamp", "message")}


def _counted(correlated: CorrelatedEvent) -> Object:
    return {
        "count": correlated.count,
        "lastTimestamp": rfc3339(correlated.last_time),
        "message": correlated.message,
    }


def _involved(event: KubeEvent) -> Object:
    node = event.kind == "Node"
    fields = {
        "kind": event.kind,
        "namespace": "" if node else event.namespace,
        "name": event.name,
        "uid": "" if node else event.uid,
        "apiVersion": "v1",
        "resourceVersion": event.resource_version,
        "fieldPath": event.field_path,
    }
    return {field: value for field, value in fields.items() if value}
