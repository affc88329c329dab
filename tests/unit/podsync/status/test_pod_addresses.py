"""The addresses of a pod's status, by hand from pods.md 9.4."""

import pytest

from services.podsync.core.pod.events import NodeChanged
from tests.unit.podsync.play import Play, a_pod
from tests.unit.podsync.status.status_shapes import a_record, a_sandbox, instance, see, spec, status_now

HOST = {"hostNetwork": True}


@pytest.mark.parametrize(
    ("sandbox_ips", "node_ips", "shown"),
    [
        (("10.1.0.9",), ("10.88.0.1",), ["10.1.0.9"]),
        (("10.1.0.9", "fd00::9"), ("10.88.0.1",), ["10.1.0.9", "fd00::9"]),
        (("fd00::9", "10.1.0.9"), ("10.88.0.1",), ["10.1.0.9", "fd00::9"]),
        (("10.1.0.9", "fd00::9"), ("fd00::1",), ["fd00::9", "10.1.0.9"]),
        (("fd00::9", "10.1.0.9"), (), ["10.1.0.9", "fd00::9"]),
        (("10.1.0.9", "10.1.0.10"), ("10.88.0.1",), ["10.1.0.9"]),
        (("FD00:0:0::9",), ("10.88.0.1",), ["fd00::9"]),
        (("no address", "10.1.0.9"), ("10.88.0.1",), ["10.1.0.9"]),
    ],
)
def test_one_of_each_family_and_the_nodes_first(
    sandbox_ips: tuple[str, ...], node_ips: tuple[str, ...], shown: list[str]
) -> None:
    record = see(a_record(spec("c")), sandboxes=(a_sandbox(ips=sandbox_ips),))
    status = status_now(record, node_ips=node_ips)
    assert status["podIPs"] == [{"ip": ip} for ip in shown]
    assert status["podIP"] == shown[0]


def test_without_a_sandbox_there_is_none() -> None:
    status = status_now(a_record(spec("c")))
    assert "podIP" not in status and "podIPs" not in status


def test_they_stay_after_the_stop() -> None:
    record = see(a_record(spec("c")), instance("c"))
    status_now(record)
    assert status_now(see(record, sandboxes=(a_sandbox(ready=False),)))["podIP"] == "10.1.0.9"


def test_the_nodes_addresses() -> None:
    status = status_now(a_record(spec("c")), node_ips=("10.88.0.1", "fd00::1"))
    assert (status["hostIP"], status["hostIPs"]) == ("10.88.0.1", [{"ip": "10.88.0.1"}, {"ip": "fd00::1"}])


class TestHostNetwork:
    def test_a_pod_on_the_hosts_network_has_the_hosts(self) -> None:
        status = status_now(a_record(spec("c"), more=HOST), node_ips=("10.88.0.1", "fd00::1"))
        assert status["podIPs"] == status["hostIPs"]

    def test_once_shown_they_stay(self) -> None:
        record = a_record(spec("c"), more=HOST)
        status_now(record, node_ips=("10.88.0.1",))
        status = status_now(record, node_ips=("10.88.0.2",))
        assert (status["podIP"], status["hostIP"]) == ("10.88.0.1", "10.88.0.2")

    def test_but_for_a_second_family(self) -> None:
        record = a_record(spec("c"), more=HOST)
        status_now(record, node_ips=("10.88.0.1",))
        status = status_now(record, node_ips=("10.88.0.1", "fd00::1"))
        assert status["podIPs"] == [{"ip": "10.88.0.1"}, {"ip": "fd00::1"}]


class TestAnotherFamily:
    def test_is_a_warning_event_once(self) -> None:
        text = (
            "Kubelet detected an IPv4 node IP (10.88.0.1), but the cloud provider selected an IPv6 node IP (fd00::1); "
            "pass an explicit `--node-ip` to kubelet to fix this."
        )
        assert self.warnings("10.88.0.1", "fd00::1", "fd00::2") == [f"Warning HostIPsIPFamilyMismatch: {text}"]

    def test_another_address_of_the_same_family_is_no_warning(self) -> None:
        assert self.warnings("10.88.0.1", "10.88.0.2") == []

    def warnings(self, *node_ips: str) -> list[str]:
        """The events of a pod that runs while the Node has these addresses, one after the other."""
        play = Play()
        for ip in node_ips:
            addresses = [{"type": "InternalIP", "address": ip}]
            play.handle(NodeChanged(node={"status": {"addresses": addresses}}))
            play.want(a_pod())
            play.observe("u1")
        return [event for event in play.events if "HostIPs" in event]
