"""Which containers of a pod are probed, for how long, and what outlives the process that did it."""

from itertools import repeat
from typing import Any

from bus.messages.podsync import PodProbes
from services.pleg.core.probe_set import Moment, ProbeSet, WorkerKey
from services.pleg.core.probe_spec import ProbeKind, TcpHandler
from services.pleg.core.probe_worker import Verdict
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState, RuntimePod, Sandbox, SandboxState

PROBE: dict[str, Any] = {"tcpSocket": {"port": "up"}, "periodSeconds": 10, "failureThreshold": 3}
ALL = {f"{kind}Probe": PROBE for kind in ProbeKind}
PORTS = [{"name": "up", "containerPort": 99}]
SPEC = {
    "initContainers": [
        {"name": "plain", **ALL},
        {"name": "side", "restartPolicy": "Always", "ports": PORTS, **ALL},
    ],
    "containers": [{"name": "c", **ALL}],
    "ephemeralContainers": [{"name": "debug", **ALL}],
}
PROBES = PodProbes(name="p", namespace="default", spec=SPEC)
NOW = Moment(1000.0, 5000.0)


def key(container: str, kind: ProbeKind) -> WorkerKey:
    return WorkerKey("u", container, kind)


def observation(**states: ContainerState) -> RuntimePod:
    containers = tuple(
        Container(
            id=f"{name}-1", name=name, attempt=0, sandbox_id="s", state=state, created_at=1, started_at=4_000 * 10**9
        )
        for name, state in states.items()
    )
    sandbox = Sandbox(id="s", attempt=0, state=SandboxState.READY, created_at=1, ips=("10.0.0.9",))
    return RuntimePod(
        uid="u", name="p", namespace="default", observed_at=1.0, sandboxes=(sandbox,), containers=containers
    )


def status(*names: str, started: bool = True) -> dict[str, Any]:
    def entry(name: str) -> dict[str, Any]:
        return {"name": name, "containerID": f"containerd://{name}-1", "started": started}

    return {
        "containerStatuses": [entry(name) for name in names if name == "c"],
        "initContainerStatuses": [entry(name) for name in names if name != "c"],
    }


def settled(probes: ProbeSet, *, listed: bool = True) -> ProbeSet:
    """All containers run and the status speaks of them."""
    if listed:
        probes.listed()
    probes.probed("u", PROBES)
    probes.status("u", status("plain", "side", "c"))
    running = ContainerState.RUNNING
    probes.observed("u", observation(plain=running, side=running, c=running), NOW)
    probes.update_pod("u", NOW.monotonic, repeat(0.5))
    return probes


def test_regular_containers_and_sidecars_are_probed_and_no_others() -> None:
    made = ProbeSet().probed("u", PROBES)
    assert made == {key(container, kind) for container in ("c", "side") for kind in ProbeKind}


def test_the_named_port_of_a_sidecar_is_its_own() -> None:
    probes = settled(ProbeSet())
    sidecar, regular = (probes.worker(key(name, ProbeKind.LIVENESS)) for name in ("side", "c"))
    assert sidecar is not None and sidecar.spec.handler == TcpHandler("", 99)
    assert regular is not None and regular.spec.handler == TcpHandler("", 'strconv.Atoi: parsing "up": invalid syntax')


def test_a_sidecar_is_probed_to_the_end_and_a_regular_container_for_readiness_only() -> None:
    probes = settled(ProbeSet())
    ended = probes.probed("u", replace(PROBES, terminating=True))
    assert ended == {key("c", ProbeKind.LIVENESS), key("c", ProbeKind.STARTUP)}
    ended = probes.probed("u", None)
    assert ended == {key("c", ProbeKind.READINESS), *(key("side", kind) for kind in ProbeKind)}


def fail(probes: ProbeSet, worker_key: WorkerKey, times: int) -> None:
    worker = probes.worker(worker_key)
    assert worker is not None
    for _ in range(times):
        worker.begin(worker.due)
        worker.finished(worker.container_id, Verdict.FAILURE)


def test_what_was_counted_of_each_container_finds_its_own_again() -> None:
    first = settled(ProbeSet())
    fail(first, key("side", ProbeKind.LIVENESS), 2)
    fail(first, key("c", ProbeKind.LIVENESS), 1)
    second = settled(ProbeSet({"u": first.memories("u")}), listed=False)
    fail(second, key("side", ProbeKind.LIVENESS), 1)
    fail(second, key("c", ProbeKind.LIVENESS), 1)
    second.update_pod("u", NOW.monotonic + 100, repeat(0.5))
    results = dict(second.results_of("u"))
    assert (results["side-1"].liveness, results["c-1"].liveness) == ("failure", "success")


def test_before_a_pod_is_taken_up_what_was_counted_is_kept() -> None:
    memories = settled(ProbeSet()).memories("u")
    probes = ProbeSet({"u": memories})
    assert probes.memories("u") == memories
    probes.observed("u", observation(c=ContainerState.RUNNING), NOW)
    assert probes.memories("u") == memories and probes.take_unused() == []
    probes.probed("u", PROBES)
    assert {memory.container_id for memory in probes.memories("u")} == {"c-1", "side-1"}


def test_of_a_pod_that_the_runtime_has_no_more_nothing_is_kept() -> None:
    memories = settled(ProbeSet()).memories("u")
    probes = ProbeSet({"u": memories, "v": memories})
    probes.observed("u", observation(c=ContainerState.RUNNING), NOW)
    assert probes.take_unused() == ["v"] and probes.memories("v") == []
    probes.observed("u", None, NOW)
    assert probes.memories("u") == []
