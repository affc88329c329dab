"""Creates, replaces and deletes mirror pods, so that the API server shows every static pod (pods.md 2)."""

import logging

from bus.messages.sources import MirrorPod
from services.status.controllers.pod_streams import PodStreams
from services.status.core.mirror_pod import (
    STATIC_SOURCES,
    MirrorStep,
    StaticPods,
    decide,
    full_name,
    mirror_pod,
    node_uid,
    static_pods,
)
from services.status.core.pod_status_deletion import delete_now
from shared.kube import paths
from shared.kube.interface import READ_TIMEOUT_SECONDS, WRITE_TIMEOUT_SECONDS, ApiClient, ApiError, ApiStatusError
from shared.model.objects import annotations
from shared.podspec.pod_source import MIRROR
from shared.time.clock import Clock

log = logging.getLogger(__name__)

_MAX_WATCH_SECONDS = 10.0  # within which the watch shows the effect of our request


class MirrorPods:
    """Brings mirror pods up to date, for each full name one request at a time
    (`services.status.controllers.request_workers`)."""

    def __init__(self, client: ApiClient, clock: Clock, followed: PodStreams, node_name: str) -> None:
        self._client, self._clock, self._followed, self._node_name = client, clock, followed, node_name
        self._unseen: dict[
            str, float
        ] = {}  # full name -> when it is compared again although no watch showed our change

    def keys(self) -> set[str]:
        """Return the full names for which there may be something to do."""
        followed = self._followed
        named = {full_name(pod.pod) for pod in followed.desired.state.values() if pod.source in STATIC_SOURCES}
        taken = {f"{p.name}_{p.namespace}" for p in followed.admitted.state.values() if p.source in STATIC_SOURCES}
        return {*named, *taken, *followed.mirrors.state}

    def shown(self, key: str) -> None:
        """Note that the watch has shown a change of the mirror pod."""
        self._unseen.pop(key, None)

    async def bring_up_to_date(self, key: str) -> bool:
        """Create, replace or delete the mirror pod if that is due; return whether a request was sent. Raises
        ApiError."""
        followed = self._followed
        if self._clock.monotonic() < self._unseen.get(key, 0.0) or not followed.mirrors_are_all:
            return False
        self._unseen.pop(key, None)
        mirror = followed.mirrors.state.get(key)
        static = static_pods(key, list(followed.desired.state.values()), list(followed.admitted.state.values()), mirror)
        status = followed.statuses.state.get(static.hash)
        step = decide(
            static,
            mirror,
            followed.node_object(),
            status.status if status is not None else {},
            certain=followed.desired_is_all and followed.admitted_is_all,
        )
        if step is MirrorStep.NOTHING:
            return False
        try:
            if mirror is not None:
                self._expect(key)
                await self._delete(mirror)
            if step is not MirrorStep.DELETE:
                self._expect(key)
                await self._create(static)
        except ApiError:
            self._unseen.pop(key, None)
            raise
        return True

    def _expect(self, key: str) -> None:
        """Note a request before it is sent, because the watch may show its effect before its answer arrives."""
        self._unseen[key] = self._clock.monotonic() + _MAX_WATCH_SECONDS

    async def _delete(self, mirror: MirrorPod) -> None:
        path = paths.pod(mirror.namespace, mirror.name)
        try:
            await self._client.delete(path, delete_now(mirror.uid), timeout=WRITE_TIMEOUT_SECONDS)
        except ApiStatusError as error:
            if not (error.not_found or error.conflict):
                raise
        log.info("mirror pod %s_%s(%s) is deleted", mirror.name, mirror.namespace, mirror.uid)

    async def _create(self, static: StaticPods) -> None:
        assert static.wanted is not None
        body = mirror_pod(static.wanted, static.hash, self._node_name, node_uid(self._followed.node_object()))
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        try:
            await self._client.create(paths.pods(namespace), body, timeout=WRITE_TIMEOUT_SECONDS)
        except ApiStatusError as error:
            if not error.already_exists:
                raise
            taken = ApiError(f"the name {name} is taken in namespace {namespace}")
            try:
                found = await self._client.get(paths.pod(namespace, name), timeout=READ_TIMEOUT_SECONDS)
            except ApiStatusError as unreadable:
                raise (taken if unreadable.unrelated else unreadable) from error  # unrelated: a pod of another node
            if annotations(found).get(MIRROR) != static.hash or found["metadata"].get("deletionTimestamp"):
                raise taken from error
            return
        log.info("mirror pod %s_%s is created for static pod %s", name, namespace, static.hash)
