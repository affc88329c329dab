"""pods.md 6.4: who a container runs as and what it may do."""

from typing import Any

from shared.cri.interface import ImageStatus
from tests.unit.podsync.cri.golden.case import MASKED, SECURITY, Case

SELINUX = {"user": "u", "role": "r", "type": "t", "level": "s0"}
BETA = "container.apparmor.security.beta.kubernetes.io/c"


def own(name: str, context: dict[str, Any], changes: dict[str, Any], **others: Any) -> Case:
    """A container's securityContext, and what of its security context in CRI differs."""
    message = {f"{SECURITY}:{key}": value for key, value in changes.items()}
    return Case(name=name, container={"securityContext": context}, message=message, **others)


def image(name: str, user: dict[str, Any], changes: dict[str, Any], **context: Any) -> Case:
    """An image with this user."""
    given = {"image": ImageStatus(id="sha256:abc", size=1, **user)}
    return own(name, context, changes, given=given)


def apparmor(
    name: str,
    wanted: dict[str, Any] | None,
    text: str | None,
    *,
    container: Any = None,
    pod: Any = None,
    note: str = "",
) -> Case:
    """Profiles of container and pod and the old annotation; `wanted` and `text` are the two fields of CRI."""
    changes = {} if wanted is None else {f"{SECURITY}:apparmor": wanted, f"{SECURITY}:apparmor_profile": text}
    metadata = {"annotations": {BETA: note}} if note else {}
    return Case(
        name=name,
        container={"securityContext": {"appArmorProfile": container}} if container else {},
        spec={"securityContext": {"appArmorProfile": pod}} if pod else {},
        metadata=metadata,
        sandbox=metadata,
        message=changes,
    )


LOCAL = {"type": "Localhost", "localhostProfile": "k8s/a.json"}

CAPABILITIES = (
    own("capabilities as they are given", {"capabilities": {"add": ["NET_ADMIN", "SYS_TIME"], "drop": ["ALL"]}},
        {"capabilities": {"add_capabilities": ["NET_ADMIN", "SYS_TIME"], "drop_capabilities": ["ALL"]}}),
    own("capabilities named and empty", {"capabilities": {}}, {"capabilities": {}}),
    own("a root filesystem that is read-only", {"readOnlyRootFilesystem": True}, {"readonly_rootfs": True}),
    own("no escalation", {"allowPrivilegeEscalation": False}, {"no_new_privs": True}),
    own("escalation expressly allowed", {"allowPrivilegeEscalation": True}, {}),
)  # fmt: skip

USERS = (
    own("root, by the container", {"runAsUser": 0}, {}, spec={"securityContext": {"runAsUser": 9}},
        sandbox={f"{SECURITY}:run_as_user": {"value": 9}}),
    own("a group by the container, a user by the pod", {"runAsGroup": 7}, {"run_as_user": {"value": 9},
        "run_as_group": {"value": 7}}, spec={"securityContext": {"runAsUser": 9, "runAsGroup": 8}},
        sandbox={f"{SECURITY}:run_as_user": {"value": 9}, f"{SECURITY}:run_as_group": {"value": 8}}),
    image("the image's user by number", {"uid": 33}, {"run_as_user": {"value": 33}}),
    image("the image's user by name", {"username": "www"}, {"run_as_user": None, "run_as_username": "www"}),
    image("the spec's user over the image's", {"username": "www"}, {"run_as_user": {"value": 5}}, runAsUser=5),
    image("not root, as in the image", {"uid": 33}, {"run_as_user": {"value": 33}}, runAsNonRoot=True),
    image("not root, as in the spec", {"uid": 0}, {"run_as_user": {"value": 1}}, runAsNonRoot=True, runAsUser=1),
    image("the container may run as root where the pod may not", {"uid": 0}, {}, runAsNonRoot=False),
    own("SELinux of the container instead of the pod's", {"seLinuxOptions": {"level": "s0:c9"}},
        {"selinux_options": {"level": "s0:c9"}}, spec={"securityContext": {"seLinuxOptions": SELINUX}},
        sandbox={f"{SECURITY}:selinux_options": SELINUX}),
)  # fmt: skip

PROC = (
    own("all of /proc", {"procMount": "Unmasked"}, {"masked_paths": None, "readonly_paths": None}),
    own("/proc as usual", {"procMount": "Default"}, {}),
    Case(
        name="what throttles the processors is masked where it exists",
        node={"thermal_throttle_paths": ("/sys/devices/system/cpu/cpu0/thermal_throttle",)},
        message={f"{SECURITY}:masked_paths": [*MASKED, "/sys/devices/system/cpu/cpu0/thermal_throttle"]},
    ),
)

SECCOMP = (
    own("seccomp: the runtime's", {"seccompProfile": {"type": "RuntimeDefault"}}, {"seccomp": {}}),
    own("seccomp: a file of the node", {"seccompProfile": LOCAL},
        {"seccomp": {"profile_type": "Localhost", "localhost_ref": "/var/lib/kubelet/seccomp/k8s/a.json"}}),
    own("seccomp: a file below another root", {"seccompProfile": LOCAL},
        {"seccomp": {"profile_type": "Localhost", "localhost_ref": "/k/seccomp/k8s/a.json"}}, node={"root_dir": "/k"}),
    Case(name="seccomp: the pod's", spec={"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}},
         message={f"{SECURITY}:seccomp": {}}),
    own("seccomp: the container's instead of the pod's", {"seccompProfile": {"type": "Unconfined"}}, {},
        spec={"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}),
    Case(name="seccomp: the node's default", node={"seccomp_default": True}, message={f"{SECURITY}:seccomp": {}}),
    own("seccomp: unconfined in spite of the node's default", {"seccompProfile": {"type": "Unconfined"}}, {},
        node={"seccomp_default": True}),
)  # fmt: skip

APPARMOR = (
    apparmor("AppArmor: the runtime's", {}, "runtime/default", container={"type": "RuntimeDefault"}),
    apparmor("AppArmor: none", {"profile_type": "Unconfined"}, "unconfined", container={"type": "Unconfined"}),
    apparmor("AppArmor: one of the node's", {"profile_type": "Localhost", "localhost_ref": "p"}, "localhost/p",
             container={"type": "Localhost", "localhostProfile": "p"}),
    apparmor("AppArmor: the pod's", {}, "runtime/default", pod={"type": "RuntimeDefault"}),
    apparmor("AppArmor: the container's instead of the pod's", {"profile_type": "Unconfined"}, "unconfined",
             container={"type": "Unconfined"}, pod={"type": "RuntimeDefault"}),
    apparmor("AppArmor: the annotation, where the container has no field", {"profile_type": "Localhost",
             "localhost_ref": "q"}, "localhost/q", pod={"type": "RuntimeDefault"}, note="localhost/q"),
    apparmor("AppArmor: the annotation for the runtime's", {}, "runtime/default", note="runtime/default"),
    apparmor("AppArmor: the annotation for none", {"profile_type": "Unconfined"}, "unconfined", note="unconfined"),
    apparmor("AppArmor: the container's field instead of the annotation", {}, "runtime/default",
             container={"type": "RuntimeDefault"}, note="localhost/q"),
)  # fmt: skip

CASES = (*CAPABILITIES, *USERS, *PROC, *SECCOMP, *APPARMOR)
