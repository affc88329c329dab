"""supervisord killed and started again and again under load: its seven services replace those of the one before.

SUPERVISORD_KILLS is the number of kills (3; `make night`: 50).
"""

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import aiohttp
import pytest
import pytest_asyncio

from bus.messages.streams import SERVICES
from services.frame.generation import generation_of
from services.frame.preloading import process_name
from shared.config.loader import load_generation
from tests.chaos.sessions import Session
from tests.process.supervised import alive
from tests.support.agents.agent import NODE
from tests.support.agents.world import ExecutedWorld, World, busybox_pod
from tests.support.waits.deadline import SLOWNESS, WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

KILLS = int(os.environ.get("SUPERVISORD_KILLS", "3"))
REPLACED_WITHIN = 5.0 * SLOWNESS  # seconds from the start of the next supervisord, for the median of all
AT_MOST = 3 * WAIT_SECONDS  # seconds, for each, also on a machine that others keep busy
NAMES = {process_name(f"services.{service}") for service in SERVICES}
ANONYMOUS = {
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with ExecutedWorld(config=ANONYMOUS) as world:
        world.put_manifest("steady", busybox_pod("steady"))
        await world.wait_running("steady")
        yield world


@asynccontextmanager
async def open_session(world: World) -> AsyncIterator[Session]:
    """An exec session with the steady pod, closed at the end."""
    trust = ssl.create_default_context()
    trust.check_hostname = False
    trust.verify_mode = ssl.CERT_NONE
    place = f"https://127.0.0.1:{world.port}/exec/default/steady-{NODE}/main"

    async def opened() -> Session | None:
        try:
            return await Session.open(f"{place}?command=cat&input=1&output=1", trust)
        except aiohttp.ClientError:  # a server that was just started does not know the pod yet
            return None

    session = await world.wait_for(opened, "an exec session", AT_MOST)
    try:
        yield session
    finally:
        await session.close()


async def containers(world: World) -> list[tuple[str, int]]:
    pod = await world.runtime_pod("steady")
    return [(c.id, c.attempt) for c in pod.containers] if pod else []


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def services_of(world: World) -> list[int]:
    """Every process of this agent that has the name of a service: a fork of one of its supervisords."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdecimal() or (entry / "comm").read_text(errors="replace").strip() not in NAMES:
                continue
            if os.fsencode(str(world.home.supervisord_conf)) in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # it has ended
    return [pid for pid in found if alive(pid)]


def left_to_replace(world: World, draining: int) -> list[str]:
    """What keeps the agent from being seven services of the present supervisord, and of the earlier ones only the
    draining server."""
    pids = {name: world.pid_of(name) for name in SERVICES}
    found = [f"{name} is of another one" for name, pid in pids.items() if parent_of(pid) != world.supervisord_pid]
    found += [f"{name} is silent" for name, pid in pids.items() if name in world.beats and world.beats[name].pid != pid]
    return found + [f"process {pid} is left" for pid in set(services_of(world)) - {draining, *pids.values()}]


async def wait_replaced(world: World, draining: int, seconds: float) -> None:
    await world.wait_for(
        lambda: not left_to_replace(world, draining), lambda: ", ".join(left_to_replace(world, draining)), seconds
    )


async def test_each_next_supervisord_has_seven_services_of_its_own_and_no_pod_or_session_ends(world: World) -> None:
    alone = [await _start_with_nothing_to_replace(world)]
    async with open_session(world) as session:
        draining, containerd = world.pid_of("server"), world.pid_of("containerd")
        before, took = await containers(world), list[float]()
        for number in range(KILLS):
            world.put_manifest(f"load-{number}", busybox_pod(f"load-{number}"))
            await asyncio.sleep(0.1 * (number % 7))  # at another moment of the pod's start each time
            world.kill("supervisord")
            began = time.monotonic()
            world.start_supervisord()
            await wait_replaced(world, draining, AT_MOST)
            took.append(time.monotonic() - began)
            assert await session.answers(WAIT_SECONDS), f"the exec session ended with supervisord {number}"
            assert load_generation(str(world.home.run_dir))[1] == generation_of(world.supervisord_pid)
            await world.wait_running(f"load-{number}", AT_MOST)
            world.remove_manifest(f"load-{number}")
        assert await containers(world) == before
        assert world.pid_of("containerd") == containerd
    await world.wait_for(lambda: not alive(draining), "the first server to end with its session", AT_MOST)
    alone.append(await _start_with_nothing_to_replace(world))
    print("seconds alone and replacing:", *([f"{seconds:.2f}" for seconds in measured] for measured in (alone, took)))
    assert median(took) < max(REPLACED_WITHIN, 5 * max(alone)), (alone, took)


async def _start_with_nothing_to_replace(world: World) -> float:
    """Seconds until all services of a supervisord beat that finds none of an earlier one."""
    await world.stop_supervisord(AT_MOST)
    began = time.monotonic()
    world.start_supervisord()
    await wait_replaced(world, 0, AT_MOST)
    return time.monotonic() - began


async def test_the_flags_of_the_newest_supervisord_count_for_all_services(world: World) -> None:
    before = {name: world.pid_of(name) for name in SERVICES}
    world.kill("supervisord")
    world.write_config(maxPods=17)
    world.start_supervisord()
    await wait_replaced(world, 0, AT_MOST)
    assert load_generation(str(world.home.run_dir))[0].max_pods == 17
    assert {name for name in SERVICES if world.pid_of(name) == before[name]} == set()


async def test_a_stop_right_after_the_kill_leaves_no_service_of_either_generation(world: World) -> None:
    async with open_session(world):
        before = await containers(world)
        world.kill("supervisord")
        world.start_supervisord()
        ours = lambda: parent_of(world.pid_of("server")) == world.supervisord_pid  # noqa: E731
        await world.wait_for(ours, "the server to hand over", AT_MOST)
        await world.stop_supervisord(AT_MOST)
        await world.wait_for(lambda: not services_of(world), "every service to end", AT_MOST)
        await world.wait_for(lambda: not world.pid_of("containerd"), "containerd to end", AT_MOST)
    await world.start()
    assert await containers(world) == before
