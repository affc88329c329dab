"""Security contexts of CRI as fields of Docker's HostConfig. Pure."""

from typing import Any

from services.dockershim.core.errors import CallError, unsupported

_POD, _CONTAINER, _NODE, _TARGET = range(4)  # NamespaceMode
_RUNTIME_DEFAULT, _UNCONFINED, _LOCALHOST = range(3)  # SecurityProfile.ProfileType
_STRICT = 1  # SupplementalGroupsPolicy
UNCONFINED = "unconfined"
MAX_PROFILE_BYTES = 1024 * 1024  # of a seccomp profile


def localhost_seccomp(security: Any) -> str:
    """Return the path of the seccomp profile that has to be read; "" = none."""
    if security.privileged or not security.HasField("seccomp"):
        return ""
    return str(security.seccomp.localhost_ref) if security.seccomp.profile_type == _LOCALHOST else ""


def security_of(security: Any, profile: str, *, is_sandbox: bool) -> dict[str, Any]:
    """Return the fields of a security context. `profile`: the text of `localhost_seccomp`'s file. Raises CallError."""
    if security.supplemental_groups_policy == _STRICT:
        raise unsupported("supplementalGroupsPolicy Strict: it adds the groups of the image")
    options = _seccomp(security, profile) + _apparmor(security) + _selinux(security)
    fields: dict[str, Any] = {
        "Privileged": security.privileged and not is_sandbox,  # the pause process needs no privileges
        "ReadonlyRootfs": security.readonly_rootfs,
        "GroupAdd": [str(group) for group in security.supplemental_groups],
    }
    if not is_sandbox:
        capabilities = security.capabilities
        if capabilities.add_ambient_capabilities:
            raise unsupported("ambient capabilities")
        fields["CapAdd"] = [_capability(name) for name in capabilities.add_capabilities]
        fields["CapDrop"] = [_capability(name) for name in capabilities.drop_capabilities]
        if security.no_new_privs:
            options.append("no-new-privileges")
        if not security.privileged:
            fields["MaskedPaths"] = list(security.masked_paths)
            fields["ReadonlyPaths"] = list(security.readonly_paths)
    fields["SecurityOpt"] = options
    return fields


def namespaces_of(options: Any, *, sandbox: str) -> dict[str, Any]:
    """Return the fields of a sandbox (`sandbox` ""), or of a container in the sandbox of this id. Raises CallError."""
    if options.HasField("userns_options") and options.userns_options.mode == _POD:
        raise unsupported("a user namespace for one pod (hostUsers: false); this needs a CRI runtime")
    if not sandbox:
        return {
            "NetworkMode": "host" if options.network == _NODE else "none",
            "IpcMode": "host" if options.ipc == _NODE else "shareable",
            "PidMode": "host" if options.pid == _NODE else "",
        }
    shared = f"container:{sandbox}"
    pid = {_POD: shared, _CONTAINER: "", _NODE: "host", _TARGET: f"container:{options.target_id}"}
    return {
        "NetworkMode": "host" if options.network == _NODE else shared,
        "IpcMode": "host" if options.ipc == _NODE else shared,
        "PidMode": pid[options.pid],
    }


def _capability(name: str) -> str:
    return name.upper().removeprefix("CAP_")


def _seccomp(security: Any, profile: str) -> list[str]:
    if security.privileged:
        return []  # Docker runs privileged containers unconfined
    if not security.HasField("seccomp"):
        return [f"seccomp={UNCONFINED}"]
    kind = security.seccomp.profile_type
    if kind == _RUNTIME_DEFAULT:
        return []
    return [f"seccomp={profile if kind == _LOCALHOST else UNCONFINED}"]


def _apparmor(security: Any) -> list[str]:
    if security.privileged or not security.HasField("apparmor"):
        return []
    kind = security.apparmor.profile_type
    if kind == _RUNTIME_DEFAULT:
        return []
    name = security.apparmor.localhost_ref.removeprefix("localhost/") if kind == _LOCALHOST else UNCONFINED
    if not name:
        raise CallError("InvalidArgument", "the AppArmor profile of type Localhost has no name")
    return [f"apparmor={name}"]


def _selinux(security: Any) -> list[str]:
    options = security.selinux_options
    parts = {"user": options.user, "role": options.role, "type": options.type, "level": options.level}
    return [f"label={name}:{value}" for name, value in parts.items() if value]
