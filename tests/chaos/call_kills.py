"""Kills podsync while its calls to a real containerd are under way, again and again, while pods start and end.

`python -m tests.chaos.call_kills [--suite bookworm|trixie|sid] [--kills 200] [--seed N]`. A killed caller's connection
is cut, and containerd then gives up in the middle of what it was doing. Afterwards every pod must be Ready or gone, and
nothing may be left in the runtime.
"""

import argparse
import asyncio
import collections
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cri_api.v1 import api_pb2

from shared.cri.interface import RuntimeCallError
from shared.model.objects import Object
from shared.model.runtime import SandboxState
from tests.chaos.cut_calls import CutCalls, is_given_up, sandbox_of_shim, sandboxes_of_rules
from tests.fakes.cri_proxy import CriProxy
from tests.fakes.runtime_leftovers import leftovers
from tests.support.agents import evidence
from tests.support.agents.agent import NODE
from tests.support.agents.world import World
from tests.support.installed.debian_containerd import INSTALLED, SUITES, fetch_programs
from tests.support.runtime.containerd import PrivateContainerd
from tests.support.waits.deadline import WAIT_SECONDS
from tools import leftovers as left_on_machine
from tools.oci_image import BUSYBOX_IMAGE

KINDS = ("StartContainer", "RunPodSandbox", "StopContainer")
SETTLED_WITHIN = 1.5 * WAIT_SECONDS  # 90 s, and more where the machine is slow
PODS = 6  # that run beside those that start and end
STARTING = 3  # pods that start, and as many that end, at each kill
KILLS_IN_A_ROW = 10  # before all pods must be Ready or gone
_REACHED_WITHIN = 10.0  # seconds; a call of every kind is due all the time
_EVERYTHING_GONE_WITHIN = 2.5 * WAIT_SECONDS  # seconds: a finished pod's sandbox is removed after a minute
_LOOK_EVERY = 0.0005  # seconds
_REGISTERED_WITHIN = 0.02  # seconds after a process was made
_FIRST_GUESS = {"StartContainer": 0.3, "RunPodSandbox": 0.6, "StopContainer": 1.0}  # seconds that such a call takes
_ENDS_AT_ONCE = "trap exit TERM; while :; do sleep 1000 & wait; done"


@dataclass
class Result:
    """What one run has shown. `aimed`: kills, by the method that podsync was to be killed in; `cut`: calls that
    containerd was busy with when their caller was killed, by method; `shims`: shims that containerd gave up, `rules`:
    sandboxes of which rules of CNI are left, both by the cut call that left them."""

    aimed: collections.Counter[str] = field(default_factory=collections.Counter)
    cut: collections.Counter[str] = field(default_factory=collections.Counter)
    lost: list[str] = field(default_factory=list)  # what did not become Ready or did not go in time, and was given up
    left: dict[str, list[str]] = field(default_factory=dict)  # on the machine at the end
    shims: collections.Counter[str] = field(default_factory=collections.Counter)
    rules: collections.Counter[str] = field(default_factory=collections.Counter)
    stuck: int = 0  # removals that the runtime refused because of a task that CRI does not know of
    healed: int = 0  # times that podsync ended such tasks

    def __str__(self) -> str:
        aimed = ", ".join(f"{method} {count}" for method, count in sorted(self.aimed.items()))
        cut = ", ".join(f"{method} {count}" for method, count in sorted(self.cut.items()))
        return (
            f"{self.aimed.total()} kills ({aimed}); calls cut off: {cut}; lost: {self.lost or 'none'};"
            f" left: {self.left or 'nothing'}; shims that containerd gave up: {dict(self.shims)};"
            f" sandboxes with rules of CNI: {dict(self.rules)};"
            f" refused removals {self.stuck}, tasks ended {self.healed}"
        )


class CallKills:
    """`async with CallKills("trixie") as kills: await kills.run(200)`: an agent on a containerd of this suite."""

    def __init__(self, suite: str, seed: int = 0) -> None:
        self.result = Result()
        self._random = random.Random(seed)
        self._directory = Path(tempfile.mkdtemp(prefix="bkk", dir="/tmp"))
        self.containerd = PrivateContainerd(self._directory, fetch_programs(suite))
        self.proxy = CriProxy(self.containerd.endpoint, self._directory / "p.sock")
        self.proxy.forwards_others = True
        self.world = World(
            containerd=self.containerd, config={"containerRuntimeEndpoint": self.proxy.endpoint}, verbosity=3
        )
        self._running: list[str] = []
        self._leaving: set[str] = set()
        self._given_up: set[str] = set()  # sandboxes of shims that are left
        self._with_rules: set[str] = set()  # sandboxes with rules that are left
        self._numbers = iter(range(1_000_000))
        self._seconds = {kind: collections.deque([guess], maxlen=20) for kind, guess in _FIRST_GUESS.items()}

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self.containerd.start)
            await asyncio.to_thread(self.containerd.import_images)
            await self.proxy.__aenter__()
            await self.world.__aenter__()
        except BaseException:
            await self._take_down()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.world.__aexit__(kind, error, trace)
        await self._take_down()

    async def run(self, kills: int) -> Result:
        """Kill so often, then end every pod. What is wrong is in the result."""
        self._put(PODS)
        await self._settle()
        for number in range(kills):
            await self._kill(KINDS[number % len(KINDS)])
            if (number + 1) % KILLS_IN_A_ROW == 0 or number + 1 == kills:
                await self._settle()
                print(f"{number + 1} kills: {self.result}", flush=True)
        self._remove(list(self._running))
        await self._settle()
        await self._wait_until_nothing_is_left()
        log = self.containerd.log.read_text(errors="replace")
        cut = CutCalls(log)
        self.result.shims.update(map(cut.cause_of_shim, self._given_up))
        self.result.rules.update(map(cut.cause_of_rule, self._with_rules))
        self.result.stuck = log.count("cannot delete running task")
        self.result.healed = self.world.log_of("podsync").count("; its task was ended")
        return self.result

    async def _kill(self, kind: str) -> None:
        """Kill podsync in the middle of a call of this kind, while pods start and end."""
        world, forwarded = self.world, asyncio.get_running_loop().create_future()

        def on_forward(method: str, request: bytes, call: Any) -> None:
            if method in KINDS:
                call.add_done_callback(partial(self._note, method, time.monotonic()))
            if method == kind and not forwarded.done():
                forwarded.set_result(request)

        pid = world.pid_of("podsync")
        self.proxy.on_forward = on_forward
        while not forwarded.done():
            self._put(STARTING)
            self._remove(self._random.sample(self._running[:-STARTING], STARTING))
            await asyncio.wait({forwarded}, timeout=_REACHED_WITHIN)
            if not forwarded.done():  # on a slow machine the pods that end were never started
                await self._settle()
        await self._reach_moment(kind, forwarded.result())
        world.kill("podsync")
        self.result.aimed[kind] += 1
        await world.wait_for(lambda: world.pid_of("podsync") not in (0, pid), "podsync to be started again")
        world.reset_start_counts()

    async def _reach_moment(self, kind: str, request: bytes) -> None:
        """Wait for a random moment of the call; of every second StartContainer one at which the process has just been
        made: containerd then registers the task, and a caller that is gone makes it lose the task for CRI."""
        typical = sorted(self._seconds[kind])[len(self._seconds[kind]) // 2]
        if kind != "StartContainer" or self._random.random() < 0.5:
            await asyncio.sleep(self._random.uniform(0.0, 1.1) * typical)
            return
        container_id = api_pb2.StartContainerRequest.FromString(request).container_id
        made = self._tasks / container_id / "init.pid"
        deadline = time.monotonic() + 5 * typical
        while not made.exists() and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_EVERY)
        await asyncio.sleep(self._random.uniform(0.0, _REGISTERED_WITHIN))

    @property
    def _tasks(self) -> Path:
        return Path(self.containerd.embedded.state) / "io.containerd.runtime.v2.task" / "k8s.io"

    def _note(self, method: str, began: float, call: Any) -> None:
        if call.cancelled():
            self.result.cut[method] += 1
        else:
            self._seconds[method].append(time.monotonic() - began)

    # Pods

    def _put(self, count: int) -> None:
        for _ in range(count):
            name = f"p{next(self._numbers)}"
            self.world.put_manifest(name, _pod(name))
            self._running.append(name)

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            self.world.remove_manifest(name)
            self._running.remove(name)
            self._leaving.add(name)

    async def _settle(self) -> None:
        """Wait until every pod is Ready or gone; note and give up those that are not in time."""
        try:
            await self.world.wait_for(self._all_settled, "every pod to be Ready or gone", SETTLED_WITHIN)
        except AssertionError:
            for name, what in (await self._unsettled()).items():
                self.result.lost.append(f"{name}: {what}")
                self._leaving.discard(name)
                if name in self._running:
                    self._running.remove(name)
                    self.world.remove_manifest(name)
            self._keep_evidence(f"lost: {self.result.lost}")
            return
        self._leaving.clear()

    async def _all_settled(self) -> bool:
        await asyncio.sleep(0.3)
        return not await self._unsettled()

    async def _unsettled(self) -> dict[str, str]:
        """Pod -> what is wrong with it."""
        try:
            seen = {pod.name: pod for pod in (await self.world.runtime.observe()).values()}
        except RuntimeCallError as error:
            return {"runtime": str(error)}
        shown = {pod["metadata"]["name"]: pod for pod in await self.world.pods()}
        wrong = {}
        for name in self._running:
            status = (shown.get(f"{name}-{NODE}") or {}).get("status") or {}
            ready = [c for c in status.get("conditions") or () if (c["type"], c["status"]) == ("Ready", "True")]
            if not ready:
                wrong[name] = f"not Ready: {seen.get(f'{name}-{NODE}')}"
        for name in self._leaving:
            pod = seen.get(f"{name}-{NODE}")
            if pod is not None and (
                pod.containers or [box for box in pod.sandboxes if box.state is SandboxState.READY]
            ):
                wrong[name] = f"not gone: {pod}"
        return wrong

    async def _wait_until_nothing_is_left(self) -> None:
        async def look() -> bool:
            await asyncio.sleep(1.0)
            self.result.left = await self._left()
            return not self.result.left

        try:
            await self.world.wait_for(look, "nothing to be left", _EVERYTHING_GONE_WITHIN)
        except AssertionError:
            files = sorted(str(path.relative_to(self._tasks)) for path in self._tasks.glob("*/*"))
            self._keep_evidence(f"left: {self.result.left}, of tasks {files}")

    def _keep_evidence(self, what: str) -> None:
        """Print what is wrong and the ends of the logs; copy the logs, because the directory of this run goes."""
        home = self.world.home.path
        kept = evidence.keep(home, f"call-kills-{self.result.aimed.total()}", self.containerd.log)
        print(f"{what}\n{evidence.of_home(home)}\nkept in {kept}", flush=True)

    async def _left(self) -> dict[str, list[str]]:
        found = await leftovers(self.world, self._directory, self.containerd.embedded.bridge, set())
        state = Path(self.containerd.embedded.state)
        if names := sorted(path.name for path in self._tasks.glob("*")):
            found["tasks"] = names
        if addresses := sorted(p.name for p in state.glob("cni-addresses/*/[0-9]*")):
            found["addresses"] = addresses
        # What containerd and its CNI plugins no longer know is no agent's to remove: counted by the call that left it.
        self._with_rules = sandboxes_of_rules(found.pop("address translation", []))
        shims = [int(shim) for shim in found.pop("shims", [])]
        given_up = {shim for shim in shims if is_given_up(shim)}
        self._given_up = {sandbox_of_shim(shim) for shim in given_up}
        if known := [str(shim) for shim in shims if shim not in given_up]:
            found["shims"] = known
        return found

    async def _take_down(self) -> None:
        await self.proxy.__aexit__(None, None, None)
        await self.containerd.stop()
        left_on_machine.unmount_below(self._directory)
        shutil.rmtree(self._directory, ignore_errors=True)


def _pod(name: str) -> Object:
    """One container that ends at the first signal, one that has to be killed."""
    commands = {"ends": ["sh", "-c", _ENDS_AT_ONCE], "stays": ["sleep", "1000000"]}
    containers = [
        {"name": each, "image": BUSYBOX_IMAGE, "imagePullPolicy": "IfNotPresent", "command": command}
        for each, command in commands.items()
    ]
    spec = {"terminationGracePeriodSeconds": 1, "containers": containers}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.call_kills")
    parser.add_argument("--suite", choices=SUITES, default=INSTALLED)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    print(f"containerd of {given.suite}, seed {given.seed}", flush=True)
    if (this := asyncio.current_task()) is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)  # takes everything down again
    async with CallKills(given.suite, given.seed) as kills:
        result = await kills.run(given.kills)
    print(f"containerd of {given.suite}, seed {given.seed}: {result}")
    return 1 if result.lost or result.left else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
