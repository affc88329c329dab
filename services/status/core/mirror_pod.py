"""Mirror pods: what one looks like and what is to be done about it (pods.md 2, B.6). Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bus.messages.podsync import AdmittedPod, PodState
from bus.messages.sources import DesiredPod, MirrorPod
from services.status.core.pod_status_merge import is_terminal, status_of
from shared.model.objects import Object
from shared.podspec.pod_source import MIRROR

STATIC_SOURCES = ("file", "http")


class MirrorStep(StrEnum):
    """What is to be done about one full name."""

    NOTHING = "nothing"
    CREATE = "create"
    REPLACE = "replace"  # delete, then create
    DELETE = "delete"


@dataclass(frozen=True)
class StaticPods:
    """The static pods of one full name."""

    wanted: Object | None = None  # the one to be mirrored now
    hash: str = ""  # its UID
    kept: bool = False  # a mirror of this name is no orphan


def static_pods(
    key: str, desired: list[DesiredPod], admitted: list[AdmittedPod], mirror: MirrorPod | None
) -> StaticPods:
    """What is to be mirrored under this full name, of all the pods desired and admitted.

    A pod is mirrored once podsync has taken it on, or refused it, and while it is in its manifest; one that replaces
    another waits until that has ended. Of two manifests with one name, the one mirrored already goes first.
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
    """`node` as the API server has it, `status` podsync's of the static pod, {} when there is none.

    `certain`: desired, admitted and mirror pods are all known; nothing is deleted otherwise.
    """
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
    """The mirror is the one we would make. One that ended while its pod goes on is not: a phase never goes back."""
    metadata = mirror.pod.get("metadata") or {}
    owners = [reference.get("uid") for reference in _dicts(metadata.get("ownerReferences"))]
    revived = bool(status) and is_terminal(status_of(mirror.pod)) and not is_terminal(status)
    return (
        mirror.config_hash == static.hash
        and not metadata.get("deletionTimestamp")
        and owners in ([owner], [])  # none: created by an older kubelet, never garbage collected
        and not revived
    )


def node_uid(node: Object | None) -> str:
    """UID of a Node that may own something; "" when there is none or it is being deleted."""
    metadata = (node or {}).get("metadata")
    if not isinstance(metadata, dict) or metadata.get("deletionTimestamp"):
        return ""
    return str(metadata.get("uid") or "")


def mirror_pod(static: Object, config_hash: str, node_name: str, node_uid: str) -> Object:
    """The object to be created for a static pod."""
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
    """`<name>_<namespace>`, whatever the object looks like."""
    metadata = pod.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return f"{metadata.get('name', '')}_{metadata.get('namespace', '')}"


def _dicts(values: Any) -> list[Object]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
