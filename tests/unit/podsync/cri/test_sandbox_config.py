"""The sandbox of a pod, beyond what the recordings and the golden cases show."""

from typing import Any

import pytest

from services.podsync.core.cri.config_errors import SandboxConfigError
from services.podsync.core.cri.sandbox_config import sandbox_config
from services.podsync.core.cri.user_namespaces import Mappings
from services.podsync.core.node.node_facts import NodeFacts
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.podspec.defaults import apply_defaults

NODE = NodeFacts(node_name="n", cluster_dns=("10.96.0.10",), cluster_domain="cluster.local", memory_capacity=16 << 30)


def a_pod(**spec: Any) -> Object:
    metadata = {"name": "web", "namespace": "ns1", "uid": "U"}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i:1"}], **spec}}
    apply_defaults(pod)
    return pod


@pytest.mark.parametrize(
    ("spec", "kept"),
    [
        ({}, "net.core.somaxconn kernel.msgmax fs.mqueue.msg_max kernel.domainname"),
        ({"hostNetwork": True}, "kernel.msgmax fs.mqueue.msg_max"),
        ({"hostIPC": True}, "net.core.somaxconn kernel.domainname"),
        ({"hostUsers": True}, "net.core.somaxconn kernel.msgmax fs.mqueue.msg_max kernel.domainname"),
        (
            {"hostUsers": False},
            "net.core.somaxconn kernel.msgmax fs.mqueue.msg_max kernel.domainname user.max_user_namespaces",
        ),
    ],
)
def test_default_sysctls_are_only_of_namespaces_that_the_pod_has_alone(spec: dict[str, Any], kept: str) -> None:
    """pods.md 3.4"""
    names = (
        "net.core.somaxconn",
        "kernel.msgmax",
        "fs.mqueue.msg_max",
        "kernel.domainname",
        "user.max_user_namespaces",
    )
    facts = replace(NODE, default_sysctls=dict.fromkeys(names, "1"), user_namespaces=True)
    mappings = (
        Mappings(uids=((65536, 0, 65536),), gids=((65536, 0, 65536),)) if spec.get("hostUsers") is False else None
    )
    config = sandbox_config(a_pod(**spec), facts=facts, attempt=0, mappings=mappings)
    assert config["linux"]["sysctls"] == dict.fromkeys(kept.split(), "1")


def test_a_pod_without_ids_never_shares_the_hosts_users() -> None:
    facts = NodeFacts(node_name="n", user_namespaces=True)
    with pytest.raises(SandboxConfigError, match="the pod was given no ids of its own"):
        sandbox_config(a_pod(hostUsers=False), facts=facts, attempt=0)
