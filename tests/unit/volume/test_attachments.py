"""The protocol with the attach-detach controller: what is in use, and when an attachable volume may be mounted."""

from typing import Any

from services.volume.core.attachments import Attachments

A, B = "kubernetes.io/disk/a", "kubernetes.io/disk/b"


def node(version: str, *attached: str) -> dict[str, Any]:
    volumes = [{"name": name, "devicePath": ""} for name in attached]
    return {"metadata": {"resourceVersion": version}, "status": {"volumesAttached": volumes}}


def test_a_volume_is_mounted_once_it_is_reported_and_attached() -> None:
    attachments = Attachments("t")
    assert attachments.use({A})
    attachments.on_node(node("5", A))
    assert not attachments.may_mount(A)
    attachments.reported(attachments.generation, [A], "6")
    assert not attachments.may_mount(A)  # the Node that names it as attached is older than the report
    attachments.on_node(node("6", A))
    assert attachments.may_mount(A)
    attachments.on_node(node("7"))
    assert not attachments.may_mount(A)


def test_a_report_of_an_earlier_use_or_of_an_earlier_process_permits_nothing() -> None:
    attachments = Attachments("t")
    attachments.use({A})
    earlier = attachments.generation
    attachments.reported(earlier, [A], "6")
    attachments.use(set())
    attachments.use({A, B})
    attachments.on_node(node("9", A, B))
    for generation in (earlier, "other.99", "odd", ""):
        attachments.reported(generation, [A, B], "8")
        assert not attachments.may_mount(A)
        assert not attachments.may_mount(B)
    attachments.reported(attachments.generation, [B], "8")
    assert (attachments.may_mount(A), attachments.may_mount(B)) == (False, True)


def test_a_volume_that_stays_in_use_stays_mountable_when_others_come_and_go() -> None:
    attachments = Attachments("t")
    attachments.use({A})
    attachments.reported(attachments.generation, [A], "6")
    attachments.on_node(node("6", A))
    assert attachments.use({A, B})
    assert attachments.may_mount(A)
    assert not attachments.use({B, A})


def test_an_odd_node_attaches_nothing() -> None:
    attachments = Attachments("t")
    attachments.use({A})
    attachments.reported(attachments.generation, [A], "x")
    for odd in ({}, {"status": 1}, {"status": {"volumesAttached": "x"}}, {"status": {"volumesAttached": [1, {}]}}):
        attachments.on_node(odd)
        assert not attachments.may_mount(A)
    attachments.on_node(node("y", A))
    assert attachments.may_mount(A)
