"""Builds the CRI security contexts of a pod and its containers: users, groups, capabilities, profiles, namespaces
(pods.md 6.1, 6.4)."""

from collections.abc import Sequence
from typing import Any

from services.podsync.core.cri.config_errors import ContainerConfigError, SandboxConfigError
from services.podsync.core.cri.message import ExplicitMessage, int64, message
from services.podsync.core.cri.user_namespaces import Mappings, needs_user_namespace, userns_options
from services.podsync.core.node.node_facts import NodeFacts
from shared.cri.interface import ImageStatus, Message
from shared.model.objects import Object, annotations, describe
from shared.podspec.containers import every_container

_APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_MAX_UID = 2**31 - 1
_FROM_POD = ("seLinuxOptions", "runAsUser", "runAsGroup", "runAsNonRoot")

MASKED_PATHS = (
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
)
READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


def sandbox_security_context(
    pod: Object, facts: NodeFacts, *, mappings: Mappings | None = None, volume_groups: Sequence[int] = ()
) -> Message:
    """Return the CRI LinuxSandboxSecurityContext. `mappings`: ids of the pod's user namespace, None = it has none of
    its own; `volume_groups`: group ids of the pod's persistent volumes. Raises SandboxConfigError."""
    refuse_user_namespace(pod, facts)
    if needs_user_namespace(pod) and mappings is None:
        raise SandboxConfigError("can't set `spec.hostUsers: false`, the pod was given no ids of its own")
    context = _pod_context(pod)
    every = (container for _, container in every_container(pod))
    own, listed = _fs_group(context), list(context.get("supplementalGroups") or ())
    return message(
        privileged=any((container.get("securityContext") or {}).get("privileged") for container in every),
        seccomp=ExplicitMessage(),  # RuntimeDefault, whatever the containers have
        run_as_user=int64(context.get("runAsUser")),
        run_as_group=int64(context.get("runAsGroup")),
        selinux_options=_selinux(context.get("seLinuxOptions")),
        supplemental_groups=[*own, *_further(volume_groups, listed), *listed],
        supplemental_groups_policy=_groups_policy(context),
        namespace_options=_namespaces(pod, mappings),
    )


def container_security_context(
    pod: Object,
    container: Object,
    *,
    facts: NodeFacts,
    image: ImageStatus,
    target_id: str = "",
    mappings: Mappings | None = None,
    volume_groups: Sequence[int] = (),
) -> Message:
    """Return the CRI LinuxContainerSecurityContext. `target_id`: id of the container whose processes an ephemeral one
    is to see; `mappings`, `volume_groups`: as for the sandbox. Raises ContainerConfigError."""
    of_pod, effective = _pod_context(pod), effective_context(pod, container)
    listed = list(of_pod.get("supplementalGroups") or ())
    uid, username = _image_user(image)
    run_as = effective.get("runAsUser")
    capabilities = effective.get("capabilities")
    unmasked = effective.get("procMount") == "Unmasked"
    apparmor, deprecated_apparmor = _apparmor(pod, container)
    return message(
        capabilities=None if capabilities is None else ExplicitMessage(_capabilities(capabilities)),
        privileged=bool(effective.get("privileged")),
        readonly_rootfs=bool(effective.get("readOnlyRootFilesystem")),
        no_new_privs=effective.get("allowPrivilegeEscalation") is False,
        selinux_options=_selinux(effective.get("seLinuxOptions")),
        run_as_user=int64(run_as if run_as is not None else uid),
        run_as_username=username if run_as is None else "",
        run_as_group=int64(effective.get("runAsGroup")),
        supplemental_groups=[*_fs_group(of_pod), *listed, *_further(volume_groups, listed)],
        supplemental_groups_policy=_groups_policy(of_pod),
        masked_paths=[] if unmasked else [*MASKED_PATHS, *facts.thermal_throttle_paths],
        readonly_paths=[] if unmasked else list(READONLY_PATHS),
        seccomp=_seccomp(of_pod, effective, facts),
        apparmor=apparmor,
        apparmor_profile=deprecated_apparmor,
        namespace_options=_namespaces(pod, mappings, target_id),
    )


def effective_context(pod: Object, container: Object) -> dict[str, Any]:
    """Return the fields of the container's securityContext, and those of the pod's that it inherits."""
    of_pod = _pod_context(pod)
    inherited = {field: of_pod[field] for field in _FROM_POD if field in of_pod}
    return inherited | (container.get("securityContext") or {})


def verify_non_root(pod: Object, container: Object, image: ImageStatus) -> None:
    """Raise ContainerConfigError, with the kubelet's text, for a container that runAsNonRoot forbids."""
    effective = effective_context(pod, container)
    if not effective.get("runAsNonRoot"):
        return
    who = f'(pod: "{describe(pod)}", container: {container.get("name")})'
    if (run_as := effective.get("runAsUser")) is not None:
        if run_as == 0:
            raise ContainerConfigError(f"container's runAsUser breaks non-root policy {who}")
        return
    uid, username = _image_user(image)
    if uid is None:
        raise ContainerConfigError(
            f"container has runAsNonRoot and image has non-numeric user ({username}), "
            f"cannot verify user is non-root {who}"
        )
    if uid == 0:
        raise ContainerConfigError(f"container has runAsNonRoot and image will run as root {who}")
    if not 0 < uid <= _MAX_UID:
        raise ContainerConfigError(
            f"container has runAsNonRoot and image has an invalid user id ({uid}). (Must be 1-({_MAX_UID})): {who}"
        )


def _pod_context(pod: Object) -> dict[str, Any]:
    return (pod.get("spec") or {}).get("securityContext") or {}


def _image_user(image: ImageStatus) -> tuple[int | None, str]:
    """Return the image's user as number or name; an image without a user runs as root."""
    if image.uid is not None:
        return image.uid, ""
    return (None, image.username) if image.username else (0, "")


def refuse_user_namespace(pod: Object, facts: NodeFacts) -> None:
    """Raise SandboxConfigError for a pod that requests a user namespace which its runtime handler does not support."""
    if not needs_user_namespace(pod) or facts.user_namespaces:
        return
    who = f'RuntimeClass handler "{facts.runtime_handler}" does' if facts.runtime_handler else "runtime does"
    raise SandboxConfigError(f"can't set `spec.hostUsers: false`, {who} not support user namespaces")


def _namespaces(pod: Object, mappings: Mappings | None, target_id: str = "") -> Message | None:
    """Return the CRI NamespaceOption; None for a pod without a securityContext, which the API's defaults give to every
    pod. A container does not see processes of another one, unless the pod shares them, or it is an ephemeral container
    with a target."""
    spec = pod.get("spec") or {}
    if spec.get("securityContext") is None:
        return None
    pid = "CONTAINER"
    if spec.get("hostPID"):
        pid = "NODE"
    elif spec.get("shareProcessNamespace"):
        pid = ""  # POD is the zero value
    targeted = pid == "CONTAINER" and target_id
    return message(
        network="NODE" if spec.get("hostNetwork") else "",  # POD is the zero value
        ipc="NODE" if spec.get("hostIPC") else "",
        pid="TARGET" if targeted else pid,
        target_id=target_id if targeted else "",
        userns_options=userns_options(mappings),
    )


def _fs_group(context: dict[str, Any]) -> list[int]:
    return [context["fsGroup"]] if context.get("fsGroup") is not None else []


def _further(groups: Sequence[int], listed: Sequence[int]) -> list[int]:
    return [group for group in dict.fromkeys(groups) if group not in listed]


def _groups_policy(context: dict[str, Any]) -> str:
    return "Strict" if context.get("supplementalGroupsPolicy") == "Strict" else ""  # Merge is the zero value


def _selinux(options: dict[str, str] | None) -> ExplicitMessage | None:
    if options is None:
        return None
    return ExplicitMessage(message(**{part: options.get(part) for part in ("user", "role", "type", "level")}))


def _capabilities(capabilities: dict[str, Any]) -> Message:
    return message(
        add_capabilities=list(capabilities.get("add") or ()), drop_capabilities=list(capabilities.get("drop") or ())
    )


def _profile(kind: str, local: str = "") -> ExplicitMessage:
    """Return a CRI SecurityProfile; RuntimeDefault is the zero value."""
    return ExplicitMessage(message(profile_type="" if kind == "RuntimeDefault" else kind, localhost_ref=local))


def _seccomp(of_pod: dict[str, Any], effective: dict[str, Any], facts: NodeFacts) -> ExplicitMessage:
    profile = effective.get("seccompProfile") or of_pod.get("seccompProfile")
    if not profile:
        return _profile("RuntimeDefault" if facts.seccomp_default else "Unconfined")
    if profile.get("type") != "Localhost":
        return _profile(profile.get("type") or "Unconfined")
    if not profile.get("localhostProfile"):
        raise ContainerConfigError("localhostProfile must be set if seccompProfile type is Localhost.")
    return _profile("Localhost", f"{facts.root_dir}/seccomp/{profile['localhostProfile']}")


def _apparmor(pod: Object, container: Object) -> tuple[ExplicitMessage | None, str]:
    """Return the profile of the container's field, else annotation, else pod's field, and its deprecated text form."""
    own = (container.get("securityContext") or {}).get("appArmorProfile")
    annotated = annotations(pod).get(f"{_APPARMOR_ANNOTATION}{container.get('name')}", "")
    if own is None and annotated:
        own = _apparmor_annotation(annotated)
    profile = own or _pod_context(pod).get("appArmorProfile")
    if not profile:
        return None, ""
    match profile.get("type"):
        case "RuntimeDefault":
            return _profile("RuntimeDefault"), "runtime/default"
        case "Unconfined":
            return _profile("Unconfined"), "unconfined"
        case "Localhost" if profile.get("localhostProfile"):
            local = profile["localhostProfile"]
            return _profile("Localhost", local), f"localhost/{local}"
        case "Localhost":
            raise ContainerConfigError("missing localhost apparmor profile name")
    raise ContainerConfigError(f"unknown apparmor profile type: {profile.get('type')}")


def _apparmor_annotation(value: str) -> dict[str, str]:
    if value.startswith("localhost/"):
        return {"type": "Localhost", "localhostProfile": value.removeprefix("localhost/")}
    return {"type": {"runtime/default": "RuntimeDefault", "unconfined": "Unconfined"}.get(value, value)}
