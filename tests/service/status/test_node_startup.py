"""How long a new Node took to become Ready, as status measures it over its own restarts."""

import os
from pathlib import Path

import pytest

from tests.service.status.node_stage import NODE, NodeStage, node_stage

pytestmark = pytest.mark.virtual_time

GENERATION = f"boot/12/{5 * os.sysconf('SC_CLK_TCK')}"  # supervisord began 5 s after the boot
PHASES = ("pre_kubelet", "pre_registration", "registration", "post_registration")


def measured(stage: NodeStage) -> dict[str, float]:
    """The gauges by their distinctive part; that of the whole startup is `all`."""
    names = {f"kubelet_node_startup_{phase}_duration_seconds": phase for phase in PHASES}
    names["kubelet_node_startup_duration_seconds"] = "all"
    found = {family.name: series for family, series in stage.metrics.collect()}
    return {phase: found[name].get((), [0.0])[0] for name, phase in names.items()}


async def test_the_phases_of_a_new_nodes_startup_are_measured_once(tmp_path: Path) -> None:
    async with node_stage(tmp_path, well=False) as stage:
        began = stage.clock.monotonic()
        stage.api.down()
        await stage.start(GENERATION)
        await stage.pass_time(20)
        stage.api.up()
        await stage.until(lambda: stage.node, within=30)
        await stage.pass_time(30)
        assert measured(stage)["all"] == 0.0
        stage.is_well()
        await stage.until(stage.ready, within=10)
        await stage.pass_time(1)
        found = measured(stage)
        assert found["pre_kubelet"] == 5.0
        assert 0.0 <= found["pre_registration"] - (began - 5.0) <= 6.0  # facts of the node have 5 s to arrive
        assert 10.0 <= found["registration"] <= 30.0  # of 20 s without an API server
        assert found["post_registration"] >= 29.0
        assert abs(found["all"] - sum(found[phase] for phase in PHASES)) < 1e-6
        await stage.kill()
        await stage.start(GENERATION)
        await stage.pass_time(2)
        assert measured(stage) == found
        await stage.kill()
        await stage.start("boot/13/99999")
        await stage.until(stage.ready, within=10)
        assert not any(measured(stage).values())


async def test_the_startup_of_a_node_that_exists_is_not_measured(stage: NodeStage) -> None:
    stage.api.put(NODE, {"metadata": {}})
    await stage.start(GENERATION)
    await stage.until(stage.ready, within=10)
    await stage.pass_time(5)
    assert not any(measured(stage).values())
