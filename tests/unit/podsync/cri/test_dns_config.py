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


@pytest.mark.parametrize("field", ["hostname", "subdomain", "hostnameOverride"])
def test_a_name_that_is_none_is_refused(field: str) -> None:
    pod = a_pod(**{field: "No_Name"})
    with pytest.raises(HostnameError, match='"No_Name" is not a valid DNS'):
        hostname_and_domain(pod, "d")
    with pytest.raises(ContainerConfigError):
        hosts_file(pod, (), "d", "")
