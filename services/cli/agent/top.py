"""`bulkhead top`: CPU and memory of the node, its pods and containers, as pleg reads them; once or again and again."""

import dataclasses
import sys
import time
from collections.abc import Callable

from bus.client import Question, Refusal
from bus.messages.usage import CgroupUsage, FoundUsage, GetUsage
from services.cli.agent.local_agent import Agent, local_agent
from services.cli.terminal.output import dump
from services.cli.terminal.table import CLEAR, size, table, terminal_width
from shared.errors import OperatorError

Write = Callable[[str], None]
INTERVAL = 2.0  # seconds between two readings of --watch
_TIMEOUT = 10.0  # seconds that pleg has for a reading of every cgroup
_AGE = 1.0  # seconds that a reading may be old


def show_usage(run_dir: str, form: str, containers: bool, watch: bool, out: Write, err: Write) -> int:
    """Print the usage; `containers`: also of each container. Return the exit code."""
    try:
        with local_agent(run_dir) as agent:
            while True:
                found = _usage(agent)
                if form == "text":
                    lines = usage_lines(found, containers, terminal_width())
                    out((CLEAR if watch and sys.stdout.isatty() else "") + "\n".join(lines))
                else:
                    out(dump(dataclasses.asdict(found), form))
                if not watch:
                    return 0
                time.sleep(INTERVAL)
    except OperatorError as error:
        err(str(error))
        return 1
    except KeyboardInterrupt:
        return 130


def usage_lines(found: FoundUsage, containers: bool, width: int) -> list[str]:
    """The node, then the pods with the highest CPU usage first."""
    rows = [["node", *_cells(found.node.cgroup)]]
    for pod in sorted(found.pods, key=lambda pod: -((pod.cgroup.cpu_nanocores or 0) if pod.cgroup else 0)):
        rows.append([f"{pod.namespace}/{pod.name}", *_cells(pod.cgroup)])
        if containers:
            rows += [[f"  {one.name}", *_cells(one.cgroup)] for one in sorted(pod.containers, key=lambda one: one.name)]
    return table(["NAME", "CPU", "MEMORY"], rows, width)


def _cells(usage: CgroupUsage | None) -> list[str]:
    """CPU in thousandths of a core, the working set; `-` for what is not known yet."""
    if usage is None:
        return ["-", "-"]
    cores = "-" if usage.cpu_nanocores is None else f"{round(usage.cpu_nanocores / 1e6)}m"
    return [cores, size(usage.memory_working_set)]


def _usage(agent: Agent) -> FoundUsage:
    question = Question("pleg", GetUsage(max_age_seconds=_AGE), FoundUsage)
    answer = agent.client.ask([question], _TIMEOUT).get(question)
    if isinstance(answer, FoundUsage):
        return answer
    why = answer.line if isinstance(answer, Refusal) else f"does not answer within {_TIMEOUT:.0f} s"
    raise OperatorError(why, where="pleg", remedy="bulkhead status shows the processes")
