"""Name resolution: which servers, searches and options a pod gets, and what is warned of."""

from typing import Any

import pytest

from services.podsync.core.cri.config_errors import ContainerConfigError, SandboxConfigError
from services.podsync.core.cri.dns import pod_dns
from services.podsync.core.cri.hosts_file import HostnameError, hostname_and_domain, hosts_file
from services.podsync.core.node.node_facts import NodeFacts
from shared.model.objects import Object

HOST = """
# nameserver 9.9.9.9
nameserver 192.0.2.1
nameserver 192.0.2.2
domain ignored.example
search first.example
search corp.example. cluster.local .
options ndots:1 timeout:2
options timeout:3
; nameserver 1.2.3.4
"""
NODE = NodeFacts(
    node_name="n",
    node_ips=("192.0.2.9", "2001:db8::9"),
    cluster_dns=("10.96.0.10",),
    cluster_domain="cluster.local",
    resolv_conf=HOST,
)
OF_HOST = {
    "servers": ["192.0.2.1", "192.0.2.2"],
    "searches": ["corp.example", "cluster.local"],
    "options": ["ndots:1", "timeout:3"],
}
OF_CLUSTER = {
    "servers": ["10.96.0.10"],
    "searches": ["ns1.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example"],
    "options": ["ndots:5"],
}


def a_pod(**spec: Any) -> Object:
    return {"metadata": {"name": "web", "namespace": "ns1", "uid": "U"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"dnsPolicy": "ClusterFirst"}, OF_CLUSTER),
        ({"dnsPolicy": "ClusterFirst", "hostNetwork": True}, OF_HOST),
        ({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": True}, OF_CLUSTER),
        ({"dnsPolicy": "Default"}, OF_HOST),
        ({"dnsPolicy": "None"}, {}),
        ({"dnsPolicy": "Nonsense"}, OF_CLUSTER),
        (
            {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1", "1.1.1.1"], "options": [{"name": "edns0"}]}},
            {"servers": ["1.1.1.1"], "options": ["edns0"]},
        ),
        (
            {
                "dnsPolicy": "ClusterFirst",
                "dnsConfig": {"searches": ["cluster.local", "x"], "options": [{"name": "ndots", "value": "2"}]},
            },
            {**OF_CLUSTER, "searches": [*OF_CLUSTER["searches"], "x"], "options": ["ndots:2"]},
        ),
    ],
)
def test_the_policy_gives_the_base_and_the_pod_adds(spec: dict[str, Any], wanted: dict[str, Any]) -> None:
    dns = pod_dns(a_pod(**spec), NODE)
    assert (dns.config, dns.warnings) == (wanted, ())


def test_without_a_cluster_server_pods_fall_back_and_both_objects_are_warned() -> None:
    facts = NodeFacts(node_name="n", resolv_conf=HOST)
    dns = pod_dns(a_pod(dnsPolicy="ClusterFirst"), facts)
    text = (
        'kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. '
        'Falling back to "Default" policy.'
    )
    assert dns.config == OF_HOST
    assert [(w.reason, w.message, w.on_node) for w in dns.warnings] == [
        ("MissingClusterDNS", text, True),
        ("MissingClusterDNS", f'pod: "web_ns1(U)". {text}', False),
    ]


def test_without_a_domain_only_the_hosts_searches_are_used() -> None:
    facts = NodeFacts(node_name="n", cluster_dns=("10.96.0.10",), resolv_conf=HOST)
    assert pod_dns(a_pod(), facts).config["searches"] == OF_HOST["searches"]


def test_a_node_without_a_resolver_file_is_its_own_resolver() -> None:
    facts = NodeFacts(node_name="n", node_ips=("192.0.2.9", "2001:db8::9"), resolv_conf=None)
    assert pod_dns(a_pod(dnsPolicy="Default"), facts).config == {"servers": ["127.0.0.1", "::1"], "searches": ["."]}


@pytest.mark.parametrize(
    "facts",
    [
        NodeFacts(node_name="n", resolv_conf_error="open /etc/resolv.conf: no such file or directory"),
        NodeFacts(node_name="n", resolv_conf="nameserver\n"),
    ],
)
def test_an_unreadable_file_refuses_every_sandbox(facts: NodeFacts) -> None:
    with pytest.raises(SandboxConfigError):
        pod_dns(a_pod(dnsPolicy="None"), facts)


def test_more_servers_than_a_c_library_reads_are_left_out_with_a_warning() -> None:
    dns = pod_dns(
        a_pod(dnsPolicy="None", dnsConfig={"nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"]}), NODE
    )
    assert dns.config["servers"] == ["1.1.1.1", "2.2.2.2", "3.3.3.3"]
    assert [(w.reason, w.message) for w in dns.warnings] == [
        (
            "DNSConfigForming",
            (
                "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "
                "1.1.1.1 2.2.2.2 3.3.3.3"
            ),
        )
    ]


def test_searches_are_limited_in_number_length_and_together() -> None:
    def searches(wanted: list[str]) -> tuple[list[str], int]:
        dns = pod_dns(a_pod(dnsPolicy="None", dnsConfig={"searches": wanted}), NODE)
        return dns.config["searches"], len(dns.warnings)

    many = [f"d{index}" for index in range(33)]
    assert searches(many) == (many[:32], 1)
    assert searches(["a", "b" * 254, "c"]) == (["a", "c"], 1)
    long = [f"{index}" + "x" * 249 for index in range(9)]
    assert searches(long) == (long[:8], 1)
    assert searches(long[:8]) == (long[:8], 0)


def test_the_hosts_file_names_the_pod_by_each_of_its_addresses() -> None:
    pod = a_pod(subdomain="sub", hostAliases=[{"ip": "10.1.2.3", "hostnames": ["foo", "bar.local"]}])
    assert hosts_file(pod, ("10.0.0.5", "fd00::5"), "cluster.local", "unused") == (
        "# Kubernetes-managed hosts file.\n"
        "127.0.0.1\tlocalhost\n"
        "::1\tlocalhost ip6-localhost ip6-loopback\n"
        "fe00::0\tip6-localnet\n"
        "fe00::0\tip6-mcastprefix\n"
        "fe00::1\tip6-allnodes\n"
        "fe00::2\tip6-allrouters\n"
        "10.0.0.5\tweb.sub.ns1.svc.cluster.local\tweb\n"
        "fd00::5\tweb.sub.ns1.svc.cluster.local\tweb\n"
        "\n# Entries added by HostAliases.\n"
        "10.1.2.3\tfoo\tbar.local\n"
    )


def test_a_pod_on_the_hosts_network_gets_a_copy_of_the_nodes_file() -> None:
    assert hosts_file(a_pod(hostNetwork=True), (), "d", "127.0.0.1 localhost\n") == (
        "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n"
    )


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, ("web", "")),
        ({"hostname": "h"}, ("h", "")),
        ({"hostname": "h", "subdomain": "s"}, ("h", "s.ns1.svc.cluster.local")),
        ({"hostnameOverride": "a.b", "subdomain": "s"}, ("a.b", "")),
        ({"hostnameOverride": "a" * 70}, ("a" * 63, "")),
    ],
)
def test_the_host_name_and_its_domain(spec: dict[str, Any], wanted: tuple[str, str]) -> None:
    assert hostname_and_domain(a_pod(**spec), "cluster.local") == wanted


def test_a_long_pod_name_is_cut_to_a_valid_host_name() -> None:
    pod = a_pod()
    pod["metadata"]["name"] = "x" * 61 + "-.y"
    assert hostname_and_domain(pod, "d") == ("x" * 61, "")


@pytest.mark.parametrize("field", ["hostname", "subdomain", "hostnameOverride"])
def test_a_name_that_is_none_is_refused(field: str) -> None:
    pod = a_pod(**{field: "No_Name"})
    with pytest.raises(HostnameError, match='"No_Name" is not a valid DNS'):
        hostname_and_domain(pod, "d")
    with pytest.raises(ContainerConfigError):
        hosts_file(pod, (), "d", "")
