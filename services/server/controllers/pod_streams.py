"""Follows the streams about the node's pods, and wakes the log followers of a pod that changes."""

import asyncio
from typing import Any

from bus.interface import Bus, Change, Deleted, FollowedStream, Put
from bus.messages.sources import DesiredPod
from bus.messages.streams import (
    NODE_RESOURCES,
    PODS_ADMITTED,
    PODS_API_STATUS,
    PODS_DESIRED,
    PODS_MIRRORS,
    PODS_STATUS,
    RUNTIME_PODS,
)
from shared.model.objects import Object
from shared.model.runtime import RuntimePod


class LogWakeups:
    """Has the log followers to wake when the runtime reports a change of their pod."""

    def __init__(self) -> None:
        self._events: dict[str, set[asyncio.Event]] = {}

    def add(self, uid: str, event: asyncio.Event) -> None:
        """Set `event` at each change of the pod from now on."""
        self._events.setdefault(uid, set()).add(event)

    def discard(self, uid: str, event: asyncio.Event) -> None:
        """Stop setting `event`."""
        events = self._events.get(uid, set())
        events.discard(event)
        if not events:
            self._events.pop(uid, None)

    def wake(self, uid: str) -> None:
        """Wake the followers of the pod, which has changed."""
        for event in self._events.get(uid, ()):
            event.set()

    def __len__(self) -> int:
        return sum(len(events) for events in self._events.values())


class PodStreams:
    """Has the followed streams. `known` is set once all are complete and in step; without a cluster the streams about
    pods of the API server are not needed."""

    def __init__(self, bus: Bus, *, joins_cluster: bool) -> None:
        self.known = asyncio.Event()
        self.wakers = LogWakeups()
        self.desired = bus.follow(PODS_DESIRED, self._changed)
        self.status = bus.follow(PODS_STATUS, self._changed)
        self.admitted = bus.follow(PODS_ADMITTED, self._changed)
        self.resources = bus.follow(NODE_RESOURCES, self._changed)
        self.runtime = bus.follow(RUNTIME_PODS, self._runtime_changed)
        self.mirrors = bus.follow(PODS_MIRRORS, self._changed)
        self.api_statuses = bus.follow(PODS_API_STATUS, self._changed)
        self._needed: list[FollowedStream[Any]] = [
            self.desired,
            self.status,
            self.runtime,
            self.admitted,
            self.resources,
        ]
        if joins_cluster:
            self._needed += [self.mirrors, self.api_statuses]

    def status_of(self, desired: DesiredPod) -> Object:
        """Return the pod status that podsync computed, else the newest one of the API server, else the pod's own."""
        computed, known = self.status.state.get(desired.uid), self.api_statuses.state.get(desired.uid)
        if computed is not None:
            return computed.status
        return known.status if known is not None else desired.pod.get("status") or {}

    def _changed(self, _: object) -> None:
        if all(stream.complete and not stream.stale for stream in self._needed):
            self.known.set()

    def _runtime_changed(self, change: Change[RuntimePod]) -> None:
        self._changed(change)
        if isinstance(change, Put | Deleted):
            self.wakers.wake(change.key)
