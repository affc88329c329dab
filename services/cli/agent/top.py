"""`bulkhead top` prints CPU and memory of the node, its pods and containers as pleg reads them, once or repeatedly."""

import os
import time
from collections.abc import Callable

from msgspec import to_builtins

from bus.client import Question, Refusal
from bus.messages.usage import CgroupUsage, FoundUsage, GetUsage, PodUsage
from services.cli.agent.local_agent import Agent, local_agent
from services.cli.terminal.output import dump
from services.cli.terminal.table import screen, size, table, terminal_height, terminal_width
from shared.errors import OperatorError
from shared.model.frozen_copy import replace

Write = Callable[[str], None]
INTERVAL_SECONDS = 2.0  # between two readings of --watch
_TIMEOUT_SECONDS = 10.0  # that pleg has for a reading of every cgroup
_MAX_AGE_SECONDS = 1.0  # the greatest age of a reading
# Between two readings when pleg has no CPU of pods yet, because it computes rates over five seconds and more.
_SAMPLE_SECONDS = 1.1


def show_usage(
    run_dir: str, pod: str, namespace: str, form: str, containers: bool, watch: bool, out: Write, err: Write
) -> int:
    """Print the usage of the node and its pods, or of those that `pod` and `namespace` mean; `containers`: also of each
    container. With `watch` a reading that fails is reported, and the next one follows. Return the exit code."""

    def show(lines: list[str]) -> None:
        height = terminal_height() if watch and form == "text" else 0
        out(screen(lines, height) if height else "\n".join(lines))

    def reading(agent: Agent) -> list[str]:
        found = _reading(agent, pod, namespace)
        if lacks_cpu(found):
            time.sleep(_SAMPLE_SECONDS)
            found = with_cpu(found, _reading(agent, pod, namespace))
        if form != "text":
            return [dump(to_builtins(found), form)]
        return usage_lines(found, containers, terminal_width(), os.cpu_count() or 1)

    try:
        with local_agent(run_dir) as agent:
            show(reading(agent))
            while watch:
                time.sleep(INTERVAL_SECONDS)
                try:
                    show(reading(agent))
                except OperatorError as error:  # pleg may be restarting: the next reading may succeed
                    err(str(error))
    except OperatorError as error:
        err(str(error))
        return 1
    return 0


def choose_pods(found: FoundUsage, pod: str, namespace: str, node: str) -> FoundUsage:
    """Return the reading with only the pods that match `pod` (name, namespace/name, UID, name in a manifest; "" = any)
    and `namespace`. Raises OperatorError where `pod` is given and no pod matches. `node`: its name."""
    space, _, name = pod.rpartition("/")
    space = space or namespace
    here = [one for one in found.pods if not space or one.namespace == space]
    if name:
        here = [one for one in here if name in (one.name, one.uid)] or [
            one for one in here if one.name == f"{name}-{node}"
        ]
        if not here:
            where = f" in namespace {space}" if space else ""
            raise OperatorError(f"no usage of a pod {name!r}{where}", remedy="bulkhead pods lists the pods")
    return replace(found, pods=tuple(here))


def lacks_cpu(found: FoundUsage) -> bool:
    """Return whether pods lack a CPU usage, which needs two readings; false without pods."""
    known = [pod.cgroup.cpu_nanocores for pod in found.pods if pod.cgroup]
    return bool(known) and all(one is None for one in known)


def with_cpu(before: FoundUsage, after: FoundUsage) -> FoundUsage:
    """Return the reading `after` with the CPU usage since `before` for the node, pods and containers that have none."""
    pods = {pod.uid: pod for pod in before.pods}
    cgroup = _with_cpu(before.node.cgroup, after.node.cgroup, after.node.read_at - before.node.read_at)
    return replace(
        after,
        node=replace(after.node, cgroup=cgroup or after.node.cgroup),
        pods=tuple(_pod_with_cpu(pods[pod.uid], pod) if pod.uid in pods else pod for pod in after.pods),
    )


def _pod_with_cpu(before: PodUsage, after: PodUsage) -> PodUsage:
    seconds = after.read_at - before.read_at
    known = {one.id: one.cgroup for one in before.containers}
    containers = tuple(
        replace(one, cgroup=_with_cpu(known.get(one.id), one.cgroup, seconds)) for one in after.containers
    )
    return replace(after, cgroup=_with_cpu(before.cgroup, after.cgroup, seconds), containers=containers)


def _with_cpu(before: CgroupUsage | None, after: CgroupUsage | None, seconds: float) -> CgroupUsage | None:
    if before is None or after is None or after.cpu_nanocores is not None or seconds <= 0:
        return after
    if before.cpu_nanoseconds is None or after.cpu_nanoseconds is None:
        return after
    used = after.cpu_nanoseconds - before.cpu_nanoseconds
    return after if used < 0 else replace(after, cpu_nanocores=int(used / seconds))


def usage_lines(found: FoundUsage, containers: bool, width: int, cores: int) -> list[str]:
    """Return the lines for the node, and then for the pods, the highest CPU usage first. Percentages are of the node's
    capacity. `cores`: those of the node."""
    capacity = 1e9 * cores, found.node.memory_capacity

    def cells(usage: CgroupUsage | None) -> list[str]:
        return _cells(usage, *capacity)

    rows = [["node", *cells(found.node.cgroup)]]
    for pod in sorted(found.pods, key=lambda pod: -((pod.cgroup.cpu_nanocores or 0) if pod.cgroup else 0)):
        rows.append([f"{pod.namespace}/{pod.name}", *cells(pod.cgroup)])
        if containers:
            rows += [[f"  {one.name}", *cells(one.cgroup)] for one in sorted(pod.containers, key=lambda one: one.name)]
    return table(["NAME", "CPU", "CPU%", "MEMORY", "MEMORY%"], rows, width)


def _cells(usage: CgroupUsage | None, nanocores: float, memory: int | None) -> list[str]:
    """Return the cells of a row: CPU in thousandths of a core and the working set, each with its percentage; `-` for
    what is not known yet."""
    if usage is None:
        return ["-"] * 4
    cpu, used = usage.cpu_nanocores, usage.memory_working_set
    return [
        "-" if cpu is None else f"{round(cpu / 1e6)}m",
        _percent(cpu, nanocores),
        size(used),
        _percent(used, memory),
    ]


def _percent(used: int | None, capacity: float | None) -> str:
    return "-" if used is None or not capacity else f"{100 * used / capacity:.0f}%"


def _reading(agent: Agent, pod: str, namespace: str) -> FoundUsage:
    return choose_pods(_usage(agent), pod, namespace, agent.config.node_name)


def _usage(agent: Agent) -> FoundUsage:
    agent.require("pleg")
    question = Question("pleg", GetUsage(max_age_seconds=_MAX_AGE_SECONDS), FoundUsage)
    answer = agent.client.ask([question], _TIMEOUT_SECONDS).get(question)
    if isinstance(answer, FoundUsage):
        return answer
    if isinstance(answer, Refusal):
        raise OperatorError(answer.line, remedy="bulkhead status shows the processes")
    raise agent.silence_of("pleg")
