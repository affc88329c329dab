"""From a document to the pod that what-if asks about: templates, defaults, what the API server adds, bad input."""

from typing import Any

import pytest

from services.cli.what_if.answers import optional_names
from services.cli.what_if.candidates import Candidate, NodeIdentity, candidate
from shared.podspec.pod_source import is_critical, is_static
from shared.podspec.qos import QosClass, qos_class

NODE = NodeIdentity(name="n1", root_dir="/k", static_pod_path="/etc/manifests")
CONTAINERS = [{"name": "c", "image": "i:1"}]
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"


def of_api(document: dict[str, Any], namespace: str = "") -> Candidate:
    """As a pod of the API server."""
    return candidate(document, "f.yaml", namespace, NODE, static=False, applied=False)


def a_pod(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": [dict(CONTAINERS[0])], **spec},
    }


def spec_of(found: Candidate) -> dict[str, Any]:
    assert found.pod is not None, found.invalid
    return dict(found.pod["spec"])


def test_a_pod_of_the_api_server_is_bound_to_the_node_with_what_admission_adds() -> None:
    found = of_api(a_pod())
    spec = spec_of(found)
    assert (found.namespace, found.name, found.owner, found.source) == ("shop", "web", "", "api")
    assert (spec["nodeName"], spec["priority"], spec["restartPolicy"]) == ("n1", 0, "Always")
    assert [one["key"] for one in spec["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    assert [mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]] == [TOKEN]
    assert found.pod is not None and not is_static(found.pod) and qos_class(found.pod) is QosClass.BEST_EFFORT
    assert found.notes == ("the API server chooses the UID: paths have <uid> in its place",)


def test_what_the_pod_has_itself_stays() -> None:
    mounts = [{"name": "own", "mountPath": TOKEN}]
    pod = a_pod(
        nodeName="other",
        priority=7,
        tolerations=[{"operator": "Exists"}],
        containers=[{"name": "c", "image": "i:1", "volumeMounts": mounts}],
        volumes=[{"name": "own", "emptyDir": {}}],
    )
    pod["metadata"]["uid"] = "u1"
    spec = spec_of(of_api(pod))
    assert (spec["nodeName"], spec["priority"]) == ("other", 7)
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["containers"][0]["volumeMounts"] == mounts and len(spec["volumes"]) == 1
    assert of_api(pod).notes == ()
    assert "volumes" not in spec_of(of_api(a_pod(automountServiceAccountToken=False)))


def test_the_priority_of_a_class_is_known_for_the_two_of_the_system_alone() -> None:
    critical = of_api(a_pod(priorityClassName="system-node-critical")).pod
    assert critical is not None and is_critical(critical)
    other = of_api(a_pod(priorityClassName="gold"))
    assert spec_of(other)["priority"] == 0
    assert other.notes[0] == "the priority of PriorityClass gold is not known here: 0 is assumed"


@pytest.mark.parametrize(
    "kind", ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController"]
)
def test_of_an_owner_the_template_counts_under_its_name(kind: str) -> None:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": CONTAINERS}}
    document = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": {"template": template}}
    found = of_api(document, "shop")
    assert (found.owner, found.namespace, found.name) == (f"{kind} shop/web", "shop", "web")
    assert found.pod is not None and found.pod["metadata"]["labels"] == {"app": "x"}
    memory = [one for one in spec_of(found)["tolerations"] if one["key"].endswith("memory-pressure")]
    assert len(memory) == (kind == "DaemonSet")


def test_a_cron_job_and_a_pod_template_have_their_template_elsewhere() -> None:
    template = {"spec": {"containers": CONTAINERS}}
    job = {"spec": {"template": template}}
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "a"}, "spec": {"jobTemplate": job}}
    assert of_api(cron).owner == "CronJob default/a" and spec_of(of_api(cron))
    bare = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"generateName": "b-"}, "template": template}
    assert of_api(bare).name == "b-0"


def test_on_a_node_that_runs_alone_it_is_the_static_pod_that_would_be_applied() -> None:
    found = candidate(a_pod(), "f.yaml", "", NODE, static=True, applied=True)
    assert found.pod is not None and is_static(found.pod)
    assert (found.name, found.source, found.notes) == ("web-n1", "file", ())
    same = candidate(a_pod(), "other.yaml", "", NODE, static=True, applied=True)
    assert same.pod is not None and same.pod["metadata"]["uid"] == found.pod["metadata"]["uid"]
    in_path = candidate(a_pod(), "dir/f.yaml", "", NODE, static=True, applied=False)
    assert in_path.pod is not None and in_path.pod["metadata"]["uid"] != found.pod["metadata"]["uid"]


def test_a_static_pod_in_the_path_may_not_name_a_secret() -> None:
    pod = a_pod(volumes=[{"name": "v", "secret": {"secretName": "x"}}])
    assert candidate(pod, "f", "", NODE, static=True, applied=True).invalid == ""
    found = candidate(pod, "f", "", NODE, static=True, applied=False)
    assert (found.pod, found.invalid) == (None, "static pods may not reference secrets")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"metadata": {"name": "<script>"}}, "metadata.name"),
        ({"metadata": {"name": {"a": 1}}}, "metadata.name"),
        ({"metadata": []}, "metadata.name"),
        ({"spec": {"containers": []}}, "spec.containers"),
        ({"spec": "x"}, "spec"),
        ({"apiVersion": "v2"}, "apiVersion is 'v2'"),
        ({"apiVersion": ["v1"]}, "apiVersion is"),
    ],
)
def test_what_the_api_server_would_refuse_is_no_pod(change: dict[str, Any], line: str) -> None:
    found = of_api({**a_pod(), **change})
    assert found.pod is None and line in found.invalid


def test_an_object_is_optional_where_each_place_that_names_it_is() -> None:
    container = {
        "name": "c",
        "image": "i:1",
        "envFrom": [{"configMapRef": {"name": "a", "optional": True}}, {"secretRef": {"name": "b"}}],
        "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "d", "key": "k", "optional": True}}}],
    }
    volumes = [
        {"name": "v", "secret": {"secretName": "e", "optional": True}},
        {"name": "w", "projected": {"sources": [{"configMap": {"name": "a"}}]}},
    ]
    pod = a_pod(containers=[container], volumes=volumes, imagePullSecrets=[{"name": "f"}])
    assert optional_names(pod) == {("Secret", "d"), ("Secret", "e"), ("Secret", "f")}
