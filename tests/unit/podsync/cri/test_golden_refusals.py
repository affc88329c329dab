"""Golden cases beside the messages: what is refused and in which words, cgroups of pods, warnings, files and names."""

from typing import Any

import pytest

from services.podsync.core.cgroups.pod_cgroup import pod_cgroup_name, pod_cgroup_values, possible_pod_cgroup_names
from services.podsync.core.cri.config_errors import ContainerConfigError, SandboxConfigError
from services.podsync.core.cri.dns import pod_dns, resolv_conf_warnings
from services.podsync.core.cri.hosts_file import HostnameError, hostname_and_domain, hosts_file
from services.podsync.core.cri.sandbox_config import sandbox_config
from services.podsync.core.cri.service_environment import service_environment
from tests.unit.podsync.cri.golden import cgroups, refused
from tests.unit.podsync.cri.golden.case import Case, built, facts_of, pod_of
from tests.unit.podsync.cri.golden.cgroups import CgroupCase


@pytest.mark.parametrize(("case", "text"), [pytest.param(c, t, id=c.name) for c, t in refused.CONTAINERS])
def test_a_container_that_cannot_be_described_waits_with_the_kubelets_words(case: Case, text: str) -> None:
    with pytest.raises(ContainerConfigError) as error:
        built(case, "v2")
    assert (error.value.reason, error.value.message) == ("CreateContainerConfigError", text)


@pytest.mark.parametrize(("case", "text"), [pytest.param(c, t, id=c.name) for c, t in refused.SANDBOXES])
def test_a_sandbox_that_cannot_be_described_is_refused_in_the_kubelets_words(case: Case, text: str) -> None:
    with pytest.raises(SandboxConfigError) as error:
        sandbox_config(pod_of(case), facts=facts_of(case, "v2"), attempt=0)
    assert error.value.message == text


@pytest.mark.parametrize("one", [pytest.param(c, id=c.case.name) for c in cgroups.CASES])
@pytest.mark.parametrize("version", ["v2", "v1"])
def test_the_pods_cgroup_is_the_same_on_both_versions(one: CgroupCase, version: str) -> None:
    pod = pod_of(one.case)
    if one.case.name.startswith("the class that the API has"):
        pod["status"] = {"qosClass": "BestEffort"}
    facts = facts_of(one.case, version)
    assert pod_cgroup_values(pod, facts) == one.values
    name = "/".join(["/kubepods", *([one.qos] if one.qos else []), "podU"])
    assert pod_cgroup_name(pod, facts) == name and name in possible_pod_cgroup_names("U", facts)
    systemd = facts_of(Case(name="", node={**one.case.node, "cgroup_driver": "systemd"}), version)
    above = f"kubepods-{one.qos}" if one.qos else "kubepods"
    place = ["/kubepods.slice", *([f"{above}.slice"] if one.qos else []), f"{above}-podU.slice"]
    assert pod_cgroup_name(pod, systemd) == "/".join(place)


NO_DNS = (
    'kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. '
    'Falling back to "Default" policy.'
)
SERVERS = "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "
SEARCHES = "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "
NODE_WARNING, POD_WARNING = (
    ("MissingClusterDNS", NO_DNS, True),
    (
        "MissingClusterDNS",
        f'pod: "web_ns1(U)". {NO_DNS}',
        False,
    ),
)


def own_dns(**config: Any) -> dict[str, Any]:
    return {"dnsPolicy": "None", "dnsConfig": config}


@pytest.mark.parametrize(
    ("spec", "node", "wanted"),
    [
        ({}, {}, []),
        ({}, {"cluster_dns": ()}, [NODE_WARNING, POD_WARNING]),
        (
            {"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": True},
            {"cluster_dns": ()},
            [NODE_WARNING, POD_WARNING],
        ),
        ({"hostNetwork": True}, {"cluster_dns": ()}, []),
        ({"dnsPolicy": "Default"}, {"cluster_dns": ()}, []),
        (
            own_dns(nameservers=["1.0.0.1", "1.0.0.2", "1.0.0.3", "1.0.0.4"]),
            {},
            [("DNSConfigForming", f"{SERVERS}1.0.0.1 1.0.0.2 1.0.0.3", False)],
        ),
        (
            own_dns(nameservers=["1.0.0.1"], searches=["ok", "x" * 254]),
            {},
            [("DNSConfigForming", f"{SEARCHES}ok", False)],
        ),
        (
            {"dnsConfig": {"searches": [f"s{n}" for n in range(30)]}},
            {"resolv_conf": "nameserver 192.0.2.53\n"},
            [
                (
                    "DNSConfigForming",
                    f"{SEARCHES}ns1.svc.cluster.local svc.cluster.local cluster.local "
                    + " ".join(f"s{n}" for n in range(29)),
                    False,
                )
            ],
        ),
        (
            {"dnsPolicy": "Default"},
            {"resolv_conf": "".join(f"nameserver 1.0.0.{n}\n" for n in range(1, 5))},
            [("DNSConfigForming", f"{SERVERS}1.0.0.1 1.0.0.2 1.0.0.3", False)],
        ),
    ],
)
def test_what_the_name_resolution_leaves_out_is_warned_of(
    spec: dict[str, Any], node: dict[str, Any], wanted: list[tuple[str, str, bool]]
) -> None:
    case = Case(name="", spec=spec, node=node)
    warnings = pod_dns(pod_of(case), facts_of(case, "v2")).warnings
    assert [(w.reason, w.message, w.on_node) for w in warnings] == wanted


@pytest.mark.parametrize(
    ("searches", "wanted"),
    [
        (["a"] * 29, []),
        (["a"] * 30, ["Resolv.conf file '/r' contains search line consisting of more than 29 domains!"]),
        (["b" * 254], ['Resolv.conf file "/r" contains a search path which length is more than allowed 253 chars!']),
        (["c" * 250] * 8, []),
        (["c" * 250] * 9, ["Resolv.conf file '/r' contains search line which length is more than allowed 2048 chars!"]),
    ],
)
def test_a_resolv_conf_beyond_what_pods_can_bear_is_warned_of_at_the_start(
    searches: list[str], wanted: list[str]
) -> None:
    facts = facts_of(Case(name="", node={"resolv_conf": f"search {' '.join(searches)}\n"}), "v2")
    assert list(resolv_conf_warnings(facts, "/r")) == wanted
    assert resolv_conf_warnings(facts, "") == ()


def test_a_resolv_conf_of_no_use_is_warned_of_at_the_start() -> None:
    facts = facts_of(Case(name="", node={"resolv_conf_error": "open /r: no such file or directory"}), "v2")
    assert resolv_conf_warnings(facts, "/r") == ("open /r: no such file or directory",)


LOCAL = (
    "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
    "fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
)
ALIASES = {"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a", "b.c"]}, {"ip": "::5", "hostnames": ["d"]}]}
WRITTEN = "\n# Entries added by HostAliases.\n1.2.3.4\ta\tb.c\n::5\td\n"
HOST = "127.0.0.1 localhost\n192.0.2.7 n1\n"
OF_HOST = f"# Kubernetes-managed hosts file (host network).\n{HOST}"


@pytest.mark.parametrize(
    ("spec", "ips", "text"),
    [
        ({}, ["10.0.0.5"], f"{LOCAL}10.0.0.5\tweb\n"),
        ({}, ["10.0.0.5", "fd00::5"], f"{LOCAL}10.0.0.5\tweb\nfd00::5\tweb\n"),
        ({"subdomain": "db"}, ["10.0.0.5"], f"{LOCAL}10.0.0.5\tweb.db.ns1.svc.cluster.local\tweb\n"),
        (
            {"hostname": "h", "subdomain": "db", "setHostnameAsFQDN": True},
            ["10.0.0.5"],
            f"{LOCAL}10.0.0.5\th.db.ns1.svc.cluster.local\th\n",
        ),
        ({"hostnameOverride": "a.b", "subdomain": "db"}, ["10.0.0.5"], f"{LOCAL}10.0.0.5\ta.b\n"),
        (ALIASES, ["10.0.0.5"], f"{LOCAL}10.0.0.5\tweb\n{WRITTEN}"),
        ({"hostAliases": [{"ip": "1.2.3.4"}]}, [], f"{LOCAL}\n# Entries added by HostAliases.\n1.2.3.4\t\n"),
        ({"hostAliases": []}, [], LOCAL),
        ({"hostNetwork": True}, [], OF_HOST),
        ({"hostNetwork": True, **ALIASES}, [], OF_HOST + WRITTEN),
    ],
)
def test_the_hosts_file_of_a_pod(spec: dict[str, Any], ips: list[str], text: str) -> None:
    assert hosts_file(pod_of(Case(name="", spec=spec)), ips, "cluster.local", HOST) == text


@pytest.mark.parametrize("field", ["hostname", "subdomain", "hostnameOverride"])
def test_a_name_that_is_none_is_refused(field: str) -> None:
    pod = pod_of(Case(name="", spec={field: "No_Name"}))
    with pytest.raises(HostnameError, match='"No_Name" is not a valid DNS'):
        hostname_and_domain(pod, "d")
    with pytest.raises(ContainerConfigError):
        hosts_file(pod, (), "d", "")


def service(name: str, ip: str | None, *ports: object, namespace: str = "ns1") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterIP": ip, "ports": list(ports)}}


OF_REDIS = {"name": "db", "port": 6379, "protocol": "TCP"}
DB = service("redis-primary", "10.0.0.11", OF_REDIS)
ODD: list[object] = [{"name": "web"}, "80", None]  # ports that are not as the API has them
MASTER = service("kubernetes", "10.96.0.1", {"name": "https", "port": 443, "protocol": "TCP"}, namespace="default")
OF_DB = {
    "REDIS_PRIMARY_SERVICE_HOST": "10.0.0.11",
    "REDIS_PRIMARY_SERVICE_PORT": "6379",
    "REDIS_PRIMARY_SERVICE_PORT_DB": "6379",
    "REDIS_PRIMARY_PORT": "tcp://10.0.0.11:6379",
    "REDIS_PRIMARY_PORT_6379_TCP": "tcp://10.0.0.11:6379",
    "REDIS_PRIMARY_PORT_6379_TCP_PROTO": "tcp",
    "REDIS_PRIMARY_PORT_6379_TCP_PORT": "6379",
    "REDIS_PRIMARY_PORT_6379_TCP_ADDR": "10.0.0.11",
}
OF_MASTER = {
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
    "KUBERNETES_SERVICE_PORT": "443",
    "KUBERNETES_SERVICE_PORT_HTTPS": "443",
    "KUBERNETES_PORT": "tcp://10.96.0.1:443",
    "KUBERNETES_PORT_443_TCP": "tcp://10.96.0.1:443",
    "KUBERNETES_PORT_443_TCP_PROTO": "tcp",
    "KUBERNETES_PORT_443_TCP_PORT": "443",
    "KUBERNETES_PORT_443_TCP_ADDR": "10.96.0.1",
}
TWO_PORTS = {
    "D_SERVICE_HOST": "fd00::1",
    "D_SERVICE_PORT": "53",
    "D_PORT": "udp://[fd00::1]:53",
    "D_PORT_53_UDP": "udp://[fd00::1]:53",
    "D_PORT_53_UDP_PROTO": "udp",
    "D_PORT_53_UDP_PORT": "53",
    "D_PORT_53_UDP_ADDR": "fd00::1",
    "D_PORT_54_TCP": "tcp://[fd00::1]:54",
    "D_PORT_54_TCP_PROTO": "tcp",
    "D_PORT_54_TCP_PORT": "54",
    "D_PORT_54_TCP_ADDR": "fd00::1",
}


@pytest.mark.parametrize(
    ("services", "links", "wanted"),
    [
        ([DB], True, OF_DB),
        ([DB], False, {}),
        *(([service("redis-primary", "10.0.0.11", odd, OF_REDIS)], True, OF_DB) for odd in ODD),
        ([service("x", "10.0.0.1", *ODD)], True, {}),
        ([DB, MASTER], False, OF_MASTER),
        ([DB, MASTER], True, OF_DB | OF_MASTER),
        ([service("x", "10.0.0.1", {"port": 1}, namespace="other")], True, {}),
        ([service("x", None, {"port": 1}), service("y", "None", {"port": 1}), service("z", "", {"port": 1})], True, {}),
        ([service("d", "fd00::1", {"port": 53, "protocol": "UDP"}, {"port": 54, "protocol": "TCP"})], True, TWO_PORTS),
    ],
)
def test_services_become_variables(services: list[dict[str, Any]], links: bool, wanted: dict[str, str]) -> None:
    assert service_environment(services, "ns1", links=links) == wanted
