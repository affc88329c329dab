"""Fields and names as Kubernetes writes and checks them."""

from time import process_time

import pytest

from shared.podspec import names
from shared.podspec.field_ref import FieldError, field_value, format_map, go_quote, is_field, resource_value
from shared.podspec.ports import HostPort, host_ports


def test_a_whole_map_is_sorted_and_quoted_as_go_quotes() -> None:
    assert format_map({"b": 'x"y\n', "a": "ü\x01"}) == 'a="ü\\x01"\nb="x\\"y\\n"'
    assert go_quote("\u200b\U000e0001\\") == '"\\u200b\\U000e0001\\\\"'
    assert field_value({"metadata": {"labels": {"a": "1"}}}, "metadata.labels") == 'a="1"'


def test_status_fields_need_someone_who_knows_them() -> None:
    assert is_field("status.podIP")
    with pytest.raises(FieldError, match=r"unsupported fieldPath: status\.podIP"):
        field_value({}, "status.podIP")


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (names.dns_label, ["a", "a-b", "0" * 63], ["", "A", "-a", "a-", "a.b", "a" * 64, "a\n", "ä"]),
        (names.dns_subdomain, ["a.b", "a-b.c"], ["", "a..b", ".a", "a.", "x" * 254]),
        (names.qualified_name, ["a", "a.b/c_D"], ["", "/a", "a/", "A_/b", "a/b/c", "x" * 64]),
        (names.label_value, ["", "a_B.c"], ["-", "x" * 64, "a b"]),
        (names.port_name, ["http", "a-1"], ["", "1", "a--b", "-a", "a" * 16, "A"]),
        (names.env_name, ["A", "a b", "1.-"], ["", "a=b", "ä", "a\n"]),
        (names.ip_address, ["10.0.0.1", "::1"], ["", "10.0.0", "fe80::1%eth0", "010.0.0.1"]),
    ],
)
def test_names_are_checked(check: object, good: list[str], bad: list[str]) -> None:
    assert callable(check)
    assert [name for name in good if check(name)] == []
    assert [name for name in bad if not check(name)] == []


def test_the_nodes_ports_are_those_of_lasting_containers() -> None:
    ports = [{"containerPort": 1, "hostPort": 9}, {"containerPort": 2}]
    sidecar = {
        "restartPolicy": "Always",
        "ports": [{"containerPort": 3, "hostPort": 8, "protocol": "UDP", "hostIP": "::1"}],
    }
    pod = {"spec": {"containers": [{"ports": ports}], "initContainers": [sidecar, {"ports": ports}]}}
    assert host_ports(pod) == (HostPort("TCP", "", 9), HostPort("UDP", "::1", 8))


def test_one_amount_of_many_costs_no_more_than_itself() -> None:
    limits = {f"example.com/r{n}": "1" for n in range(2_000)} | {"cpu": "2"}
    container = {"name": "c", "resources": {"limits": limits}}
    before = process_time()
    for _ in range(2_000):
        assert resource_value({"spec": {"containers": [container]}}, container, {"resource": "limits.cpu"}, {}) == "2"
    assert process_time() - before < 1.0


def test_annotations_of_the_largest_size_are_quoted_in_milliseconds() -> None:
    annotations = {f"k{n}": '\U0001f600\x01"\\\né' * 100 for n in range(200)}
    before = process_time()
    for _ in range(5):
        format_map(annotations)
    assert process_time() - before < 0.5
