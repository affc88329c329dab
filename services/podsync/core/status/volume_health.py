"""Makes `volumeHealth` of a pod's status: the adverse conditions of its volumes, as their CSI drivers report them
(feature gate CSIVolumeHealth of Kubernetes 1.37). Pure.

What did not change is shown as before, so that a reading alone writes no status.
"""

from typing import Any

from bus.messages.volume import MountedVolumes
from shared.model.fields import dictionaries, text
from shared.model.objects import Object
from shared.time.timestamps import rfc3339


def volume_health(volumes: MountedVolumes | None, shown: Object, *, now: float) -> list[Object]:
    """Return the entries of the volumes that have an adverse condition, by name. `shown`: the status before; `now`:
    seconds since the epoch."""
    before = {text(entry.get("name")): entry for entry in dictionaries(shown.get("volumeHealth"))}
    found = []
    for name, volume in sorted(volumes.volumes.items() if volumes is not None else ()):
        if not volume.health:
            continue
        earlier = {
            (text(each.get("status")), text(each.get("reason"))): text(each.get("lastTransitionTime"))
            for each in dictionaries(before.get(name, {}).get("conditions"))
        }
        conditions: list[Any] = [
            {
                "status": each.status,
                "reason": each.reason,
                **({"message": each.message} if each.message else {}),
                "lastTransitionTime": earlier.get((each.status, each.reason)) or rfc3339(now),
            }
            for each in volume.health
        ]
        entry = before.get(name, {})
        same = entry.get("conditions") == conditions and text(entry.get("lastProbeTime"))
        found.append({"name": name, "conditions": conditions, "lastProbeTime": same or rfc3339(now)})
    return found
