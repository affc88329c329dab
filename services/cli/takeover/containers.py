"""Reads the containers of the node from the runtime before, during and after a switch, and compares them."""

import asyncio
from collections.abc import Iterable

from msgspec import Struct

from services.cli.takeover.record import SeenContainer
from services.frame.container_runtime import runtime_at
from shared.cri.interface import RuntimeCallError
from shared.errors import OperatorError
from shared.model.runtime import ContainerState

TIMEOUT_SECONDS = 20.0  # for one look at the runtime


class Change(Struct, frozen=True, kw_only=True):
    """What became of the containers that ran before. `restarted`: pods that now run another container, or will be
    started again; `ended`: the other pods in which a container has ended."""

    kept: int
    restarted: tuple[str, ...]
    ended: tuple[str, ...]


def running_containers(endpoint: str) -> tuple[SeenContainer, ...]:
    """Return the containers of pods that the runtime runs now. Raises OperatorError."""
    try:
        return asyncio.run(_running(endpoint))
    except TimeoutError:
        what = f"has not answered within {TIMEOUT_SECONDS:.0f} s"
    except RuntimeCallError as error:
        what = f"does not answer: {error}"
    raise OperatorError(what, where=f"the container runtime at {endpoint}", remedy="systemctl status containerd")


def compare(
    before: Iterable[SeenContainer], now: Iterable[SeenContainer], static: frozenset[str] = frozenset()
) -> Change:
    """Compare the containers that ran before with those that run now. `static`: pods that are started again."""
    now = tuple(now)
    ids, pods = {one.id for one in now}, {one.pod for one in now} | static
    before = tuple(before)
    gone = {one.pod for one in before if one.id not in ids}
    return Change(
        kept=sum(one.id in ids for one in before),
        restarted=tuple(sorted(gone & pods)),
        ended=tuple(sorted(gone - pods)),
    )


async def _running(endpoint: str) -> tuple[SeenContainer, ...]:
    runtime = runtime_at(endpoint, TIMEOUT_SECONDS)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            pods = await runtime.observe()
    finally:
        await runtime.close()
    return tuple(
        SeenContainer(id=one.id, name=one.name, pod=f"{pod.namespace}/{pod.name}")
        for pod in pods.values()
        for one in pod.containers
        if one.state is ContainerState.RUNNING
    )
