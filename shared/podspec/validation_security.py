"""Finds what is wrong with a container's securityContext and with security profiles."""

from typing import Any

from shared.podspec.field_errors import in_range, invalid, one_of, required

_MAX_INT32 = 2**31 - 1


def validate_security_context(context: dict[str, Any], path: str) -> list[str]:
    """Return messages for one container's."""
    errors = []
    for field in ("runAsUser", "runAsGroup"):
        errors += in_range(f"{path}.{field}", context.get(field), 0, _MAX_INT32)
    errors += one_of(f"{path}.procMount", context.get("procMount"), ("Default", "Unmasked"))
    errors += validate_profile(context.get("seccompProfile"), f"{path}.seccompProfile")
    errors += validate_profile(context.get("appArmorProfile"), f"{path}.appArmorProfile")
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            errors.append(invalid(path, context, detail))
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            errors.append(invalid(path, context, detail))
    return errors


def validate_profile(profile: dict[str, Any] | None, path: str) -> list[str]:
    """Return messages for a seccomp or AppArmor profile."""
    if profile is None:
        return []
    kind, local = profile.get("type"), profile.get("localhostProfile")
    if not kind:
        return [required(f"{path}.type", "type is required when the profile is set")]
    errors = one_of(f"{path}.type", kind, ("Localhost", "RuntimeDefault", "Unconfined"))
    here = f"{path}.localhostProfile"
    if kind == "Localhost":
        if not local:
            errors.append(required(here, "must be set when profile type is Localhost"))
        elif local.startswith("/"):
            errors.append(invalid(here, local, "must be a relative path"))
        elif ".." in local.split("/"):
            errors.append(invalid(here, local, "must not contain '..'"))
    elif local:
        errors.append(invalid(here, local, "can only be set when profile type is Localhost"))
    return errors
