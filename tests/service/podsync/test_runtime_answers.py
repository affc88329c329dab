"""What podsync asks the runtime at its start is asked again when pleg has had an answer of it, and not before."""

from pathlib import Path

import pytest

from bus.messages.pleg import NodeObserved
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.stage import on_stage
from tests.service.podsync.test_resize import cgroups

__all__ = ["cgroups"]

FOREVER = -1  # as the number of calls that fail


@pytest.mark.parametrize("method", ["ListImages", "RuntimeConfig"])
async def test_a_runtime_that_did_not_answer_is_asked_again_once_pleg_has_had_an_answer(
    method: str, tmp_path: Path, cgroups: Path
) -> None:
    runtime = FakeRuntime(images=["busybox:1"])
    runtime.fail(method, "Unavailable", "no socket", times=FOREVER)

    def asked() -> int:
        return sum(call.method == method for call in runtime.calls)

    async with on_stage(tmp_path, runtime, cgroups_per_qos=True) as stage:
        await stage.until(asked)
        await stage.network.settle()
        before = asked()
        stage.node.put("node", NodeObserved(observed_at=2.0, runtime_reachable=False))
        await stage.network.settle()
        assert asked() == before
        for more in (1, 2):  # of which the runtime answers the second
            stage.node.put("node", NodeObserved(observed_at=2.0 + more, runtime_reachable=True))
            await stage.network.settle()
            assert asked() == before + more
            runtime.clear_faults()
        stage.node.put("node", NodeObserved(observed_at=5.0, runtime_reachable=True))
        await stage.network.settle()
        assert asked() == before + 2
