"""How the victims of a cell are killed and how they return; reports when, and decides nothing."""

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass, field

from bus.messages.streams import SERVICES
from tests.chaos.cells import API_SERVER, CONTAINERD, STOPPED_SECONDS, SUPERVISORD, Cell, Hit, Trigger
from tests.chaos.pods import sleeper, without_volumes
from tests.chaos.stage import Stage

_STARTED_AGAIN = {SUPERVISORD: 1.0, CONTAINERD: 1.0, API_SERVER: 3.0}  # seconds until its supervisor does it
_REACHED_WITHIN = 20.0
_BACK_WITHIN = 60.0


@dataclass
class Struck:
    """`at`: CLOCK_MONOTONIC of the hit. `pids`: the services that were hit, as they were."""

    at: float
    pids: dict[str, int] = field(default_factory=dict)


async def strike(stage: Stage, cell: Cell) -> Struck:
    """Signal the victims, all within a moment."""
    agent = stage.agent
    struck = Struck(time.monotonic())
    number = signal.SIGSTOP if cell.hit is Hit.STOP else signal.SIGKILL
    for victim in cell.victims:
        if victim == CONTAINERD:
            os.kill(stage.containerd.pid, number)
        elif victim == API_SERVER:
            await stage.cluster.plane.stop_api_server()
        else:
            pid = agent.kill(victim, number)
            if victim != SUPERVISORD:
                struck.pids[victim] = pid
    return struck


async def strike_at_point(stage: Stage, cell: Cell, starting: str, ending: str) -> Struck:
    """Arm the point, bring the process there; returns once it died. AssertionError when it never comes there."""
    [victim] = cell.victims
    agent = stage.agent
    old = {victim: agent.pid_of(victim)}
    agent.crash_at(cell.point)
    if cell.trigger is Trigger.START:
        await stage.create(sleeper(starting, files=True))
    elif cell.trigger is Trigger.BARE:
        await stage.create(without_volumes(sleeper(starting)))
    elif cell.trigger is Trigger.END:
        await stage.delete([ending])
    elif cell.trigger is Trigger.UPDATE:
        await stage.change_settings()
    else:
        agent.kill(victim)
    try:
        await agent.wait_for(lambda: agent.crashed, f"{victim} to reach {cell.point}", _REACHED_WITHIN)
    finally:
        agent.crash_at("nowhere")
    return Struck(time.monotonic(), old)


async def bring_back(stage: Stage, cell: Cell, struck: Struck) -> float:
    """Let the victims return as their supervisor would do it; seconds from the hit for which this kept them."""
    agent = stage.agent
    if cell.hit is Hit.STOP:
        await asyncio.sleep(struck.at + STOPPED_SECONDS - time.monotonic())
        for pid in struck.pids.values() or [agent.supervisord_pid]:
            with contextlib.suppress(ProcessLookupError):  # a watchdog may have ended it
                os.kill(pid, signal.SIGCONT)
        return STOPPED_SECONDS
    away = 0.0
    for victim, pause in _STARTED_AGAIN.items():
        if not cell.hits(victim):
            continue
        await asyncio.sleep(struck.at + pause - time.monotonic())
        if victim == SUPERVISORD:
            agent.start_supervisord()
        elif victim == CONTAINERD:
            await asyncio.to_thread(stage.containerd.end)  # nothing is left of it but its exit code
            await asyncio.to_thread(stage.containerd.start)
        else:
            await stage.cluster.plane.start_api_server()
        away = time.monotonic() - struck.at
    return away


async def wait_back(stage: Stage, cell: Cell, struck: Struck) -> float:
    """Return once every service has sent a beat since, the killed ones as new processes, and all as new ones where
    supervisord was killed; seconds from the hit to the first beat of the last of these (of all, where none was killed).
    """
    agent = stage.agent

    def missing() -> list[str]:
        return [name for name in SERVICES if not well(name)]

    def well(name: str) -> bool:
        beat = agent.beats.get(name)
        replaced = cell.hit is Hit.KILL and name in struck.pids
        return beat is not None and beat.sent_at > struck.at and (not replaced or beat.pid != struck.pids[name])

    killed = [name for name in struck.pids if cell.hit is Hit.KILL]
    await agent.wait_for(lambda: all(map(well, killed)), lambda: f"{', '.join(missing())} to come back", _BACK_WITHIN)
    back = time.monotonic() - struck.at
    await agent.wait_for(lambda: not missing(), lambda: f"{', '.join(missing())} to beat", _BACK_WITHIN)
    if cell.hits(SUPERVISORD) and cell.hit is Hit.KILL:
        await agent.wait_for(stage.all_replaced, "the services of the next supervisord", _BACK_WITHIN)
    return back
