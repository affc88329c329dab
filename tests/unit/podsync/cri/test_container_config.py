"""One container's message, beyond what the recordings and the golden cases show."""

import base64
import json
from typing import Any

import pytest

from services.podsync.core.cri.config_errors import ContainerConfigError
from services.podsync.core.cri.environment import ReferencedObject
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.pod.allocation import allocation_of
from tests.unit.podsync.cri.container_messages import a_pod, built, env_of, resources_of, security_of


def test_huge_pages_are_limited_per_size_of_the_host() -> None:
    pod = a_pod({"resources": {"limits": {"hugepages-2Mi": "4Mi", "hugepages-64Ki": "64Ki"}}})
    assert resources_of(built(pod))["hugepage_limits"] == [{"page_size": "2MB", "limit": 4 << 20}, {"page_size": "1GB"}]


def test_without_cfs_quota_there_is_neither_quota_nor_period() -> None:
    facts = NodeFacts(node_name="n", cpu_cfs_quota=False, cgroup_v2=True, single_process_oom_kill=True)
    assert resources_of(built(a_pod({"resources": {"limits": {"cpu": "1"}}}), facts=facts)) == {
        "cpu_shares": 1024,
        "oom_score_adj": 999,
    }


def test_annotations_are_those_that_another_kubelet_reads_back() -> None:
    container = {
        "ports": [{"hostIP": "1.1.1.1", "protocol": "TCP", "containerPort": 80, "hostPort": 81, "name": "http"}],
        "lifecycle": {"preStop": {"httpGet": {"port": "http", "httpHeaders": [{"value": "<1>", "name": "X"}]}}},
    }
    pod = a_pod(container)
    pod["metadata"]["deletionGracePeriodSeconds"] = 0
    annotations = built(pod, restart_count=4)["annotations"]
    assert annotations["io.kubernetes.container.ports"] == (
        '[{"name":"http","hostPort":81,"containerPort":80,"protocol":"TCP","hostIP":"1.1.1.1"}]'
    )
    assert annotations["io.kubernetes.container.preStopHandler"] == (
        '{"httpGet":{"path":"/","port":"http","scheme":"HTTP","httpHeaders":[{"name":"X","value":"\\u003c1\\u003e"}]}}'
    )
    assert annotations["io.kubernetes.container.restartCount"] == "4"
    assert annotations["io.kubernetes.pod.deletionGracePeriod"] == "0"
    assert annotations["io.kubernetes.pod.terminationGracePeriod"] == "30"


def test_fields_without_a_value_are_absent_wherever_they_are() -> None:
    def zeros(value: Any, path: str = "") -> list[str]:
        if isinstance(value, dict):
            return [bad for key, item in value.items() for bad in zeros(item, f"{path}.{key}")]
        if isinstance(value, list):
            return [bad for item in value for bad in zeros(item, f"{path}[]")] if value else [path]
        return [] if value else [path]

    container = {"env": [{"name": "E"}], "securityContext": {"capabilities": {}, "runAsUser": 0}, "stdin": False}
    message = built(a_pod(container))
    assert zeros(message) == []
    assert message["envs"] == [{"key": "E"}]
    assert security_of(message)["capabilities"] == {}
    assert json.loads(json.dumps(message)) == message


@pytest.mark.parametrize(
    ("container", "text"),
    [
        (
            {"env": [{"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
            'secret "s" not found',
        ),
        ({"envFrom": [{"configMapRef": {"name": "m"}}]}, 'configmap "m" not found'),
    ],
)
def test_an_object_that_was_not_read_is_an_error(container: dict[str, Any], text: str) -> None:
    with pytest.raises(ContainerConfigError) as refused:
        built(a_pod(container))
    assert (refused.value.reason, refused.value.message) == ("CreateContainerConfigError", text)


def test_a_container_is_given_what_is_allocated_to_it_and_not_what_its_spec_lists() -> None:
    def limited(cpu: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}}

    environment = [{"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}}]
    listed, allocated = (a_pod({**limited(cpu), "env": environment}) for cpu in ("2", "500m"))
    message = built(listed, allocation=allocation_of(allocated))
    assert message == built(allocated)
    assert resources_of(message)["cpu_quota"] == 50_000 and env_of(message) == {"CPU": "500"}


def test_bytes_of_a_secret_that_are_no_text_are_replaced_so_that_the_container_can_start() -> None:
    """CRI takes texts, and a runtime writes the environment as JSON."""
    secret = ReferencedObject({"data": {"k": base64.b64encode(b"\xff\xc3\xa9").decode()}})
    env = [{"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    message = built(a_pod({"env": env}), references={("Secret", "s"): secret})
    assert env_of(message)["S"].encode() == b"\xef\xbf\xbd\xc3\xa9"
