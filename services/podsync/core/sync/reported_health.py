"""Says which devices of a container are reported as healthy or unhealthy now: by device plugins, and by the drivers of
resource claims (node.md 4.15, 4.16). Pure.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from services.podsync.core.placement.reported_devices import Reported
from services.podsync.core.pod.claim_devices import HEALTHY, UNHEALTHY, devices_of_container
from services.podsync.core.pod.device_need import shortened
from services.podsync.core.pod.tracked_pod import TrackedPod

_CLAIM = "claim:"  # begin of the name of a device of a claim; no resource of a device plugin has a colon


class ReportedHealth(Struct, frozen=True):
    """Has by device whether it is healthy, and what its driver says of that. A device of which nothing is reported is
    in neither. A device has the name `<resource>/<id>`, or `claim:<claim>/<driver>/<pool>/<device>`."""

    healthy: Mapping[str, bool] = field(default_factory=dict)
    messages: Mapping[str, str] = field(default_factory=dict)


def reported_health(tracked: TrackedPod, container: str, reported: Reported) -> ReportedHealth:
    """Return what is reported of the devices of the container. `reported`: by device plugins."""
    healthy: dict[str, bool] = {}
    messages: dict[str, str] = {}
    given = tracked.saved.placement.containers.get(container)
    for each in given.devices if given is not None else ():
        of_resource = reported.get(each.resource)
        listed = of_resource.healthy if of_resource is not None else {}
        healthy |= {f"{each.resource}/{device}": listed[device] for device in each.ids & listed.keys()}
    entry = tracked.container(container) if tracked.claims is not None else None
    for claim, device in devices_of_container(entry[1], tracked.claims) if entry is not None else ():
        if device.health in (HEALTHY, UNHEALTHY):
            name = f"{_CLAIM}{claim.name or claim.claim}/{device.driver}/{device.pool}/{device.device}"
            healthy[name], messages[name] = device.health == HEALTHY, device.message
    return ReportedHealth(healthy, messages)


def describe_reported(devices: Iterable[str], state: str, messages: Mapping[str, str]) -> str:
    """Return who reports which of these devices as what. `state`: such as "unhealthy"."""
    names = list(devices)
    of_plugins = [name for name in names if not name.startswith(_CLAIM)]
    of_claims = [f"{n} ({messages[n]})" if messages.get(n) else n for n in names if n.startswith(_CLAIM)]
    texts = [f"The device plugin reports {shortened(of_plugins)} as {state}"] if of_plugins else []
    texts += [f"The driver reports {shortened(of_claims)} as {state}"] if of_claims else []
    return ". ".join(texts)
