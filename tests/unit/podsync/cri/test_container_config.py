"""One container's message, beyond what the recordings show: resources, annotations, environment."""

import json
from typing import Any

import pytest

from services.podsync.core.cri.config_errors import ContainerConfigError
from services.podsync.core.node.node_facts import NodeFacts
from tests.unit.podsync.cri.container_messages import a_pod, built, env_of, resources_of, security_of


def test_the_worked_example_of_the_reference_on_cgroup_v2() -> None:
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}}
    assert resources_of(built(a_pod({"resources": resources}))) == {
        "cpu_period": 100000,
        "cpu_quota": 20000,
        "cpu_shares": 102,
        "memory_limit_in_bytes": 134217728,
        "oom_score_adj": 997,
        "hugepage_limits": [{"page_size": "2MB"}, {"page_size": "1GB"}],
        "unified": {"memory.oom.group": "1", "memory.swap.max": "0"},
    }


@pytest.mark.parametrize(
    ("request_", "adjust"), [("256Mi", 985), ("16373Mi", 3), ("1Mi", 999), ("8Gi", 500), ("17Gi", 3)]
)
def test_burstable_containers_are_killed_by_what_they_request(request_: str, adjust: int) -> None:
    pod = a_pod({"resources": {"requests": {"memory": request_}}})
    assert resources_of(built(pod))["oom_score_adj"] == adjust


def test_a_sidecar_is_not_killed_before_the_container_it_serves() -> None:
    sidecar = {"name": "s", "image": "i:1", "restartPolicy": "Always"}
    init = {"name": "i", "image": "i:1"}
    pod = a_pod({"resources": {"requests": {"memory": "8Gi"}}}, initContainers=[sidecar, init])
    assert resources_of(built(pod, container="s"))["oom_score_adj"] == 500
    assert resources_of(built(pod, container="i"))["oom_score_adj"] == 999


def test_what_the_pod_requests_beyond_its_containers_is_shared_among_them() -> None:
    pod = a_pod(
        {"resources": {"requests": {"memory": "4Gi"}}},
        resources={"requests": {"memory": "8Gi"}},
        initContainers=[{"name": "i", "image": "i:1"}],
    )
    assert resources_of(built(pod))["oom_score_adj"] == 1000 - 1000 * 6 // 16


def test_critical_static_pods_are_killed_last() -> None:
    pod = a_pod(priorityClassName="system-node-critical")
    assert resources_of(built(pod))["oom_score_adj"] == 1000
    pod["metadata"]["annotations"] = {"kubernetes.io/config.source": "file"}
    assert resources_of(built(pod))["oom_score_adj"] == -997


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


def test_attempt_and_log_path_follow_the_restart_count() -> None:
    message = built(a_pod(), restart_count=12)
    assert (message["metadata"], message["log_path"]) == ({"name": "c", "attempt": 12}, "c/12.log")


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


def test_commands_are_expanded_with_the_final_environment() -> None:
    container = {"command": ["$(A)", "$(S)", "$(NONE)"], "args": ["$$(A)"], "env": [{"name": "A", "value": "1"}]}
    message = built(a_pod(container), service_env={"S": "svc", "A": "other"})
    assert (message["command"], message["args"]) == (["1", "svc", "$(NONE)"], ["$(A)"])
    assert env_of(message) == {"A": "1", "S": "svc"}


def test_variables_see_only_those_before_them_and_the_last_of_a_name_wins() -> None:
    env = [
        {"name": "A", "value": "$(B)-$(S)"},
        {"name": "B", "value": "b"},
        {"name": "A", "value": "$(A)+$(B)"},
    ]
    assert env_of(built(a_pod({"env": env}), service_env={"S": "s"})) == {"A": "$(B)-s+b", "B": "b", "S": "s"}


def field(path: str) -> dict[str, Any]:
    return {"name": path, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def test_fields_of_the_pod_and_the_node_become_variables() -> None:
    paths = ["metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"]
    paths += ["status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs", "metadata.labels['a/b']"]
    paths += ["metadata.annotations['none']"]
    pod = a_pod({"env": [field(path) for path in paths]}, nodeName="n")
    pod["metadata"]["labels"] = {"a/b": "it's"}
    assert env_of(built(pod, pod_ips=("fd00::5", "10.0.0.5"))) == {
        "metadata.name": "web",
        "metadata.namespace": "ns1",
        "metadata.uid": "U",
        "spec.nodeName": "n",
        "spec.serviceAccountName": "",
        "status.hostIP": "192.0.2.7",
        "status.hostIPs": "192.0.2.7,2001:db8::7",
        "status.podIP": "10.0.0.5",
        "status.podIPs": "10.0.0.5,fd00::5",
        "metadata.labels['a/b']": "it's",
        "metadata.annotations['none']": "",
    }


def test_a_pod_on_the_hosts_network_has_the_hosts_address() -> None:
    pod = a_pod({"env": [field("status.podIP")]}, hostNetwork=True)
    assert env_of(built(pod, pod_ips=())) == {"status.podIP": "192.0.2.7"}


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ({"resource": "limits.memory", "divisor": "1Mi"}, "96"),
        ({"resource": "requests.cpu"}, "1"),
        ({"resource": "requests.cpu", "divisor": "1m"}, "250"),
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "limits.memory", "containerName": "i", "divisor": "1Gi"}, "15"),
        ({"resource": "requests.memory", "containerName": "i"}, "0"),
        ({"resource": "limits.ephemeral-storage"}, "0"),
    ],
)
def test_resources_become_variables_rounded_up(reference: dict[str, str], value: str) -> None:
    container = {
        "env": [{"name": "R", "valueFrom": {"resourceFieldRef": reference}}],
        "resources": {"requests": {"cpu": "250m"}, "limits": {"memory": "100M"}},
    }
    init = [{"name": "i", "image": "i:1"}]
    assert env_of(built(a_pod(container, initContainers=init))) == {"R": value}


@pytest.mark.parametrize(
    ("container", "text"),
    [
        ({"env": [field("status.phase")]}, "unsupported fieldPath: status.phase"),
        (
            {
                "env": [
                    {"name": "R", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "containerName": "x"}}}
                ]
            },
            "container x not found",
        ),
        (
            {"env": [{"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
            'secret "s" not found',
        ),
        ({"envFrom": [{"configMapRef": {"name": "m"}}]}, 'configmap "m" not found'),
        (
            {"env": [{"name": "S", "valueFrom": {"configMapKeyRef": {"name": "full", "key": "k", "optional": False}}}]},
            "couldn't find key k in ConfigMap ns1/full",
        ),
        ({"resources": {"claims": [{"name": "gpu"}]}}, "resources.claims are not supported yet"),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            'cannot find volume "v" to mount into container "c"',
        ),
        (
            {"securityContext": {"seccompProfile": {"type": "Localhost"}}},
            "localhostProfile must be set if seccompProfile type is Localhost.",
        ),
    ],
)
def test_the_error_of_what_cannot_be_described_has_the_kubelets_text(container: dict[str, Any], text: str) -> None:
    with pytest.raises(ContainerConfigError) as refused:
        built(a_pod(container))
    assert (refused.value.reason, refused.value.message) == ("CreateContainerConfigError", text)


def test_a_pod_that_was_never_defaulted_has_no_environment() -> None:
    pod = a_pod()
    del pod["spec"]["enableServiceLinks"]
    with pytest.raises(ContainerConfigError, match=r"nil pod\.spec\.enableServiceLinks encountered"):
        built(pod)
