"""Whether this node takes a pod on at all, and what of an admitted pod will have no effect (reference pods.md 3).

The verdict is saved with the pod's record, so that a restart never rejects a running pod.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`reason` "" = admitted; `without_effect` names parts of the spec that are accepted and do nothing yet."""

    reason: str = ""
    message: str = ""
    without_effect: tuple[str, ...] = ()


def _has_subpath(container: dict[str, Any]) -> bool:
    return any(m.get("subPath") or m.get("subPathExpr") for m in container.get("volumeMounts") or [])


def admit(pod: dict[str, Any]) -> Verdict:
    """Refuse what would run wrongly; name what would run without a part of its spec."""
    spec: dict[str, Any] = pod.get("spec") or {}
    containers: list[dict[str, Any]] = spec.get("containers") or []
    missing = [
        feature
        for feature, asked in (
            ("init containers", spec.get("initContainers")),
            ("container restart rules", any(c.get("restartPolicy") for c in containers)),
            ("dynamic resource claims", spec.get("resourceClaims")),
            ("user namespaces", spec.get("hostUsers") is False),
            ("block volumes", any(c.get("volumeDevices") for c in containers)),
            ("runtime classes", spec.get("runtimeClassName")),
            ("image volumes", any(v.get("image") for v in spec.get("volumes") or [])),
            ("subpaths of volumes", any(_has_subpath(c) for c in containers)),
        )
        if asked
    ]
    if missing:
        features = ", ".join(missing)
        return Verdict(
            reason="PodFeatureUnsupported",
            message=f"Pod requires node features that are not available: {features}",
        )
    os_name = (spec.get("os") or {}).get("name", "linux")
    if os_name != "linux":
        return Verdict(reason="PodOSNotSupported", message="Failed to admit pod as the OS field doesn't match node OS")
    idle = {
        part
        for container in containers
        for part in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
        if container.get(part)
    }
    if spec.get("activeDeadlineSeconds") is not None:
        idle.add("activeDeadlineSeconds")
    return Verdict(without_effect=tuple(sorted(idle)))
