"""podsync asks volume for the calls of device plugins; only a refusal of the plugin itself is final."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from bus.interface import Bus, NoAnswerError
from bus.messages.device_plugins import AllocatedDevices, AllocateDevices, GetPreferredAllocation, PreferredAllocation
from services.podsync.adapters.device_requests import DeviceRequests
from services.podsync.core.placement.device_policy import PreferenceQuestion
from services.podsync.core.pod.call_results import DevicesAllocated, DevicesPreferred
from services.podsync.core.pod.events import DEVICES_REFUSED, CallDone, CallFailed
from services.podsync.core.pod.instructions import AllocatePodDevices, AskPreferredDevices, DevicesOfContainer
from tests.fakes.memory_bus import MemoryNetwork
from tests.service.podsync.performer import UID, Performer, a_container, a_pod

GPU = "example.com/gpu"
ALLOCATE = AllocatePodDevices(
    uid=UID,
    wanted=(
        DevicesOfContainer(container="c", resource=GPU, ids=("a", "b")),
        DevicesOfContainer(container="d", resource=GPU, ids=("c",)),
    ),
)
ASK = AskPreferredDevices(uid=UID, question=PreferenceQuestion(GPU, ("a", "b", "c"), ("a",), 2))


class Volume:
    """Answers as volume does for one plugin."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.asked: list[Any] = []
        self.error: dict[str, Any] = {}  # of each answer about the device `c`
        self.bus = network.bus("volume")
        self.bus.answer(AllocateDevices, self._allocate)
        self.bus.answer(GetPreferredAllocation, self._prefer)

    async def _allocate(self, request: AllocateDevices) -> AllocatedDevices:
        self.asked.append(request)
        if self.error and "c" in request.devices:
            return AllocatedDevices(**self.error)
        return AllocatedDevices(envs={"IDS": ",".join(request.devices)})

    async def _prefer(self, request: GetPreferredAllocation) -> PreferredAllocation:
        self.asked.append(request)
        return PreferredAllocation(error="no") if self.error else PreferredAllocation(devices=("a", "c"))


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[tuple[Volume, Performer]]:
    """Return volume and podsync's calls, on buses that are started."""
    network = MemoryNetwork()
    volume, bus = Volume(network), network.bus("podsync")
    performer = Performer(tmp_path, a_pod(a_container()))
    performer.calls.devices = DeviceRequests(bus)
    for one in (volume.bus, bus):
        await one.start()
    yield volume, performer
    for one in (volume.bus, bus):
        await one.stop()


async def test_each_container_has_the_answer_to_its_own_request(node: tuple[Volume, Performer]) -> None:
    volume, performer = node
    done = await performer.perform(ALLOCATE)
    assert isinstance(done, CallDone)
    assert done.result == DevicesAllocated(
        setups=(AllocatedDevices(envs={"IDS": "a,b"}), AllocatedDevices(envs={"IDS": "c"}))
    )
    assert volume.asked == [
        AllocateDevices(resource=GPU, devices=("a", "b")),
        AllocateDevices(resource=GPU, devices=("c",)),
    ]


@pytest.mark.parametrize(("unanswered", "reason"), [(False, DEVICES_REFUSED), (True, "")])
async def test_an_error_fails_the_call_and_is_final_where_the_plugin_has_refused(
    node: tuple[Volume, Performer], unanswered: bool, reason: str
) -> None:
    volume, performer = node
    volume.error = {"error": "broken", "unanswered": unanswered}
    failed = await performer.perform(ALLOCATE)
    assert isinstance(failed, CallFailed)
    assert (failed.description, failed.reason) == ("broken", reason)


async def test_a_preference_is_that_of_the_plugin_and_none_where_it_fails(node: tuple[Volume, Performer]) -> None:
    volume, performer = node
    done = await performer.perform(ASK)
    assert isinstance(done, CallDone) and done.result == DevicesPreferred(ids=frozenset({"a", "c"}))
    assert volume.asked == [
        GetPreferredAllocation(resource=GPU, available=("a", "b", "c"), must_include=("a",), size=2)
    ]
    volume.error = {"error": "broken"}
    done = await performer.perform(ASK)
    assert isinstance(done, CallDone) and done.result == DevicesPreferred(ids=frozenset())


async def test_without_volume_the_plugins_may_be_asked_again(tmp_path: Path) -> None:
    class NoVolume:
        async def ask(self, *_: Any) -> Any:
            raise NoAnswerError("volume does not answer")

    performer = Performer(tmp_path, a_pod(a_container()))
    performer.calls.devices = DeviceRequests(cast("Bus", NoVolume()))
    failed = await performer.perform(ALLOCATE)
    assert isinstance(failed, CallFailed)
    assert (failed.description, failed.reason) == ("volume does not answer", "")
    done = await performer.perform(ASK)
    assert isinstance(done, CallDone) and done.result == DevicesPreferred(ids=frozenset())
