"""Measures the pods that an agent finds at its start, as after a boot of the machine: how long until the most important
ones are Ready, and until all are.
"""

import asyncio

from bench.figure import Figure, Plan, Samples, Scenario
from bench.site import MAX_POD_SECONDS, Node
from bench.watch import ready
from shared.kube.interface import ApiStatusError

FIRST = Figure("boot.first", "start with 100 pods → the 10 of the highest priority Ready", "s")
ALL = Figure("boot.all", "start with 100 pods → all Ready", "s")
CLASS_SIZE = 10  # pods of each priority


async def boot(node: Node, samples: Samples, plan: Plan) -> None:
    """Start the agent while the API server has pods for it. Their names, by which it lists them, do not tell their
    priorities."""
    priorities = plan.large // CLASS_SIZE
    for number in range(priorities):
        await _make_class(node, number)
    await asyncio.to_thread(node.agent.stop)
    names = node.new_names("boot", plan.large)
    expected = [node.watch.pod(name, ready, "to be Ready") for name in names]
    pods = [node.pod(name, priorityClassName=_class(at % priorities)) for at, name in enumerate(names)]
    await asyncio.gather(*(node.post(pod) for pod in pods))
    began = node.agent.start()
    waits = [(await one.within(2 * MAX_POD_SECONDS)).at - began for one in expected]
    samples.sample(FIRST.key, max(waits[priorities - 1 :: priorities]))
    samples.sample(ALL.key, max(waits))
    for number in range(priorities):
        samples.detail("start with 100 pods → all of a priority Ready", _class(number), max(waits[number::priorities]))
    await node.delete_all()


def _class(number: int) -> str:
    return f"bench-{number}"


async def _make_class(node: Node, number: int) -> None:
    described = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 100 * number}
    try:
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        await node.admin.create(path, {**described, "metadata": {"name": _class(number)}})
    except ApiStatusError as error:
        if error.code != 409:  # an earlier round has made it
            raise


SCENARIOS = (Scenario("boot", boot, (FIRST, ALL), large=True),)
