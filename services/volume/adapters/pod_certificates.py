"""Gets certificates of pods for projected volumes: makes keys, requests certificates through status and reads the
results through sources. What is due is decided by core/files/pod_certificates.py."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Container

from bus.interface import Bus, NoAnswerError, RequestRefusedError
from bus.messages.event import KubeEvent
from bus.messages.sources import REQUESTED_READ_TIMEOUT_SECONDS, FoundObject, GetObject
from bus.messages.status import REQUESTED_WRITE_TIMEOUT_SECONDS, RequestedPodCertificate, RequestPodCertificate
from services.volume.adapters.certificate_keys import KeyAndRequest, new_key
from services.volume.core.files.payload import FailureKind, FoundCertificate, Problem
from services.volume.core.files.pod_certificates import (
    NOT_ISSUED,
    REQUEST,
    CertificateKey,
    Projection,
    Step,
    aged,
    answered,
    look_again_at,
    next_step,
    object_key,
    request_spec,
    requested,
    state_of,
)
from shared.model import objects
from shared.model.objects import Object
from shared.time.clock import Clock

log = logging.getLogger(__name__)


class _UnansweredError(Exception):
    """Another process or the API server refused, or did not answer; the text is for the log."""


class PodCertificates:
    """Keeps the certificates of pods and renews them.

    `node`: the name of the Node; `chance` returns a new number in [0, 1) at each call; `on_event` receives the events
    to record.
    """

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        node: str,
        chance: Callable[[], float],
        make_key: Callable[[str], KeyAndRequest] = new_key,
    ) -> None:
        self.on_event: Callable[[KubeEvent], None] = lambda _: None
        self._bus, self._clock, self._node, self._chance, self._make_key = bus, clock, node, chance, make_key
        self._projections: dict[CertificateKey, Projection] = {}

    async def get(self, key: CertificateKey) -> tuple[FoundCertificate, float]:
        """Return the certificate, or why there is none, and the monotonic time at which to look again. A change of the
        pending request ends the wait: see `waiting`."""
        try:
            if next_step(self._projection_of(key), self._clock.wall()) is Step.REQUEST:
                await self._request(key)
            if next_step(self._projection_of(key), self._clock.wall()) is Step.READ:
                await self._read(key)
        except _UnansweredError as error:
            log.warning("certificate %d of volume %s, pod %s: %s", key.index, key.volume, key.pod_uid, error)
        wall, now = self._clock.wall(), self._clock.monotonic()
        self._take(key, *aged(self._projection_of(key), key, wall))
        projection = self._projection_of(key)
        at = now + max(0.0, look_again_at(projection, wall) - wall)
        if projection.refused:
            return FoundCertificate(problem=Problem(projection.refused)), at
        if projection.credential is None:
            return FoundCertificate(problem=Problem(NOT_ISSUED, FailureKind.LAGGING)), at
        return FoundCertificate(projection.credential), at

    def waiting(self, changed: str) -> list[tuple[str, str]]:
        """Return the pod UID and the name of each volume that waits for the object with this key in
        `objects.changed`."""
        if not changed.startswith(f"{REQUEST}/"):
            return []
        return [
            (key.pod_uid, key.volume)
            for key, projection in self._projections.items()
            if projection.pending is not None and str(object_key(key, projection.pending.name)) == changed
        ]

    def states(self) -> Counter[tuple[str, str]]:
        """Return how many projections of each signer are in each state, as the kubelet's metric names it."""
        wall = self._clock.wall()
        return Counter((key.signer, state_of(found, wall)) for key, found in self._projections.items())

    def keep(self, pod_uids: Container[str]) -> None:
        """Forget the certificates of all pods but these."""
        self._projections = {key: found for key, found in self._projections.items() if key.pod_uid in pod_uids}

    def forget(self, pod_uid: str) -> None:
        """Forget the certificates of a pod whose volumes are torn down."""
        self._projections = {key: found for key, found in self._projections.items() if key.pod_uid != pod_uid}

    def _projection_of(self, key: CertificateKey) -> Projection:
        return self._projections.get(key, Projection())

    def _take(self, key: CertificateKey, projection: Projection, events: tuple[KubeEvent, ...] = ()) -> None:
        self._projections[key] = projection
        for event in events:
            self.on_event(event)

    async def _request(self, key: CertificateKey) -> None:
        """Create a PodCertificateRequest. Its name follows from its private key, so that a create which is repeated
        finds the request of the first one."""
        account = await self._object("ServiceAccount", key.namespace, key.service_account)
        node = await self._object("Node", "", self._node)
        if account is None or node is None:
            raise _UnansweredError("the service account or the Node is absent")
        try:
            new = await asyncio.to_thread(self._make_key, key.key_type)
        except ValueError as error:
            raise _UnansweredError(f"while generating keypair: {error}") from None
        ids = {"account_uid": objects.uid(account), "node_uid": objects.uid(node)}
        spec = request_spec(key, node=self._node, stub=new.stub, **ids)
        request = RequestPodCertificate(
            namespace=key.namespace, name=f"req-{new.digest[:32]}", pod=key.pod, pod_uid=key.pod_uid, spec=spec
        )
        try:
            answer = await self._bus.ask("status", request, RequestedPodCertificate, REQUESTED_WRITE_TIMEOUT_SECONDS)
        except (NoAnswerError, RequestRefusedError) as error:
            raise _UnansweredError(str(error)) from None
        if answer.error:
            raise _UnansweredError(f"while creating on API: {answer.error}")
        wall, chance = self._clock.wall(), self._chance()
        self._take(key, requested(self._projection_of(key), request.name, new.private_key, wall=wall, chance=chance))

    async def _read(self, key: CertificateKey) -> None:
        pending = self._projection_of(key).pending
        assert pending is not None
        found = await self._object(REQUEST, key.namespace, pending.name)
        wall, chance = self._clock.wall(), self._chance()
        self._take(key, *answered(self._projection_of(key), found, key, wall=wall, chance=chance))

    async def _object(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return the object; None = the API server has none."""
        request = GetObject(kind=kind, namespace=namespace, name=name)
        try:
            found = await self._bus.ask("sources", request, FoundObject, REQUESTED_READ_TIMEOUT_SECONDS)
        except (NoAnswerError, RequestRefusedError) as error:
            raise _UnansweredError(str(error)) from None
        if found.object is None and not found.not_found:
            raise _UnansweredError(found.error)
        return found.object
