"""Which resources stay on the Node: those of others, those that are gone, huge pages of the host."""

import pytest

from bus.messages.podsync import NodeResources
from services.status.core.node_capacity import given_allocatable, set_capacity, without_vanished_hugepages
from shared.model.objects import Object
from shared.podspec.resources import is_extended

RESOURCES = NodeResources(capacity={"cpu": "4", "hugepages-2Mi": "0"}, allocatable={"cpu": "3", "hugepages-2Mi": "0"})


def test_allocatable_of_an_extended_resource_goes_with_its_capacity_and_no_other() -> None:
    status: Object = {
        "capacity": {"example.com/kept": "2"},
        "allocatable": {"example.com/kept": "1", "example.com/gone": "1", "attachable-volumes-x": "39"},
    }
    set_capacity(status, RESOURCES)
    assert status["capacity"] == {"example.com/kept": "2", "cpu": "4", "hugepages-2Mi": "0"}
    assert status["allocatable"] == {
        "example.com/kept": "1",
        "attachable-volumes-x": "39",
        "cpu": "3",
        "hugepages-2Mi": "0",
    }


def test_an_amount_whose_capacity_has_gone_is_no_longer_this_agents_own() -> None:
    before: Object = {"allocatable": {"attachable-volumes-x": "39"}}
    after: Object = {"capacity": {}, "allocatable": {"attachable-volumes-x": "39"}}
    given = {"attachable-volumes-x": ["39"]}
    assert given_allocatable(before, after, RESOURCES, (), given) == {}
    after["capacity"] = {"attachable-volumes-x": "39"}
    assert given_allocatable(before, after, RESOURCES, (), given) == {"attachable-volumes-x": ("39",)}


@pytest.mark.parametrize(
    ("name", "extended"),
    [
        ("cpu", False),
        ("kubernetes.io/x", False),
        ("node.kubernetes.io/x", False),
        ("example.com/gpu", True),
        ("notkubernetes.io/x", True),
    ],
)
def test_an_extended_resource_has_a_domain_that_is_not_kubernetes_own(name: str, extended: bool) -> None:
    assert is_extended(name) is extended


@pytest.mark.parametrize(
    ("status", "left"),
    [
        ({}, {}),
        ({"capacity": {"hugepages-1Gi": "1Gi"}}, {"capacity": {}}),
        (
            {"allocatable": {"hugepages-2Mi": "0", "memory": "1"}},
            {"allocatable": {"hugepages-2Mi": "0", "memory": "1"}},
        ),
    ],
)
def test_huge_pages_that_the_host_no_longer_has_go_and_no_list_is_added(status: Object, left: Object) -> None:
    without_vanished_hugepages(status, RESOURCES)
    assert status == left
