"""Sends volume, which has the connections to device plugins, the requests of podsync for them. Decides nothing."""

from bus.interface import Bus, NoAnswerError, RequestRefusedError
from bus.messages.device_plugins import (
    AllocatedDevices,
    AllocateDevices,
    GetPreferredAllocation,
    PreferredAllocation,
    PreStartContainer,
    PreStartedContainer,
)
from services.podsync.core.placement.device_policy import PreferenceQuestion
from services.podsync.core.pod.instructions import DevicesOfContainer

# Each is longer than volume waits for the plugin, because a slow plugin may answer requests of other pods first.
PREFER_SECONDS = 10.0
ALLOCATE_SECONDS = 60.0
PRE_START_SECONDS = 60.0


class DeviceRequests:
    """Sends requests for calls of device plugins. Each failure is the `error` of the answer; no method raises."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def preferred(self, question: PreferenceQuestion) -> PreferredAllocation:
        """Ask the plugin which devices it prefers."""
        request = GetPreferredAllocation(
            resource=question.resource,
            available=question.available,
            must_include=question.must_include,
            size=question.size,
        )
        try:
            return await self._bus.ask("volume", request, PreferredAllocation, PREFER_SECONDS)
        except (NoAnswerError, RequestRefusedError) as error:
            return PreferredAllocation(error=str(error))

    async def allocate(self, wanted: DevicesOfContainer) -> AllocatedDevices:
        """Have the plugin prepare the devices of one container."""
        request = AllocateDevices(resource=wanted.resource, devices=wanted.ids)
        try:
            return await self._bus.ask("volume", request, AllocatedDevices, ALLOCATE_SECONDS)
        except (NoAnswerError, RequestRefusedError) as error:
            return AllocatedDevices(error=str(error), unanswered=True)

    async def pre_start(self, resource: str, ids: tuple[str, ...]) -> PreStartedContainer:
        """Let the plugin prepare the devices of a container that is about to start."""
        request = PreStartContainer(resource=resource, devices=ids)
        try:
            return await self._bus.ask("volume", request, PreStartedContainer, PRE_START_SECONDS)
        except (NoAnswerError, RequestRefusedError) as error:
            return PreStartedContainer(error=str(error))
