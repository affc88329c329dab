"""Carries out the calls that device plugins answer: for a pod without a verdict, and before a container is created
(node.md 4.15). Decides nothing.
"""

from services.podsync.adapters.calls.pod_operations import PodOperations, PodView
from services.podsync.adapters.device_requests import DeviceRequests
from services.podsync.core.cri.config_errors import ContainerConfigError
from services.podsync.core.cri.device_setup import devices_to_prepare
from services.podsync.core.pod.call_results import DevicesAllocated, DevicesPreferred
from services.podsync.core.pod.events import DEVICES_REFUSED, CallDone
from services.podsync.core.pod.instructions import AllocatePodDevices, AskPreferredDevices, CreateContainer
from shared.model.frozen_copy import replace
from shared.process.deadlines import waiting_for


class DevicesNotGivenError(Exception):
    """Says that a plugin has not prepared the devices. `reason`: DEVICES_REFUSED, or "" where it may be asked again."""

    def __init__(self, error: str, reason: str) -> None:
        super().__init__(error)
        self.reason = reason


async def ask_preferred(devices: DeviceRequests, call: AskPreferredDevices, done: CallDone) -> CallDone:
    """Ask the plugin which devices it prefers; one that fails prefers none. Never raises."""
    with waiting_for("a device plugin"):
        answer = await devices.preferred(call.question)
    return replace(done, result=DevicesPreferred(ids=frozenset(answer.devices)))


async def allocate(devices: DeviceRequests, call: AllocatePodDevices, done: CallDone) -> CallDone:
    """Have the plugins prepare the devices, one request after the other. Raises DevicesNotGivenError."""
    setups = []
    for wanted in call.wanted:
        with waiting_for("a device plugin"):
            answer = await devices.allocate(wanted)
        if answer.error:
            raise DevicesNotGivenError(answer.error, "" if answer.unanswered else DEVICES_REFUSED)
        setups.append(answer)
    return replace(done, result=DevicesAllocated(setups=tuple(setups)))


async def prepare_devices(operations: PodOperations, call: CreateContainer, view: PodView) -> None:
    """Have the plugins that require it prepare the devices of a container that is about to start. If it is not
    created afterwards, the next attempt calls them again. Raises ContainerConfigError."""
    resources, known = operations.node.devices(), operations.node.devices_known()
    for given in devices_to_prepare(view.placement, call.container, resources, known=known):
        with waiting_for("a device plugin"):
            answer = await operations.devices.pre_start(given.resource, tuple(sorted(given.ids)))
        if answer.error:
            raise ContainerConfigError(answer.error)
