"""Builds the environment of one container (pods.md 6.3).
All values are arguments: the pod, the node's facts, the variables of Services, the ConfigMaps and Secrets
(`ReferencedObject`) and the files (`EnvFile`).
"""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.podsync.core.cri.config_errors import ContainerConfigError
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.pod.pod_addresses import one_per_family
from shared.model.objects import Object
from shared.podspec.exec_space import MAX_SPACE_BYTES, MAX_STRING_BYTES, ExecSpace, TooLongError, utf8_length
from shared.podspec.expansion import expand
from shared.podspec.field_ref import FieldError, field_value, resource_value

_KEY_REFS = {"configMapKeyRef": "ConfigMap", "secretKeyRef": "Secret"}
_WHOLE_MAPS = ("metadata.labels", "metadata.annotations")
UNREADABLE_ENV_FILE = "couldn't parse env file"
_MAX_SHOWN_CHARACTERS = 256  # of a name in an error
_FROM_REFS = {"configMapRef": "ConfigMap", "secretRef": "Secret"}


@dataclass(frozen=True)
class ReferencedObject:
    """Has a ConfigMap or Secret as it was read: the object, or why there is none."""

    object: Object | None = field(repr=False)
    not_found: bool = False
    error: str = ""


References = Mapping[tuple[str, str], ReferencedObject]  # (kind, name) in the pod's namespace


@dataclass(frozen=True)
class EnvFile:
    """Has the requested variables of a file in a volume. `error`: why it is not known whether the file sets the
    others."""

    variables: Mapping[str, str] = field(repr=False)
    missing: bool = False  # there is no such file
    error: str = ""


EnvFiles = Mapping[tuple[str, str], EnvFile]  # (volume, path in it)


def environment_references(container: Object) -> dict[tuple[str, str], set[str] | None]:
    """Return each ConfigMap and Secret (kind, name) that the container's environment needs, in the order of their first
    use, with the keys that it needs of them; None = all."""
    needed: dict[tuple[str, str], set[str] | None] = {}
    for source in container.get("envFrom") or ():
        for place, kind in _FROM_REFS.items():
            if source.get(place):
                needed[kind, str(source[place].get("name") or "")] = None
    for variable in container.get("env") or ():
        for place, kind in _KEY_REFS.items():
            if reference := (variable.get("valueFrom") or {}).get(place):
                keys = needed.setdefault((kind, str(reference.get("name") or "")), set())
                if keys is not None:
                    keys.add(str(reference.get("key") or ""))
    return needed


def environment_files(container: Object) -> dict[tuple[str, str], set[str]]:
    """Return each file (volume, path in it without `.` and empty parts) that the container's environment needs, in the
    order of their first use, with the keys that it needs of them."""
    needed: dict[tuple[str, str], set[str]] = {}
    for variable in container.get("env") or ():
        if reference := (variable.get("valueFrom") or {}).get("fileKeyRef"):
            needed.setdefault(_parse_file_reference(reference), set()).add(str(reference.get("key") or ""))
    return needed


def container_environment(
    pod: Object,
    container: Object,
    *,
    facts: NodeFacts,
    pod_ips: Sequence[str],
    service_env: Mapping[str, str],
    references: References,
    env_files: EnvFiles | None = None,
    space: ExecSpace | None = None,
) -> dict[str, str]:
    """Return the final environment: envFrom, then the container's own variables in order, where the last of one name
    counts; then those of Services whose names are not among them. `pod_ips` and `facts.node_ips`: those of the pod's
    status; `references` has all that `environment_references` returns, `env_files` all of `environment_files`. Each
    variable is counted in `space`, also one that a later one of its name replaces. Raises ContainerConfigError."""
    spec = pod.get("spec") or {}
    if spec.get("enableServiceLinks") is None:
        raise ContainerConfigError("nil pod.spec.enableServiceLinks encountered, cannot construct envvars")
    status = _status_fields(pod, facts, pod_ips)
    env = _Environment(space or ExecSpace())
    for key, text in _from_whole_objects(container, references):
        env[key] = text
    for variable in container.get("env") or ():
        name = str(variable.get("name") or "")
        if variable.get("value"):
            env[name] = _expanded(name, variable["value"], env, service_env)
        elif source := variable.get("valueFrom"):
            if source.get("fileKeyRef"):
                value = _file_value(source["fileKeyRef"], env_files or {})
            elif any(field in source for field in _KEY_REFS):
                value = _key_value(pod, source, references)
            else:
                value = _pod_value(pod, container, source, facts, status)
            if value is not None:
                env[name] = value
        else:
            env[name] = ""
    for name, text in service_env.items():
        if name not in env:
            env[name] = text
    return dict(env)


class _Environment(dict[str, str]):
    """Has the variables, and raises ContainerConfigError for one for which the kernel has no room."""

    def __init__(self, space: ExecSpace) -> None:
        self._space = space

    def __setitem__(self, name: str, value: str) -> None:
        variable = f"{name}={value}"
        if utf8_length(variable) > MAX_STRING_BYTES:
            raise _too_long(name)
        try:
            self._space.take(variable)
        except TooLongError:
            raise ContainerConfigError(
                f'environment variable "{name[:_MAX_SHOWN_CHARACTERS]}" does not fit: the kernel takes '
                f"{MAX_SPACE_BYTES} bytes of environment, command and args together"
            ) from None
        super().__setitem__(name, value)


def _too_long(name: str) -> ContainerConfigError:
    return ContainerConfigError(
        f'environment variable "{name[:_MAX_SHOWN_CHARACTERS]}" is too long: the kernel takes {MAX_STRING_BYTES} bytes '
        "of NAME=value"
    )


def _expanded(name: str, value: str, *environments: Mapping[str, str]) -> str:
    try:
        return expand(value, *environments)
    except TooLongError:
        raise _too_long(name) from None


def _pod_value(pod: Object, container: Object, source: dict[str, Any], facts: NodeFacts, status: dict[str, str]) -> str:
    try:
        if "fieldRef" in source:
            path = str(source["fieldRef"].get("fieldPath") or "")
            if path in _WHOLE_MAPS and path not in status:
                status[path] = field_value(pod, path)  # so that the text of many keys is built once
            return field_value(pod, path, status)
        if "resourceFieldRef" in source:
            return resource_value(pod, container, source["resourceFieldRef"], facts.allocatable)
    except FieldError as error:
        raise ContainerConfigError(str(error)) from error
    return ""


def _from_whole_objects(container: Object, references: References) -> Iterator[tuple[str, str]]:
    for source in container.get("envFrom") or ():
        for place, kind in _FROM_REFS.items():
            if not source.get(place):
                continue
            obj = _find_object(kind, source[place], references)
            for key in obj.get("data") or {}:
                if (value := _decode_value(kind, obj, key)) is not None:
                    yield f"{source.get('prefix') or ''}{key}", value


def _key_value(pod: Object, source: Mapping[str, Any], references: References) -> str | None:
    """Return the value that a configMapKeyRef or secretKeyRef names; None = there is none, and it is optional."""
    for place, kind in _KEY_REFS.items():
        if not source.get(place):
            continue
        reference = source[place]
        key = str(reference.get("key") or "")
        if (value := _decode_value(kind, _find_object(kind, reference, references), key)) is not None:
            return value
        if reference.get("optional"):
            return None
        namespace = (pod.get("metadata") or {}).get("namespace", "")
        raise ContainerConfigError(f"couldn't find key {key} in {kind} {namespace}/{reference.get('name', '')}")
    return None


def _parse_file_reference(reference: Mapping[str, Any]) -> tuple[str, str]:
    parts = str(reference.get("path") or "").split("/")
    return str(reference.get("volumeName") or ""), "/".join(part for part in parts if part not in ("", "."))


def _file_value(reference: Mapping[str, Any], files: EnvFiles) -> str | None:
    """Return the value that a fileKeyRef names; None = the file does not set it, or to "", and it is optional."""
    volume, path = _parse_file_reference(reference)
    file = files.get((volume, path))
    if file is None:
        raise ContainerConfigError(f'cannot find the volume "{volume}" referenced by FileKeyRef')
    key, optional = str(reference.get("key") or ""), reference.get("optional")
    value = file.variables.get(key)
    if value is None and (file.error or (file.missing and not optional)):
        raise ContainerConfigError(file.error or UNREADABLE_ENV_FILE)
    if value or optional:
        return value or None
    shown = str(reference.get("path") or "")[:_MAX_SHOWN_CHARACTERS]
    raise ContainerConfigError(f'environment variable key "{key[:_MAX_SHOWN_CHARACTERS]}" not found in file "{shown}"')


def _find_object(kind: str, reference: Mapping[str, Any], references: References) -> Object:
    """Return the object; {} for an absent one that is optional. Raises ContainerConfigError with the kubelet's text."""
    read = references.get((kind, str(reference.get("name") or "")), ReferencedObject(None, error="was not read"))
    if read.object is not None:
        return read.object
    if read.not_found and reference.get("optional"):
        return {}
    raise ContainerConfigError(read.error)


def _decode_value(kind: str, obj: Object, key: str) -> str | None:
    """Return the text under the key, None = there is none. Bytes of a Secret that are no UTF-8 are replaced, as in
    Go."""
    value = (obj.get("data") or {}).get(key)
    if value is None or kind == "ConfigMap":
        return None if value is None else str(value)
    try:
        return base64.b64decode(str(value)).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return None


def _status_fields(pod: Object, facts: NodeFacts, pod_ips: Sequence[str]) -> dict[str, str]:
    """Return the addresses of the pod's status; a pod in the host's network has the host's."""
    of_host = (pod.get("spec") or {}).get("hostNetwork")
    ips = list(pod_ips or facts.node_ips) if of_host else one_per_family(pod_ips, facts.node_ips)
    return {
        "status.hostIP": facts.node_ips[0] if facts.node_ips else "",
        "status.hostIPs": ",".join(facts.node_ips),
        "status.podIP": ips[0] if ips else "",
        "status.podIPs": ",".join(ips),
    }
