"""Finds what is wrong with a pod's volumes."""

from collections.abc import Sequence
from typing import Any

from shared.model.quantity import QuantityError, parse_quantity
from shared.podspec import names
from shared.podspec.field_errors import duplicate, each_invalid, forbidden, in_range, invalid, one_of, required
from shared.podspec.field_ref import is_resource
from shared.podspec.volume_types import TYPES, VOLUME_TYPES

_HOST_PATH_TYPES = (
    "", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice",
)  # fmt: skip
_SHOWN = ("metadata.name", "metadata.namespace", "metadata.uid")
MAX_USER_ID = 2**31 - 1
PULL_POLICIES = ("Always", "IfNotPresent", "Never")


def validate_volumes(volumes: Sequence[dict[str, Any]]) -> tuple[list[str], set[str]]:
    """Return messages, and the names that volumeMounts may use."""
    errors: list[str] = []
    taken: set[str] = set()
    for index, volume in enumerate(volumes):
        path, name = f"spec.volumes[{index}]", volume.get("name") or ""
        if not name:
            errors.append(required(f"{path}.name"))
        else:
            errors += each_invalid(f"{path}.name", name, names.dns_label(name))
        if name and name in taken:
            errors.append(duplicate(f"{path}.name", name))
        taken.add(name)
        errors += _source(volume, path)
    return errors, taken - {""}


def _source(volume: dict[str, Any], path: str) -> list[str]:
    kinds = [kind for kind in VOLUME_TYPES if kind in volume]
    if not kinds:
        return [required(path, "must specify a volume type")]
    errors = [forbidden(f"{path}.{kind}", "may not specify more than 1 volume type") for kind in kinds[1:]]
    kind = kinds[0]
    source, here = volume[kind], f"{path}.{kind}"
    errors += [required(f"{here}.{field}") for field in TYPES[kind].required if not source.get(field)]
    match kind:
        case "emptyDir":
            errors += _size_limit(source.get("sizeLimit"), f"{here}.sizeLimit")
            errors += in_range(f"{here}.mode", source.get("mode"), 0, 0o1777)
        case "hostPath":
            errors += _host_path(source, here)
        case "image":
            errors += one_of(f"{here}.pullPolicy", source.get("pullPolicy"), PULL_POLICIES)
        case "downwardAPI" | "configMap" | "secret":
            errors += in_range(f"{here}.defaultMode", source.get("defaultMode"), 0, 0o777)
            errors += in_range(f"{here}.defaultUser", source.get("defaultUser"), 0, MAX_USER_ID)
            errors += _items(kind, source, here)
        case "projected":
            errors += in_range(f"{here}.defaultMode", source.get("defaultMode"), 0, 0o777)
            errors += in_range(f"{here}.defaultUser", source.get("defaultUser"), 0, MAX_USER_ID)
            for index, part in enumerate(source.get("sources") or ()):
                for name, projection in part.items():
                    if isinstance(projection, dict):
                        errors += _items(name, projection, f"{here}.sources[{index}].{name}")
    return errors


def _size_limit(value: Any, path: str) -> list[str]:
    try:
        negative = value is not None and parse_quantity(value).nanos < 0
    except QuantityError as error:
        return [invalid(path, value, str(error))]
    return [forbidden(path, "SizeLimit field must be a valid resource quantity")] if negative else []


def _host_path(source: dict[str, Any], path: str) -> list[str]:
    where = source.get("path") or ""
    if not where:
        return [required(f"{path}.path")]
    errors = one_of(f"{path}.type", source.get("type"), _HOST_PATH_TYPES)
    return errors + ([invalid(f"{path}.path", where, "must not contain '..'")] if ".." in where.split("/") else [])


def _items(kind: str, source: dict[str, Any], path: str) -> list[str]:
    """Return the files a volume is projected into."""
    errors: list[str] = []
    for index, item in enumerate(source.get("items") or ()):
        here, target = f"{path}.items[{index}]", item.get("path") or ""
        errors += [required(f"{here}.path")] if not target else path_errors(target, f"{here}.path")
        errors += in_range(f"{here}.mode", item.get("mode"), 0, 0o777)
        errors += in_range(f"{here}.user", item.get("user"), 0, MAX_USER_ID)
        if kind == "downwardAPI":
            errors += _shown_field(item, here)
        elif not item.get("key"):
            errors.append(required(f"{here}.key"))
    return errors


def _shown_field(item: dict[str, Any], path: str) -> list[str]:
    """Return what a file of a downward volume shows: exactly one of a field and a resource."""
    given = [kind for kind in ("fieldRef", "resourceFieldRef") if kind in item]
    if len(given) != 1:
        detail = "one of fieldRef and resourceFieldRef is required" if not given else "fieldRef and resourceFieldRef"
        return [required(path, detail) if not given else invalid(path, "", f"{detail} can not be specified both")]
    if given[0] == "fieldRef":
        where, field = f"{path}.fieldRef.fieldPath", item["fieldRef"].get("fieldPath") or ""
        if not field:
            return [required(where)]
        return [] if is_volume_field(field) else [invalid(where, field, "is no field that a file can show")]
    reference, where = item["resourceFieldRef"], f"{path}.resourceFieldRef"
    resource = reference.get("resource") or ""
    errors = [] if reference.get("containerName") else [required(f"{where}.containerName")]
    if not is_resource(resource):
        errors.append(invalid(f"{where}.resource", resource, "must name a request or limit, as `limits.cpu`"))
    try:
        negative = parse_quantity(reference.get("divisor", 0)).nanos < 0
    except QuantityError:
        negative = True
    return errors + ([invalid(f"{where}.divisor", reference["divisor"], "must be a quantity, 0 or more")] * negative)


def is_volume_field(path: str) -> bool:
    """Return whether a file of a volume may show this field: labels and annotations as maps too, and nothing of the
    status.
    """
    maps = ("metadata.labels", "metadata.annotations")
    return path in maps or path.startswith(tuple(f"{name}['" for name in maps)) or path in _SHOWN


def path_errors(value: str, path: str) -> list[str]:
    """Return messages for a path that must stay below the directory it is taken from."""
    errors = [invalid(path, value, "must be a relative path")] if value.startswith("/") else []
    return errors + ([invalid(path, value, "must not contain '..'")] if ".." in value.split("/") else [])
