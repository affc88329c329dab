"""Decides what the record for a start without API server holds: pods, and the answers about objects that they need.

Of Secrets, ConfigMaps and claims only those that a pod of the record needs are kept, so that nothing stays on disk that
no pod names any more. Where not all fits, pods of low priority are left out, each with what it alone needs. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from bus.messages.sources import FoundObject, GetObject
from services.sources.core.api_objects import metadata_text
from services.sources.core.bound_claim import volume_name
from shared.model import objects
from shared.model.fields import dictionary, number, text
from shared.model.objects import Object
from shared.podspec.references import claim_names, referenced_objects
from shared.text.json_text import json_bytes

VERSION = 1
MAX_OBJECT_BYTES = 2 << 20  # of one pod or object; etcd has at most 1.5 MiB
# Objects without a Secret that are kept although no pod is known to need them, such as CSIDrivers, the last ones asked.
MAX_SHARED_OBJECTS = 500
UNWATCHED = ("PersistentVolumeClaim", "PersistentVolume", "VolumeSecret")  # no change of these need be reported
OF_PODS = ("Secret", "ConfigMap", *UNWATCHED)
# VolumeAttachments are not among them: while this node was away, the volume may have been attached to another one.
KINDS = frozenset(
    (
        *OF_PODS,
        *("CSIDriver", "RuntimeClass", "ServiceAccount", "ResourceClaim"),
        *("ClusterTrustBundle", "ClusterTrustBundleList", "NodeConfigMap"),
    )
)
_SECRETS_OF_DRIVERS = ("nodeStageSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef")

Key = tuple[str, str, str]  # kind, namespace, name


class KeptAnswer(Struct, frozen=True):
    """Has the answer to a request for an object. `object` None = the API server has none, and `error` is its text."""

    kind: str
    namespace: str
    name: str
    object: dict[str, Any] | None = None
    error: str = ""

    def __repr__(self) -> str:
        return f"KeptAnswer({self.kind} {self.namespace}/{self.name}, …)"

    @property
    def key(self) -> Key:
        """Return what was requested."""
        return self.kind, self.namespace, self.name

    @property
    def found(self) -> FoundObject:
        """Return the answer again."""
        return FoundObject(object=self.object, not_found=self.object is None, error=self.error)


class OfflineRecordData(Struct, frozen=True, kw_only=True):
    """The content of the record. `services`: by namespace, as in FoundServices."""

    version: int = VERSION
    saved: float = 0.0  # seconds since the epoch
    node: dict[str, Any] | None = None
    pods: list[dict[str, Any]] = msgspec.field(default_factory=list)
    answers: list[KeptAnswer] = msgspec.field(default_factory=list)
    services: dict[str, list[dict[str, Any]]] = msgspec.field(default_factory=dict)


def decode(content: Mapping[str, Any]) -> OfflineRecordData | None:
    """Return the content of a record, None where this version does not understand it."""
    if content.get("version") != VERSION:
        return None
    try:
        return msgspec.convert(content, OfflineRecordData)
    except msgspec.ValidationError:
        return None


def kept_answer(request: GetObject, found: FoundObject) -> KeptAnswer | None:
    """Return what the record keeps of an answer; None = nothing, because the API server did not answer, or the kind is
    not kept."""
    if request.kind not in KINDS or not (found.object is not None or found.not_found):
        return None
    return KeptAnswer(request.kind, request.namespace, request.name, found.object, found.error)


class FilledRecord(Struct, frozen=True, kw_only=True):
    """A record. `left_out`: pods without room, as log lines show them; `unneeded`: answers that no pod needs."""

    data: OfflineRecordData
    left_out: list[str]
    unneeded: set[Key]


def fill_record(
    pods: Sequence[Object],
    node: Object | None,
    answers: Mapping[Key, KeptAnswer],
    services: Mapping[str, Any],
    limit: int,
) -> FilledRecord:
    """Return the record of at most `limit` bytes, as JSON: pods with what they need, then Services, then other objects.
    `answers`: those requested last come last."""
    size = _size(node)
    chosen, taken, left_out = list[Object](), dict[Key, KeptAnswer](), list[str]()
    shared = [answer for answer in answers.values() if answer.kind not in OF_PODS][-MAX_SHARED_OBJECTS:]
    unneeded = answers.keys() - {answer.key for answer in shared}
    for pod in sorted(pods, key=_rank):
        needed = [key for key in needed_by(pod, answers) if key in answers]
        unneeded.difference_update(needed)
        more = {key: answers[key] for key in needed if key not in taken}
        sizes = [_size(part) for part in (pod, *more.values())]
        if size + sum(sizes) > limit or max(sizes) > MAX_OBJECT_BYTES:
            left_out.append(objects.describe(pod))
            continue
        size += sum(sizes)
        chosen.append(pod)
        taken |= more
    known, kept = dict[str, Any](), list[KeptAnswer]()
    for space, found in services.items():
        if size + (more_bytes := _size(found)) <= limit:
            size += more_bytes
            known[space] = found
    for answer in reversed(shared):
        if size + (more_bytes := _size(answer)) <= limit and more_bytes <= MAX_OBJECT_BYTES:
            size += more_bytes
            kept.insert(0, answer)
    data = OfflineRecordData(node=node, pods=chosen, answers=[*kept, *taken.values()], services=known)
    return FilledRecord(data=data, left_out=left_out, unneeded=unneeded)


def _size(part: Any) -> int:
    return len(json_bytes(part))


def _rank(pod: Object) -> tuple[int, str, str]:
    """Return the order of pods: those of high priority first, then the oldest."""
    priority = number(dictionary(pod.get("spec")).get("priority")) or 0
    return -priority, metadata_text(pod, "creationTimestamp"), objects.describe(pod)


def needed_by(pod: Object, answers: Mapping[Key, KeptAnswer]) -> list[Key]:
    """Return the Secrets, ConfigMaps, claims and volumes that the pod needs, as far as the answers name them."""
    space = objects.namespace(pod)
    keys: list[Key] = [(one.kind, one.namespace, one.name) for one in referenced_objects(pod)]
    for name in claim_names(pod):
        claim = ("PersistentVolumeClaim", space, name)
        volume = ("PersistentVolume", "", volume_name(answers[claim].object if claim in answers else None))
        spec = dictionary(_object(answers.get(volume)).get("spec"))
        driver = dictionary(spec.get("csi"))
        secrets = [dictionary(driver.get(field)) for field in _SECRETS_OF_DRIVERS]
        for source in ("flexVolume", "iscsi"):
            if reference := dictionary(dictionary(spec.get(source)).get("secretRef")):
                secrets.append({**reference, "namespace": text(reference.get("namespace")) or space})
        keys += [
            claim,
            volume,
            *(("VolumeSecret", text(one.get("namespace")), text(one.get("name"))) for one in secrets),
        ]
    return [key for key in dict.fromkeys(keys) if key[2]]


def _object(answer: KeptAnswer | None) -> Object:
    return dictionary(answer.object if answer is not None else None)
