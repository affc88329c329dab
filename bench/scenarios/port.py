"""Measures the kubelet's own port while 50 pods run: pages, lists, a log and commands, without the API server
between."""

import time

from bench.errors import BenchError
from bench.figure import Figure, Plan, Samples, Scenario
from bench.scenarios.streaming import finished_log, read_log, run_commands
from bench.site import Node
from bench.statistics import Goal
from bench.streams import Through

_PAGE = (Goal("p50", "ratio", 0.60),)
# For each path: goals, what the Go kubelet 1.36 takes, whether it may be absent.
_PATHS: dict[str, tuple[tuple[Goal, ...], str, bool]] = {
    "healthz": ((), "", False),
    "pods": ((Goal("p50", "ratio", 2.0),), "3.3", False),
    "metrics": (_PAGE, "96", True),
    "metrics/cadvisor": (_PAGE, "123", True),
    "metrics/resource": (_PAGE, "64", True),
    "stats/summary": (_PAGE, "68", True),
}
SCRAPES = {
    path: Figure(f"scrape.{path.replace('/', '_')}", f"GET /{path}, 50 pods", "ms", goals, go_136, optional=optional)
    for path, (goals, go_136, optional) in _PATHS.items()
}
LOG = Figure("port.log", "log at the kubelet's port", "MB/s", (Goal("p50", "ratio", 4.0),), "26", "higher")
# A round trip may take 1.1 times as long.
EXEC = Figure("port.exec", "exec at the kubelet's port", "1/s", (Goal("p50", "ratio", 1 / 1.1),), "20", "higher")


async def port(node: Node, samples: Samples, plan: Plan) -> None:
    """Send requests from one client, one after another; the first request of each path does not count."""
    pods = node.new_names("crowd", plan.crowd)
    await node.create_all([node.pod(name) for name in pods])
    ended = await finished_log(node, plan)
    async with Through(node.site.plane, node.agent.port) as kubelet:
        for path, figure in SCRAPES.items():
            await _scrapes(kubelet, path, figure, samples, plan)
        await read_log(kubelet, ended, samples, LOG, plan)
        await run_commands(kubelet, pods[0], samples, EXEC, plan)
    await node.delete_all()


async def _scrapes(kubelet: Through, path: str, figure: Figure, samples: Samples, plan: Plan) -> None:
    for number in range(plan.scrapes + 1):
        began = time.monotonic()
        status = await kubelet.get(f"/{path}")
        if status in (404, 501) and figure.optional:
            samples.is_absent(figure.key, f"/{path} answers {status}")
            return
        if status != 200:
            raise BenchError(f"/{path} answers {status}")
        if number:
            samples.sample(figure.key, (time.monotonic() - began) * 1000)


SCENARIOS = (Scenario("port", port, (*SCRAPES.values(), LOG, EXEC)),)
