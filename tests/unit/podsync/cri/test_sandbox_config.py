"""The sandbox of a pod, beyond what the recordings show."""

from typing import Any

import pytest

from services.podsync.core.cri.config_errors import SandboxConfigError
from services.podsync.core.cri.sandbox_config import log_directory, sandbox_config
from services.podsync.core.node.node_facts import NodeFacts
from shared.model.objects import Object
from shared.podspec.defaults import apply_defaults

NODE = NodeFacts(node_name="n", cluster_dns=("10.96.0.10",), cluster_domain="cluster.local", memory_capacity=16 << 30)


def a_pod(container: dict[str, Any] | None = None, **spec: Any) -> Object:
    containers = [{"name": "c", "image": "i:1", **(container or {})}]
    metadata = {"name": "web", "namespace": "ns1", "uid": "U", "labels": {"io.kubernetes.pod.name": "lie", "a": "b"}}
    pod = {"metadata": metadata, "spec": {"containers": containers, **spec}}
    apply_defaults(pod)
    return pod


def test_the_pods_own_labels_cannot_hide_whose_sandbox_it_is() -> None:
    assert sandbox_config(a_pod(), facts=NODE, attempt=3)["labels"] == {
        "a": "b",
        "io.kubernetes.pod.name": "web",
        "io.kubernetes.pod.namespace": "ns1",
        "io.kubernetes.pod.uid": "U",
    }


def test_the_attempt_is_part_of_the_name() -> None:
    assert sandbox_config(a_pod(), facts=NODE, attempt=3)["metadata"]["attempt"] == 3
    assert log_directory(a_pod(), NODE) == "/var/log/pods/ns1_web_U"


def test_the_worked_example_of_the_reference() -> None:
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}}
    config = sandbox_config(a_pod({"resources": resources, "ports": [{"containerPort": 80}]}), facts=NODE, attempt=0)
    assert config["port_mappings"] == [{"container_port": 80}]
    assert config["linux"] == {
        "cgroup_parent": "/kubepods/burstable/podU",
        "security_context": {
            "namespace_options": {"pid": "CONTAINER", "userns_options": {"mode": "NODE"}},
            "seccomp": {},
        },
        "resources": {
            "cpu_period": 100000,
            "cpu_quota": 20000,
            "cpu_shares": 102,
            "memory_limit_in_bytes": 134217728,
        },
        "overhead": {},
    }


def test_without_cgroups_per_qos_the_runtime_chooses_the_parent() -> None:
    facts = NodeFacts(node_name="n", cgroups_per_qos=False)
    assert "cgroup_parent" not in sandbox_config(a_pod(), facts=facts, attempt=0)["linux"]


def test_overhead_counts_beside_the_resources_and_not_in_them() -> None:
    linux = sandbox_config(a_pod(overhead={"cpu": "250m", "memory": "64Mi"}), facts=NODE, attempt=0)["linux"]
    assert linux["resources"] == {"cpu_period": 100000, "cpu_shares": 2}
    assert linux["overhead"] == {
        "cpu_period": 100000,
        "cpu_quota": 25000,
        "cpu_shares": 256,
        "memory_limit_in_bytes": 64 << 20,
    }


def test_ports_of_one_container_are_mapped_once_and_init_containers_not_at_all() -> None:
    ports = [
        {"name": "a", "containerPort": 80},
        {"name": "a", "containerPort": 81},
        {"containerPort": 53, "protocol": "UDP"},
        {"containerPort": 53, "protocol": "UDP"},
        {"containerPort": 53, "protocol": "UDP", "hostIP": "::1"},
        {"containerPort": 53, "protocol": "SCTP", "hostPort": 5353, "hostIP": "127.0.0.1"},
    ]
    init = [{"name": "i", "image": "i:1", "ports": [{"containerPort": 1}]}]
    config = sandbox_config(a_pod({"ports": ports}, initContainers=init), facts=NODE, attempt=0)
    assert config["port_mappings"] == [
        {"container_port": 80},
        {"protocol": "UDP", "container_port": 53},
        {"protocol": "UDP", "container_port": 53, "host_ip": "::1"},
        {"protocol": "SCTP", "container_port": 53, "host_port": 5353, "host_ip": "127.0.0.1"},
    ]


def test_sysctl_names_are_given_with_dots() -> None:
    sysctls = [
        {"name": "net/ipv4/tcp_syncookies", "value": "1"},
        {"name": "net.ipv4.ip_forward", "value": "0"},
        {"name": "net/ipv4/conf/eth0.1/forwarding", "value": "1"},
        {"name": "kernel.a/b", "value": "1"},
    ]
    config = sandbox_config(a_pod(securityContext={"sysctls": sysctls}), facts=NODE, attempt=0)
    assert config["linux"]["sysctls"] == {
        "net.ipv4.tcp_syncookies": "1",
        "net.ipv4.ip_forward": "0",
        "net.ipv4.conf.eth0/1.forwarding": "1",
        "kernel.a/b": "1",
    }


def test_a_privileged_init_container_makes_the_sandbox_privileged() -> None:
    init = [{"name": "i", "image": "i:1", "securityContext": {"privileged": True}}]
    context = sandbox_config(a_pod(initContainers=init), facts=NODE, attempt=0)["linux"]["security_context"]
    assert context["privileged"] is True


def test_the_pods_security_context_reaches_the_sandbox() -> None:
    asked = {
        "runAsUser": 0,
        "runAsGroup": 7,
        "seLinuxOptions": {"level": "s0"},
        "fsGroup": 0,
        "supplementalGroups": [4, 5],
        "supplementalGroupsPolicy": "Strict",
    }
    context = sandbox_config(a_pod(securityContext=asked), facts=NODE, attempt=0)["linux"]["security_context"]
    assert context["run_as_user"] == {}
    assert context["run_as_group"] == {"value": 7}
    assert context["selinux_options"] == {"level": "s0"}
    assert context["supplemental_groups"] == [0, 4, 5]
    assert context["supplemental_groups_policy"] == "Strict"


def test_a_name_too_long_for_the_kernel_is_refused_with_the_kubelets_words() -> None:
    pod = a_pod(hostname="h" * 40, subdomain="sub", setHostnameAsFQDN=True)
    full = f"{'h' * 40}.sub.ns1.svc.cluster.local"
    with pytest.raises(SandboxConfigError) as refused:
        sandbox_config(pod, facts=NODE, attempt=0)
    assert refused.value.message == (
        f"failed to construct FQDN from pod hostname and cluster domain, FQDN {full} is too long "
        f"(64 characters is the max, {len(full)} characters requested)"
    )


def test_a_full_name_that_fits_is_the_hostname() -> None:
    pod = a_pod(hostname="h", subdomain="sub", setHostnameAsFQDN=True)
    assert sandbox_config(pod, facts=NODE, attempt=0)["hostname"] == "h.sub.ns1.svc.cluster.local"


def test_a_pod_without_ids_never_shares_the_hosts_users() -> None:
    facts = NodeFacts(node_name="n", user_namespaces=True)
    with pytest.raises(SandboxConfigError, match="the pod was given no ids of its own"):
        sandbox_config(a_pod(hostUsers=False), facts=facts, attempt=0)
