"""pods.md 6.3, B.5: the environment, from every source and in the right order."""

from typing import Any

from services.podsync.core.cri.environment import EnvFile, ReferencedObject
from tests.unit.podsync.cri.golden.case import CONTAINER, Case, another, without_message_file

REFERENCES = {
    ("ConfigMap", "m"): ReferencedObject(
        {"data": {"A": "1", "B": "2", "key.with-dots": "x"}, "binaryData": {"C": "Yw=="}}
    ),
    ("ConfigMap", "n"): ReferencedObject({"data": {"B": "3"}}),
    ("Secret", "s"): ReferencedObject({"data": {"PW": "cyQoQSk="}}),  # s$(A)
    ("ConfigMap", "gone"): ReferencedObject(None, not_found=True, error='configmap "gone" not found'),
    ("Secret", "gone"): ReferencedObject(None, not_found=True, error='secret "gone" not found'),
}


def from_(name: str, **source: Any) -> dict[str, Any]:
    return {"name": name, "valueFrom": source}


def field(name: str, path: str) -> dict[str, Any]:
    return from_(name, fieldRef={"apiVersion": "v1", "fieldPath": path})


def env(name: str, *variables: dict[str, Any], sets: dict[str, str], **others: Any) -> Case:
    """A container with these variables, and what is then set besides the services'."""
    container = {"env": list(variables), **others.pop("container", {})}
    given = {"references": REFERENCES, **others.pop("given", {})}
    message = {f"envs:{key}": value for key, value in sets.items()} | others.pop("message", {})
    return Case(name=name, container=container, given=given, message=message, **others)


def all_of(name: str, *sources: dict[str, Any], sets: dict[str, str], **others: Any) -> Case:
    """A container with these envFrom sources."""
    return env(name, sets=sets, container={"envFrom": list(sources), **others.pop("container", {})}, **others)


def resource(name: str, value: str, reference: dict[str, str], **others: Any) -> Case:
    """One resourceFieldRef in a pod whose spec asks for nothing else than `others`."""
    return env(name, from_("R", resourceFieldRef=reference), sets={"R": value}, **others)


EXPANSION = (
    env("a literal and nothing", {"name": "A", "value": "x"}, {"name": "B"}, {"name": "D", "value": ""},
        sets={"A": "x", "B": "", "D": ""}),
    env("a reference to an earlier variable", {"name": "A", "value": "x"}, {"name": "B", "value": "<$(A)>"},
        sets={"A": "x", "B": "<x>"}),
    env("a reference to a later variable stays as it is", {"name": "A", "value": "$(B)"}, {"name": "B", "value": "x"},
        sets={"A": "$(B)", "B": "x"}),
    env("two dollars are one, and no reference", {"name": "A", "value": "x"}, {"name": "B", "value": "$$(A)"},
        sets={"A": "x", "B": "$(A)"}),
    env("three dollars are one and a reference", {"name": "A", "value": "x"}, {"name": "B", "value": "$$$(A)"},
        sets={"A": "x", "B": "$x"}),
    env("what is no reference stays", {"name": "A", "value": "x"},
        {"name": "B", "value": "$A"}, {"name": "D", "value": "$(A"}, {"name": "E", "value": "a$"},
        {"name": "F", "value": "$$"}, sets={"A": "x", "B": "$A", "D": "$(A", "E": "a$", "F": "$"}),
    env("values are not expanded twice", {"name": "A", "value": "$$(B)"}, {"name": "B", "value": "x"},
        {"name": "D", "value": "$(A)"}, sets={"A": "$(B)", "B": "x", "D": "$(B)"}),
    env("a reference to a variable of a service", {"name": "A", "value": "$(KUBERNETES_SERVICE_HOST):443"},
        sets={"A": "10.96.0.1:443"}),
    env("of one name the last counts", {"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, sets={"A": "12"}),
    env("the pod's own variables win over services'", {"name": "KUBERNETES_SERVICE_HOST", "value": "mine"},
        sets={"KUBERNETES_SERVICE_HOST": "mine"}),
)  # fmt: skip

OBJECTS = (
    all_of("all of a ConfigMap but its binary data", {"configMapRef": {"name": "m"}},
          sets={"A": "1", "B": "2", "key.with-dots": "x"}),
    all_of("with a prefix, the later of two wins", {"prefix": "P_", "configMapRef": {"name": "m"}},
          {"prefix": "P_", "configMapRef": {"name": "n"}}, sets={"P_A": "1", "P_B": "3", "P_key.with-dots": "x"}),
    all_of("all of a Secret, taken as it is", {"secretRef": {"name": "s"}}, sets={"PW": "s$(A)"}),
    all_of("what is optional may be missing", {"configMapRef": {"name": "gone", "optional": True}},
          {"secretRef": {"name": "gone", "optional": True}}, sets={}),
    all_of("the container's own variables win over complete objects and see them", {"configMapRef": {"name": "n"}},
          container={"env": [{"name": "A", "value": "$(B)"}, {"name": "B", "value": "4"}]}, sets={"A": "3", "B": "4"}),
    env("one key of each", from_("A", configMapKeyRef={"name": "m", "key": "B"}),
        from_("D", secretKeyRef={"name": "s", "key": "PW"}), sets={"A": "2", "D": "s$(A)"}),
    env("optional keys that are missing are no variables",
        from_("A", configMapKeyRef={"name": "m", "key": "none", "optional": True}),
        from_("B", configMapKeyRef={"name": "gone", "key": "k", "optional": True}),
        from_("D", secretKeyRef={"name": "s", "key": "none", "optional": True}), sets={}),
)  # fmt: skip

FIELDS = (
    env("what the pod is", field("A", "metadata.name"), field("B", "metadata.namespace"), field("D", "metadata.uid"),
        field("E", "spec.nodeName"), field("F", "spec.serviceAccountName"), field("G", "spec.host"),
        sets={"A": "web", "B": "ns1", "D": "U", "E": "n1", "F": "sa", "G": "n1"}),
    env("a label, an annotation, and one it has not", field("A", "metadata.labels['app']"),
        field("B", "metadata.annotations['kubernetes.io/config.source']"), field("D", "metadata.labels['none']"),
        sets={"A": "web", "B": "api", "D": ""}),
    env("all labels, sorted and quoted", field("A", "metadata.labels"),
        metadata={"labels": {"z": 'print "x"\n', "app": "web"}},
        sandbox={"labels:z": 'print "x"\n'}, sets={"A": 'app="web"\nz="print \\"x\\"\\n"'}),
    env("addresses", field("A", "status.hostIP"), field("B", "status.hostIPs"), field("D", "status.podIP"),
        field("E", "status.podIPs"), sets={"A": "192.0.2.7", "B": "192.0.2.7,2001:db8::7", "D": "10.0.0.5",
                                           "E": "10.0.0.5"}),
    env("addresses of two families, that of the node first", field("D", "status.podIP"), field("E", "status.podIPs"),
        given={"pod_ips": ("fd00::5", "10.0.0.5", "10.0.0.6")}, sets={"D": "10.0.0.5", "E": "10.0.0.5,fd00::5"},
        ),
    env("addresses on a node that prefers IPv6", field("D", "status.podIP"), field("E", "status.podIPs"),
        node={"node_ips": ("2001:db8::7", "192.0.2.7")}, given={"pod_ips": ("10.0.0.5", "fd00::5")},
        sets={"D": "fd00::5", "E": "fd00::5,10.0.0.5"}),
    env("on the host's network the addresses are the host's", field("D", "status.podIP"), field("E", "status.podIPs"),
        spec={"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}, given={"pod_ips": ()},
        sandbox={"hostname": None, "linux:security_context:namespace_options:network": "NODE"},
        message={"linux:security_context:namespace_options:network": "NODE"},
        sets={"D": "192.0.2.7", "E": "192.0.2.7,2001:db8::7"}),
)  # fmt: skip

REQUESTS = {"container": {"resources": {"requests": {"ephemeral-storage": "10", "hugepages-2Mi": "0"}}}}

RESOURCES = (
    resource("a limit that is not set is what the node can allocate: cpu, rounded up", "4", {"resource": "limits.cpu"}),
    resource("… in thousandths", "3920", {"resource": "limits.cpu", "divisor": "1m"}),
    resource("… memory", "15", {"resource": "limits.memory", "divisor": "1Gi"}),
    resource("… ephemeral storage", "96636764160", {"resource": "limits.ephemeral-storage"}),
    resource("… but not huge pages", "0", {"resource": "limits.hugepages-2Mi"}),
    resource("a request that is not set is nothing", "0", {"resource": "requests.cpu"}),
    resource("a divisor of 0 is 1", "16106127360", {"resource": "limits.memory", "divisor": "0"}),
    env("ephemeral storage rounded up to its divisor",
        from_("R", resourceFieldRef={"resource": "requests.ephemeral-storage", "divisor": "3"}), sets={"R": "4"},
        **REQUESTS),
    env("another container's", from_("R", resourceFieldRef={"resource": "requests.memory", "containerName": "d",
                                                            "divisor": "1Mi"}),
        container={"resources": {}},
        spec={"containers": [
            {**CONTAINER, "env": [from_("R", resourceFieldRef={"resource": "requests.memory", "containerName": "d",
                                                               "divisor": "1Mi"})]},
            another("d", resources={"requests": {"memory": "100M"}})]},
        sandbox={"linux:cgroup_parent": "/kubepods/burstable/podU"},
        message={"linux:resources:oom_score_adj": 999}, sets={"R": "96"}),
    env("the pod's limit, where the container has none", from_("R", resourceFieldRef={"resource": "limits.cpu"}),
        from_("S", resourceFieldRef={"resource": "limits.memory"}),
        spec={"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "2"}}},
        sandbox={"linux:cgroup_parent": "/kubepods/burstable/podU", "linux:resources:cpu_shares": 512,
                 "linux:resources:cpu_quota": 200000},
        message={"linux:resources:oom_score_adj": 999, "linux:resources:cpu_shares": 2048,
                 "linux:resources:cpu_quota": 200000}, sets={"R": "2", "S": "16106127360"}),
    env("requests and limits of its own",
        from_("A", resourceFieldRef={"resource": "limits.memory", "divisor": "1Mi"}),
        from_("B", resourceFieldRef={"resource": "requests.cpu"}),
        from_("D", resourceFieldRef={"resource": "requests.cpu", "divisor": "1m"}),
        container={"resources": {"requests": {"cpu": "250m", "memory": "100M"}, "limits": {"memory": "100M"}}},
        sandbox={"linux:cgroup_parent": "/kubepods/burstable/podU", "linux:resources:cpu_shares": 256,
                 "linux:resources:memory_limit_in_bytes": 100000000},
        message={"linux:resources:cpu_shares": 256, "linux:resources:memory_limit_in_bytes": 100000000,
                 "linux:resources:oom_score_adj": 995},  # 1000 - floor(1000 * 100e6 / 2^34)
        on_v1={"linux:resources:memory_swap_limit_in_bytes": 100000000},
        sets={"A": "96", "B": "1", "D": "250"}),
)  # fmt: skip

FILE = EnvFile({"A": "x", "EMPTY": ""})


def file(name: str, key: str, *, optional: bool = False) -> dict[str, Any]:
    return from_(name, fileKeyRef={"volumeName": "v", "path": "a.env", "key": key, "optional": optional})


FILES = (
    env("a key of a file", file("F", "A"), sets={"F": "x"}, given={"env_files": {("v", "a.env"): FILE}}),
    env("keys a file has not, or has empty, where they are optional", file("F", "none", optional=True),
        file("G", "EMPTY", optional=True), sets={}, given={"env_files": {("v", "a.env"): FILE}}),
    env("a key above the line of a file that is wrong", file("F", "A"), sets={"F": "x"},
        given={"env_files": {("v", "a.env"): EnvFile({"A": "x"}, error="couldn't parse env file")}}),
    env("a file that is not there, where it is optional", file("F", "A", optional=True), sets={},
        given={"env_files": {("v", "a.env"): EnvFile({}, missing=True)}}),
)  # fmt: skip

SERVICES = (
    Case(name="no Services are known", given={"service_env": {}}, message={"envs": None}),
    Case(
        name="an ephemeral container has an environment too",
        spec={
            "ephemeralContainers": [
                another("debug", terminationMessagePath="", env=[{"name": "A", "value": "1"}], command=["$(A)"])
            ]
        },
        of="debug",
        message={
            **without_message_file("debug", "77a2b699"),
            "envs:A": "1",
            "command": ["1"],
        },
    ),
)  # fmt: skip

CASES = (*EXPANSION, *OBJECTS, *FIELDS, *RESOURCES, *FILES, *SERVICES)
