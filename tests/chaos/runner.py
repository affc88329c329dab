"""Takes a stage through cells and measures what each one cost; `Runner.take` has the order of one cell."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from statistics import median

from shared.model.runtime import RuntimePod
from tests.chaos import pods, striking
from tests.chaos.cells import Cell, Hit, Moment, Trigger
from tests.chaos.costs import Again, Costs, Limits, differences, made_again, replaced
from tests.chaos.stage import RENEW_INTERVAL, SETTLED_WITHIN, Stage

_EQUAL_WITHIN = 10.0  # seconds until the runtime has what it should, after the API server shows it
_LOG_LINES = 300  # of each process
_IDLE_RUNS = 3  # undisturbed ones whose median counts


class Runner:
    """`async with Runner(front, pods) as runner`; `pods`: how many start and stop in the cells in mid-flight."""

    def __init__(self, front: str, burst: int, *, slowness: float | None = None) -> None:
        self.front, self._burst = front, burst
        self._undisturbed: dict[Moment, float] = {}
        self.limits = Limits(RENEW_INTERVAL, self._undisturbed, slowness)
        self.logs = ""  # the end of the agent's logs, as they were after the last cell
        self._stage: Stage | None = None
        self._stack = AsyncExitStack()
        self._numbers: Iterator[int] = iter(range(1, 1_000_000))

    async def __aenter__(self) -> "Runner":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._leave()

    async def measure(self, cell: Cell) -> Costs:
        """Take one cell. What does not happen in time is in its costs, and the next cell begins again."""
        if cell.hit is Hit.NOTHING:
            return await self._measure_undisturbed(cell)
        return await self._attempt(cell)

    async def _measure_undisturbed(self, cell: Cell) -> Costs:
        runs = [await self._attempt(cell) for _ in range(_IDLE_RUNS if cell.moment is Moment.IDLE else 1)]
        times = [run.new_pod for run in runs if run.new_pod is not None]
        assert times, f"without a kill no pod became Ready: {runs[-1].trouble}"
        self._undisturbed[cell.moment] = median(times)
        return next((run for run in runs if run.trouble), runs[-1])

    async def _attempt(self, cell: Cell) -> Costs:
        stage = await self._enter()
        try:
            costs = await self.take(stage, cell)
            self.logs = stage.agent.tail_of_logs(_LOG_LINES)
            return costs
        except AssertionError as error:
            self.logs = f"{stage.agent.tail_of_logs(_LOG_LINES)}\n{stage.evidence(f'{self.front} {cell.name}')}"
            trouble = str(error).splitlines()[0] if str(error) else repr(error)
            await self._leave()
            return Costs(trouble=trouble)

    async def take(self, stage: Stage, cell: Cell) -> Costs:
        """Calm, prepare, hit, create a pod, wait until it is in sync, compare, tidy up. Raises AssertionError."""
        await stage.calm()
        names = _Names(next(self._numbers), self._burst if cell.moment is Moment.MID_FLIGHT else 0, cell)
        await stage.create(*(pods.sleeper(name, files=True) for name in names.old))
        await self._until(stage, lambda: stage.all_ready(names.old), "the pods that are to end to be Ready")
        before = await self._steady(stage)
        stage.sight.begin()
        struck = await self._hit(stage, cell, names)
        coming_back = asyncio.create_task(striking.wait_back(stage, cell, struck))
        try:
            return await self._after(stage, cell, names, struck, coming_back, before)
        finally:
            coming_back.cancel()

    async def _after(
        self,
        stage: Stage,
        cell: Cell,
        names: "_Names",
        struck: striking.Struck,
        coming_back: "asyncio.Task[float]",
        before: dict[str, RuntimePod],
    ) -> Costs:
        if not cell.hits("api-server"):  # with it, the pod was created just before
            await stage.create(pods.sleeper(names.new))
        away = await striking.bring_back(stage, cell, struck)
        await self._until(stage, lambda: stage.all_ready([names.new]), "the new pod to be Ready")
        new = stage.sight.named(names.new)
        assert new is not None
        ready = stage.sight.ready_at[new["metadata"]["uid"]] - struck.at
        staying = [*stage.steady_names(), *names.staying]
        await self._until(stage, lambda: stage.all_ready(staying), "all pods to be Ready")
        await self._until(stage, lambda: stage.none_left(names.leaving), "the deleted pods to be gone")
        back = await coming_back
        found = await self._compare(stage, staying, made_again(cell))
        if cell.trigger is Trigger.UPDATE:
            await stage.agent.wait_for(stage.settings_are_shown, "the changed ConfigMap to be shown", SETTLED_WITHIN)
        in_sync = time.monotonic() - struck.at
        await self._until(stage, lambda: _renewed(stage, struck.at), "the lease to be renewed")
        gap = stage.sight.lease_gap(time.monotonic())
        lost = await stage.sessions_lost()
        restarted = (*replaced(before, await stage.runtime_pods()), *stage.sight.restarts())
        await stage.delete(names.staying)
        await self._until(stage, lambda: stage.none_left(names.staying), "the cell's own pods to be gone")
        found += await self._compare(stage, stage.steady_names())
        found += await self._directories_left(stage)
        return Costs(
            new_pod=ready,
            back=back if struck.pids and cell.hit is Hit.KILL else None,
            in_sync=in_sync,
            away=away,
            restarted=restarted,
            pod_flaps=tuple(stage.sight.pod_flaps),
            node_flaps=tuple(stage.sight.node_flaps),
            lease_gap=gap,
            sessions_lost=tuple(lost),
            differences=tuple(dict.fromkeys(found)),
        )

    async def _hit(self, stage: Stage, cell: Cell, names: "_Names") -> striking.Struck:
        if cell.trigger is not None:
            return await striking.strike_at_point(stage, cell, names.starting, names.old[0] if names.old else "")
        if cell.moment is Moment.MID_FLIGHT:
            coming = [stage.create(*(pods.sleeper(name, files=True) for name in names.burst)), stage.delete(names.old)]
            await asyncio.gather(*coming)
            few = max(1, len(names.burst) // 5)
            ready = lambda: sum(stage.all_ready([name]) for name in names.burst) >= few  # noqa: E731
            await self._until(stage, ready, "the first new pods to be Ready")
        if cell.hits("api-server"):
            await stage.create(pods.sleeper(names.new))
        return await striking.strike(stage, cell)

    async def _compare(self, stage: Stage, names: list[str], again: Again = Again.NOTHING) -> tuple[str, ...]:
        """How the runtime differs from what these pods want; waits a little, for it may still be removing."""
        deadline = time.monotonic() + _EQUAL_WITHIN
        while True:
            seen = await stage.runtime_pods()
            found = differences(stage.wanted(names), seen, again)
            if not found or time.monotonic() > deadline:
                return found
            await asyncio.sleep(0.1)

    async def _directories_left(self, stage: Stage) -> tuple[str, ...]:
        deadline = time.monotonic() + _EQUAL_WITHIN
        while True:
            wanted = set(stage.wanted(stage.steady_names()))
            left = sorted({path.name for path in stage.pods_directory.iterdir()} - wanted)
            if not left or time.monotonic() > deadline:
                return tuple(f"directory left: pods/{uid}" for uid in left)
            await asyncio.sleep(0.1)

    async def _steady(self, stage: Stage) -> dict[str, RuntimePod]:
        wanted = stage.wanted(stage.steady_names())
        return {uid: pod for uid, pod in (await stage.runtime_pods()).items() if uid in wanted}

    async def _until(self, stage: Stage, holds: Callable[[], object], what: str) -> None:
        await stage.watching.until(lambda _: holds(), what, SETTLED_WITHIN)

    async def _enter(self) -> Stage:
        if self._stage is None:
            self._stage = await self._stack.enter_async_context(Stage(self.front))
        return self._stage

    async def _leave(self) -> None:
        self._stage = None
        await self._stack.aclose()


class _Names:
    """The pods of one cell: `old` exist before, `burst` start beside the hit, `new` is created at it."""

    def __init__(self, number: int, burst: int, cell: Cell) -> None:
        half = burst // 2
        self.new = f"new-{number}"
        self.starting = f"starting-{number}"
        ends = cell.trigger is Trigger.END
        self.old = [f"old-{number}-{n}" for n in range(1 if ends else half)]
        self.burst = [f"burst-{number}-{n}" for n in range(half)]
        self.leaving = self.old
        self.staying = [
            *self.burst,
            *([self.starting] if cell.trigger in (Trigger.START, Trigger.BARE) else []),
            self.new,
        ]


def _renewed(stage: Stage, struck_at: float) -> bool:
    return any(at > struck_at + 0.3 for at in stage.sight.renewals)
