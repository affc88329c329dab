"""pods.md 12.1-12.4: name resolution and host names."""

from typing import Any

from tests.unit.podsync.cri.golden.case import Case

HOST = {"servers": ["192.0.2.53"], "searches": ["host.example"], "options": ["timeout:1"]}
CLUSTER = ["ns1.svc.cluster.local", "svc.cluster.local", "cluster.local"]


def dns(name: str, wanted: dict[str, Any], policy: str = "ClusterFirst", config: Any = None, **others: Any) -> Case:
    """A dnsPolicy and dnsConfig, and the whole DNSConfig of CRI."""
    spec = {"dnsPolicy": policy, **({"dnsConfig": config} if config else {})}
    return Case(name=f"DNS: {name}", spec=spec, sandbox={"dns_config": wanted}, **others)


def hostname(name: str, wanted: str, spec: dict[str, Any], **others: Any) -> Case:
    """What the sandbox is called."""
    return Case(name=f"host name: {name}", spec=spec, sandbox={"hostname": wanted}, **others)


def host_file(text: str) -> dict[str, Any]:
    return {"resolv_conf": text}


LONG = "x" * 60 + "-ab-cd"  # 66 characters, the 61st and 64th are dashes

DNS = (
    dns("the host's", HOST, "Default"),
    dns("none", {}, "None"),
    dns("none but the pod's own", {"servers": ["1.1.1.1"], "searches": ["a.b"], "options": ["ndots:2", "edns0"]},
        "None", {"nameservers": ["1.1.1.1", "1.1.1.1"], "searches": ["a.b"],
         "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]}),
    dns("the pod's own besides the cluster's",
        {"servers": ["10.96.0.10", "1.1.1.1"], "searches": [*CLUSTER, "host.example", "a.b"],
         "options": ["ndots:5", "timeout:3"]}, "ClusterFirst",
        {"nameservers": ["1.1.1.1", "10.96.0.10"], "searches": ["a.b", "cluster.local"],
         "options": [{"name": "timeout", "value": "3"}]}),
    dns("the pod's own options win", {"servers": ["10.96.0.10"], "searches": [*CLUSTER, "host.example"],
                                     "options": ["ndots:1"]}, "ClusterFirst", {"options": [{"name": "ndots",
                                                                                            "value": "1"}]}),
    dns("a cluster without a domain", {"servers": ["10.96.0.10"], "searches": ["host.example"],
                                       "options": ["ndots:5"]}, node={"cluster_domain": ""}),
    dns("a cluster without a server has the host's", HOST, node={"cluster_dns": ()}),
    dns("an unknown policy is the cluster's", {"servers": ["10.96.0.10"], "searches": [*CLUSTER, "host.example"],
                                                  "options": ["ndots:5"]}, "Nonsense"),
    dns("a search of the host that is the cluster's too counts once",
        {"servers": ["10.96.0.10"], "searches": [*CLUSTER, "z.y"], "options": ["ndots:5"]},
        node=host_file("search cluster.local z.y\n")),
    dns("no file of the host's", {"servers": ["127.0.0.1", "::1"], "searches": ["."]}, "Default",
        node={"resolv_conf": None}),
    dns("no file on a node of one family", {"servers": ["::1"], "searches": ["."]}, "Default",
        node={"resolv_conf": None, "node_ips": ("2001:db8::7",)}),
    dns("the file: comments, domain, the last search, dots at the end, options once each",
        {"servers": ["192.0.2.1", "192.0.2.2"], "searches": ["c.d", "e"], "options": ["ndots:3", "rotate"]}, "Default",
        node=host_file("\n# nameserver 9.9.9.9\n; nameserver 9.9.9.8\ndomain no.where\nnameserver 192.0.2.1\n"
                       "search a.b\nnameserver 192.0.2.2\n"
                       "search c.d. e .\noptions ndots:2 rotate\noptions ndots:3\n")),
    dns("three servers at most", {"servers": ["1.0.0.1", "1.0.0.2", "1.0.0.3"]}, "None",
        {"nameservers": ["1.0.0.1", "1.0.0.2", "1.0.0.3", "1.0.0.4"]}),
    dns("32 searches at most", {"servers": ["1.1.1.1"], "searches": [f"s{n}" for n in range(32)]}, "None",
        {"nameservers": ["1.1.1.1"], "searches": [f"s{n}" for n in range(33)]}),
    dns("no search of more than 253 characters", {"servers": ["1.1.1.1"], "searches": ["a" * 253, "ok"]}, "None",
        {"nameservers": ["1.1.1.1"], "searches": ["a" * 253, "b" * 254, "ok"]}),
    dns("a search line of 2048 characters at most",  # 8 of 250 and 7 blanks are 2007, a ninth would be too many
        {"servers": ["1.1.1.1"], "searches": [f"{n}" * 250 for n in range(1, 9)]}, "None",
        {"nameservers": ["1.1.1.1"], "searches": [f"{n}" * 250 for n in range(1, 10)]}),
)  # fmt: skip

HOSTNAMES = (
    hostname("the spec's", "db-0", {"hostname": "db-0"}),
    hostname("the spec's, with a subdomain, is short", "db-0", {"hostname": "db-0", "subdomain": "db"}),
    hostname("the whole name where asked for", "db-0.db.ns1.svc.cluster.local",
             {"hostname": "db-0", "subdomain": "db", "setHostnameAsFQDN": True}),
    hostname("the whole name of the pod's own", "web.db.ns1.svc.cluster.local",
             {"subdomain": "db", "setHostnameAsFQDN": True}),
    Case(name="host name: the whole name where there is no domain", spec={"setHostnameAsFQDN": True}),
    hostname("an override", "any.name.at-all", {"hostnameOverride": "any.name.at-all", "hostname": "db-0",
                                                "subdomain": "db", "setHostnameAsFQDN": True}),
    hostname("an override of more than 63 characters is cut", "a" * 31 + "." + "b" * 31,
             {"hostnameOverride": "a" * 31 + "." + "b" * 40}),
    Case(
        name="host name: a pod's name of more than 63 characters is cut, and ends in no dash",
        metadata={"name": LONG},
        sandbox={
            "hostname": "x" * 60 + "-ab",
            "metadata:name": LONG,
            "log_directory": f"/var/log/pods/ns1_{LONG}_U",
            "labels:io.kubernetes.pod.name": LONG,
        },
        message={"labels:io.kubernetes.pod.name": LONG},
    ),
    Case(
        name="host name: cut at a dash",
        metadata={"name": "x" * 62 + "-abc"},
        sandbox={
            "hostname": "x" * 62,
            "metadata:name": "x" * 62 + "-abc",
            "log_directory": "/var/log/pods/ns1_" + "x" * 62 + "-abc_U",
            "labels:io.kubernetes.pod.name": "x" * 62 + "-abc",
        },
        message={"labels:io.kubernetes.pod.name": "x" * 62 + "-abc"},
    ),
)  # fmt: skip

CASES = (*DNS, *HOSTNAMES)
