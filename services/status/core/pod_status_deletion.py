"""Decides when the API object of a pod that is being deleted may be removed (pods.md 8.6). Pure."""

from bus.messages.podsync import AdmittedPod
from services.status.core.pod_status_baseline import metadata
from services.status.core.pod_status_merge import is_terminal, status_of
from shared.model.objects import Object
from shared.podspec.pod_source import MIRROR


def may_be_deleted(pod: Object, admitted: AdmittedPod | None, *, admitted_is_all: bool) -> bool:
    """Return whether the API object may be removed now. `pod`: as the API server last had it; `admitted`: what podsync
    publishes of it, None = nothing; `admitted_is_all`: podsync's list is fresh and complete, otherwise nothing is
    deleted."""
    if not admitted_is_all or not metadata(pod).get("deletionTimestamp") or not is_terminal(status_of(pod)):
        return False
    annotations = metadata(pod).get("annotations")
    if isinstance(annotations, dict) and MIRROR in annotations:
        return False
    return admitted is None or admitted.finished


def delete_now(uid: str) -> Object:
    """Return the DeleteOptions that remove only this very object, without a grace period."""
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": uid},
    }
