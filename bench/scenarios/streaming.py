"""Measures logs and commands through the API server, from one client, one after another."""

import time

from bench.errors import BenchError
from bench.figure import Figure, Plan, Samples, Scenario
from bench.site import MAX_POD_SECONDS, Node
from bench.streams import Through
from bench.watch import terminated

LOG = Figure("streaming.log", "log through the API server", "MB/s", better="higher")
EXEC = Figure("streaming.exec", "exec through the API server, one after another", "1/s", better="higher")
LINE_BYTES = 100  # with its end
READS = 3
BATCH = 10  # commands in one sample


async def log(node: Node, samples: Samples, plan: Plan) -> None:
    """Read a complete log several times, and check its size."""
    name = await finished_log(node, plan)
    async with Through(node.site.plane) as api:
        await read_log(api, name, samples, LOG, plan)
    await node.delete_all()


async def finished_log(node: Node, plan: Plan) -> str:
    """Create a pod that writes its log and ends. Return its name after it has ended."""
    lines = plan.log_mib * 2**20 // LINE_BYTES
    [name] = node.new_names("log", 1)
    ended = node.watch.pod(name, terminated, "to write its log and end")
    command = f"yes {'x' * (LINE_BYTES - 1)} | head -n {lines}"
    await node.post(node.pod(name, "sh", "-c", command, restartPolicy="Never"))
    await ended.within(MAX_POD_SECONDS)
    return name


async def read_log(api: Through, name: str, samples: Samples, figure: Figure, plan: Plan) -> None:
    """Read the log of `finished_log` READS times. Return MB/s."""
    expected = plan.log_mib * 2**20 // LINE_BYTES * LINE_BYTES
    for _ in range(READS):
        began = time.monotonic()
        size = await api.log_bytes(name)
        took = time.monotonic() - began
        if size != expected:
            raise BenchError(f"the log of {name} came with {size} bytes of {expected}")
        samples.sample(figure.key, size / 1e6 / took)


async def commands(node: Node, samples: Samples, plan: Plan) -> None:
    """Run the command `true` again and again."""
    [name] = node.new_names("exec", 1)
    await node.create(node.pod(name))
    async with Through(node.site.plane) as api:
        await run_commands(api, name, samples, EXEC, plan)
    await node.delete_all()


async def run_commands(api: Through, name: str, samples: Samples, figure: Figure, plan: Plan) -> None:
    """Run the command `true` BATCH times for each sample. Return commands per second."""
    for _ in range(plan.execs):
        began = time.monotonic()
        for _ in range(BATCH):
            if not await (await api.exec(name, "true")).succeeded():
                raise BenchError(f"exec in {name} did not succeed")
        samples.sample(figure.key, BATCH / (time.monotonic() - began))


SCENARIOS = (Scenario("log", log, (LOG,)), Scenario("exec", commands, (EXEC,)))
