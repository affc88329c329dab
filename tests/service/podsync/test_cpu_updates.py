"""The cpusets of many containers at once: the runtime gets a bounded number of requests beside the other calls."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from services.podsync.adapters.calls.runtime_calls import MAX_CPU_UPDATES
from services.podsync.core.pod.events import CallDone, CallFailed
from services.podsync.core.pod.instructions import SetContainerCpus
from shared.cri.interface import RuntimeCallError
from tests.service.podsync.performer import UID, Performer, a_container, a_pod

CALLS = [SetContainerCpus(uid=UID, container="c", container_id=f"id{number}", cpus="0-1") for number in range(30)]


@pytest.mark.parametrize("refused", [False, True])
async def test_a_change_of_the_shared_cpus_is_no_burst_of_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    performer = Performer(tmp_path, a_pod(a_container()))
    under_way: list[str] = []
    begun: list[int] = []
    answer = asyncio.Event()

    async def update(container_id: str, resources: dict[str, Any]) -> None:
        under_way.append(container_id)
        begun.append(len(under_way))
        await answer.wait()
        under_way.remove(container_id)
        if refused:
            raise RuntimeCallError("UpdateContainerResources", "Unknown", "no such cgroup")

    monkeypatch.setattr(performer.runtime, "update_container_resources", update)
    tasks = [performer.begin(call) for call in CALLS]
    await performer.settle()
    assert len(under_way) == MAX_CPU_UPDATES
    answer.set()
    outcomes = await asyncio.gather(*tasks)
    assert {type(outcome) for outcome in outcomes} == {CallFailed if refused else CallDone}
    assert len(begun) == len(CALLS) and max(begun) == MAX_CPU_UPDATES
