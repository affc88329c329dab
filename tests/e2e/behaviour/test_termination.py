"""How pods are brought to an end on a real runtime: grace periods to the second, sidecars in their order, what is given
up for an end, and what is left of a pod afterwards (pods.md 8)."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.model.objects import Object
from shared.model.runtime import ContainerState, RuntimePod, SandboxState
from tests.e2e.behaviour.notes import Notes
from tests.fakes.runtime_leftovers import network_namespace
from tests.support.agents.agent import NODE
from tests.support.agents.behaviour import Node, pod_of
from tests.support.runtime.stops import Stop, uptime
from tools import leftovers

pytestmark = [
    pytest.mark.root,
    pytest.mark.docker,
    pytest.mark.versions,
    pytest.mark.asyncio(loop_scope="package"),
    pytest.mark.timeout(300),
]

STATIC = ("stubborn", "arithmetic", "obeys", "together", "sidecars", "clean")


@dataclass
class Ends:
    """The node, what the pods of this module have written, and when their manifests were removed."""

    node: Node
    notes: Notes
    deleted: float = 0.0  # uptime in seconds at which the manifests went
    seen: dict[str, RuntimePod] = field(default_factory=dict)  # as it ran
    uid: dict[str, str] = field(default_factory=dict)
    namespaces: set[str] = field(default_factory=set)  # names of the network namespace of end-clean

    def stop(self, name: str, container: str = "c") -> Stop:
        """How a container of a static pod was stopped."""
        return self.stop_of(next(c.id for c in self.seen[f"end-{name}"].containers if c.name == container))

    def stop_of(self, container_id: str) -> Stop:
        """By the runtime's own log."""
        stops = self.node.agent.stops()
        assert container_id in stops, f"container {container_id} was never stopped"
        return stops[container_id]


def sidecar(notes: Notes, name: str, script: str, file: str) -> Object:
    """An init container that goes on running."""
    return notes.container(name, script, file=file, restartPolicy="Always")


def dies(name: str, meanwhile: str) -> str:
    """Return a script that notes its TERM and its end with this name, and runs `meanwhile` in between."""
    on_term = f"note term-{name}; {meanwhile}; note end-{name}; exit 0"
    return f"trap '{on_term}' TERM; note up-{name}; while :; do sleep 1 & wait $!; done"


def until_noted(word: str) -> str:
    """Return a command that waits for this word in the file of the container."""
    return f"until grep -q {word} /out/$FILE; do sleep 0.1; done"


def pods_of(notes: Notes) -> dict[str, Object]:
    """Static pods that are taken away together, by manifest name."""

    def pod(name: str, *containers: Object, **spec: Any) -> Object:
        return pod_of(f"end-{name}", *containers, volumes=[notes.volume()], **spec)

    def one(name: str, script: str, **fields: Any) -> Object:
        return notes.container("c", script, file=name, **fields)

    def pre_stop(name: str, script: str) -> Object:
        return {"preStop": notes.hook(script, name)}

    pods = [
        pod("stubborn", one("stubborn", "stubborn"), grace=4),
        pod(
            "arithmetic",
            one("arithmetic", "stubborn", lifecycle=pre_stop("arithmetic", "note pre; sleep 2.3; note pre-end")),
            grace=6,
        ),
        pod("obeys", one("obeys", "dying 0"), grace=60),
        pod(
            "together",
            notes.container("a", dies("a", until_noted("term-b")), file="together"),
            notes.container("b", dies("b", until_noted("term-a")), file="together"),
            grace=20,
        ),
        pod(
            "sidecars",
            notes.container("c", dies("c", "sleep 1"), file="sidecars"),
            initContainers=[sidecar(notes, n, dies(n, "sleep 0.5"), "sidecars") for n in ("s1", "s2")],
            grace=30,
        ),
        pod("clean", one("clean", "dying 0"), grace=5),
    ]
    return {p["metadata"]["name"]: p for p in pods}


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def ends(node: Node, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ends]:
    """The static pods have all run and are all gone."""
    ends = Ends(node, Notes(Path(tmp_path_factory.mktemp("notes"))))
    pods = pods_of(ends.notes)
    assert sorted(pods) == sorted(f"end-{name}" for name in STATIC)
    node.put(pods)
    for name in pods:
        seen = await node.wait_phase(name, "Running")
        wanted = len(seen["spec"]["containers"]) + len(seen["spec"].get("initContainers") or ())
        ends.uid[name] = seen["metadata"]["uid"]

        async def all_run(name: str = name, wanted: int = wanted) -> RuntimePod | None:
            pod = await node.agent.runtime_pod(name)
            alive = [c for c in (pod.containers if pod else ()) if c.state is ContainerState.RUNNING]
            return pod if len(alive) == wanted else None

        ends.seen[name] = await node.agent.wait_for(all_run, f"all of {name} to run")
    for file, word in {name: "up" for name in STATIC if name not in ("together", "sidecars")}.items():
        await asyncio.to_thread(ends.notes.wait, file, word)
    for file, names in {"together": "ab", "sidecars": ("s1", "s2", "c")}.items():
        for name in names:
            await asyncio.to_thread(ends.notes.wait, file, f"up-{name}")
    ends.namespaces = network_namespace(ends.seen["end-clean"].sandboxes[0].pid, node.agent.netns)
    ends.deleted = uptime()
    await node.take_away(pods)
    yield ends


# The grace period


async def test_a_process_that_ends_by_no_term_is_killed_when_the_grace_is_over(ends: Ends) -> None:
    stop = ends.stop("stubborn")
    assert ends.notes.words("stubborn") == ["up", "term"]
    assert stop.is_within(4, ends.deleted)
    assert stop.killed - stop.asked >= stop.timeout - 0.1


async def test_what_the_pre_stop_took_is_taken_from_the_grace_in_whole_seconds(ends: Ends) -> None:
    stop = ends.stop("arithmetic")
    assert ends.notes.words("arithmetic") == ["up", "pre", "pre-end", "term"]
    assert stop.timeout <= 4 and stop.is_within(6, ends.deleted, ends.notes.moment("arithmetic", "pre"))


async def test_a_process_that_ends_at_once_takes_no_grace(ends: Ends) -> None:
    stop = ends.stop("obeys")
    assert ends.notes.words("obeys") == ["up", "term", "end"]
    assert stop.is_within(60, ends.deleted) and not stop.killed


async def test_the_containers_of_a_pod_are_stopped_in_parallel(ends: Ends) -> None:
    a, b = ends.stop("together", "a"), ends.stop("together", "b")
    assert sorted(ends.notes.words("together")[-2:]) == ["end-a", "end-b"], "each has seen the other one's TERM"
    assert max(a.asked, b.asked) < min(a.ended, b.ended)
    assert a.is_within(20, ends.deleted) and b.is_within(20, ends.deleted)


# Sidecars


async def test_sidecars_end_last_and_in_reverse_order(ends: Ends) -> None:
    words = [word for word in ends.notes.words("sidecars") if not word.startswith("up")]
    assert words == ["term-c", "end-c", "term-s2", "end-s2", "term-s1", "end-s1"]


# What is left


async def test_nothing_of_an_ended_pod_is_left_but_its_stopped_sandbox_for_a_while(ends: Ends) -> None:
    node, name, uid = ends.node, "end-clean", ends.uid["end-clean"]
    home = node.agent.home.path

    async def gone() -> bool:
        pods = [home / "kubelet" / "pods" / uid, *(home / "log" / "containers").glob(f"{name}-{NODE}_*")]
        tops = leftovers.cgroups_of(home.name)
        cgroups = [path for top in tops for path in leftovers.directories_below(top) if path.name == f"pod{uid}"]
        is_left = cgroups or [path for path in pods if path.exists()]
        return not is_left and await node.agent.pod(name) is None

    await node.wait_for(gone, "directory, cgroup and log links to go, and the pod from the read-only port")
    pod = await node.agent.runtime_pod(name)
    assert pod is None or all(box.state is SandboxState.NOTREADY for box in pod.sandboxes)
    assert pod is None or not pod.containers
    # Docker keeps the empty file on which it was mounted for another minute.
    assert ends.namespaces and not [space for space in ends.namespaces if os.path.ismount(node.agent.netns / space)]
