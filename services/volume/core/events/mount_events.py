"""Makes the Kubernetes Events of operations and of plugins, with the kubelet's reasons and texts (volumes.md 5.4);
pure."""

from collections.abc import Iterator

from bus.messages.event import KubeEvent
from services.volume.core.mounting.expansions import during_mount
from services.volume.core.mounting.view import device_step, message, mount_step
from services.volume.core.operations.operations import ExpandVolume, MountDevice, MountVolume, Operation
from services.volume.core.operations.outcome import Outcome, PluginEvent
from services.volume.core.specs.expansion import Expansion
from services.volume.core.specs.volume_spec import VolumeSpec, spec_name
from services.volume.core.world.actual_state_of_world import ActualStateOfWorld
from services.volume.core.world.desired_state_of_world import DesiredStateOfWorld, DesiredVolumes
from shared.model.frozen_copy import replace

_EXPAND = "NodeExpandVolume.NodeExpandVolume"


def of_failure(
    operation: Operation, outcome: Outcome, desired: DesiredStateOfWorld, actual: ActualStateOfWorld
) -> Iterator[KubeEvent]:
    """Yield the events of an operation that failed; a failed device is an event of each pod that waits for it."""
    pod, error = desired.pods.get(operation.uid), outcome.error
    volume = actual.get(operation.uid, operation.volume)
    match operation:
        case MountVolume(_, name, spec) if pod is not None:
            yield warning(pod, message(name, error, step=mount_step(spec)), _reason(spec))
        case ExpandVolume(_, name) if pod is not None and volume is not None and volume.held:
            yield warning(pod, during_mount(name, error))
        case ExpandVolume(_, name) if pod is not None:
            yield warning(pod, message(name, error, step=_EXPAND), "VolumeResizeFailed")
        case MountDevice(unique_name):
            for uid, name in desired.sharing(unique_name):
                waiting = desired.pods[uid]
                spec = waiting.mounts[name]
                yield warning(waiting, message(name, error, step=device_step(spec, outcome.step)), _reason(spec))


def of_success(operation: Operation, outcome: Outcome, desired: DesiredStateOfWorld) -> Iterator[KubeEvent]:
    """Yield the events of an operation that succeeded: of an expansion, and of a mount whose read-only use prevents
    one."""
    pod = desired.pods.get(operation.uid)
    match operation:
        case ExpandVolume(_, name, spec) if pod is not None and spec.expansion is not None:
            if outcome.expansion is None:  # else nothing was to be done
                text = f'MountVolume.NodeExpandVolume succeeded for volume "{spec_name(name)}" {spec.expansion.node}'
                yield from _of_pod_and_claim(pod, spec.expansion, "Normal", "FileSystemResizeSuccessful", text)
        case MountVolume(_, name, spec) if pod is not None and spec.expansion is not None and spec.read_only:
            text = f'MountVolume.NodeExpandVolume failed for volume "{spec_name(name)}" requested read-only file system'
            yield from _of_pod_and_claim(pod, spec.expansion, "Warning", "FileSystemResizeFailed", text)


def of_plugin(event: PluginEvent, desired: DesiredStateOfWorld) -> KubeEvent | None:
    """Return the event that a plugin reports; None where its pod is gone."""
    kind = "Warning" if event.is_warning else "Normal"
    if event.persistent_volume:
        name = event.persistent_volume
        return KubeEvent(type=kind, reason=event.reason, message=event.message, kind="PersistentVolume", name=name)
    pod = desired.pods.get(event.uid)
    return replace(warning(pod, event.message, event.reason), type=kind) if pod is not None else None


def _of_pod_and_claim(
    pod: DesiredVolumes, expansion: Expansion, kind: str, reason: str, text: str
) -> Iterator[KubeEvent]:
    yield replace(warning(pod, text, reason), type=kind)
    yield KubeEvent(
        type=kind,
        reason=reason,
        message=text,
        kind="PersistentVolumeClaim",
        namespace=expansion.namespace,
        name=expansion.claim,
        uid=expansion.uid,
    )


def warning(pod: DesiredVolumes, text: str, reason: str = "FailedMount") -> KubeEvent:
    """Return a Warning about the pod."""
    return KubeEvent(
        type="Warning",
        reason=reason,
        message=text,
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
    )


def _reason(spec: VolumeSpec) -> str:
    return "FailedMapVolume" if spec.block else "FailedMount"
