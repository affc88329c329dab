"""How long a report about the health of a device counts, and which reports are refused."""

import pytest

from services.volume.core.resource_claims.device_health import (
    MAX_REPORTED_DEVICES,
    DeviceHealth,
    Health,
    ReportedDevice,
)
from services.volume.core.resource_claims.driver_checks import DriverError


def test_a_report_counts_for_the_time_that_the_driver_names_else_30_seconds() -> None:
    health = DeviceHealth()
    report = [
        ReportedDevice(pool="p", device=name, health=Health.HEALTHY, timeout=timeout)
        for name, timeout in (("a", 0.0), ("b", 5.0), ("c", -1.0))
    ]
    health.reported("d", report, len(report), 100.0)

    def states(now: float) -> str:
        found = [health.state("d", "p", name, now) for name in "abc"]
        return "".join(state.health[0] for state in found if state is not None)

    assert (states(104.9), states(105.0), states(129.9), states(130.0)) == ("HHH", "HUH", "HUH", "UUU")
    assert (health.next_end(100.0), health.next_end(105.0), health.next_end(130.0)) == (105.0, 130.0, float("inf"))


def test_a_device_that_a_report_does_not_name_keeps_its_last_one_and_a_forgotten_driver_has_none() -> None:
    health = DeviceHealth()
    for name in ("a", "b"):
        health.reported("d", [ReportedDevice(pool="p", device=name, health=Health.UNHEALTHY, message=name)], 1, 0.0)
    states = [health.state("d", "p", name, 1.0) for name in ("a", "b", "c")]
    assert [(state.health, state.message) for state in states if state is not None] == [
        ("Unhealthy", "a"),
        ("Unhealthy", "b"),
        ("Unknown", ""),
    ]
    health.forget("d")
    assert health.state("d", "p", "a", 1.0) is None


def test_reports_that_no_driver_of_a_node_sends_are_refused() -> None:
    health = DeviceHealth()
    with pytest.raises(DriverError, match="more than 10000"):
        health.reported("d", [], MAX_REPORTED_DEVICES + 1, 0.0)
    with pytest.raises(DriverError, match="more than 1024 characters"):
        health.reported("d", [ReportedDevice(pool="p", device="x" * 1025, health=Health.HEALTHY)], 1, 0.0)
    devices = [ReportedDevice(pool="p", device=str(n), health=Health.HEALTHY) for n in range(MAX_REPORTED_DEVICES)]
    health.reported("d", devices, len(devices), 0.0)
    with pytest.raises(DriverError, match="more than 10000 devices"):
        health.reported("d", [ReportedDevice(pool="q", device="1", health=Health.HEALTHY)], 1, 0.0)
