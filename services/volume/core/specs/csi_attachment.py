"""Reads what a CSI call needs from the VolumeAttachment and from Secrets, with the kubelet's texts (volumes.md 14.9);
pure."""

import base64
import binascii
from collections.abc import Mapping

from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import ContentError, FoundObject, Problem, SetUpInputs
from services.volume.core.specs.csi_volume import CsiVolume
from shared.model.fields import dictionary, text
from shared.model.objects import Object

_RESOURCE_EXHAUSTED = 8  # a gRPC code
_MISSING = FoundObject(problem=Problem("not requested"))


def publish_context_of(volume: CsiVolume, gathered: SetUpInputs) -> Mapping[str, str]:
    """Return the metadata of the attached volume, {} = it is not attached by a controller. Raises ContentError."""
    if not volume.attachment:
        return {}
    found = gathered.objects.get(ObjectKey("VolumeAttachment", "", volume.attachment), _MISSING)
    handle, name = volume.handle, volume.attachment
    if found.object is None:
        problem = found.problem or Problem("not found")
        why = f"volume {handle} has GET error for volume attachment {name}: {problem.text}"
        raise ContentError([Problem(why, problem.kind)])
    if dictionary(found.object.get("metadata")).get("deletionTimestamp"):
        raise ContentError([Problem("volume attachment is being deleted")])
    status = dictionary(found.object.get("status"))
    if status.get("attached") is not True:
        error = text(dictionary(status.get("attachError")).get("message"))
        raise ContentError([Problem(error or f"volume {handle} is not attached for volume attachment {name}")])
    return {str(key): str(value) for key, value in dictionary(status.get("attachmentMetadata")).items()}


def is_exhausted(attachment: Object | None) -> bool:
    """Return whether the volume is not attached because the node takes no further one (volumes.md 14.2)."""
    status = dictionary(dictionary(attachment).get("status"))
    error = dictionary(status.get("attachError"))
    return status.get("attached") is not True and error.get("errorCode") == _RESOURCE_EXHAUSTED


def secret_of(key: ObjectKey | None, what: str, gathered: SetUpInputs) -> Mapping[str, str]:
    """Return the values of a Secret for a driver, {} = none is named. `what`: the field that names it. Raises
    ContentError, whose text has no value."""
    if key is None:
        return {}
    found = gathered.objects.get(key, _MISSING)
    failed = f"fetching {what} {key.namespace}/{key.name} failed"
    if found.object is None:
        problem = found.problem or Problem("not found")
        raise ContentError([Problem(f"{failed}: {problem.text}", problem.kind)])
    values = {}
    for name, value in dictionary(found.object.get("data")).items():
        try:
            values[str(name)] = base64.b64decode(text(value), validate=True).decode("utf-8", "replace")
        except (binascii.Error, ValueError):
            raise ContentError([Problem(f"{failed}: value of key {name} is not base64")]) from None
    return values
