"""Network configurations, and what CNI's plugins are given (CNI specification 1.0)."""

import json
from typing import Any

import pytest

from services.dockershim.core.cni_requests import (
    Attachment,
    Network,
    NetworkConfigurationError,
    addresses_of,
    environment_of,
    input_of,
    parse_network,
)

ATTACHMENT = Attachment(
    sandbox_id="box", name="web", namespace="default", uid="u-1", capabilities={"portMappings": [{"hostPort": 80}]}
)


def test_a_single_configuration_and_a_list_are_networks() -> None:
    one = parse_network(b'{"cniVersion": "0.3.1", "name": "n", "type": "bridge"}')
    assert (one.name, one.version, [plugin["type"] for plugin in one.plugins]) == ("n", "0.3.1", ["bridge"])
    two = parse_network(b'{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge"}, {"type": "portmap"}]}')
    assert [plugin["type"] for plugin in two.plugins] == ["bridge", "portmap"]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b'{"type": "bridge"}',
        b'{"name": "n", "plugins": []}',
        b'{"name": "n", "plugins": {}}',
        b'{"name": "n", "plugins": [{}]}',
        b'{"name": "n", "plugins": ["bridge"]}',
        b'{"name": "n", "type": "../../bin/sh"}',
        b'{"name": 1, "type": "bridge"}',
        b"\xff",
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(text: bytes) -> None:
    with pytest.raises(NetworkConfigurationError):
        parse_network(text)


def test_a_plugin_gets_the_network_the_earlier_result_and_the_values_that_it_asks_for() -> None:
    network = Network("n", "1.0.0", ({"type": "portmap", "capabilities": {"portMappings": True, "bandwidth": True}},))
    content: dict[str, Any] = json.loads(input_of(network, network.plugins[0], ATTACHMENT, {"ips": []}))
    assert (content["name"], content["cniVersion"], content["prevResult"]) == ("n", "1.0.0", {"ips": []})
    assert content["runtimeConfig"] == {"portMappings": [{"hostPort": 80}]} and "capabilities" not in content
    plain: dict[str, Any] = json.loads(input_of(network, {"type": "bridge"}, ATTACHMENT, None))
    assert "runtimeConfig" not in plain and "prevResult" not in plain


def test_the_variables_of_a_call() -> None:
    variables = environment_of("ADD", ATTACHMENT, "/proc/7/ns/net", "/opt/cni/bin")
    assert variables["CNI_COMMAND"] == "ADD" and variables["CNI_IFNAME"] == "eth0"
    assert (variables["CNI_CONTAINERID"], variables["CNI_NETNS"]) == ("box", "/proc/7/ns/net")
    assert variables["CNI_ARGS"].split(";") == [
        "IgnoreUnknown=1",
        "K8S_POD_NAMESPACE=default",
        "K8S_POD_NAME=web",
        "K8S_POD_INFRA_CONTAINER_ID=box",
        "K8S_POD_UID=u-1",
    ]


@pytest.mark.parametrize(
    ("result", "addresses"),
    [
        (None, ()),
        ([], ()),
        ({"ips": [{"address": "10.1.0.2/24"}, {"address": "fd00::2/64"}]}, ("10.1.0.2", "fd00::2")),
        (
            {
                "interfaces": [{"name": "br0"}, {"name": "eth0", "sandbox": "/proc/1/ns/net"}],
                "ips": [{"interface": 0, "address": "10.1.0.1/24"}, {"interface": 1, "address": "10.1.0.2/24"}],
            },
            ("10.1.0.2",),
        ),
        ({"ip4": {"ip": "10.1.0.2/24"}, "ip6": {"ip": "fd00::2/64"}}, ("10.1.0.2", "fd00::2")),
        ({"ips": [{"interface": 9, "address": "10.1.0.2/24"}, 7, {"address": 1}]}, ("10.1.0.2",)),
    ],
)
def test_the_addresses_of_a_result(result: Any, addresses: tuple[str, ...]) -> None:
    assert addresses_of(result) == addresses
