"""Shows the devices of device plugins and of resource claims as volume publishes them, and which containers and pods
have them by podsync: `bulkhead devices`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, to_builtins

from services.cli.agent.holders import Holder, holder, sorted_pods
from services.cli.agent.local_agent import Agent, Items, local_agent
from services.cli.terminal.output import write_report
from services.cli.terminal.table import table, terminal_width
from shared.errors import OperatorError
from shared.text.plain_text import plain
from shared.time.timestamps import local_text, rfc3339

Write = Callable[[str], None]
_RESOURCES, _CLAIMS, _ADMITTED = "devices.resources", "claims.prepared", "pods.admitted"


class Health(StrEnum):
    """Says in which state a device is."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    NOT_LISTED = "not listed"  # a container has it, and its plugin does not list it any more, or not yet


class ResourceRow(Struct, frozen=True, kw_only=True):
    """Has the resource of one device plugin. `since`: since when its plugin is connected, or is not."""

    resource: str
    connected: bool
    since: str
    dropped: bool
    error: str
    capacity: int
    allocatable: int
    used: int


class DeviceRow(Struct, frozen=True, kw_only=True):
    """Has one device. `since`: since when it has this health; None where it is not listed."""

    resource: str
    device: str
    health: Health
    since: str | None
    numa_nodes: tuple[int, ...]
    containers: tuple[Holder, ...]  # several: an init container, and those that have its devices after it


class ClaimRow(Struct, frozen=True, kw_only=True):
    """Has one device of a resource claim of a pod. `health`: as its driver reports it, "" = it never has."""

    namespace: str
    pod: str
    uid: str
    claim: str
    driver: str
    pool: str
    device: str
    health: str
    message: str


class DeviceReport(Struct, frozen=True, kw_only=True):
    """Has the devices of the node, by resource and id, and those of claims by pod. Moments are RFC 3339."""

    resources: tuple[ResourceRow, ...]
    devices: tuple[DeviceRow, ...]
    claims: tuple[ClaimRow, ...] = ()


def show_devices(run_dir: str, form: str, out: Write, err: Write) -> int:
    """Print each resource of a device plugin, and each device with its containers. Return the exit code."""
    try:
        with local_agent(run_dir) as agent:
            found = device_report(*_read_streams(agent))
    except OperatorError as error:
        err(str(error))
        return 1
    write_report(form, to_builtins(found), device_lines(found, terminal_width()), out)
    return 0


def device_report(
    resources: Iterable[Mapping[str, Any]],
    admitted: Iterable[Mapping[str, Any]],
    claims: Mapping[str, Mapping[str, Any]],
) -> DeviceReport:
    """Return which containers have which devices, and which pods those of claims. `resources`: the items of
    `devices.resources`; `admitted`: those of `pods.admitted`; `claims`: those of `claims.prepared`, by pod UID."""
    given: dict[str, dict[str, list[Holder]]] = defaultdict(lambda: defaultdict(list))
    pods = sorted_pods(admitted)
    for pod in pods:
        for container, devices in (pod.get("devices") or {}).items():
            for each in devices:
                for device in each["ids"]:
                    given[each["resource"]][device].append(holder(pod, container))
    listed = {item["resource"]: item for item in resources}
    rows: list[DeviceRow] = []
    for name in sorted(listed.keys() | given.keys()):
        rows += _device_rows(name, (listed.get(name) or {}).get("devices") or (), given[name])
    return DeviceReport(
        resources=tuple(_resource_row(listed[name], len(given[name])) for name in sorted(listed)),
        devices=tuple(rows),
        claims=tuple(row for pod in pods for row in _claim_rows(pod, claims.get(pod["uid"]))),
    )


def device_lines(report: DeviceReport, width: int) -> list[str]:
    """Return a line for each resource, one about each plugin that is not connected, and tables of all devices."""
    lines = _plugin_lines(report, width)
    if not report.claims:
        return lines
    rows = [
        [
            f"{row.namespace}/{row.claim}",
            row.driver,
            row.pool,
            row.device,
            row.health or "-",
            f"{row.namespace}/{row.pod}",
        ]
        for row in report.claims
    ]
    return [*lines, "", *table(["CLAIM", "DRIVER", "POOL", "DEVICE", "HEALTH", "POD"], rows, width)]


def _plugin_lines(report: DeviceReport, width: int) -> list[str]:
    if not report.resources and not report.devices:
        return ["no device plugin has registered"]
    amounts = [
        [row.resource, str(row.capacity), str(row.allocatable), str(row.used), _plugin(row), local_text(row.since)]
        for row in report.resources
    ]
    lines = table(["RESOURCE", "CAPACITY", "ALLOCATABLE", "USED", "PLUGIN", "SINCE"], amounts, width)
    lines += [plain(f"{row.resource}: {row.error}") for row in report.resources if row.error]
    if not report.devices:
        return lines
    devices = [
        [
            row.resource,
            row.device,
            row.health,
            "-" if row.since is None else local_text(row.since),
            ",".join(map(str, row.numa_nodes)) or "-",
            ", ".join(map(str, row.containers)),
        ]
        for row in report.devices
    ]
    return [*lines, "", *table(["RESOURCE", "DEVICE", "HEALTH", "SINCE", "NUMA", "CONTAINERS"], devices, width)]


def _plugin(row: ResourceRow) -> str:
    return "connected" if row.connected else "dropped" if row.dropped else "not connected"


def _resource_row(item: Mapping[str, Any], used: int) -> ResourceRow:
    devices = item.get("devices") or ()
    return ResourceRow(
        resource=item["resource"],
        connected=item["connected"],
        since=rfc3339(item["since"]),
        dropped=bool(item.get("dropped")),
        error=item.get("error") or "",
        capacity=len(devices),
        allocatable=sum(bool(device["healthy"]) for device in devices),
        used=used,
    )


def _device_rows(
    resource: str, listed: Iterable[Mapping[str, Any]], given: Mapping[str, list[Holder]]
) -> Iterable[DeviceRow]:
    known = {device["id"]: device for device in listed}
    for name in sorted(known.keys() | given.keys()):
        device = known.get(name)
        health = Health.NOT_LISTED
        if device is not None:
            health = Health.HEALTHY if device["healthy"] else Health.UNHEALTHY
        yield DeviceRow(
            resource=resource,
            device=name,
            health=health,
            since=rfc3339(device["since"]) if device is not None and device.get("since") else None,
            numa_nodes=tuple((device or {}).get("nodes") or ()),
            containers=tuple(given.get(name, ())),
        )


def _claim_rows(pod: Mapping[str, Any], item: Mapping[str, Any] | None) -> Iterable[ClaimRow]:
    for claim in item["claims"] if item is not None else ():
        for device in claim.get("devices") or ():
            yield ClaimRow(
                namespace=pod["namespace"],
                pod=pod["name"],
                uid=pod["uid"],
                claim=claim["claim"],
                driver=device["driver"],
                pool=device["pool"],
                device=device["device"],
                health=device.get("health") or "",
                message=device.get("message") or "",
            )


def _read_streams(agent: Agent) -> tuple[list[dict[str, Any]], list[dict[str, Any]], Items]:
    """Return the resources, the admitted pods, and the claims by pod UID. Raises OperatorError where volume or podsync
    does not answer."""
    for service in ("volume", "podsync"):
        agent.require(service)
    found = agent.streams(_RESOURCES, _ADMITTED, _CLAIMS)
    resources, admitted = found[_RESOURCES], found[_ADMITTED]
    if resources is None:
        raise agent.silence_of("volume")
    if admitted is None:
        raise agent.silence_of("podsync")
    return list(resources.values()), list(admitted.values()), found[_CLAIMS] or {}
