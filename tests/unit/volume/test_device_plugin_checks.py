"""What a device plugin may send: the kubelet's texts for registrations, and the bounds of a list (node.md 4.15)."""

import pytest

from bus.messages.device_plugins import MAX_DEVICES, Device
from services.volume.core.device_plugins.plugin_checks import (
    MAX_ID_CHARACTERS,
    MAX_NUMA_NODES,
    UnusableDevicesError,
    check_list_size,
    check_resource,
    check_socket,
    check_version,
    checked_devices,
    socket_below,
)


def test_a_registration_of_another_version_gets_the_text_of_the_kubelet() -> None:
    check_version("v1beta1")
    with pytest.raises(UnusableDevicesError) as refused:
        check_version("v1alpha1")
    text = 'requested API version "v1alpha1" is not supported by kubelet. Supported version is ["v1beta1"]'
    assert str(refused.value) == text


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "example.com/A_b.c-1", "x/y"])
def test_an_extended_resource_is_accepted(name: str) -> None:
    check_resource(name)


def test_a_reserved_or_invalid_name_is_refused_with_the_text_of_the_kubelet(subtests: pytest.Subtests) -> None:
    for name in [
        *("cpu", "", "hugepages-2Mi", "kubernetes.io/gpu", "node.kubernetes.io/gpu", "requests.example.com/gpu"),
        *("example.com/", "/gpu", "example.com/a b", "Example.com/gpu", "a/b/c", "a" * 250 + ".com/gpu"),
        "example.com/\n",
    ]:
        with subtests.test(name), pytest.raises(UnusableDevicesError, match=r"^the ResourceName .* is invalid$"):
            check_resource(name)


def test_an_endpoint_is_a_socket_below_the_directory() -> None:
    assert socket_below("/d", "gpu.sock") == "/d/gpu.sock"
    assert socket_below("/d", "gpu/one.sock") == "/d/gpu/one.sock"


@pytest.mark.parametrize("endpoint", ["", ".", "..", "../gpu.sock", "/gpu.sock", "a/../../b", "a//b", "a\0b", "a\nb"])
def test_an_endpoint_that_leads_out_of_the_directory_is_refused(endpoint: str) -> None:
    with pytest.raises(UnusableDevicesError, match=r"is no name of a socket below /d$"):
        socket_below("/d", endpoint)


@pytest.mark.parametrize("path", ["gpu.sock", "/" + "a" * 107, "/a\0"])
def test_a_path_that_no_socket_can_have_is_refused(path: str) -> None:
    check_socket("/" + "a" * 106)
    with pytest.raises(UnusableDevicesError, match="is no absolute path of at most 107 bytes"):
        check_socket(path)


def test_devices_are_sorted_by_id_with_the_numa_nodes_that_a_machine_can_have() -> None:
    listed = [("b", "Healthy", [1, 0, 1]), ("a", "Unhealthy", [-1, 4096]), ("c", "healthy", [])]
    assert checked_devices(listed) == (
        Device(id="a", healthy=False),
        Device(id="b", healthy=True, nodes=(0, 1)),
        Device(id="c", healthy=False),
    )


def test_of_an_id_that_is_listed_twice_the_last_one_counts() -> None:
    listed = [("a", "Healthy", [0]), ("a", "Unhealthy", [1])]
    assert checked_devices(listed) == (Device(id="a", healthy=False, nodes=(1,)),)


@pytest.mark.parametrize("name", ["", "x" * (MAX_ID_CHARACTERS + 1), "a\nb"])
def test_a_list_with_an_id_that_cannot_be_one_is_refused_in_one_line(name: str) -> None:
    checked_devices([("x" * MAX_ID_CHARACTERS, "Healthy", [])])
    with pytest.raises(UnusableDevicesError, match="an id has 1 to 256 printable characters") as refused:
        checked_devices([(name, "Healthy", [])])
    assert "\n" not in str(refused.value)


def test_a_list_has_at_most_ten_thousand_devices_and_a_hundred_thousand_numa_nodes() -> None:
    check_list_size(MAX_DEVICES, [10] * MAX_DEVICES)
    with pytest.raises(UnusableDevicesError, match="lists 10001 devices, more than 10000"):
        check_list_size(MAX_DEVICES + 1, [])
    with pytest.raises(UnusableDevicesError, match="its devices list 100001 NUMA nodes, more than 100000"):
        check_list_size(2, [1, MAX_NUMA_NODES])
