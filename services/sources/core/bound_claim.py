"""Decides whether a PersistentVolumeClaim and its PersistentVolume are bound to each other; pure."""

from services.sources.core.api_objects import metadata_text
from shared.model.fields import dictionary, text
from shared.model.objects import Object


def volume_name(claim: Object | None) -> str:
    """Return spec.volumeName of a claim, "" where it has none."""
    return text(dictionary((claim or {}).get("spec")).get("volumeName"))


def is_settled(claim: Object | None, volume: Object | None) -> bool:
    """Return whether a pod can use the claim: it is bound, and its volume names it."""
    status, spec = dictionary((claim or {}).get("status")), dictionary((volume or {}).get("spec"))
    reference = spec.get("claimRef")
    if status.get("phase") != "Bound" or not isinstance(reference, dict):
        return False
    return bool(reference.get("uid") == metadata_text(claim, "uid"))
