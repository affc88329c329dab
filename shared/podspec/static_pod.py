"""Static pods: from a decoded manifest to the valid pod this node runs, with the identity it keeps (pods.md 1.2).

Only sources imports this, for it brings the validation of pods with it; what a static pod is, is in `pod_source`.
"""

from typing import Any

from shared.model.objects import Object, name
from shared.podspec.defaults import apply_defaults
from shared.podspec.hashing import content_hash
from shared.podspec.pod_source import HASH, MIRROR, SOURCE
from shared.podspec.references import api_reference
from shared.podspec.schema import plain_copy, shown, type_errors
from shared.podspec.validation import validate_pod
from shared.text.json_text import json_bytes

MAX_POD_BYTES = 8 << 20  # of the JSON of a pod with defaults; a message between processes may have twice as many

_MAX_ERRORS = 20  # of one pod; their text is in the log, the beats and an event
_NO_EXECUTE = {"operator": "Exists", "effect": "NoExecute"}
_ORIGIN = {"file": "file", "http": "url"}


class InvalidPod(Exception):  # noqa: N818 - the term of Kubernetes: "invalid pod: …"
    """The manifest is no pod this node can run. `str()` is one line with the kubelet's text."""


def static_pod(document: object, *, node_name: str, source: str, origin: str, objects: bool = False) -> Object:
    """Return the pod of a manifest: defaulted, named for this node, validated; `document` is left as it was.

    `source` is "file" or "http", `origin` the file's path or the URL; `objects`: it may name ConfigMaps and Secrets.
    Equal content from the same origin on the same node gives the same UID, whenever and by whichever process it is
    read. Raises InvalidPod.
    """
    pod = _decoded(document)
    apply_defaults(pod)
    if not name(pod):
        raise InvalidPod("invalid pod: name is needed for the pod")
    metadata: dict[str, Any] = pod["metadata"]
    if MIRROR in (metadata.get("annotations") or {}):
        raise InvalidPod(f"invalid pod: metadata.annotations[{MIRROR}]: Forbidden: it marks a mirror pod (remove it)")
    if not metadata.get("uid"):
        metadata["uid"] = f"{content_hash(pod, f'host:{node_name}', f'{_ORIGIN[source]}:{origin}'):032x}"
    metadata["name"] = f"{metadata['name']}-{node_name.lower()}"
    metadata["namespace"] = metadata.get("namespace") or "default"
    pod["spec"]["nodeName"] = node_name
    metadata["annotations"] = {**(metadata.get("annotations") or {}), HASH: metadata["uid"], SOURCE: source}
    if source == "file":
        pod["spec"]["tolerations"] = [*(pod["spec"].get("tolerations") or ()), dict(_NO_EXECUTE)]
    pod["status"] = {"phase": "Pending"}
    if errors := validate_pod(pod):
        raise InvalidPod(_invalid(errors))
    if what := api_reference(pod, objects=objects):
        raise InvalidPod(f"static pods may not reference {what}")
    if (size := len(json_bytes(pod))) > MAX_POD_BYTES:
        raise InvalidPod(f"invalid pod: it has {size} bytes with defaults, {MAX_POD_BYTES} are the most")
    return pod


def _decoded(document: object) -> Object:
    if not isinstance(document, dict):
        raise InvalidPod(f"invalid pod: the document is {_described(document)}, not an object of kind Pod")
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind != "Pod" or version != "v1":
        raise InvalidPod(f"invalid pod: apiVersion {shown(version)}, kind {shown(kind)}; must be v1 and Pod")
    pod, errors = plain_copy(document)
    if errors := errors or type_errors(pod):
        raise InvalidPod(_invalid(errors))
    decoded: Object = pod
    decoded.setdefault("metadata", {})
    return decoded


def _invalid(errors: list[str]) -> str:
    listed = errors[:_MAX_ERRORS]
    if len(errors) > len(listed):
        listed.append(f"and {len(errors) - len(listed)} more errors")
    return f"invalid pod: [{', '.join(listed)}]"


def _described(document: object) -> str:
    if document is None:
        return "empty"
    return "a list" if isinstance(document, list) else "a bare value"
