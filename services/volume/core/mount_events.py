"""The Kubernetes Events of failed operations, with the kubelet's reasons and texts (volumes.md 5.4); pure."""

from collections.abc import Iterator

from bus.messages.event import KubeEvent
from services.volume.core.desired_state_of_world import DesiredStateOfWorld, DesiredVolumes
from services.volume.core.operations import ExpandVolume, MountDevice, MountVolume, Operation
from services.volume.core.view import device_step, message, mount_step
from services.volume.core.volume_spec import VolumeSpec

_EXPAND = "NodeExpandVolume.NodeExpandVolume"


def of_failure(operation: Operation, error: str, desired: DesiredStateOfWorld) -> Iterator[KubeEvent]:
    """Yield the events of an operation that failed; a failed device is an event of each pod that waits for it."""
    pod = desired.pods.get(operation.uid)
    match operation:
        case MountVolume(_, name, spec) if pod is not None:
            yield warning(pod, message(name, error, step=mount_step(spec)), _reason(spec))
        case ExpandVolume(_, name) if pod is not None:
            yield warning(pod, message(name, error, step=_EXPAND), "VolumeResizeFailed")
        case MountDevice(unique_name):
            for uid, name in desired.sharing(unique_name):
                waiting = desired.pods[uid]
                spec = waiting.mounts[name]
                yield warning(waiting, message(name, error, step=device_step(spec)), _reason(spec))


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
