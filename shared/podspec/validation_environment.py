"""Finds what is wrong with the variables of one container."""

from typing import Any

from shared.model.quantity import QuantityError, parse_quantity
from shared.podspec import names
from shared.podspec.field_errors import each_invalid, invalid, not_found, one_of, required
from shared.podspec.field_ref import is_field, is_resource
from shared.podspec.validation_volume import path_errors

_ENV_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_ANY = {"name": "any", "key": "any"}  # in place of a reference that is not there


def validate_environment(container: dict[str, Any], path: str, volume_names: set[str]) -> list[str]:
    """Return messages for `env` and `envFrom` of the container at `path`."""
    errors: list[str] = []
    for index, variable in enumerate(container.get("env") or ()):
        here, name = f"{path}.env[{index}]", variable.get("name") or ""
        if not name:
            errors.append(required(f"{here}.name"))
        else:
            errors += each_invalid(f"{here}.name", name, names.env_name(name))
        if "valueFrom" in variable:
            has_value = bool(variable.get("value"))
            errors += _value_from(variable["valueFrom"], f"{here}.valueFrom", volume_names, has_value=has_value)
    for index, source in enumerate(container.get("envFrom") or ()):
        if ("configMapRef" in source) == ("secretRef" in source):
            detail = "must specify one of: `configMapRef` or `secretRef`"
            errors.append(invalid(f"{path}.envFrom[{index}]", "", detail))
        if prefix := source.get("prefix"):
            errors += each_invalid(f"{path}.envFrom[{index}].prefix", prefix, names.env_name(prefix))
        for kind in ("configMapRef", "secretRef"):
            if kind in source and not source[kind].get("name"):
                errors.append(required(f"{path}.envFrom[{index}].{kind}.name"))
    return errors


def _value_from(source: dict[str, Any], path: str, volume_names: set[str], *, has_value: bool) -> list[str]:
    given = [kind for kind in _ENV_SOURCES if kind in source]
    if not given:
        return [invalid(path, "", f"must specify one of: {', '.join(f'`{kind}`' for kind in _ENV_SOURCES)}")]
    errors = []
    if has_value:
        errors.append(invalid(path, "", "may not be specified when `value` is not empty"))
    if len(given) > 1:
        errors.append(invalid(path, "", "may not have more than one field specified at a time"))
    if "fieldRef" in source:
        where, field = f"{path}.fieldRef.fieldPath", source["fieldRef"].get("fieldPath") or ""
        if not field:
            errors.append(required(where))
        elif not is_field(field):
            errors.append(invalid(where, field, "is no field that an environment variable can hold"))
        errors += one_of(f"{path}.fieldRef.apiVersion", source["fieldRef"].get("apiVersion") or None, ("v1",))
    if "resourceFieldRef" in source:
        errors += validate_resource_ref(source["resourceFieldRef"], f"{path}.resourceFieldRef")
    for kind in ("configMapKeyRef", "secretKeyRef"):
        errors += [
            required(f"{path}.{kind}.{field}") for field in ("name", "key") if not source.get(kind, _ANY).get(field)
        ]
    if "fileKeyRef" in source:
        errors += _file_key(source["fileKeyRef"], f"{path}.fileKeyRef", volume_names)
    return errors


def validate_resource_ref(reference: dict[str, Any], path: str) -> list[str]:
    """Return messages for a resourceFieldRef, of a variable or of a file of a volume."""
    errors, resource = [], reference.get("resource") or ""
    if not resource:
        errors.append(required(f"{path}.resource"))
    elif not is_resource(resource):
        errors.append(invalid(f"{path}.resource", resource, "must name a request or limit, as `limits.cpu`"))
    if "divisor" in reference and not is_divisor(reference["divisor"]):
        errors.append(invalid(f"{path}.divisor", reference["divisor"], "must be a quantity that is not negative"))
    return errors


def is_divisor(value: Any) -> bool:
    """Return whether the value is a quantity of at least 0, which stands for 1."""
    try:
        return parse_quantity(value).nanos >= 0
    except QuantityError:
        return False


def _file_key(reference: dict[str, Any], path: str, volume_names: set[str]) -> list[str]:
    volume, file, key = (reference.get(field) or "" for field in ("volumeName", "path", "key"))
    errors = []
    if not volume:
        errors.append(required(f"{path}.volumeName"))
    elif volume not in volume_names:
        errors.append(not_found(f"{path}.volumeName", volume))
    errors += path_errors(file, f"{path}.path") if file else [required(f"{path}.path")]
    errors += each_invalid(f"{path}.key", key, names.env_name(key)) if key else [required(f"{path}.key")]
    return errors
