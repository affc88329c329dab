"""Publishes the pods of all sources in `pods.desired`, and the statuses of API pods in `pods.api_status`."""

import logging
import time
from collections.abc import Callable, Iterable

from bus.interface import OwnedStream
from bus.messages.event import KubeEvent
from bus.messages.sources import ApiPodStatus, DesiredPod
from bus.stream import EventRecorder
from services.sources.core.desired_pods import (
    DesiredPods,
    Duplicate,
    MergeChange,
    PodDesired,
    PodRemoved,
    StatusChanged,
)
from shared.model import objects
from shared.model.fields import dictionary, text
from shared.model.objects import Object
from shared.podspec.pod_source import seen_text
from shared.time.clock import Clock
from shared.tracing.tracer import Tracer

log = logging.getLogger(__name__)


class DesiredSet:
    """The streams `pods.desired` and `pods.api_status`. Each source merges all of its pods, saves what must be on disk,
    and then publishes the changes."""

    def __init__(
        self,
        stream: OwnedStream[DesiredPod],
        api_statuses: OwnedStream[ApiPodStatus],
        events: EventRecorder,
        clock: Clock,
        sources: Iterable[str],
        tracer: Tracer | None = None,
    ) -> None:
        self._tracer = tracer or Tracer()
        self.pods = DesiredPods(frozenset(sources))
        self._stream, self._api_statuses, self._events, self._clock = stream, api_statuses, events, clock
        if self.pods.complete:
            stream.mark_complete()

    def merge(self, source: str, pods: Iterable[Object], *, recorded: str = "") -> list[MergeChange]:
        """Merge all pods of a source, and return the changes, which are not published yet. `recorded`: see
        `DesiredPods.merge`."""
        wall = self._clock.wall()
        seen = seen_text(round(wall * 1e9), time.localtime(wall).tm_gmtoff)
        return self.pods.merge(source, pods, seen=seen, recorded=recorded)

    def publish(
        self,
        source: str,
        changes: Iterable[MergeChange],
        *,
        complete: bool,
        before: Callable[[MergeChange], None] = lambda _: None,
    ) -> None:
        """Publish the changes in order; `before` is called with each one first. `complete`: the source passed all of
        its pods, so that a missing pod is gone."""
        for change in changes:
            before(change)
            self._publish(source, change)
        if complete:
            self.pods.note_complete(source)
            if source == "api":
                self._api_statuses.mark_complete()
        if self.pods.complete:
            self._stream.mark_complete()

    def _publish(self, source: str, change: MergeChange) -> None:
        what = "object" if source == "api" else "manifest"
        match change:
            case PodRemoved(uid):
                log.info("pod %s is no longer wanted: its %s is gone or changed", uid, what)
                with self._tracer.pod_changed(uid, "pod removed"):
                    self._stream.delete(uid, f"{what} gone or changed")
                self._api_statuses.delete(uid, f"{what} gone or changed")
            case PodDesired(desired, added):
                level = logging.INFO if added or source != "api" else logging.DEBUG
                log.log(level, "pod %s is wanted%s", objects.describe(desired.pod), "" if added else " as changed")
                self._put_api_status(desired)  # first, so that no follower of both has a status older than the pod
                with self._tracer.pod_changed(desired.uid, "pod added" if added else "pod changed") as span:
                    span.set("k8s.namespace.name", objects.namespace(desired.pod))
                    span.set("k8s.pod.name", objects.name(desired.pod))
                    cause = f"{what} added" if added else f"{what} changed"
                    if desired.recorded:
                        cause = f"in the record of {desired.recorded}; the API server does not answer"
                    self._stream.put(desired.uid, desired, cause)
            case StatusChanged(desired):
                self._put_api_status(desired)
                self._stream.refresh(desired.uid, desired)
            case Duplicate(pod, message):
                log.warning("%s", message)
                self._events.record(failed_validation(message, pod))

    def _put_api_status(self, desired: DesiredPod) -> None:
        if desired.source == "api":
            version = text(desired.pod["metadata"].get("resourceVersion"))
            known = ApiPodStatus(resource_version=version, status=dictionary(desired.pod.get("status")))
            self._api_statuses.put(desired.uid, known, "status changed")


def failed_validation(message: str, pod: Object | None) -> KubeEvent:
    """Return the kubelet's event for a pod of a source that is not accepted."""
    identity = {} if pod is None else {key: pod["metadata"].get(key, "") for key in ("namespace", "name", "uid")}
    return KubeEvent(type="Warning", reason="FailedValidation", message=message, **identity)
