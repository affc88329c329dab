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


def volume_health(volumes: MountedVolumes | None, shown: Object, *, over: bool, now: float) -> list[Object]:
    """Return the entries of the volumes that have an adverse condition, by name, each with the time since which it has
    these conditions; another message is no other condition. A volume whose health is not known keeps its entry, and so
    does one that is not known itself, as after a start, unless the pod is `over`. `shown`: the status before; `now`:
    seconds since the epoch."""
    entries = dictionaries(shown.get("volumeHealth"))
    before = {name: entry for entry in entries if (name := text(entry.get("name")))}
    reported = {name: volume.health for name, volume in (volumes.volumes if volumes is not None else {}).items()}
    found = []
    for name in sorted(reported if over else {*reported, *before}):
        entry, health = before.get(name, {}), reported.get(name)
        if health is None and entry:
            found.append(entry)
        if not health:
            continue
        conditions: list[Any] = [
            {"status": each.status, "reason": each.reason, **({"message": each.message} if each.message else {})}
            for each in health
        ]
        same = _named(dictionaries(entry.get("healthConditions"))) == _named(conditions)
        since = (same and text(entry.get("lastTransitionTime"))) or rfc3339(now)
        found.append({"name": name, "healthConditions": conditions, "lastTransitionTime": since})
    return found


def _named(conditions: Iterable[Object]) -> set[tuple[str, str]]:
    return {(text(each.get("status")), text(each.get("reason"))) for each in conditions}
