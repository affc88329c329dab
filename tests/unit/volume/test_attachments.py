"""The protocol with the attach-detach controller: what is in use, and when an attachable volume may be mounted."""

from typing import Any

from services.volume.core.world.attachments import Attachments

A, B = "kubernetes.io/disk/a", "kubernetes.io/disk/b"


def node(version: str, *attached: str, in_use: tuple[str, ...] = ()) -> dict[str, Any]:
    volumes = [{"name": name, "devicePath": ""} for name in attached]
    return {
        "metadata": {"resourceVersion": version},
        "status": {"volumesAttached": volumes, "volumesInUse": list(in_use)},
    }


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


def test_after_etcd_was_restored_a_volume_is_mounted_once_the_restored_node_names_it() -> None:
    """It waits for its attach when the store goes back; the version of its report is of a history that is lost."""
    attachments = Attachments("t")
    attachments.use({A})
    attachments.reported(attachments.generation, [A], "1000500")
    attachments.on_node(node("1000500", in_use=(A,)))
    attachments.on_node(node("900010", A))
    assert not attachments.may_mount(A), "the restored Node does not name it in use"
    attachments.on_node(node("900020", in_use=(A,)))
    assert not attachments.may_mount(A)
    attachments.on_node(node("900100", A, in_use=(A,)))
    assert attachments.may_mount(A)


def test_a_report_of_the_restored_history_counts_also_before_its_node_is_seen() -> None:
    attachments = Attachments("t")
    attachments.use({A})
    attachments.reported(attachments.generation, [A], "1000500")
    attachments.on_node(node("1000500", in_use=(A,)))
    attachments.reported(attachments.generation, [A], "900020")
    attachments.on_node(node("900010", A))
    assert not attachments.may_mount(A)
    attachments.on_node(node("900021", A, in_use=(A,)))
    assert attachments.may_mount(A)


def test_a_report_that_is_lost_with_the_store_stays_lost_until_the_node_names_the_volume() -> None:
    attachments = Attachments("t")
    attachments.use({A})
    attachments.reported(attachments.generation, [A], "1000500")
    attachments.on_node(node("1000500", A, in_use=(A,)))
    attachments.on_node(node("900010", A))
    attachments.on_node(node("1000600", A))  # the versions have caught up
    assert not attachments.may_mount(A)
    attachments.on_node(node("1000601", A, in_use=(A,)))
    assert attachments.may_mount(A)
