"""Makes `volumeHealth` of a pod's status: the adverse conditions of its volumes, as their CSI drivers report them
(feature gate CSIVolumeHealth of Kubernetes 1.37). Pure.

What did not change is shown as before, so that a reading alone writes no status.
"""

from collections.abc import Iterable
from typing import Any

from bus.messages.volume import MountedVolumes
from shared.model.fields import dictionaries, text
from shared.model.objects import Object
from shared.time.timestamps import rfc3339


def volume_health(volumes: MountedVolumes | None, shown: Object, *, now: float) -> list[Object]:
    """Return the entries of the volumes that have an adverse condition, by name, each with the time since which it has
    these conditions; another message is no other condition. A volume whose health is not known keeps its entry.
    `shown`: the status before; `now`: seconds since the epoch."""
    before = {text(entry.get("name")): entry for entry in dictionaries(shown.get("volumeHealth"))}
    found = []
    for name, volume in sorted(volumes.volumes.items() if volumes is not None else ()):
        entry = before.get(name, {})
        if volume.health is None and entry:
            found.append(entry)
        if not volume.health:
            continue
        conditions: list[Any] = [
            {"status": each.status, "reason": each.reason, **({"message": each.message} if each.message else {})}
            for each in volume.health
        ]
        same = _named(dictionaries(entry.get("healthConditions"))) == _named(conditions)
        since = (same and text(entry.get("lastTransitionTime"))) or rfc3339(now)
        found.append({"name": name, "healthConditions": conditions, "lastTransitionTime": since})
    return found


def _named(conditions: Iterable[Object]) -> set[tuple[str, str]]:
    return {(text(each.get("status")), text(each.get("reason"))) for each in conditions}
