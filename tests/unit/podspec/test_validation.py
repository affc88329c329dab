"""What the API server would refuse is refused here, naming the field and what is wrong with it."""

from typing import Any

import pytest

from shared.model.objects import Object
from shared.podspec.defaults import apply_defaults
from shared.podspec.validation import validate_pod


def a_pod(container: dict[str, Any] | None = None, **spec: Any) -> Object:
    containers = [{"name": "c", "image": "busybox:1", **(container or {})}]
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": containers, **spec}}
    apply_defaults(pod)
    return pod


def test_a_plain_pod_is_valid() -> None:
    assert validate_pod(a_pod()) == []


def test_a_pod_with_everything_is_valid() -> None:
    container = {
        "ports": [{"name": "http", "containerPort": 80, "hostPort": 80}, {"containerPort": 80, "protocol": "UDP"}],
        "env": [
            {"name": "A.b-1", "value": "x"},
            {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "resources": {"limits": {"cpu": "1", "hugepages-2Mi": "2Mi"}, "requests": {"cpu": "500m"}},
        "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "a/b", "mountPropagation": "HostToContainer"}],
        "livenessProbe": {"httpGet": {"port": "http"}},
        "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
        "securityContext": {"runAsUser": 0, "seccompProfile": {"type": "Localhost", "localhostProfile": "a/b.json"}},
    }
    sidecar = {"name": "s", "image": "x", "restartPolicy": "Always", "readinessProbe": {"exec": {"command": ["x"]}}}
    pod = a_pod(
        container,
        initContainers=[sidecar],
        volumes=[{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "h", "hostPath": {"path": "/"}}],
        dnsPolicy="None",
        dnsConfig={"nameservers": ["1.1.1.1"], "options": [{"name": "ndots", "value": "2"}]},
        hostAliases=[{"ip": "::1", "hostnames": ["a.b"]}],
        hostname="h",
        subdomain="s",
        securityContext={"sysctls": [{"name": "net/ipv4/tcp_syncookies", "value": "1"}], "fsGroup": 1},
        activeDeadlineSeconds=5,
        overhead={"cpu": "10m"},
    )
    assert validate_pod(pod) == []


@pytest.mark.parametrize(
    ("claims", "messages"),
    [
        ([{"name": "gpu"}, {"name": "nic", "request": "a"}, {"name": "nic", "request": "b"}], []),
        ([{"request": "a"}], ["[0]: Required value"]),
        ([{"name": "nic"}, {"name": "nic"}], ['[1]: Duplicate value: "nic"']),
        ([{"name": "x"}], ['[0]: Not found: "x": must be one of the names in pod.spec.resourceClaims: gpu, nic']),
    ],
)
def test_the_claims_of_a_container_are_those_of_its_pod(claims: list[dict[str, str]], messages: list[str]) -> None:
    container = {"resources": {"claims": claims}}
    listed = [{"name": name, "resourceClaimName": name} for name in ("nic", "gpu")]
    at = "spec.containers[0].resources.claims"
    assert validate_pod(a_pod(container, resourceClaims=listed)) == [f"{at}{message}" for message in messages]
    lacking = "must be one of the names in pod.spec.resourceClaims which is empty"
    without = validate_pod(a_pod({"resources": {"claims": [{"name": "gpu"}]}}))
    assert without == [f'{at}[0]: Not found: "gpu": {lacking}']


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "name: Required value"),
        ({"image": ""}, "image: Required value"),
        (
            {"image": " x"},
            'image: Invalid value: " x": must not have leading or trailing whitespace',
        ),
        (
            {"imagePullPolicy": "Sometimes"},
            'imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"',
        ),
        ({"ports": [{}]}, "ports[0].containerPort: Required value"),
        (
            {"ports": [{"containerPort": 70000}]},
            "ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            {"ports": [{"containerPort": 1, "protocol": "tcp"}]},
            'ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP"',
        ),
        (
            {"ports": [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]},
            'ports[1].name: Duplicate value: "a"',
        ),
        ({"env": [{"value": "x"}]}, "env[0].name: Required value"),
        (
            {"env": [{"name": "a=b"}]},
            (
                'env[0].name: Invalid value: "a=b": a valid environment variable name must consist only of '
                "printable ASCII characters other than '='"
            ),
        ),
        (
            {"env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
            'env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty',
        ),
        (
            {"resources": {"limits": {"cpu": "fast"}}},
            (
                'resources.limits[cpu]: Invalid value: "fast": quantities must match the regular '
                "expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            ),
        ),
        (
            {"resources": {"limits": {"cpu": "100m"}, "requests": {"cpu": "200m"}}},
            'resources.requests: Invalid value: "200m": must be less than or equal to cpu limit of 100m',
        ),
        (
            {"resources": {"requests": {"cpu": "-1"}}},
            'resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0',
        ),
        (
            {"volumeMounts": [{"name": "x", "mountPath": "/x"}]},
            'volumeMounts[0].name: Not found: "x"',
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/x", "subPath": "../x"}]},
            "volumeMounts[0].subPath: Invalid value: \"../x\": must not contain '..'",
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/x", "mountPropagation": "Bidirectional"}]},
            (
                "volumeMounts[0].mountPropagation: Forbidden: Bidirectional mount propagation is available "
                "only to privileged containers"
            ),
        ),
        ({"livenessProbe": {}}, "livenessProbe: Required value: must specify a handler type"),
        (
            {"lifecycle": {"preStop": {"exec": {}}}},
            "lifecycle.preStop.exec.command: Required value",
        ),
        (
            {"securityContext": {"privileged": True, "allowPrivilegeEscalation": False}},
            (
                'securityContext: Invalid value: "object": cannot set `allowPrivilegeEscalation` to false '
                "and `privileged` to true"
            ),
        ),
        (
            {"securityContext": {"seccompProfile": {"type": "Localhost"}}},
            (
                "securityContext.seccompProfile.localhostProfile: Required value: must be set when profile "
                "type is Localhost"
            ),
        ),
    ],
)
def test_a_bad_container_is_named_with_its_field(change: dict[str, Any], message: str) -> None:
    assert validate_pod(a_pod(change, volumes=[{"name": "v"}])) == [f"spec.containers[0].{message}"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"containers": []}, "spec.containers: Required value"),
        ({"initContainers": [{"name": "c", "image": "x"}]}, 'spec.containers[0].name: Duplicate value: "c"'),
        (
            {"restartPolicy": "Sometimes"},
            'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure"',
        ),
        (
            {"dnsPolicy": "None"},
            (
                "spec.dnsConfig.nameservers: Required value: "
                "must provide at least one DNS nameserver when `dnsPolicy` is None"
            ),
        ),
        (
            {"terminationGracePeriodSeconds": -1},
            "spec.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0",
        ),
        ({"ephemeralContainers": [{"name": "e"}]}, "spec.ephemeralContainers: Forbidden: cannot be set on create"),
        (
            {"schedulingGates": [{"name": "g"}], "nodeName": "n"},
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
        ),
        ({"volumes": [{"name": "v"}, {"name": "v"}]}, 'spec.volumes[1].name: Duplicate value: "v"'),
        (
            {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]},
            "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
        ),
        ({"volumes": [{"name": "v", "hostPath": {}}]}, "spec.volumes[0].hostPath.path: Required value"),
        (
            {"shareProcessNamespace": True, "hostPID": True},
            "spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled",
        ),
        (
            {"hostAliases": [{"ip": "nowhere", "hostnames": []}]},
            (
                'spec.hostAliases[0].ip: Invalid value: "nowhere": must be a valid IP address, (e.g. 10.9.8.7 or '
                "2001:db8::ffff)"
            ),
        ),
        (
            {"containers": [{"name": n, "image": "x", "ports": [{"containerPort": 1, "hostPort": 9}]} for n in "ab"]},
            'spec.containers.ports.hostPort: Duplicate value: "TCP//9"',
        ),
    ],
)
def test_a_bad_spec_is_named_with_its_field(spec: dict[str, Any], message: str) -> None:
    assert validate_pod(a_pod(**spec)) == [message]


@pytest.mark.parametrize(
    ("metadata", "beginning"),
    [
        ({"name": "Web"}, 'metadata.name: Invalid value: "Web": a lowercase RFC 1123 subdomain must'),
        ({"name": "x" * 254}, f'metadata.name: Invalid value: "{"x" * 76}…": must be no more than 253 characters'),
        ({"namespace": "a.b"}, 'metadata.namespace: Invalid value: "a.b": a lowercase RFC 1123 label must'),
        ({"uid": "../../etc"}, 'metadata.uid: Invalid value: "../../etc": must be letters, digits'),
        ({"labels": {"-": "x"}}, 'metadata.labels: Invalid value: "-": name part must consist'),
        ({"annotations": {"a": "x" * 300_000}}, "metadata.annotations: Too long"),
    ],
)
def test_bad_metadata_is_named_with_its_field(metadata: dict[str, Any], beginning: str) -> None:
    pod = a_pod()
    pod["metadata"] |= metadata
    errors = validate_pod(pod)
    assert len(errors) == 1
    assert errors[0].startswith(beginning)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nginx", 'spec: Invalid value: "nginx": must be an object'),
        ({"containers": "nginx"}, 'spec.containers: Invalid value: "nginx": must be a list'),
        ({"containers": ["nginx"]}, 'spec.containers[0]: Invalid value: "nginx": must be an object'),
        ({"containers": [{"image": ["a"]}]}, 'spec.containers[0].image: Invalid value: "array": must be a string'),
        ({"containers": [{"command": "sh"}]}, 'spec.containers[0].command: Invalid value: "sh": must be a list'),
        ({"containers": [{"args": [1]}]}, "spec.containers[0].args[0]: Invalid value: 1: must be a string"),
        ({"containers": [{"tty": "yes"}]}, 'spec.containers[0].tty: Invalid value: "yes": must be true or false'),
        (
            {"containers": [{"ports": [{"containerPort": "80"}]}]},
            'spec.containers[0].ports[0].containerPort: Invalid value: "80": must be a 32-bit whole number',
        ),
        ({"nodeSelector": {"a": True}}, "spec.nodeSelector[a]: Invalid value: true: must be a string"),
        (
            {"terminationGracePeriodSeconds": 2**63},
            f"spec.terminationGracePeriodSeconds: Invalid value: {2**63}: must be a 64-bit whole number",
        ),
        (
            {"containers": [{"resources": {"limits": {"cpu": True}}}]},
            'spec.containers[0].resources.limits[cpu]: Invalid value: true: must be a quantity such as "100Mi"',
        ),
    ],
)
def test_a_field_of_the_wrong_type_is_a_message_and_never_an_exception(spec: Any, message: str) -> None:
    assert validate_pod({"metadata": {"name": "p", "namespace": "n"}, "spec": spec}) == [message]
