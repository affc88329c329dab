"""The JSON types of every pod field this agent reads, so that the rules behind need not doubt them.

Fields not named here are carried along unread, whatever they hold. Decides types only: not which values are allowed.
"""

import json
import math
from typing import Any

from shared.model.schema import ListOf, MapOf, Scalar, Schema, Struct, is_of_type
from shared.podspec.usual_values import UnusualError, usual_copy
from shared.podspec.volume_types import FIELD_REF, LOCAL_REF, RESOURCE_REF, VOLUME_TYPES

MAX_DEPTH = 100  # levels
S, I, B, Q = Scalar.STRING, Scalar.INT64, Scalar.BOOLEAN, Scalar.QUANTITY  # noqa: E741
I32, P = Scalar.INT32, Scalar.INT_OR_STRING
STRINGS, STRING_MAP, AMOUNTS = ListOf(S), MapOf(S), MapOf(Q)

_KEY_REF: Struct = {"name": S, "key": S, "optional": B}
_RESOURCES: Struct = {"limits": AMOUNTS, "requests": AMOUNTS, "claims": ListOf({"name": S, "request": S})}
_SELINUX: Struct = {"user": S, "role": S, "type": S, "level": S}
_PROFILE: Struct = {"type": S, "localhostProfile": S}

_HTTP_GET: Struct = {
    "path": S, "port": P, "host": S, "scheme": S, "protocol": S, "httpHeaders": ListOf({"name": S, "value": S}),
}  # fmt: skip
_HANDLER: Struct = {
    "exec": {"command": STRINGS}, "httpGet": _HTTP_GET, "tcpSocket": {"port": P, "host": S}, "sleep": {"seconds": I},
}  # fmt: skip
_PROBE: Struct = {
    "exec": {"command": STRINGS}, "httpGet": _HTTP_GET, "tcpSocket": {"port": P, "host": S},
    "grpc": {"port": I32, "service": S, "mode": S}, "initialDelaySeconds": I32, "timeoutSeconds": I32,
    "periodSeconds": I32, "successThreshold": I32, "failureThreshold": I32, "terminationGracePeriodSeconds": I,
}  # fmt: skip

_ENV: Struct = {
    "name": S,
    "value": S,
    "valueFrom": {
        "fieldRef": FIELD_REF,
        "resourceFieldRef": RESOURCE_REF,
        "configMapKeyRef": _KEY_REF,
        "secretKeyRef": _KEY_REF,
        "fileKeyRef": {"volumeName": S, "path": S, "key": S, "optional": B},
    },
}
_MOUNT: Struct = {
    "name": S, "mountPath": S, "readOnly": B, "recursiveReadOnly": S, "subPath": S, "subPathExpr": S,
    "mountPropagation": S, "bindMountOptions": STRINGS,
}  # fmt: skip

CONTAINER: Struct = {
    "name": S,
    "image": S,
    "imagePullPolicy": S,
    "command": STRINGS,
    "args": STRINGS,
    "workingDir": S,
    "env": ListOf(_ENV),
    "envFrom": ListOf(
        {"prefix": S, "configMapRef": {"name": S, "optional": B}, "secretRef": {"name": S, "optional": B}}
    ),
    "ports": ListOf({"name": S, "containerPort": I32, "hostPort": I32, "protocol": S, "hostIP": S}),
    "resources": _RESOURCES,
    "resizePolicy": ListOf({"resourceName": S, "restartPolicy": S}),
    "restartPolicy": S,
    "restartPolicyRules": ListOf({"action": S, "exitCodes": {"operator": S, "values": ListOf(I32)}}),
    "volumeMounts": ListOf(_MOUNT),
    "volumeDevices": ListOf({"name": S, "devicePath": S}),
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "startupProbe": _PROBE,
    "lifecycle": {"postStart": _HANDLER, "preStop": _HANDLER, "stopSignal": S},
    "terminationMessagePath": S,
    "terminationMessagePolicy": S,
    "securityContext": {
        "capabilities": {"add": STRINGS, "drop": STRINGS},
        "privileged": B,
        "seLinuxOptions": _SELINUX,
        "runAsUser": I,
        "runAsGroup": I,
        "runAsNonRoot": B,
        "readOnlyRootFilesystem": B,
        "allowPrivilegeEscalation": B,
        "procMount": S,
        "seccompProfile": _PROFILE,
        "appArmorProfile": _PROFILE,
    },
    "stdin": B,
    "stdinOnce": B,
    "tty": B,
}

_TOLERATION: Struct = {"key": S, "operator": S, "value": S, "effect": S, "tolerationSeconds": I}
_EXPRESSIONS = ListOf({"key": S, "operator": S, "values": STRINGS})
_SPREAD: Struct = {"maxSkew": I32, "topologyKey": S, "whenUnsatisfiable": S, "minDomains": I32}
_NODE_TERM: Struct = {"matchExpressions": _EXPRESSIONS, "matchFields": _EXPRESSIONS}

POD: Struct = {
    "apiVersion": S,
    "kind": S,
    "metadata": {
        "name": S,
        "generateName": S,
        "namespace": S,
        "uid": S,
        "labels": STRING_MAP,
        "annotations": STRING_MAP,
        "creationTimestamp": S,
        "deletionTimestamp": S,
        "deletionGracePeriodSeconds": I,
        "generation": I,
        "resourceVersion": S,
        "finalizers": STRINGS,
    },
    "spec": {
        "containers": ListOf(CONTAINER),
        "initContainers": ListOf(CONTAINER),
        "ephemeralContainers": ListOf({"name": S}),
        "volumes": ListOf({"name": S, **VOLUME_TYPES}),
        "nodeName": S,
        "nodeSelector": STRING_MAP,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": ListOf(_NODE_TERM)}
            }
        },
        "tolerations": ListOf(_TOLERATION),
        "topologySpreadConstraints": ListOf(_SPREAD),
        "restartPolicy": S,
        "terminationGracePeriodSeconds": I,
        "activeDeadlineSeconds": I,
        "dnsPolicy": S,
        "dnsConfig": {"nameservers": STRINGS, "searches": STRINGS, "options": ListOf({"name": S, "value": S})},
        "hostname": S,
        "subdomain": S,
        "hostnameOverride": S,
        "setHostnameAsFQDN": B,
        "hostAliases": ListOf({"ip": S, "hostnames": STRINGS}),
        "hostNetwork": B,
        "hostPID": B,
        "hostIPC": B,
        "hostUsers": B,
        "shareProcessNamespace": B,
        "enableServiceLinks": B,
        "serviceAccountName": S,
        "serviceAccount": S,
        "automountServiceAccountToken": B,
        "imagePullSecrets": ListOf(LOCAL_REF),
        "schedulerName": S,
        "schedulingGates": ListOf({"name": S}),
        "readinessGates": ListOf({"conditionType": S}),
        "resourceClaims": ListOf({"name": S, "resourceClaimName": S, "resourceClaimTemplateName": S}),
        "runtimeClassName": S,
        "priority": I32,
        "priorityClassName": S,
        "preemptionPolicy": S,
        "overhead": AMOUNTS,
        "resources": _RESOURCES,
        "os": {"name": S},
        "securityContext": {
            "seLinuxOptions": _SELINUX,
            "runAsUser": I,
            "runAsGroup": I,
            "runAsNonRoot": B,
            "supplementalGroups": ListOf(I),
            "supplementalGroupsPolicy": S,
            "fsGroup": I,
            "fsGroupChangePolicy": S,
            "sysctls": ListOf({"name": S, "value": S}),
            "seccompProfile": _PROFILE,
            "appArmorProfile": _PROFILE,
            "seLinuxChangePolicy": S,
        },
    },
}


def plain_copy(value: Any, path: str = "", depth: int = 0, *, nul: bool = False) -> tuple[Any, list[str]]:
    """Return a deep copy without null fields (to Kubernetes null is the same as absent), and what JSON does not have in
    it. `nul`: NUL characters are let through, for the API server accepts them; who hands them to the kernel fails.
    """
    if not depth:
        try:
            return usual_copy(value, MAX_DEPTH), []
        except UnusualError:
            pass  # what is wrong with it, if anything is, and where
    if depth > MAX_DEPTH:
        return None, [f"{path or 'the document'}: Too deep: nested more than {MAX_DEPTH} times"]
    if isinstance(value, dict):
        copy, errors = {}, []
        for key, item in value.items():
            if not isinstance(key, str):
                errors.append(f"{path or '<root>'}: Invalid value: {shown(key)}: field names must be strings; quote it")
            elif unspeakable := _unspeakable(key, nul):
                errors.append(f"{path or '<root>'}: Invalid value: {shown(key)}: field names {unspeakable}")
            elif item is not None:
                copy[key], wrong = plain_copy(item, join(path, key), depth + 1, nul=nul)
                errors += wrong
        return copy, errors
    if isinstance(value, list | tuple):
        items = [plain_copy(item, f"{path}[{index}]", depth + 1, nul=nul) for index, item in enumerate(value)]
        return [item for item, _ in items], [error for _, wrong in items for error in wrong]
    if wrong_value := _unspeakable(value, nul):
        return None, [f"{path}: Invalid value: {shown(value)}: {wrong_value}"]
    if value is None or isinstance(value, str | bool | int | float):
        return value, []
    return None, [f"{path}: Invalid value: {shown(str(value))}: must be a plain value; quote it"]


def _unspeakable(value: Any, nul: bool) -> str:
    """Return why a scalar cannot be written as JSON or passed to a system call; "" = it can."""
    if isinstance(value, float):
        return "" if math.isfinite(value) else "must be a finite number"
    if isinstance(value, int):
        return "" if -(2**63) <= value < 2**64 else "must fit into 64 bits"
    if isinstance(value, str):
        if "\0" in value and not nul:
            return "must not contain NUL characters"
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            return "must be Unicode text"
    return ""


def type_errors(value: Any, shape: Schema = POD, path: str = "") -> list[str]:
    """Return one message per field of the wrong type, in Kubernetes' form `<path>: Invalid value: <value>: must be
    …`."""
    if not path and _fits(value, shape):
        return []
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [_mismatch(path, value, "an object")]
        known = ((key, field) for key, field in shape.items() if key in value)
        return [error for key, field in known for error in type_errors(value[key], field, join(path, key))]
    if isinstance(shape, MapOf):
        if not isinstance(value, dict):
            return [_mismatch(path, value, "an object")]
        return [error for key, item in value.items() for error in type_errors(item, shape.value, at(path, key))]
    if isinstance(shape, ListOf):
        if not isinstance(value, list):
            return [_mismatch(path, value, "a list")]
        pairs = enumerate(value)
        return [error for index, item in pairs for error in type_errors(item, shape.item, f"{path}[{index}]")]
    return [] if is_of_type(value, shape) else [_mismatch(path, value, shape.value)]


def _fits(value: Any, shape: Schema) -> bool:
    """Return whether `type_errors` finds nothing, without the paths that only an error needs."""
    if isinstance(shape, dict):
        # An object has few of the fields of its schema.
        return isinstance(value, dict) and all(_fits(item, shape[key]) for key, item in value.items() if key in shape)
    if isinstance(shape, MapOf):
        return isinstance(value, dict) and all(_fits(item, shape.value) for item in value.values())
    if isinstance(shape, ListOf):
        return isinstance(value, list) and all(_fits(item, shape.item) for item in value)
    if shape is Scalar.STRING:
        return isinstance(value, str)
    return is_of_type(value, shape)


def join(path: str, key: str) -> str:
    """Return the path of a field below `path`."""
    key = _one_line(key)
    return f"{path}.{key}" if path else key


def at(path: str, key: str) -> str:
    """Return the path of an entry of the map at `path`."""
    return f"{path}[{_one_line(key)}]"


def _one_line(key: str) -> str:
    """Return a key of the user's choosing, fit for a message of one line."""
    return key if key.isprintable() and len(key) <= 80 else shown(key)


def _mismatch(path: str, value: Any, wanted: str) -> str:
    return f"{path or '<root>'}: Invalid value: {shown(value)}: must be {wanted}"


def shown(value: Any) -> str:
    """Return a value in a message: short, never the whole of a large or nested one."""
    if isinstance(value, dict):
        return '"object"'
    if isinstance(value, list):
        return '"array"'
    if value is None:
        return "null"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}…" + ('"' if text.startswith('"') else "")
