"""Measures starts and kills of the agent: how long a start takes, and what a SIGKILL costs pods, node and open
sessions."""

import asyncio
import os
import signal
import time

from bench.agents import BULKHEAD
from bench.errors import BenchError
from bench.figure import Figure, Plan, Samples, Scenario
from bench.site import MAX_POD_SECONDS, Node
from bench.statistics import Goal
from bench.streams import Command, Through
from bench.watch import first_container, ready
from bus.messages.streams import SERVICES
from shared.model.objects import Object
from shared.model.objects import name as name_of

START = Figure("node.start", "start-up → node Ready", "s", (Goal("p50", "ratio", 1.0),))
KILL_ONE = Figure("kill.one", "SIGKILL of one process → new pod Ready", "s", (Goal("max", "value", 3.0),))
KILL_ALL = Figure("kill.all", "SIGKILL of all, started after 1 s → new pod Ready", "s", (), "4.1")
_ZERO = (Goal("max", "value", 0.0),)
RESTARTED = Figure("kill.containers", "containers restarted by such a kill", "", _ZERO)
FLAPS = Figure("kill.flaps", "Ready flaps of pods and node in such a kill", "", _ZERO)
EXECS = Figure("kill.execs", "exec sessions lost by such a kill (server's own aside)", "", _ZERO, "lost")
RESTART_DELAY_SECONDS = 1.0
KILL_INTERVAL_SECONDS = 3.0


async def starts(node: Node, samples: Samples, plan: Plan) -> None:
    """Measure starts on a node without pods, with the certificates of an earlier start; the node registers again."""
    for _ in range(plan.starts):
        await node.forget()
        samples.sample(START.key, await node.start())


class Harm:
    """The effects of a kill on running pods and on the node, as a watch shows them."""

    def __init__(self, node: Node, standing: list[str]) -> None:
        self._node, self._standing = node, set(standing)
        self._containers = {name: self._container(name) for name in standing}
        self.flaps = 0
        self._bad: set[str] = set()

    def see(self, kind: str, obj: Object, at: float) -> None:
        """Count a change from Ready to not Ready."""
        name = name_of(obj)
        if name not in self._standing and name != self._node.name:
            return
        if ready(kind, obj):
            self._bad.discard(name)
        elif name not in self._bad:
            self._bad.add(name)
            self.flaps += 1

    def restarted(self) -> int:
        """Return how many containers have ended, or were replaced since the beginning."""
        return sum(self._container(name) != container for name, container in self._containers.items())

    def _container(self, name: str) -> tuple[str, int]:
        status = first_container(self._node.watch.pods.get(name, {}))
        return str(status.get("containerID")), int(status.get("restartCount", 0))


async def kills(node: Node, samples: Samples, plan: Plan) -> None:
    """Kill each service alone, then all at once, which is the same for an agent of one process. A pod is created at the
    moment of each kill. The harm of one kill is the sum over the kills of single processes."""
    standing = node.new_names("standing", plan.standing)
    await node.create_all([node.pod(name) for name in standing])
    services = [service for service in SERVICES if plan.kills is None or service in plan.kills]
    harmed = {figure.key: 0 for figure in (RESTARTED, FLAPS, EXECS)}
    async with Through(node.site.plane) as api:
        for victim in [*(services if node.agent.name == BULKHEAD else []), ""]:
            session = await _session(api, standing[0])
            harm = Harm(node, standing)
            node.watch.listeners.append(harm.see)
            took = await (_kill_one(node, victim) if victim else _kill_all(node))
            lost = not await session.echoes(b"after")
            await session.close()
            await asyncio.sleep(KILL_INTERVAL_SECONDS)
            node.watch.listeners.remove(harm.see)
            single = victim or node.agent.name != BULKHEAD
            samples.sample(KILL_ONE.key if victim else KILL_ALL.key, took)
            if not victim and single:
                samples.sample(KILL_ONE.key, took)
            samples.detail(KILL_ONE.title, victim or "all", took)
            if single:
                harmed[RESTARTED.key] += harm.restarted()
                harmed[FLAPS.key] += harm.flaps
                harmed[EXECS.key] += lost and victim != "server"
            _note_harm(samples, victim or "all", harm, lost)
    for key, count in harmed.items():
        samples.sample(key, count)
    await node.delete_all()


async def _session(api: Through, pod: str) -> Command:
    """Return a session that echoes. After a kill of the process with the kubelet port it is tried until the port is
    back."""
    deadline, why = time.monotonic() + MAX_POD_SECONDS, "it does not echo"
    while time.monotonic() < deadline:
        try:
            session = await api.exec(pod, "cat", stdin=True)
            if await session.echoes(b"before"):
                return session
            await session.close()
        except BenchError as error:
            why = str(error)
        await asyncio.sleep(0.2)
    raise BenchError(f"no exec session in {pod} for {MAX_POD_SECONDS:.0f} s: {why}")


def _note_harm(samples: Samples, victim: str, harm: Harm, lost: bool) -> None:
    samples.detail(RESTARTED.title, victim, harm.restarted())
    samples.detail(FLAPS.title, victim, harm.flaps)
    samples.detail(EXECS.title, victim, lost)


async def _kill_one(node: Node, service: str) -> float:
    """Kill the service's process with SIGKILL. Return the seconds until a pod created then is Ready. Waits for the
    service's next process."""
    pid = node.agent.processes.pids().get(service, 0)
    if not pid:
        raise BenchError(f"no process of {service} is there to be killed")
    os.kill(pid, signal.SIGKILL)
    [name] = node.new_names("new", 1)
    took = await node.create(node.pod(name))
    deadline = time.monotonic() + MAX_POD_SECONDS
    while node.agent.processes.pids().get(service, pid) == pid:
        if time.monotonic() > deadline:
            raise BenchError(f"{service} was not started again within {MAX_POD_SECONDS:.0f} s")
        await asyncio.sleep(0.05)
    return took


async def _kill_all(node: Node) -> float:
    """Kill everything with SIGKILL and start it again as a service manager would. Return the seconds from the kill
    until a pod created at that moment is Ready."""
    [name] = node.new_names("new", 1)
    expected = node.watch.pod(name, ready, "to be Ready")
    began = time.monotonic()
    node.agent.kill()
    await node.post(node.pod(name))
    await asyncio.sleep(max(0.0, began + RESTART_DELAY_SECONDS - time.monotonic()))
    node.agent.start()
    return (await expected.within(MAX_POD_SECONDS)).at - began


SCENARIOS = (Scenario("starts", starts, (START,)),)
KILLS = (Scenario("kills", kills, (KILL_ONE, KILL_ALL, RESTARTED, FLAPS, EXECS)),)
