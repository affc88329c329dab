"""Probes at work: results as soon as they are there, events for every failure, and nothing that flaps."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from services.pleg.adapters.probe_try import MAX_TRIES
from shared.cri.interface import ExecResult, HandlerFeatures, RuntimeCallError, RuntimeFeatures
from tests.service.pleg.world import PlegWorld

pytestmark = pytest.mark.virtual_time

FAILS = ExecResult(exit_code=1, stdout=b"no ", stderr=b"luck")


def probe(period: int = 10, **fields: Any) -> dict[str, Any]:
    return {"exec": {"command": ["check", "it"]}, "periodSeconds": period, **fields}


async def running(world: PlegWorld, uid: str = "a", *, started: bool = True, **probes: Any) -> str:
    """A pod with these probes whose container runs and is named by its status."""
    world.admit(uid, **probes)
    _, container = await world.run_pod(uid)
    world.show(uid, container, started=started)
    await world.network.settle()
    return container


def events(world: PlegWorld) -> list[tuple[str, str]]:
    return [(event.reason, event.message) for _, event in sorted(world.events.state.items(), key=lambda e: int(e[0]))]


def files(world: PlegWorld) -> list[Path]:
    """What is handed over to the next process."""
    return sorted((Path(world.run_dir.name) / "probes").iterdir())


def lose_files(world: PlegWorld) -> None:
    for file in files(world):
        file.unlink()


def executed(world: PlegWorld) -> int:
    return len(world.runtime.requests("ExecSync"))


async def test_a_container_that_is_ready_is_published_without_time_passing(world: PlegWorld) -> None:
    container = await running(world, readinessProbe=probe(timeoutSeconds=3))
    result = world.probes.state[container]
    assert (result.pod_uid, result.container, result.readiness, result.liveness) == ("a", "c", "success", "")
    assert world.runtime.requests("ExecSync") == [
        {"container_id": container, "cmd": ["check", "it"], "timeout": 3},
    ]


async def test_every_failed_try_is_an_event_and_the_result_turns_with_the_threshold(world: PlegWorld) -> None:
    container = await running(world, livenessProbe=probe(failureThreshold=2))
    assert world.probes.state[container].liveness == "success"
    world.runtime.execute = lambda container_id, command: FAILS
    await world.pass_time(10)
    assert events(world) == [("Unhealthy", "Liveness probe failed: no luck")]
    assert world.probes.state[container].liveness == "success"
    await world.pass_time(10)
    assert len(events(world)) == 2 and world.probes.state[container].liveness == "failure"
    (event, _) = world.events.state.values()
    assert (event.type, event.kind, event.namespace, event.name, event.uid, event.field_path) == (
        ("Warning", "Pod", "default", "a", "a", "spec.containers{c}")
    )
    await world.pass_time(60)
    assert len(events(world)) == 2  # on hold until there is another instance


async def test_a_restarted_container_is_probed_again_and_results_go_with_their_container(world: PlegWorld) -> None:
    first = await running(world, readinessProbe=probe())
    world.runtime.exit_container(first, 1)
    await world.until(lambda: world.probes.state[first].readiness == "failure", within=0.01)
    sandbox = world.pods.state["a"].sandboxes[0].id
    second = await world.run_container("a", sandbox, attempt=1)
    world.show("a", second)
    await world.until(lambda: second in world.probes.state, within=0.01)
    await world.until(lambda: world.probes.state[second].readiness == "success", within=0.01)
    await world.runtime.remove_container(first)
    await world.until(lambda: first not in world.probes.state)


async def test_liveness_and_readiness_wait_for_startup_and_then_readiness_does_not_wait(world: PlegWorld) -> None:
    world.runtime.execute = lambda container_id, command: FAILS
    container = await running(
        world, started=False, startupProbe=probe(1, failureThreshold=30), readinessProbe=probe(30)
    )
    await world.pass_time(4.5)
    assert executed(world) == 5 and world.probes.state[container].startup == ""
    world.runtime.execute = lambda container_id, command: ExecResult(exit_code=0)
    await world.pass_time(0.6)
    assert (world.probes.state[container].startup, world.probes.state[container].readiness) == ("success",) * 2
    await world.pass_time(20)
    assert executed(world) == 7  # startup is over


async def test_a_probe_that_cannot_be_tried_is_tried_three_times_and_has_no_result(world: PlegWorld) -> None:
    world.runtime.fail("ExecSync", "Unavailable", "gone", times=0)
    container = await running(world, livenessProbe=probe(failureThreshold=1))
    await world.pass_time(10)
    assert executed(world) == MAX_TRIES and world.probes.state[container].liveness == "success"
    text = "Liveness probe errored and resulted in unknown state: rpc error: code = Unavailable desc = gone"
    assert events(world) == [("Unhealthy", text)]


async def test_a_command_that_the_runtime_cut_short_has_failed(world: PlegWorld) -> None:
    world.runtime.fail("ExecSync", "DeadlineExceeded", "timeout 2s exceeded")
    await running(world, readinessProbe=probe(timeoutSeconds=2))
    text = 'Readiness probe failed: command timed out: "check it" timed out after 2s'
    assert events(world) == [("Unhealthy", text)]


async def test_a_probe_that_hangs_holds_up_no_other_pod(world: PlegWorld) -> None:
    hang = world.runtime.hang("ExecSync")
    await running(world, "a", readinessProbe=probe(1))
    assert hang.reached.is_set()
    other = await running(world, "b", readinessProbe=probe(1))
    await world.until(lambda: world.probes.state[other].readiness == "success", within=0.01)
    before = executed(world)
    await world.pass_time(10)
    assert executed(world) == before + 10  # b's alone: never two of a's


async def test_while_terminating_readiness_goes_on_and_liveness_ends(world: PlegWorld) -> None:
    container = await running(world, readinessProbe=probe(1), livenessProbe=probe(1))
    world.admit("a", terminating=True, readinessProbe=probe(1), livenessProbe=probe(1))
    await world.network.settle()
    before = executed(world)
    await world.pass_time(5)
    assert executed(world) == before + 5
    world.end("a")
    await world.pass_time(5)
    assert executed(world) == before + 5 and container in world.probes.state


async def test_a_probe_without_a_handler_is_an_error_each_time(world: PlegWorld) -> None:
    container = await running(world, readinessProbe={"periodSeconds": 10})
    assert world.probes.state[container].readiness == "failure"
    text = "Readiness probe errored and resulted in unknown state: missing probe handler"
    assert events(world) == [("Unhealthy", text)]


async def test_after_a_kill_nothing_flaps_and_the_tries_stay_in_step() -> None:
    world = PlegWorld()
    async with world:
        container = await running(world, readinessProbe=probe(), livenessProbe=probe())
        await world.pass_time(63)
        world.probed.mark_complete()
        world.statuses.mark_complete()
        await world.kill_pleg()
        await world.start_pleg()
        assert world.probes.complete  # what was handed over needs no waiting
        result = world.probes.state[container]
        assert (result.readiness, result.liveness) == ("success", "success")
        before = executed(world)
        await world.pass_time(6.9)
        assert executed(world) == before
        await world.pass_time(0.2)
        assert executed(world) == before + 2


async def test_what_was_counted_before_a_kill_counts_after_it() -> None:
    world = PlegWorld()
    async with world:
        container = await running(world, livenessProbe=probe(failureThreshold=3))
        world.runtime.execute = lambda container_id, command: FAILS
        await world.pass_time(20)
        assert len(events(world)) == 2 and world.probes.state[container].liveness == "success"
        await world.kill_pleg()
        await world.start_pleg()
        assert world.probes.state[container].liveness == "success"
        await world.pass_time(10)
        result = world.probes.state[container]
        assert (result.liveness, result.failure) == ("failure", "no luck")
        await world.kill_pleg()
        await world.start_pleg()
        assert world.probes.state[container].liveness == "failure"  # and is not tried again
        before = executed(world)
        await world.pass_time(60)
        assert executed(world) == before


async def test_without_saved_counts_no_result_is_published_before_the_next_probe() -> None:
    world = PlegWorld()
    async with world:
        container = await running(world, readinessProbe=probe(), livenessProbe=probe())
        await world.pass_time(60)
        world.probed.mark_complete()
        world.statuses.mark_complete()
        await world.kill_pleg()
        lose_files(world)
        await world.start_pleg()
        assert world.probes.state[container].readiness == "success"  # the follower's last; the stream is not complete
        assert not world.probes.complete
        before = executed(world)
        await world.until(lambda: world.probes.complete, within=10)
        assert executed(world) == before + 2
        assert world.probes.state[container].readiness == "success"


async def test_files_are_written_when_a_result_changes_and_go_with_their_pods() -> None:
    world = PlegWorld()
    async with world:
        await running(world, readinessProbe=probe(1), livenessProbe=probe(1))
        await world.pass_time(5)
        (file,) = files(world)
        written = file.stat().st_ino
        await world.pass_time(60)
        assert file.stat().st_ino == written
        world.end("a")
        await world.network.settle()
        assert files(world) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[{}]", b'[{"kind": 3}]', b"\xff" * 300_000])
async def test_a_file_that_is_none_of_ours_costs_nothing_but_counts(content: bytes) -> None:
    world = PlegWorld()
    async with world:
        container = await running(world, readinessProbe=probe())
        await world.kill_pleg()
        (file,) = files(world)
        file.write_bytes(content)
        file.with_name("left.new").write_bytes(content)
        file.with_name("unknown.json").write_bytes(b"[]")
        await world.start_pleg()
        await world.pass_time(10)
        assert world.probes.state[container].readiness == "success"
        assert [left.name for left in files(world)] == ["a.json"]


async def test_a_run_directory_that_takes_nothing_stops_no_probe() -> None:
    world = PlegWorld()
    (Path(world.run_dir.name) / "probes").write_text("in the way")
    async with world:
        container = await running(world, readinessProbe=probe(1))
        await world.pass_time(5)
        assert world.probes.state[container].readiness == "success" and executed(world) == 6


@pytest.mark.parametrize("step", [3600.0, -3600.0])
async def test_a_step_of_the_wall_clock_moves_no_probe(world: PlegWorld, step: float) -> None:
    container = await running(world, readinessProbe=probe(initialDelaySeconds=30))
    world.clock._wall += step
    await world.pass_time(29.5)
    assert executed(world) == 0
    await world.pass_time(1)
    assert executed(world) == 1 and world.probes.state[container].readiness == "success"
    await world.pass_time(30)
    assert executed(world) == 4


@pytest.mark.long
async def test_probes_of_many_pods_are_spread_after_a_restart() -> None:
    world = PlegWorld()
    async with world:
        for number in range(20):
            await running(world, f"pod{number}", readinessProbe=probe())
        await world.pass_time(30)
        await world.kill_pleg()
        lose_files(world)
        await world.start_pleg()
        moments = []
        for _ in itertools.repeat(None, 20):
            before = executed(world)
            await world.pass_time(0.5)
            moments.append(executed(world) - before)
        assert sum(moments) == 20 and max(moments) < 10


async def test_images_are_listed_and_a_new_one_is_listed_as_soon_as_it_runs(world: PlegWorld) -> None:
    assert [image.names for image in world.images.state["node"].images] == [("localhost/busybox:1",)]
    lists = len(world.runtime.requests("ListImages"))
    await world.pass_time(29)
    assert len(world.runtime.requests("ListImages")) == lists
    world.runtime.add_image("localhost/new:1", size=5000)
    config = {"metadata": {"name": "c"}, "image": {"image": "localhost/new:1"}}
    sandbox = await world.runtime.run_pod_sandbox(world.config("a"), "")
    container = await world.runtime.create_container(sandbox, config, world.config("a"))
    await world.runtime.start_container(container)
    world.publish_status("a", container)
    await world.network.settle()
    assert [image.size_bytes for image in world.images.state["node"].images] == [5000, 1000]
    world.runtime.fail("ListImages", "Unavailable", "gone")
    await world.pass_time(60)
    assert len(world.images.state["node"].images) == 2


async def test_the_features_of_the_runtime_are_published_and_unknown_where_not_reported() -> None:
    world = PlegWorld()
    async with world:
        node = world.node.state["node"]
        assert node.runtime_handlers is None and node.supplemental_groups_policy is None
        world.runtime.runtime_features = RuntimeFeatures(
            handlers=(HandlerFeatures(name="runc", user_namespaces=True),), supplemental_groups_policy=True
        )
        world.runtime.reachable = False
        await world.pass_time(10)
        world.runtime.reachable = True
        await world.until(lambda: bool(world.node.state["node"].supplemental_groups_policy), within=10)
        (handler,) = world.node.state["node"].runtime_handlers or ()
        assert (handler.name, handler.user_namespaces, handler.recursive_read_only_mounts) == ("runc", True, False)


async def test_an_exec_that_the_runtime_refuses_is_an_error_not_a_failure() -> None:
    async with PlegWorld() as world:

        def refuse(container_id: str, command: tuple[str, ...]) -> ExecResult:
            raise RuntimeCallError("ExecSync", "Unknown", "no such file")

        world.runtime.execute = refuse
        await running(world, readinessProbe=probe())
        assert events(world) == [("Unhealthy", "Readiness probe errored and resulted in unknown state: no such file")]


async def test_what_would_have_been_tried_during_a_suspension_of_the_machine_is_tried_at_its_end(
    world: PlegWorld,
) -> None:
    container = await running(world, readinessProbe=probe(period=600, failureThreshold=1))
    assert (executed(world), world.probes.state[container].readiness) == (1, "success")
    await world.pass_time(100)
    world.runtime.execute = lambda container_id, command: FAILS
    world.clock.suspend(60)
    world.resumption.look()
    await world.pass_time(1)
    assert executed(world) == 1, "it would not have been tried yet"
    world.clock.suspend(3600)
    world.resumption.look()
    await world.pass_time(1)
    assert (executed(world), world.probes.state[container].readiness) == (2, "failure")
    await world.pass_time(598)
    assert executed(world) == 2
    await world.pass_time(2)
    assert executed(world) == 3, "the period goes on from there"
