"""Decides what is to be done about mirror pods, and makes them (pods.md 2, B.6). Pure."""

from enum import StrEnum

from msgspec import Struct

from bus.messages.podsync import AdmittedPod, PodState
from bus.messages.sources import DesiredPod, MirrorPod
from services.status.core.pod_status_merge import is_terminal, status_of
from shared.model.fields import dictionaries, dictionary
from shared.model.objects import Object
from shared.podspec.pod_source import MIRROR

STATIC_SOURCES = ("file", "http")


class MirrorStep(StrEnum):
    """What is to be done about the mirror pod of one full name."""

    NOTHING = "nothing"
    CREATE = "create"
    REPLACE = "replace"  # delete, then create
    DELETE = "delete"


class StaticPods(Struct, frozen=True):
    """The static pods of one full name."""

    wanted: Object | None = None  # the pod that is to be mirrored now
    hash: str = ""  # its UID
    kept: bool = False  # a mirror pod of this name is no orphan


def static_pods(
    key: str, desired: list[DesiredPod], admitted: list[AdmittedPod], mirror: MirrorPod | None
) -> StaticPods:
    """Return what is to be mirrored under this full name, given all desired and admitted pods.

    A pod is mirrored once podsync has admitted or rejected it, and while it is in its manifest. A pod that replaces
    another one waits until that has ended. Of two manifests with one name, the one that is mirrored already wins.
    """
    named = [pod for pod in desired if pod.source in STATIC_SOURCES and full_name(pod.pod) == key]
    taken = {pod.uid: pod for pod in admitted if pod.source in STATIC_SOURCES and f"{pod.name}_{pod.namespace}" == key}
    manifests = {pod.uid for pod in named}
    ending = any(uid not in manifests and not pod.finished for uid, pod in taken.items())
    candidates = sorted(uid for uid in manifests if uid in taken and (not taken[uid].finished or taken[uid].rejected))
    if ending or not candidates:
        return StaticPods(kept=bool(named) or ending)
    started = [uid for uid in candidates if taken[uid].state is not PodState.FINISHED]
    uid = mirror.config_hash if mirror and mirror.config_hash in candidates else (started or candidates)[0]
    return StaticPods(next(pod.pod for pod in named if pod.uid == uid), uid, kept=True)


def decide(
    static: StaticPods, mirror: MirrorPod | None, node: Object | None, status: Object, *, certain: bool
) -> MirrorStep:
    """Return what is to be done about the mirror pod. `node`: as the API server has it; `status`: podsync's status of
    the static pod, {} when there is none; `certain`: desired, admitted and mirror pods are all known, otherwise nothing
    is deleted."""
    if not static.kept:
        return MirrorStep.DELETE if mirror is not None and certain else MirrorStep.NOTHING
    if static.wanted is None or not node_uid(node):
        return MirrorStep.NOTHING
    if mirror is None:
        return MirrorStep.CREATE
    if not certain or _pictures(mirror, static, node_uid(node), status):
        return MirrorStep.NOTHING
    return MirrorStep.REPLACE


def _pictures(mirror: MirrorPod, static: StaticPods, owner: str, status: Object) -> bool:
    """Return whether the mirror pod is the one that we would make. One with a terminal phase whose pod goes on is not,
    because it can never show another phase."""
    metadata = mirror.pod.get("metadata") or {}
    owners = [reference.get("uid") for reference in dictionaries(metadata.get("ownerReferences"))]
    revived = bool(status) and is_terminal(status_of(mirror.pod)) and not is_terminal(status)
    return (
        mirror.config_hash == static.hash
        and not metadata.get("deletionTimestamp")
        and owners in ([owner], [])  # one without owners was created by an older kubelet, and is never collected
        and not revived
    )


def node_uid(node: Object | None) -> str:
    """Return the UID of a Node that may own objects; "" when there is none or it is being deleted."""
    metadata = dictionary((node or {}).get("metadata"))
    return "" if metadata.get("deletionTimestamp") else str(metadata.get("uid") or "")


def mirror_pod(static: Object, config_hash: str, node_name: str, node_uid: str) -> Object:
    """Return the mirror pod to be created for a static pod."""
    metadata = static.get("metadata") or {}
    owner = {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid, "controller": True}
    copied = {key: metadata[key] for key in ("name", "namespace", "labels") if metadata.get(key)}
    annotations = {**(metadata.get("annotations") or {}), MIRROR: config_hash}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**copied, "annotations": annotations, "ownerReferences": [owner]},
        "spec": static.get("spec") or {},
    }


def full_name(pod: Object) -> str:
    """Return `<name>_<namespace>` of an object of any shape."""
    metadata = dictionary(pod.get("metadata"))
    return f"{metadata.get('name', '')}_{metadata.get('namespace', '')}"
