"""How pods are called and whom they can find: host names, /etc/hosts, /etc/resolv.conf as containers read them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.behaviour import Node, container, pod_of

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]

FULL = "db-0.spec-db.default.svc.cluster.local"
MANY = [f"192.0.2.{n}" for n in range(1, 4)]
LONG = "spec-name-" + "x" * 50  # with the node's name behind it more than a host name holds
PODS = {
    "spec-plain": pod_of("spec-plain", container("c")),
    "spec-fqdn": pod_of(
        "spec-fqdn",
        container("c"),
        hostname="db-0",
        subdomain="spec-db",
        setHostnameAsFQDN=True,
        hostAliases=[{"ip": "192.0.2.9", "hostnames": ["one.example", "one"]}],
    ),
    "spec-short": pod_of("spec-short", container("c"), hostname="db-1", subdomain="spec-db"),
    "spec-override": pod_of("spec-override", container("c"), hostnameOverride="any.name.example", subdomain="spec-db"),
    LONG: pod_of(LONG, container("c")),
    "spec-node": pod_of("spec-node", container("c"), hostNetwork=True),
    "spec-node-cluster": pod_of(
        "spec-node-cluster", container("c"), hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet"
    ),
    "spec-dns": pod_of(
        "spec-dns",
        container("c"),
        dnsPolicy="None",
        dnsConfig={
            "nameservers": MANY,
            "searches": ["a.example"],
            "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
        },
    ),
    "spec-more-dns": pod_of(
        "spec-more-dns",
        container("c"),
        dnsConfig={"nameservers": MANY, "searches": ["a.example"], "options": [{"name": "ndots", "value": "3"}]},
    ),
    "spec-host-dns": pod_of("spec-host-dns", container("c"), dnsPolicy="Default"),
    "spec-too-long": pod_of(
        "spec-too-long", container("c"), hostname="h" * 40, subdomain="spec-db", setHostnameAsFQDN=True
    ),
}
SEARCHES = ["default.svc.cluster.local", "svc.cluster.local", "cluster.local"]


@pytest_asyncio.fixture(scope="module", loop_scope="package", autouse=True)
async def pods(node: Node) -> AsyncIterator[None]:
    node.put(PODS)
    yield
    await node.take_away(PODS)


async def read(node: Node, pod: str, path: str) -> str:
    await node.wait_phase(pod, "Running")
    return await node.inside(pod, "c", "cat", path)


async def resolver(node: Node, pod: str) -> dict[str, list[str]]:
    """/etc/resolv.conf: keyword -> all its words."""
    found: dict[str, list[str]] = {}
    for line in (await read(node, pod, "/etc/resolv.conf")).splitlines():
        word, *rest = line.split()
        found.setdefault(word, []).extend(rest)
    return found


def of_host() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"nameserver": [], "search": [], "options": []}
    for line in Path("/etc/resolv.conf").read_text().splitlines():
        words = line.split()
        if words and words[0] in found:
            found[words[0]].extend(words[1:])
    return {key: words for key, words in found.items() if words}


async def hostname(node: Node, pod: str) -> str:
    return (await read(node, pod, "/proc/sys/kernel/hostname")).strip()


async def test_a_pod_is_called_as_it_is_named(node: Node) -> None:
    assert await hostname(node, "spec-plain") == "spec-plain-node-a"


async def test_the_whole_name_where_asked_for(node: Node) -> None:
    assert await hostname(node, "spec-fqdn") == FULL


async def test_a_pod_in_a_subdomain_is_called_by_its_short_name(node: Node) -> None:
    assert await hostname(node, "spec-short") == "db-1"


async def test_an_override_is_the_name_and_there_is_no_domain(node: Node) -> None:
    assert await hostname(node, "spec-override") == "any.name.example"
    assert "spec-db" not in await read(node, "spec-override", "/etc/hosts")


async def test_a_name_too_long_for_a_host_name_is_cut(node: Node) -> None:
    assert await hostname(node, LONG) == f"{LONG}-node-a"[:63].rstrip("-")


async def test_on_the_hosts_network_a_pod_is_called_as_the_host(node: Node) -> None:
    assert await hostname(node, "spec-node") == Path("/proc/sys/kernel/hostname").read_text().strip()


async def test_a_whole_name_too_long_for_the_kernel_keeps_the_sandbox_from_being_made(node: Node) -> None:
    full = f"{'h' * 40}.spec-db.default.svc.cluster.local"
    text = f"FQDN {full} is too long (64 characters is the max, {len(full)} characters requested)"
    event = await node.wait_event("spec-too-long", "FailedCreatePodSandBox", "too long")
    assert event[1] == (
        f"Failed to create pod sandbox: failed to construct FQDN from pod hostname and cluster domain, {text}"
    )


async def test_the_hosts_file_names_the_pod(node: Node) -> None:
    address = (await node.wait_phase("spec-plain", "Running"))["status"]["podIP"]
    lines = (await read(node, "spec-plain", "/etc/hosts")).splitlines()
    assert lines[0] == "# Kubernetes-managed hosts file."
    assert lines[-1] == f"{address}\tspec-plain-node-a"


async def test_the_hosts_file_has_whole_name_and_aliases(node: Node) -> None:
    address = (await node.wait_phase("spec-fqdn", "Running"))["status"]["podIP"]
    lines = (await read(node, "spec-fqdn", "/etc/hosts")).splitlines()
    assert lines[-4:] == [
        f"{address}\t{FULL}\tdb-0",
        "",
        "# Entries added by HostAliases.",
        "192.0.2.9\tone.example\tone",
    ]


async def test_on_the_hosts_network_the_hosts_file_is_the_hosts(node: Node) -> None:
    text = await read(node, "spec-node", "/etc/hosts")
    assert text == "# Kubernetes-managed hosts file (host network).\n" + Path("/etc/hosts").read_text()


async def test_the_clusters_name_resolution(node: Node) -> None:
    found = await resolver(node, "spec-plain")
    assert (found["nameserver"], found["options"]) == (["10.96.0.10"], ["ndots:5"])
    assert found["search"] == [*SEARCHES, *of_host().get("search", [])]


async def test_the_pods_own_besides_the_clusters_within_limits_and_a_warning(node: Node) -> None:
    found = await resolver(node, "spec-more-dns")
    applied = ["10.96.0.10", *MANY[:2]]
    assert (found["nameserver"], found["options"]) == (applied, ["ndots:3"])
    assert found["search"][-1] == "a.example"
    event = await node.wait_event("spec-more-dns", "DNSConfigForming")
    assert event[1].endswith(f"the applied nameserver line is: {' '.join(applied)}")


async def test_nothing_but_the_pods_own_name_resolution(node: Node) -> None:
    found = await resolver(node, "spec-dns")
    assert found["nameserver"] == MANY
    assert (found["search"], sorted(found["options"])) == (["a.example"], ["edns0", "ndots:2"])


async def test_the_hosts_name_resolution(node: Node) -> None:
    found, host = await resolver(node, "spec-host-dns"), of_host()
    assert found.get("nameserver") == host["nameserver"][:3]
    assert found.get("search", []) == host.get("search", [])


async def test_on_the_hosts_network_the_policy_of_the_cluster_means_the_hosts(node: Node) -> None:
    assert (await resolver(node, "spec-node")).get("nameserver") == of_host()["nameserver"][:3]


async def test_the_clusters_name_resolution_on_the_hosts_network_where_asked_for(node: Node) -> None:
    assert (await resolver(node, "spec-node-cluster"))["nameserver"] == ["10.96.0.10"]
