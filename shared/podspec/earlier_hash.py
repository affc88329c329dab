"""The container hash of kubelets that hashed the whole container (1.20 and its neighbours), so that what they started
is recognised as unchanged and goes on running under this agent.

Go writes a struct's fields in its own order and leaves out what is empty, so the tables below repeat that order; a
field they do not name was not known then, and the decoder of the pod dropped it.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from shared.model.quantity import QuantityError, parse_quantity
from shared.podspec.go_json import go_json
from shared.podspec.hashing import container_hash, fnv32a

# What may stand for a field: a default (written even when empty), OMITTED (a value that goes when it is empty),
# POINTER (a value that stays when it is there), AMOUNTS, AMOUNT, or a table (an object), or [table] (a list of them).
OMITTED, POINTER, AMOUNTS, AMOUNT = "omitted", "pointer", "amounts", "amount"
_Table = dict[str, Any]
_MAX_KEPT_HASHES = 512
_hashes: dict[bytes, str] = {}  # SHA-256 of a container as it was written then -> its hash, the oldest first

_EXEC: _Table = {"command": OMITTED}
_HEADER: _Table = {"name": ("",), "value": ("",)}
_HTTP_GET: _Table = {"path": OMITTED, "port": (0,), "host": OMITTED, "scheme": OMITTED, "httpHeaders": [_HEADER]}
_TCP: _Table = {"port": (0,), "host": OMITTED}
_HANDLER: _Table = {"exec": _EXEC, "httpGet": _HTTP_GET, "tcpSocket": _TCP}
_SECONDS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_PROBE: _Table = {**_HANDLER, **dict.fromkeys(_SECONDS, OMITTED)}
_PORT: _Table = {
    "name": OMITTED,
    "hostPort": OMITTED,
    "containerPort": (0,),
    "protocol": OMITTED,
    "hostIP": OMITTED,
}
_OBJECT: _Table = {"name": OMITTED, "optional": POINTER}
_KEY: _Table = {"name": OMITTED, "key": ("",), "optional": POINTER}
_VALUE_FROM: _Table = {
    "fieldRef": {"apiVersion": OMITTED, "fieldPath": ("",)},
    "resourceFieldRef": {"containerName": OMITTED, "resource": ("",), "divisor": AMOUNT},
    "configMapKeyRef": _KEY,
    "secretKeyRef": _KEY,
}
_MOUNT: _Table = {
    "name": ("",),
    "readOnly": OMITTED,
    "mountPath": ("",),
    "subPath": OMITTED,
    "mountPropagation": POINTER,
    "subPathExpr": OMITTED,
}
_SECURITY: _Table = {
    "capabilities": {"add": OMITTED, "drop": OMITTED},
    "privileged": POINTER,
    "seLinuxOptions": dict.fromkeys(("user", "role", "type", "level"), OMITTED),
    "windowsOptions": dict.fromkeys(("gmsaCredentialSpecName", "gmsaCredentialSpec", "runAsUserName"), POINTER),
    "runAsUser": POINTER,
    "runAsGroup": POINTER,
    "runAsNonRoot": POINTER,
    "readOnlyRootFilesystem": POINTER,
    "allowPrivilegeEscalation": POINTER,
    "procMount": POINTER,
    "seccompProfile": {"type": ("",), "localhostProfile": POINTER},
}
_CONTAINER: _Table = {
    "name": ("",),
    "image": OMITTED,
    "command": OMITTED,
    "args": OMITTED,
    "workingDir": OMITTED,
    "ports": [_PORT],
    "envFrom": [{"prefix": OMITTED, "configMapRef": _OBJECT, "secretRef": _OBJECT}],
    "env": [{"name": ("",), "value": OMITTED, "valueFrom": _VALUE_FROM}],
    "resources": {"limits": AMOUNTS, "requests": AMOUNTS},
    "volumeMounts": [_MOUNT],
    "volumeDevices": [{"name": ("",), "devicePath": ("",)}],
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "startupProbe": _PROBE,
    "lifecycle": {"postStart": _HANDLER, "preStop": _HANDLER},
    "terminationMessagePath": OMITTED,
    "terminationMessagePolicy": OMITTED,
    "imagePullPolicy": OMITTED,
    "securityContext": _SECURITY,
    "stdin": OMITTED,
    "stdinOnce": OMITTED,
    "tty": OMITTED,
}


def earlier_container_hash(container: Mapping[str, Any]) -> str:
    """Return the hash that such a kubelet wrote into io.kubernetes.container.hash: lower hex without 0x."""
    text = go_json(_written({"resources": {}, **container}, _CONTAINER)).encode()
    digest = sha256(text).digest()  # a text may be a megabyte long, and is not worth keeping
    if digest not in _hashes:
        while len(_hashes) >= _MAX_KEPT_HASHES:
            del _hashes[next(iter(_hashes))]
        dump = " ".join(map(str, text))
        _hashes[digest] = f"{fnv32a(f'([]uint8)[{dump}]'.encode()):x}"
    return _hashes[digest]


def _written(value: Mapping[str, Any], table: _Table) -> dict[str, Any]:
    written = {}
    for field, kind in table.items():
        given = value.get(field)
        if isinstance(kind, tuple):
            written[field] = kind[0] if given is None else given
        elif kind == AMOUNT:
            written[field] = _amount(given if given is not None else "0")
        elif given is None:
            continue
        elif isinstance(kind, dict):
            written[field] = _written(given, kind)
        elif isinstance(kind, list):
            if given:
                written[field] = [_written(item, kind[0]) for item in given]
        elif kind == AMOUNTS:
            if given:
                written[field] = {name: _amount(given[name]) for name in sorted(given)}
        elif kind == POINTER or given:
            written[field] = given
    return written


def _amount(given: Any) -> str:
    try:
        return str(parse_quantity(given))
    except QuantityError:
        return str(given)


def is_hash_of(container: Mapping[str, Any], found: str) -> bool:
    """Return whether an instance that carries this hash was made from this very container, by us or by such a
    kubelet."""
    return found in (container_hash(container), "") or found == earlier_container_hash(container)
