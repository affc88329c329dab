"""The addresses of the Node: those given, those a name resolves to, those of the default routes."""

import pytest

from services.status.core.node_addresses import AddressError, node_addresses, provided_node_ip
from services.status.core.node_facts import HostNetwork, NodeIdentity
from shared.model.frozen_copy import replace

HOST = HostNetwork(
    assigned=frozenset({"10.0.0.1", "10.0.0.2", "2001:db8::1"}), default_routes=("10.0.0.1", "2001:db8::1")
)


def identity(*node_ips: str, cloud: bool = False, name: str = "n1") -> NodeIdentity:
    return NodeIdentity(name=name, kubelet_version="v", node_ips=node_ips, external_cloud_provider=cloud)


def internal(*ips: str, name: str = "n1") -> list[dict[str, str]]:
    return [*({"type": "InternalIP", "address": ip} for ip in ips), {"type": "Hostname", "address": name}]


def test_the_address(subtests: pytest.Subtests) -> None:
    for node_ips, resolved, expected in [
        ((), (), ("10.0.0.1",)),
        (("10.0.0.2",), (), ("10.0.0.2",)),
        (("10.0.0.2", "2001:db8::1"), (), ("10.0.0.2", "2001:db8::1")),
        (("2001:db8::1", "10.0.0.2"), (), ("2001:db8::1", "10.0.0.2")),
        (("2001:0db8:0:0::1",), (), ("2001:db8::1",)),
        (("0.0.0.0",), (), ("10.0.0.1",)),
        (("::",), (), ("2001:db8::1",)),
        ((), ("10.0.0.2",), ("10.0.0.2",)),
        ((), ("127.0.1.1",), ("10.0.0.1",)),
        ((), ("127.0.1.1", "2001:db8::1"), ("2001:db8::1",)),
        ((), ("2001:db8::1", "10.0.0.2"), ("10.0.0.2",)),
        (("::",), ("10.0.0.2", "2001:db8::1"), ("2001:db8::1",)),
        ((), ("203.0.113.9",), ("10.0.0.1",)),
        (("rubbish",), (), ("10.0.0.1",)),
    ]:
        with subtests.test(f"{node_ips!r:.80}"):
            host = HostNetwork(assigned=HOST.assigned, resolved=resolved, default_routes=HOST.default_routes)
            assert node_addresses(identity(*node_ips), host, []) == internal(*expected)


def test_a_node_that_is_named_by_its_address_has_it() -> None:
    assert node_addresses(identity(name="10.0.0.9"), HOST, []) == internal("10.0.0.9", name="10.0.0.9")


@pytest.mark.parametrize(
    ("node_ips", "reason"),
    [
        (("127.0.0.1",), "failed to validate nodeIP: nodeIP can't be loopback address"),
        (("224.0.0.1",), "failed to validate nodeIP: nodeIP can't be a multicast address"),
        (("fe80::1",), "failed to validate nodeIP: nodeIP can't be a link-local unicast address"),
        (
            ("10.9.9.9",),
            'failed to validate nodeIP: node IP: "10.9.9.9" not found in the host\'s network interfaces',
        ),
        (
            ("10.0.0.1", "2001:db8::9"),
            'failed to validate secondaryNodeIP: node IP: "2001:db8::9" not found in the host\'s network interfaces',
        ),
    ],
)
def test_an_address_that_cannot_be_the_nodes_is_refused(node_ips: tuple[str, ...], reason: str) -> None:
    with pytest.raises(AddressError) as refused:
        node_addresses(identity(*node_ips), HOST, [])
    assert str(refused.value) == reason


def test_a_host_without_any_address_is_an_error() -> None:
    with pytest.raises(AddressError, match=r"^can't get ip address of node n1. error: "):
        node_addresses(identity(), HostNetwork(), [])


def test_a_cloud_provider_keeps_the_addresses_it_wrote() -> None:
    clouds = [{"type": "ExternalIP", "address": "203.0.113.1"}]
    assert node_addresses(identity("10.0.0.1", cloud=True), HOST, clouds) == clouds


def test_before_the_cloud_provider_came_only_a_given_address_is_set() -> None:
    assert node_addresses(identity(cloud=True), HOST, []) == internal()
    assert node_addresses(identity("10.0.0.1", cloud=True), HOST, []) == internal("10.0.0.1")
    assert node_addresses(identity("0.0.0.0", cloud=True), HOST, []) == internal("10.0.0.1")


def test_the_annotation_names_the_given_addresses() -> None:
    assert provided_node_ip(identity("10.0.0.1", "2001:db8::1")) == "10.0.0.1,2001:db8::1"
    assert provided_node_ip(identity("::")) == provided_node_ip(identity()) == ""


def test_addresses_that_a_resolver_gives_in_another_order_are_the_same() -> None:
    host = HostNetwork(
        assigned=frozenset({"10.0.0.1"}), resolved=("10.0.0.1", "10.0.0.2"), default_routes=("10.0.0.1",)
    )
    assert host.has_same_addresses(replace(host, resolved=("10.0.0.2", "10.0.0.1")))
    others = (
        replace(host, resolved=("10.0.0.2",)),
        replace(host, assigned=frozenset()),
        replace(host, default_routes=()),
    )
    assert not any(map(host.has_same_addresses, others))
