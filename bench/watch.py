"""Times everything in one client: watches the pods and the nodes, and dates each event when it arrives.

Waiters are registered before the act they wait for, so nothing is missed and nothing is polled.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from bench.errors import BenchError
from shared.kube import paths
from shared.kube.interface import ApiClient, ApiError
from shared.model.objects import Object, name

Test = Callable[[str, Object], bool]  # event type, object


@dataclass(frozen=True)
class Seen:
    """An event that met a test. `at`: CLOCK_MONOTONIC seconds when this client received it."""

    at: float
    object: Object


@dataclass(frozen=True)
class _Waiter:
    path: str
    name: str
    test: Test
    future: "asyncio.Future[Seen]"


class Expectation:
    """An event that a scenario waits for; `what` names it in the error when it does not arrive."""

    def __init__(self, future: "asyncio.Future[Seen]", what: str) -> None:
        self._future, self._what = future, what

    async def within(self, seconds: float) -> Seen:
        """Return the event. Raises BenchError when it does not arrive in time, or the watch broke."""
        try:
            return await asyncio.wait_for(self._future, seconds)
        except TimeoutError:
            raise BenchError(f"waited {seconds:.0f} s for {self._what}") from None


class Watch:
    """`async with Watch(admin) as watch:`; `pods` and `nodes` hold the newest versions by name."""

    def __init__(self, admin: ApiClient) -> None:
        self._admin = admin
        self.pods: dict[str, Object] = {}
        self.nodes: dict[str, Object] = {}
        # Called for each event with type, object and moment.
        self.listeners: list[Callable[[str, Object, float], None]] = []
        self._waiters: list[_Waiter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._broken: str = ""

    async def __aenter__(self) -> Self:
        for path, objects in ((paths.pods("default"), self.pods), (paths.NODES, self.nodes)):
            listed = await self._admin.get(path)
            objects.update({name(item): item for item in listed.get("items") or ()})
            version = str(listed["metadata"]["resourceVersion"])
            self._tasks.append(asyncio.create_task(self._follow(path, objects, version)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def pod(self, pod: str, test: Test, what: str) -> Expectation:
        """Return the next event of this pod that meets the test."""
        return self._expect(paths.pods("default"), pod, test, f"pod {pod} {what}")

    def node(self, node: str, test: Test, what: str) -> Expectation:
        """Return the next event of this node that meets the test."""
        return self._expect(paths.NODES, node, test, f"node {node} {what}")

    def _expect(self, path: str, name: str, test: Test, what: str) -> Expectation:
        future: asyncio.Future[Seen] = asyncio.get_running_loop().create_future()
        if self._broken:
            raise BenchError(self._broken)
        self._waiters.append(_Waiter(path, name, test, future))
        return Expectation(future, what)

    async def _follow(self, path: str, objects: dict[str, Object], version: str) -> None:
        try:
            while True:
                query = {"resourceVersion": version, "allowWatchBookmarks": "true"}
                async with self._admin.watch(path, query, timeout=3600) as stream:
                    async for event in stream:
                        at = time.monotonic()
                        version = str(event.object["metadata"]["resourceVersion"])
                        if event.type != "BOOKMARK":
                            self._take(path, objects, event.type, event.object, at)
        except ApiError as error:
            self._broken = f"the watch on {path} broke: {error}"
            for waiter in self._waiters:
                if not waiter.future.done():
                    waiter.future.set_exception(BenchError(self._broken))

    def _take(self, path: str, objects: dict[str, Object], kind: str, obj: Object, at: float) -> None:
        found = name(obj)
        if kind == "DELETED":
            objects.pop(found, None)
        else:
            objects[found] = obj
        waiting = []
        for waiter in self._waiters:
            if waiter.future.done():
                continue
            if waiter.path == path and waiter.name == found and waiter.test(kind, obj):
                waiter.future.set_result(Seen(at, obj))
            else:
                waiting.append(waiter)
        self._waiters = waiting
        for listener in self.listeners:
            listener(kind, obj, at)


def ready(kind: str, obj: Object) -> bool:
    """Return whether the pod or node has the condition Ready and is not being deleted."""
    return kind != "DELETED" and "deletionTimestamp" not in obj["metadata"] and _ready(obj)


def gone(kind: str, obj: Object) -> bool:
    """Return whether the object was deleted from the API."""
    return kind == "DELETED"


def terminated(kind: str, obj: Object) -> bool:
    """Return whether the first container has terminated."""
    return kind != "DELETED" and "terminated" in first_container(obj).get("state", {})


def restarted(kind: str, obj: Object) -> bool:
    """Return whether the first container runs again."""
    container = first_container(obj)
    return kind != "DELETED" and container.get("restartCount", 0) >= 1 and "running" in container.get("state", {})


def first_container(pod: Object) -> dict[str, Any]:
    """Return the first container's status, {} where there is none."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return dict(statuses[0])


def _ready(obj: Object) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
