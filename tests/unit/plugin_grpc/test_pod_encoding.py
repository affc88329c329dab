"""Pods in protobuf. That the numbers are Kubernetes' is compared with a real API server
(tests/e2e/test_pods_in_protobuf.py)."""

from typing import Any

import pytest

from shared.plugin_grpc.pod_encoding import decode_pod, encode_pod, message_fields
from tests.support.recorded.whole_pod import whole_message


def spec_of(**spec: Any) -> Any:
    return decode_pod(encode_pod({"spec": spec})).spec


def test_the_bytes_are_those_of_the_field_numbers() -> None:
    # metadata 1 { name 1 }, spec 2 { terminationGracePeriodSeconds 4, hostnameOverride 41 }, status 3 { phase 1 }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"terminationGracePeriodSeconds": 300, "hostnameOverride": "h"},
        "status": {"phase": "Running"},
    }
    assert encode_pod(pod) == b"\x0a\x03\x0a\x01a\x12\x07\x20\xac\x02\xca\x02\x01h\x1a\x09\x0a\x07Running"


@pytest.mark.parametrize(
    ("written", "encoded"), [("1000m", "1"), ("0.5", "500m"), (2, "2"), ("1024Mi", "1Gi"), ("1e3", "1e3")]
)
def test_quantities_have_their_canonical_text(written: Any, encoded: str) -> None:
    assert spec_of(overhead={"cpu": written}).overhead["cpu"].string == encoded


def test_times_have_whole_seconds() -> None:
    pod = decode_pod(encode_pod({"metadata": {"creationTimestamp": "2026-11-20T13:28:14.9+02:00"}}))
    assert (pod.metadata.creationTimestamp.seconds, pod.metadata.creationTimestamp.nanos) == (1795174094, 0)


def test_a_port_is_a_number_or_a_name() -> None:
    for port, expected in ((-1, (0, -1, "")), ("http", (1, 0, "http"))):
        probe = {"tcpSocket": {"port": port}, "periodSeconds": 2}
        found = spec_of(containers=[{"livenessProbe": probe}]).containers[0].livenessProbe
        assert found.periodSeconds == 2
        shown = found.handler.tcpSocket.port
        assert (shown.type, shown.intVal, shown.strVal) == expected


def test_fields_that_json_has_beside_others_are_in_their_own_message() -> None:
    spec = spec_of(
        volumes=[{"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}}],
        ephemeralContainers=[{"name": "debug", "image": "i", "targetContainerName": "t"}],
    )
    assert spec.volumes[0].volumeSource.configMap.localObjectReference.name == "c"
    debug = spec.ephemeralContainers[0]
    assert (debug.ephemeralContainerCommon.image, debug.targetContainerName) == ("i", "t")


def test_an_empty_message_is_there_and_an_absent_one_is_not() -> None:
    spec = spec_of(volumes=[{"name": "v", "emptyDir": {}}], securityContext=None)
    assert spec.volumes[0].volumeSource.HasField("emptyDir")
    assert not spec.HasField("securityContext")
    assert not spec.volumes[0].volumeSource.HasField("hostPath")


def test_zero_is_there_where_it_was_written() -> None:
    spec = spec_of(terminationGracePeriodSeconds=0, hostNetwork=False)
    assert spec.HasField("terminationGracePeriodSeconds")
    assert not spec.HasField("activeDeadlineSeconds")


@pytest.mark.parametrize(
    "spec",
    [
        {"ofANewerRelease": {"x": 1}},
        {"nodeName": 7, "priority": "high", "hostNetwork": "yes", "containers": {}, "tolerations": ["x", 3]},
        {"priority": 1 << 31, "terminationGracePeriodSeconds": 1 << 63, "nodeSelector": {"a": 1, "b": None}},
        {"overhead": {"cpu": "much"}, "nodeSelector": []},
        {"affinity": "x", "supplementalGroups": [1.5, True], "priorityClassName": None},
    ],
)
def test_what_is_unknown_or_of_another_type_is_left_out(spec: dict[str, Any]) -> None:
    assert encode_pod({"spec": {"hostname": "h", **spec}, "status": 3}) == encode_pod({"spec": {"hostname": "h"}})


def test_each_field_of_the_table_is_encoded() -> None:
    pod = whole_message()
    assert empty_fields("Pod", decode_pod(encode_pod(pod))) == set()


def empty_fields(kind: str, message: Any) -> set[str]:
    """Return the fields of the table that the message lacks, and those below it."""
    present = {field.name: value for field, value in message.ListFields()}
    fields = message_fields(kind)
    lacking = set()
    for field in (*fields.by_name.values(), *fields.inline):
        if field.name not in present and kind != "IntOrString":
            lacking.add(f"{kind}.{field.name}")
        elif field.kind not in ("", "i", "l", "b") and not field.of_map:
            values = present[field.name] if field.repeated else [present[field.name]]
            lacking |= {each for value in values for each in empty_fields(field.kind, value)}
    return lacking
