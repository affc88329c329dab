"""Twenty random SIGKILLs over one owner and three followers during ten seconds of changes: afterwards all are equal."""

import asyncio
import os
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from bus.interface import NoAnswerError
from bus.manifest import new_manifest, prepare_run_dir, write_manifest
from bus.messages.beat import Beat
from bus.process_bus import ProcessBus
from tests.process.bus_kills.arena import FOLLOWERS, OWNER, AwaitState, Finish, GetState, State
from tests.support.waits.deadline import WAIT_SECONDS

FIRST_SEED = int(os.environ.get("FIRST_SEED", "1"))  # make night sets another one each time
SEEDS = range(FIRST_SEED, FIRST_SEED + 5)
KILLS = 20
SECONDS = 10.0
RESPAWN_SECONDS = 0.3  # at most; a supervisor takes its time too
AT_ONCE = 2  # seeds side by side, each of four processes
CHECKOUT = Path(__file__).parents[2]


@dataclass
class Result:
    """How one seed ended."""

    owner: State
    followers: dict[str, State]
    killed: dict[str, int]
    in_step_after: float  # seconds from the last change until the last follower was in step


class Arena:
    """Four processes in a run directory of their own."""

    def __init__(self, run_dir: Path, seed: int) -> None:
        self._run_dir, self._seed = run_dir, seed
        self._chance = random.Random(seed)
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._killed = dict.fromkeys((OWNER, *FOLLOWERS), 0)

    async def run(self) -> Result:
        """Start, kill, compare."""
        prepare_run_dir(self._run_dir)
        manifest = new_manifest(self._run_dir, services=(OWNER, *FOLLOWERS))
        write_manifest(manifest)
        observer = ProcessBus("observer", manifest)
        beating: set[str] = set()
        all_beat = asyncio.Event()

        def listen(beat: Beat) -> None:
            beating.add(beat.service)
            if beating >= {OWNER, *FOLLOWERS}:
                all_beat.set()

        observer.on_beat(listen)
        await observer.start()
        try:
            for service in (OWNER, *FOLLOWERS):
                await self._spawn(service)
            await asyncio.wait_for(all_beat.wait(), WAIT_SECONDS)
            await self._kill_at_random()
            return await self._compare(observer)
        finally:
            await observer.stop()
            for process in self._processes.values():
                process.kill()
                await process.wait()

    async def _kill_at_random(self) -> None:
        began = time.monotonic()
        respawns: dict[str, asyncio.Task[None]] = {}
        plan = sorted(
            (self._chance.uniform(0, SECONDS), self._chance.choice(list(self._processes))) for _ in range(KILLS)
        )
        for moment, victim in plan:
            await asyncio.sleep(began + moment - time.monotonic())
            if victim in respawns:
                await respawns.pop(victim)
            self._processes[victim].kill()
            await self._processes[victim].wait()
            self._killed[victim] += 1
            respawns[victim] = asyncio.create_task(self._respawn(victim, self._chance.uniform(0, RESPAWN_SECONDS)))
        await asyncio.gather(*respawns.values())
        await asyncio.sleep(began + SECONDS - time.monotonic())

    async def _respawn(self, service: str, delay: float) -> None:
        await asyncio.sleep(delay)
        await self._spawn(service)

    async def _spawn(self, service: str) -> None:
        role, argument = ("owner", str(self._seed)) if service == OWNER else ("follower", service)
        self._processes[service] = await asyncio.create_subprocess_exec(
            sys.executable, "-m", f"tests.process.bus_kills.{role}", str(self._run_dir), argument, cwd=CHECKOUT
        )

    async def _compare(self, observer: ProcessBus) -> Result:
        owner = await observer.ask(OWNER, Finish(), State, timeout=WAIT_SECONDS)
        began = time.monotonic()
        expected = AwaitState(items=owner.items)
        followers = await asyncio.gather(*(self._state_of(observer, service, expected) for service in FOLLOWERS))
        return Result(
            owner, dict(zip(FOLLOWERS, followers, strict=True)), self._killed, in_step_after=time.monotonic() - began
        )

    async def _state_of(self, observer: ProcessBus, service: str, expected: AwaitState) -> State:
        try:
            return await observer.ask(service, expected, State, timeout=WAIT_SECONDS)
        except NoAnswerError:
            return await observer.ask(service, GetState(), State, timeout=WAIT_SECONDS)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Result]:
    """All seeds, two at a time, for most of each is waiting."""
    places = {seed: tmp_path_factory.mktemp("arena") / "run" for seed in SEEDS}

    async def run_all() -> list[Result]:
        turn = asyncio.Semaphore(AT_ONCE)

        async def run(seed: int) -> Result:
            async with turn:
                return await Arena(places[seed], seed).run()

        return await asyncio.gather(*(run(seed) for seed in SEEDS))

    return dict(zip(SEEDS, asyncio.run(run_all()), strict=True))


@pytest.mark.alone
@pytest.mark.timeout(900)  # the first one runs all seeds
@pytest.mark.parametrize("seed", SEEDS)
class TestTwentyKills:
    def test_leave_every_follower_equal_to_its_owner(self, results: dict[int, Result], seed: int) -> None:
        result = results[seed]
        for service, state in result.followers.items():
            assert state.items == result.owner.items, service

    def test_were_not_survived_for_lack_of_kills_or_changes(self, results: dict[int, Result], seed: int) -> None:
        result = results[seed]
        assert sum(result.killed.values()) == KILLS
        assert result.killed[OWNER] > 0
        assert result.owner.changes > 300
        assert result.owner.items

    def test_cost_no_long_delay(self, results: dict[int, Result], seed: int) -> None:
        """A follower killed last has to start first: a second, and more on a machine that does other things too."""
        assert results[seed].in_step_after < 30.0
