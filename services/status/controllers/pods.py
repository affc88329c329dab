"""Follows the streams of pods, and brings their statuses and mirror pods up to date in the API server."""

import asyncio
from typing import Any

from bus.interface import Change, Deleted, Put
from bus.messages.podsync import AdmittedPod, PodStatus
from bus.messages.sources import ApiPodStatus, DesiredPod, MirrorPod
from bus.messages.streams import (
    NODE_OBJECT,
    PODS_ADMITTED,
    PODS_API_STATUS,
    PODS_DESIRED,
    PODS_MIRRORS,
    PODS_STATUS,
)
from services.frame.launch import Context
from services.status.adapters.clients import Clients
from services.status.controllers.mirror_pods import MirrorPods
from services.status.controllers.pod_statuses import PodStatuses
from services.status.controllers.pod_streams import PodStreams
from services.status.controllers.request_workers import RequestWorkers
from services.status.core.mirror_pod import STATIC_SOURCES, full_name
from shared.kube.interface import ApiError
from shared.metrics.family import histogram
from shared.time.backoff import Backoff

DURATION = histogram(
    "kubelet_pod_status_sync_duration_seconds",
    "Time from the change of a pod's status until the API server has it.",
    buckets=(0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0),
)
# The delays after a mirror pod was refused; the kubelet tries at each sync of the pod, every 60 to 90 s (pods.md 2).
REFUSED_MIRRORS = Backoff(initial=0.5, cap=60.0, factor=3.0)
MIRROR_SPREAD = 0.5  # the random part of a delay; a policy that refuses mirror pods refuses those of all nodes at once
COMPARE_SECONDS = 10.0  # between two comparisons of everything; equal statuses cost no request


class Pods:
    """The part of status that writes pods' statuses and mirror pods, where there is an API server."""

    def __init__(self, context: Context, clients: Clients) -> None:
        bus, clock, self._tracer = context.bus, context.clock, context.tracer
        self._clock, self._duration = clock, context.metrics.histogram(DURATION)
        self._changed: dict[str, float] = {}  # UID of a pod whose status changed -> CLOCK_MONOTONIC seconds
        streams = PodStreams(
            statuses=bus.follow(PODS_STATUS, self._on_status),
            admitted=bus.follow(PODS_ADMITTED, self._on_admitted),
            desired=bus.follow(PODS_DESIRED, self._on_desired),
            api_statuses=bus.follow(PODS_API_STATUS, self._on_api_status),
            mirrors=bus.follow(PODS_MIRRORS, self._on_mirror),
            node=bus.follow(NODE_OBJECT, self._on_node),
        )
        self._statuses = PodStatuses(clients.kube, clock, streams)
        self._mirrors = MirrorPods(clients.kube, clock, streams, context.config.node_name)
        self._status_workers = RequestWorkers(
            "the status", clock, self._bring_status, lambda: bus.progress("pod statuses")
        )
        self._mirror_workers = RequestWorkers(
            "the mirror pod",
            clock,
            self._mirrors.bring_up_to_date,
            lambda: bus.progress("mirror pods"),
            retries=REFUSED_MIRRORS,
            spread=MIRROR_SPREAD,
        )

    @property
    def is_written(self) -> bool:
        """Whether the API server has every status and mirror pod that this process knows."""
        return self._status_workers.is_idle and self._mirror_workers.is_idle

    async def run(self) -> None:
        """Bring statuses and mirror pods up to date until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._status_workers.run())
            tasks.create_task(self._mirror_workers.run())
            while True:
                self._compare_all()
                await asyncio.sleep(COMPARE_SECONDS)

    async def _bring_status(self, uid: str) -> bool:
        changed_at = self._changed.pop(uid, None)
        try:
            with self._tracer.within(uid):
                asked = await self._statuses.bring_up_to_date(uid)
        except ApiError:
            if changed_at is not None:
                self._changed[uid] = changed_at  # it is tried again
            raise
        if asked and changed_at is not None:
            self._duration.observe(self._clock.monotonic() - changed_at)
        return asked

    def _compare_all(self) -> None:
        self._statuses.forget_gone()
        for uid in self._statuses.keys():  # noqa: SIM118 (no mapping)
            self._status_workers.add(uid)
        self._compare_mirrors()

    def _compare_mirrors(self) -> None:
        for key in self._mirrors.keys():  # noqa: SIM118 (no mapping)
            self._mirror_workers.add(key)

    def _on_status(self, change: Change[PodStatus]) -> None:
        match change:
            case Put(uid):
                self._changed.setdefault(uid, self._clock.monotonic())
                self._status_workers.add(uid)
            case Deleted(uid):
                self._changed.pop(uid, None)
                self._status_workers.add(uid)
            case _:
                self._compare_all()

    def _on_api_status(self, change: Change[ApiPodStatus]) -> None:
        match change:
            case Put(uid) | Deleted(uid):
                self._status_workers.add(uid)
            case _:
                self._compare_all()

    def _on_admitted(self, change: Change[AdmittedPod]) -> None:
        self._on_pod(change)

    def _on_desired(self, change: Change[DesiredPod]) -> None:
        self._on_pod(change)

    def _on_pod(self, change: Change[AdmittedPod] | Change[DesiredPod]) -> None:
        match change:
            case Put(uid, pod):
                self._status_workers.add(uid)
                if pod.source in STATIC_SOURCES:
                    if isinstance(pod, DesiredPod):  # another manifest may be accepted
                        self._mirror_workers.add(full_name(pod.pod), at_once=True)
                    self._compare_mirrors()
            case Deleted(uid):
                self._status_workers.add(uid)
                self._compare_mirrors()
            case _:
                self._compare_all()

    def _on_mirror(self, change: Change[MirrorPod]) -> None:
        match change:
            case Put(key, mirror):
                self._status_workers.add(mirror.config_hash)
                self._mirrors.shown(key)
                self._mirror_workers.add(key, at_once=True)
            case Deleted(key):
                self._mirrors.shown(key)
                self._mirror_workers.add(key, at_once=True)
            case _:
                self._compare_all()

    def _on_node(self, change: Change[Any]) -> None:
        self._compare_mirrors()
