"""Builds the CRI ContainerConfig of one container (pods.md 6.2). Sends nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from services.podsync.core.cri.config_errors import ContainerConfigError
from services.podsync.core.cri.container_inputs import ContainerInputs
from services.podsync.core.cri.container_mounts import block_devices, container_mounts
from services.podsync.core.cri.container_resources import container_resources
from services.podsync.core.cri.device_setup import device_setup, with_device_variables
from services.podsync.core.cri.environment import container_environment
from services.podsync.core.cri.message import ExplicitMessage, message
from services.podsync.core.cri.sandbox_config import pod_labels
from services.podsync.core.cri.security_context import container_security_context, verify_non_root
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.pod.allocation import with_allocation
from shared.cri.interface import Message
from shared.model.objects import Object
from shared.podspec.containers import find_container
from shared.podspec.exec_space import MAX_SPACE_BYTES, MAX_STRING_BYTES, ExecSpace, TooLongError
from shared.podspec.expansion import expand
from shared.podspec.go_json import go_json
from shared.podspec.hashing import container_hash

CONTAINER_NAME = "io.kubernetes.container.name"
HASH = "io.kubernetes.container.hash"
RESTART_COUNT = "io.kubernetes.container.restartCount"
TERMINATION_PATH = "io.kubernetes.container.terminationMessagePath"
TERMINATION_POLICY = "io.kubernetes.container.terminationMessagePolicy"
PRE_STOP = "io.kubernetes.container.preStopHandler"
PORTS = "io.kubernetes.container.ports"
DELETION_GRACE = "io.kubernetes.pod.deletionGracePeriod"
TERMINATION_GRACE = "io.kubernetes.pod.terminationGracePeriod"

# The fields are in the order of the Go structs, because these texts are compared byte for byte. The value is what is
# written for a field that the pod does not have; None = the field is left out.
_PORT_FIELDS: dict[str, Any] = {"name": None, "hostPort": None, "containerPort": 0, "protocol": None, "hostIP": None}
_HEADER_FIELDS = {"name": "", "value": ""}
_HANDLERS: dict[str, dict[str, Any]] = {
    "exec": {"command": None},
    "httpGet": {"path": None, "port": 0, "host": None, "scheme": None, "httpHeaders": None},
    "tcpSocket": {"port": 0, "host": None},
    "sleep": {"seconds": 0},
}


def container_config(pod: Object, container: Object, inputs: ContainerInputs, *, facts: NodeFacts) -> Message:
    """Return the message for CreateContainer. `container`: one of the pod. Raises ContainerConfigError."""
    if inputs.allocation is not None:
        pod = with_allocation(pod, inputs.allocation)
        entry = find_container(pod, str(container.get("name") or ""))
        container = entry[1] if entry is not None else container
    verify_non_root(pod, container, inputs.image)
    if container.get("targetContainerName") and not inputs.target_id:
        raise ContainerConfigError(f"unable to find target container {container['targetContainerName']}")
    name = str(container.get("name") or "")
    of_devices = device_setup(facts.placement, name)
    space = ExecSpace()
    env = container_environment(
        pod,
        container,
        facts=facts,
        pod_ips=inputs.pod_ips,
        service_env=inputs.service_env,
        references=inputs.references,
        env_files=inputs.env_files,
        space=space,
    )
    env = with_device_variables(of_devices, env, space)
    linux = message(
        resources=ExplicitMessage(container_resources(pod, container, facts)),
        security_context=ExplicitMessage(
            container_security_context(
                pod,
                container,
                facts=facts,
                image=inputs.image,
                target_id=inputs.target_id,
                mappings=inputs.mappings,
                volume_groups=inputs.volume_groups,
            )
        ),
    )
    return message(
        metadata=ExplicitMessage(message(name=name, attempt=inputs.restart_count)),
        image=message(image=inputs.image_ref, user_specified_image=container.get("image")),
        command=_arguments(container, "command", env, space),
        args=_arguments(container, "args", env, space),
        working_dir=container.get("workingDir"),
        stdin=bool(container.get("stdin")),
        stdin_once=bool(container.get("stdinOnce")),
        tty=bool(container.get("tty")),
        envs=[message(key=key, value=value) for key, value in env.items()],
        mounts=container_mounts(
            pod,
            container,
            facts=facts,
            pod_ips=inputs.pod_ips,
            volumes=inputs.volumes,
            subpaths=inputs.subpaths,
            etc_hosts_path=inputs.etc_hosts_path,
            termination_path=inputs.termination_path,
            image_volumes=inputs.image_volumes,
            mappings=inputs.mappings,
            of_devices=of_devices.mounts,
        ),
        devices=[*of_devices.devices, *block_devices(container, inputs.volumes)],
        CDI_devices=_cdi_devices(inputs.claim_devices, of_devices.cdi_devices),
        labels={**pod_labels(pod), CONTAINER_NAME: name},
        annotations={**of_devices.annotations, **_annotations(pod, container, inputs.restart_count)},
        log_path=f"{name}/{inputs.restart_count}.log",
        linux=linux,
        stop_signal=(container.get("lifecycle") or {}).get("stopSignal") if facts.stop_signals else None,
    )


def _cdi_devices(of_claims: Sequence[str], of_plugins: Sequence[Message]) -> list[Message]:
    """Return the CDI devices of resource claims, then those of device plugins, each once (pods.md 6.2)."""
    given = [message(name=name) for name in of_claims]
    return [*given, *(device for device in of_plugins if device not in given)]


def _arguments(container: Object, field: str, env: Mapping[str, str], space: ExecSpace) -> list[str]:
    """Return `command` or `args`, expanded. Raises ContainerConfigError."""
    words = []
    for index, text in enumerate(container.get(field) or ()):
        try:
            word = expand(text, env)
        except TooLongError:
            raise ContainerConfigError(
                f"{field}[{index}] is too long: the kernel takes {MAX_STRING_BYTES} bytes of one argument"
            ) from None
        try:
            space.take(word)
        except TooLongError:
            raise ContainerConfigError(
                f"{field}[{index}] does not fit: the kernel takes {MAX_SPACE_BYTES} bytes of environment, command "
                "and args together"
            ) from None
        words.append(word)
    return words


def _annotations(pod: Object, container: Object, restart_count: int) -> dict[str, str]:
    """Return the facts that this agent or another kubelet reads back from the runtime after a restart."""
    noted = {
        HASH: container_hash(container),
        RESTART_COUNT: str(restart_count),
        TERMINATION_PATH: container.get("terminationMessagePath") or "",
        TERMINATION_POLICY: container.get("terminationMessagePolicy") or "",
    }
    deletion_grace = (pod.get("metadata") or {}).get("deletionGracePeriodSeconds")
    if deletion_grace is not None:
        noted[DELETION_GRACE] = str(deletion_grace)
    grace = (pod.get("spec") or {}).get("terminationGracePeriodSeconds")
    if grace is not None:
        noted[TERMINATION_GRACE] = str(grace)
    if pre_stop := (container.get("lifecycle") or {}).get("preStop"):
        noted[PRE_STOP] = go_json(_handler(pre_stop))
    if ports := container.get("ports"):
        noted[PORTS] = go_json([_ordered(port, _PORT_FIELDS) for port in ports])
    return noted


def _handler(handler: dict[str, Any]) -> dict[str, Any]:
    written = {kind: _ordered(handler[kind], fields) for kind, fields in _HANDLERS.items() if kind in handler}
    for action in written.values():
        if "httpHeaders" in action:
            action["httpHeaders"] = [_ordered(header, _HEADER_FIELDS) for header in action["httpHeaders"]]
    return written


def _ordered(value: dict[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields as Go writes a struct: in the order of the struct, without empty optional fields."""
    chosen = {field: value.get(field) or default for field, default in fields.items()}
    return {field: item for field, item in chosen.items() if item is not None}
