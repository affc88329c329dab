"""What the node has, what pods request and use: the rows of the node page."""

from typing import Any

import pytest

from bus.messages.usage import CgroupUsage, FilesystemUsage, InterfaceUsage, NetworkUsage, NodeUsage, PodUsage
from services.report.machine import (
    MAX_INTERFACES,
    MAX_ROWS,
    NetworkRates,
    conditions,
    counted_requests,
    filesystems,
    pod_usage,
    resources,
)

PRESSURE = {"type": "DiskPressure", "status": "False", "reason": "r", "message": "m", "lastTransitionTime": "t"}


def usage(**more: Any) -> NodeUsage:
    cgroup = CgroupUsage(time=1.0, cpu_nanocores=1_500_000_000, memory_working_set=1 << 30)
    return NodeUsage(read_at=1.0, started_at=0.0, cgroup=cgroup, **more)


def card(name: str, received: int, sent: int, dropped: int = 0) -> InterfaceUsage:
    return InterfaceUsage(name=name, rx_bytes=received, rx_errors=1, tx_bytes=sent, tx_errors=2, tx_dropped=dropped)


def taken(*readings: tuple[float, InterfaceUsage | None]) -> NetworkRates:
    rates = NetworkRates()
    for time, one in readings:
        rates.take(None if one is None else NetworkUsage(time=time, interfaces=(one,)))
    return rates


def pod(cpu: str, **status: Any) -> Any:
    spec = {"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}]}
    return counted_requests({"spec": spec}, status)


def test_the_conditions_are_those_of_the_node_and_without_one_those_of_the_agent() -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "lastHeartbeatTime": "x"}
    shown = {"type": "Ready", "status": "True", "reason": "", "message": "", "since": "2026-01-01T00:00:00Z"}
    assert conditions({"conditions": [ready]}, (PRESSURE,)) == [shown]
    assert conditions({}, (PRESSURE,)) == [
        {"type": "DiskPressure", "status": "False", "reason": "r", "message": "m", "since": "t"}
    ]
    many = [{"type": f"a{number}", "message": "two\nlines" * 200} for number in range(100)]
    found = conditions({"conditions": many}, ())
    assert len(found) == MAX_ROWS and all(len(one["message"]) <= 300 and one["message"].isprintable() for one in found)


def test_the_requests_of_pods_that_have_not_ended_are_beside_what_the_node_has() -> None:
    capacity = {"example.com/gpu": "2", "pods": "110", "memory": "1Gi", "cpu": "4", "hugepages-2Mi": "0"}
    allocatable = {"cpu": "3800m", "memory": "960Mi", "pods": "110", "example.com/gpu": "2"}
    requested = [pod("100m"), pod("1500m", phase="Pending"), pod("2", phase="Failed"), pod("2", phase="Succeeded")]
    rows = resources(capacity, allocatable, requested, usage())
    assert [one["name"] for one in rows] == ["cpu", "memory", "pods", "example.com/gpu", "hugepages-2Mi"]
    assert rows[0] == {"name": "cpu", "used": 1.5, "requested": 1.6, "allocatable": 3.8, "capacity": 4}
    amounts = {"used": 1 << 30, "requested": 128 << 20, "allocatable": 960 << 20, "capacity": 1 << 30}
    assert rows[1] == {"name": "memory"} | amounts
    assert rows[2] == {"name": "pods", "used": None, "requested": 2, "allocatable": 110, "capacity": 110}
    assert rows[4] == {"name": "hugepages-2Mi", "used": None, "requested": 0, "allocatable": None, "capacity": 0}
    assert len(resources(capacity | {f"x/{number}": "1" for number in range(100)}, {}, [], None)) == MAX_ROWS


def test_each_filesystem_that_is_known_has_a_row() -> None:
    disk = FilesystemUsage(time=1.0, used=5, available=3, capacity=10, inodes=9, inodes_free=7, inodes_used=2)
    shown = {"used": 5, "available": 3, "capacity": 10, "inodes_used": 2, "inodes": 9}
    devices = {"nodefs_device": "a", "imagefs_device": "b", "containerfs": disk}
    found = filesystems(usage(nodefs=disk, imagefs=disk, containerfs_device="b", **devices))
    assert found == [{"name": "nodefs"} | shown, {"name": "imagefs"} | shown]
    apart = filesystems(usage(nodefs=disk, containerfs_device="c", **devices))
    assert [one["name"] for one in apart] == ["nodefs", "containerfs"]
    assert filesystems(None) == filesystems(usage()) == []


def test_a_rate_is_the_bytes_between_two_readings() -> None:
    rates = taken((10.0, card("eth0", 1000, 50)), (20.0, card("eth0", 3000, 150, dropped=4)))
    shown = {"name": "eth0", "received": 200, "sent": 10, "errors": 3, "dropped": 4}
    assert rates.rows() == [shown] and rates.busiest() == {"network.received": 200, "network.sent": 10}
    rates.take(NetworkUsage(time=20.0, interfaces=(card("eth0", 3000, 150, dropped=4),)))  # the same reading again
    assert rates.rows() == [shown]


@pytest.mark.parametrize(
    "readings",
    [
        [],
        [(10.0, card("eth0", 5, 5))],
        [(10.0, card("eth0", 5, 5)), (20.0, card("eth1", 9, 9))],
        [(10.0, card("eth0", 5, 5)), (20.0, card("eth0", 1, 9))],  # created again
        [(10.0, card("eth0", 5, 5)), (20.0, None), (30.0, card("eth0", 9, 9))],
        [(10.0, card("eth0", 5, 5)), (20.0, card("eth0", 9, 9)), (5.0, card("eth0", 9, 9))],  # the clock was set back
    ],
)
def test_without_two_readings_of_an_interface_there_is_no_rate(readings: list[tuple[float, Any]]) -> None:
    rates = taken(*readings)
    assert rates.busiest() == {} and all(one["received"] is None for one in rates.rows())


def test_bytes_that_pass_a_bridge_and_a_card_are_charted_once_and_few_interfaces_are_listed() -> None:
    rates = NetworkRates()
    for time, count in ((10.0, 0), (20.0, 7000)):
        cards = tuple(card(f"cali{number}", number + count, 0) for number in range(20))
        rates.take(NetworkUsage(time=time, interfaces=(*cards, card("eth0", 900 + count, 30), card("br0", count, 40))))
    assert rates.busiest() == {"network.received": 700, "network.sent": 0}
    assert len(rates.rows()) == MAX_INTERFACES and rates.rows()[0]["name"] == "eth0"


def test_what_a_pod_uses_is_null_where_it_is_not_known() -> None:
    named: dict[str, Any] = {"name": "n", "namespace": "s", "created_at": 1, "read_at": 1.0}
    disk = FilesystemUsage(time=1.0, used=7)
    first = PodUsage(uid="a", cgroup=CgroupUsage(time=1.0, memory_working_set=5), ephemeral_storage=disk, **named)
    second = PodUsage(uid="b", cgroup=CgroupUsage(time=1.0, cpu_nanocores=12_345_678), **named)
    assert pod_usage((first, second, PodUsage(uid="c", **named))) == {
        "a": [None, 5, 7], "b": [0.012, None, None], "c": [None, None, None],
    }  # fmt: skip
