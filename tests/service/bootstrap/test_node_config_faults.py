"""The configuration that a Node names: crashes, kills, damaged records, a full disk, a step of the clock."""

import errno
from pathlib import Path

import pytest

from services.bootstrap.adapters import node_config_store
from services.bootstrap.adapters.node_config_store import NodeConfigStore
from services.bootstrap.core.config_source import LOAD_ERROR
from services.bootstrap.core.node_config import Rejection
from shared.model.config_source import ConfigSource
from tests.service.bootstrap.node_config_stage import SYNC_INTERNAL_ERROR, TRIAL, Make, Stage, node

pytestmark = pytest.mark.virtual_time

CRASHED = "failed to run config: podsync crashed 3 times, see Kubelet log for details"


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    return lambda: Stage(tmp_path, monkeypatch)


async def test_a_service_that_crashes_has_the_configuration_rolled_back(make: Make) -> None:
    async with node(make, "a", maxPods=7) as stage:
        await stage.until("a", "a", "a", "", within=TRIAL + 60)
        stage.offer("b", maxPods=8)
        stage.name("b")
        await stage.until("b", "b", "a", "")
        stage.crashes("podsync", 3)
        await stage.passes(5)
        assert stage.shown == ("b", "b", "a", ""), "three starts are two crashes"
        stage.crashes("podsync", 4)
        await stage.until("b", "a", "a", CRASHED, within=5)
        assert stage.max_pods == 7
        await stage.kill()
        await stage.start_agent()
        await stage.passes(2 * TRIAL)
        assert stage.shown == ("b", "a", "a", CRASHED), "it is not tried again"
        stage.offer("b", maxPods=9)
        await stage.until("b", "b", "a", "")
        assert stage.max_pods == 9


@pytest.mark.long
async def test_a_source_that_was_rejected_is_tried_again_after_another_one(make: Make) -> None:
    async with node(make, "b", maxPods=8) as stage:
        await stage.until("b", "b", "", "")
        stage.crashes("podsync", 4)
        await stage.until("b", "", "", CRASHED, within=5)
        await stage.passes(1)
        stage.offer("a", maxPods=7)
        stage.name("a")
        await stage.until("a", "a", "", "")
        stage.name("b")
        await stage.passes(5)
        await stage.until("b", "b", "", "")


@pytest.mark.long
async def test_crashes_after_the_trial_reject_nothing(make: Make) -> None:
    async with node(make, "a", maxPods=7) as stage:
        await stage.until("a", "a", "a", "", within=TRIAL + 60)
        stage.crashes("podsync", 16)
        await stage.passes(60)
        assert stage.shown == ("a", "a", "a", "")


async def test_a_bootstrap_that_crashes_rolls_back_at_its_start(make: Make) -> None:
    async with node(make, "a", maxPods=7) as stage:
        await stage.until("a", "a", "", "")
        await stage.kill()
        stage.crashes("bootstrap", 4)
        await stage.start_bootstrap()
        await stage.until("a", "", "", CRASHED.replace("podsync", "bootstrap"))
        assert stage.max_pods == 50


async def test_a_bootstrap_that_crashes_rolls_back_though_the_record_of_it_cannot_be_saved(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: NodeConfigStore, rejection: Rejection | None) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "record")

    async with node(make, "a", maxPods=7) as stage:
        await stage.until("a", "a", "", "")
        await stage.kill()
        stage.crashes("bootstrap", 4)
        monkeypatch.setattr(NodeConfigStore, "reject", full)
        await stage.start_bootstrap()
        await stage.until("a", "", "", CRASHED.replace("podsync", "bootstrap"))
        assert stage.max_pods == 50


async def test_records_that_cannot_be_read_reject_nothing_and_end_no_bootstrap(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_: NodeConfigStore) -> None:
        raise OSError(errno.EIO, "Input/output error", "record")

    async with node(make, "a", maxPods=7) as stage:
        await stage.until("a", "a", "", "")
        await stage.kill()
        stage.crashes("bootstrap", 4)
        monkeypatch.setattr(NodeConfigStore, "load", unreadable)
        await stage.start_bootstrap()
        await stage.passes(60)
        assert not stage.is_killed


async def test_an_invalid_local_configuration_prevents_neither_a_change_nor_a_return(make: Make) -> None:
    async with node(make, "a", maxPods=7) as stage:
        await stage.until("a", "a", "a", "", within=TRIAL + 60)
        stage.write_local(maxPods=-1)
        stage.offer("b", maxPods=8)
        stage.name("b")
        await stage.until("b", "b", "a", "")
        assert stage.max_pods == 8
        assert stage.startup is not None and stage.startup.choice is not None
        (line,) = stage.startup.choice.local_refused
        assert "maxPods" in line
        stage.crashes("podsync", 4)
        await stage.until("b", "a", "a", CRASHED, within=5)
        assert stage.max_pods == 7
        stage.name(None, None)
        await stage.passes(60)
        assert stage.max_pods == 7, "the local configuration cannot be used"


@pytest.mark.share(4)
@pytest.mark.parametrize("record", ["assigned", "last-known-good"])
@pytest.mark.parametrize("content", [b"", b"apiVersion: kubelet.config", b"\xff\xfe", b"a: " * 10_000])
async def test_a_damaged_record_never_keeps_the_agent_from_starting(make: Make, record: str, content: bytes) -> None:
    async with node(make, "a", maxPods=7) as stage:
        await stage.until("a", "a", "a", "", within=TRIAL + 60)
        await stage.kill()
        await stage.cluster.kill()
        stage.record(record).write_bytes(content)
        await stage.start_agent()
        await stage.passes(1)
        assert stage.max_pods == (50 if (record, content) == ("assigned", b"") else 7)
        await stage.cluster.start()
        await stage.until("a", "a", "a", "", within=TRIAL + 60)
        assert stage.max_pods == 7


async def test_a_truncated_checkpoint_is_reported(make: Make) -> None:
    async with node(make, "a", maxPods=7) as stage:
        await stage.until("a", "a", "", "")
        await stage.kill()
        stage.checkpoint().write_text("")
        await stage.start_agent()
        await stage.until("a", "", "", LOAD_ERROR)
        assert stage.max_pods == 50


POINTS = ("written", "downloaded", "assigned", "promoted", "rejected")


@pytest.mark.share(4)
@pytest.mark.parametrize("point", POINTS)
async def test_after_a_kill_between_two_steps_the_steps_go_on(make: Make, point: str) -> None:
    async with node(make, "a", maxPods=7) as stage:
        stage.kill_at = f"bootstrap.node_config.{point}"
        for shown in (("a", "a", "", ""), ("a", "", "", CRASHED), ("a", "a", "a", "")):
            if shown[3]:
                stage.crashes("podsync", 4)
            elif shown[2]:
                stage.offer("a", maxPods=8)
            while stage.shown != shown:
                if stage.is_killed:
                    await stage.kill()
                    await stage.start_bootstrap()
                await stage.passes(10)
        assert stage.kill_at == "" and stage.max_pods == 8
        assert not list((stage.dynamic / "store/checkpoints").glob("*/tmp_*"))


@pytest.mark.parametrize("function", ["write_atomically", "sync_directory"])
async def test_with_a_full_disk_nothing_changes_until_there_is_room(
    make: Make, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    real = getattr(node_config_store, function)
    full = True

    def limited(path: Path, *rest: object) -> None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, *rest)

    async with node(make) as stage:
        await stage.until("", "", "", "")
        monkeypatch.setattr(node_config_store, function, limited)
        stage.offer("a", maxPods=7)
        stage.name("a")
        await stage.until("", "", "", SYNC_INTERNAL_ERROR)
        await stage.passes(60)
        assert stage.max_pods == 50
        full = False
        await stage.until("a", "a", "", "", within=15)


async def test_a_rejection_that_cannot_be_saved_is_tried_again_every_ten_seconds(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, full, tries = NodeConfigStore.reject, True, 0

    def limited(store: NodeConfigStore, rejection: Rejection | None) -> None:
        nonlocal tries
        tries += 1
        if full:
            raise OSError(errno.ENOSPC, "No space left on device", "record")
        real(store, rejection)

    async with node(make, "a", maxPods=7) as stage:
        await stage.until("a", "a", "", "")
        monkeypatch.setattr(NodeConfigStore, "reject", limited)
        stage.crashes("podsync", 4)
        await stage.passes(60)
        assert 2 <= tries <= 8 and stage.max_pods == 7
        full = False
        await stage.until("a", "", "", CRASHED, within=15)
        assert stage.max_pods == 50


async def test_a_trial_whose_end_cannot_be_saved_is_reported_until_it_is(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, full = NodeConfigStore.promote, True

    def limited(store: NodeConfigStore, source: ConfigSource | None) -> None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device", "record")
        real(store, source)

    async with node(make, "a", maxPods=7) as stage:
        await stage.until("a", "a", "", "")
        monkeypatch.setattr(NodeConfigStore, "promote", limited)
        await stage.until("a", "a", "", SYNC_INTERNAL_ERROR, within=TRIAL + 60)
        full = False
        await stage.until("a", "a", "a", "", within=15)


@pytest.mark.long
@pytest.mark.parametrize("step", [-(10**7), 10**7])
async def test_a_step_of_the_clock_changes_no_trial(make: Make, step: float) -> None:
    async with node(make, "a", maxPods=7) as stage:
        await stage.until("a", "a", "", "")
        vars(stage.network.clock)["_wall"] += step
        await stage.passes(TRIAL - 60)
        assert stage.shown == ("a", "a", "", "")
        await stage.until("a", "a", "a", "", within=120)
