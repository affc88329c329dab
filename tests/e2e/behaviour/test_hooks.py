"""Lifecycle hooks on a real runtime: what they run, when, what they hold up, and what a failure costs (pods.md 8.4)."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from shared.model.objects import Object
from shared.model.runtime import ContainerState
from shared.story.files import directory_of
from tests.e2e.behaviour.notes import Notes
from tests.support.agents.behaviour import Node, pod_of, status_of

pytestmark = [
    pytest.mark.root,
    pytest.mark.versions,
    pytest.mark.asyncio(loop_scope="package"),
    pytest.mark.timeout(300),
]

UP, IDLE = "dying 0", "note up; exec sleep 1000000"
ENDING = ("pre-fails", "pre-http", "pre-two")


@dataclass
class Hooks:
    """The node, and what the pods of this module have written."""

    node: Node
    notes: Notes


def hooked(notes: Notes, name: str, script: str = UP, grace: int = 6, **hooks: Object) -> Object:
    """A pod with one container that has these hooks."""
    fields: Object = {"lifecycle": hooks, "ports": [{"name": "web", "containerPort": 8080}]}
    main = notes.container("c", script, file=name, **fields)
    return pod_of(f"hooks-{name}", main, grace=grace, volumes=[notes.volume()])


def pods_of(notes: Notes) -> dict[str, Object]:
    """By manifest name."""

    def run(script: str, name: str) -> Object:
        return notes.hook(script, name)

    listens = "until grep -q ':1F90 ' /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done; note up"  # port 8080
    serve = "exec httpd -f -vv -p 8080 -h /www 2>> /out/pre-http.requests"
    served = f"mkdir /www; echo hello > /www/bye; ({listens}) & {serve}"
    both = "note pre-{}; until grep -q pre-{} /out/pre-two; do sleep 0.1; done; note both"
    two = [
        notes.container(name, UP, file="pre-two", lifecycle={"preStop": run(both.format(name, other), "pre-two")})
        for name, other in ("ab", "ba")
    ]
    slow = notes.container(
        "a", "note a; exec sleep 1000000", file="order", lifecycle={"postStart": run("sleep 1.5; note hooked", "order")}
    )
    probed_early = hooked(
        notes, "probed", postStart=run("note begun; sleep 6; touch /tmp/hooked; note hooked", "probed")
    )
    probed_early["spec"]["containers"][0]["livenessProbe"] = {
        "exec": {"command": ["test", "-e", "/tmp/hooked"]},
        "periodSeconds": 1,
        "timeoutSeconds": 60,  # a probe that a busy machine delays has not failed
        "failureThreshold": 1,
    }
    pods = [
        hooked(notes, "exec", postStart=run("note hooked", "exec")),
        hooked(notes, "exec-fails", IDLE, postStart=run("note hooked; echo out; echo err >&2; exit 7", "exec-fails")),
        probed_early,
        hooked(notes, "fails-pre", IDLE, postStart=run("exit 1", "fails-pre"), preStop=run("note pre", "fails-pre")),
        hooked(notes, "endless", IDLE, postStart=run("note hooked; sleep 1000000", "endless")),
        pod_of(
            "hooks-order",
            slow,
            notes.container("b", "note b; exec sleep 1000000", file="order"),
            volumes=[notes.volume()],
        ),
        hooked(notes, "pre-fails", grace=60, preStop=run("note pre; exit 3", "pre-fails")),
        hooked(notes, "pre-http", served, preStop={"httpGet": {"port": "web", "path": "/bye"}}),
        pod_of("hooks-pre-two", *two, grace=60, volumes=[notes.volume()]),
    ]
    return {pod["metadata"]["name"]: pod for pod in pods}


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def hooks(node: Node, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hooks]:
    """All pods are up; those that show how pods end have ended."""
    notes: Notes = Notes(Path(tmp_path_factory.mktemp("notes")))
    pods = pods_of(notes)
    node.put(pods)
    ending = [f"hooks-{name}" for name in ENDING]
    for name in ending:
        await node.wait_phase(name, "Running")
    for name in ENDING:
        await asyncio.to_thread(notes.wait, name, "up")
    await node.take_away(ending)
    yield Hooks(node, notes)
    await node.take_away(name for name in pods if (node.agent.home.manifests / f"{name}.yaml").exists())


async def gone_wrong(hooks: Hooks, name: str, *texts: str) -> None:
    """Wait for the events of a postStart that failed, for the restart, and for these texts in the pod's story."""
    path = "spec.containers{c}"
    event = await hooks.node.wait_event(name, "FailedPostStartHook")
    assert event == ("FailedPostStartHook", "PostStartHook failed", path)
    assert await hooks.node.wait_event(name, "Killing") == ("Killing", "FailedPostStartHook", path)

    def restarted(pod: Object) -> object:
        return status_of(pod, "c").get("restartCount", 0) >= 1 and status_of(pod, "c").get("lastState")

    uid = (await hooks.node.wait_static(name, restarted, "to be restarted"))["metadata"]["uid"]
    directory = directory_of(str(hooks.node.agent.home.path / "kubelet"))

    def story() -> str:
        return "\n".join(path.read_text() for path in directory.glob(f"{uid}*.jsonl"))

    await hooks.node.agent.wait_for(lambda: all(text in story() for text in texts), lambda: f"{texts} in {story()}")


# postStart


async def test_a_command_runs_in_the_container_once_it_has_started(hooks: Hooks) -> None:
    await asyncio.to_thread(hooks.notes.wait, "exec", "hooked")
    pod = await hooks.node.wait_static("hooks-exec", lambda p: status_of(p, "c").get("ready"), "to be ready")
    assert status_of(pod, "c")["restartCount"] == 0
    assert sorted(await hooks.notes.wait_words("exec", 2)) == ["hooked", "up"]


async def test_a_command_that_fails_kills_the_container_and_causes_an_event(hooks: Hooks) -> None:
    await gone_wrong(hooks, "hooks-exec-fails", "exited with 7", "Exec lifecycle hook ([sh -c")
    events = await hooks.node.events("hooks-exec-fails")
    assert not any("err" in message or "out" in message for reason, message, _ in events if "Hook" in reason)


async def test_a_container_is_neither_shown_as_running_nor_probed_before_its_hook_has_ended(hooks: Hooks) -> None:
    await asyncio.to_thread(hooks.notes.wait, "probed", "begun")
    pod = await hooks.node.wait_static("hooks-probed", lambda p: status_of(p, "c"), "to be shown")
    if "hooked" not in hooks.notes.words("probed"):
        assert pod["status"]["phase"] == "Pending"
        found = status_of(pod, "c")
        assert found["state"] == {"waiting": {"reason": "ContainerCreating"}} and "containerID" not in found
    await asyncio.to_thread(hooks.notes.wait, "probed", "hooked")
    pod = await hooks.node.wait_static("hooks-probed", lambda p: status_of(p, "c").get("ready"), "to be ready")
    assert status_of(pod, "c")["restartCount"] == 0
    assert "Unhealthy" not in [reason for reason, _, _ in await hooks.node.events("hooks-probed")]


async def test_a_container_that_its_post_start_costs_has_its_pre_stop(hooks: Hooks) -> None:
    await gone_wrong(hooks, "hooks-fails-pre")
    assert "pre" in hooks.notes.words("fails-pre")


async def test_the_next_container_starts_after_the_hook(hooks: Hooks) -> None:
    await asyncio.to_thread(hooks.notes.wait, "order", "b")
    assert hooks.notes.words("order") == ["a", "hooked", "b"]


async def test_a_pod_is_taken_away_in_the_middle_of_its_post_start(hooks: Hooks) -> None:
    await asyncio.to_thread(hooks.notes.wait, "endless", "hooked")
    [instance] = await hooks.node.instances("hooks-endless", "c")
    assert instance.state is ContainerState.RUNNING
    hooks.node.agent.remove_manifest("hooks-endless")
    await hooks.node.agent.wait_gone("hooks-endless")


# preStop


async def test_a_pre_stop_that_fails_causes_an_event_and_delays_nothing(hooks: Hooks) -> None:
    event = await hooks.node.wait_event("hooks-pre-fails", "FailedPreStopHook")
    assert event == ("FailedPreStopHook", "PreStopHook failed", "spec.containers{c}")
    assert hooks.notes.words("pre-fails")[-2:] == ["term", "end"]


async def test_a_pre_stop_gets_the_pods_own_server_by_the_name_of_its_port(hooks: Hooks) -> None:
    asked = (hooks.notes.directory / "pre-http.requests").read_text()
    assert "/bye" in asked and "200" in asked
    assert "FailedPreStopHook" not in [reason for reason, _, _ in await hooks.node.events("hooks-pre-http")]


async def test_the_pre_stops_of_a_pod_run_side_by_side(hooks: Hooks) -> None:
    assert hooks.notes.words("pre-two").count("both") == 2, "each has seen the other one begin"
    assert hooks.notes.words("pre-two").count("end") == 2
