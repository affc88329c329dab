"""Whether a PersistentVolumeClaim and its PersistentVolume are bound to each other; pure."""

from services.sources.core.api_objects import metadata_text
from shared.model.objects import Object


def volume_name(claim: Object | None) -> str:
    """Return spec.volumeName of a claim, "" where it has none."""
    spec = (claim or {}).get("spec")
    name = spec.get("volumeName") if isinstance(spec, dict) else None
    return name if isinstance(name, str) else ""


def is_settled(claim: Object | None, volume: Object | None) -> bool:
    """Return whether a pod can use the claim: it is bound, and its volume names it."""
    status, spec = (claim or {}).get("status"), (volume or {}).get("spec")
    if not isinstance(status, dict) or status.get("phase") != "Bound" or not isinstance(spec, dict):
        return False
    reference = spec.get("claimRef")
    return isinstance(reference, dict) and reference.get("uid") == metadata_text(claim, "uid")
