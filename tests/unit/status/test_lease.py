"""What is written into the Lease, and when the node's status is due."""

from typing import Any

import pytest

from services.status.core.lease import has_owner, new_lease, renew_interval, renewed
from services.status.core.report_schedule import ReportSchedule


def test_a_new_lease_has_the_kubelets_fields_and_no_others() -> None:
    assert new_lease("n1", 40.0, "t", "u") == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "n1",
            "namespace": "kube-node-lease",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u"}],
        },
        "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 40, "renewTime": "t"},
    }


def test_a_renewal_keeps_what_others_wrote() -> None:
    lease = new_lease("n1", 40, "t1", "u")
    lease["metadata"] |= {"labels": {"a": "b"}, "resourceVersion": "7"}
    lease["spec"]["strategy"] = "x"
    again = renewed(lease, "n1", 20, "t2", "")
    assert again["metadata"] == lease["metadata"]
    assert again["spec"] == {"holderIdentity": "n1", "leaseDurationSeconds": 20, "renewTime": "t2", "strategy": "x"}
    assert lease["spec"]["renewTime"] == "t1"


@pytest.mark.parametrize(
    ("owners", "uid", "expected"),
    [
        ([], "u2", ["u2"]),
        (None, "u2", ["u2"]),
        ([{"kind": "Node", "name": "n1", "uid": "u1"}], "u2", ["u2"]),
        ([{"kind": "Node", "name": "n1", "uid": "u1"}], "", ["u1"]),
        ([{"kind": "Deployment", "name": "d", "uid": "d1"}], "u2", ["d1"]),
        ([{"kind": "Machine", "name": "n1", "uid": "m1"}], "u2", ["m1"]),
        ([{"kind": "Node", "name": "n2", "uid": "u1"}], "u2", ["u1"]),
        (
            [{"kind": "Machine", "name": "m", "uid": "m1"}, {"kind": "Node", "name": "n1", "uid": "u2"}],
            "u2",
            ["m1", "u2"],
        ),
        ([{"kind": "Node", "name": "n1", "uid": "u2"}, {"kind": "Node", "name": "n1", "uid": "u1"}], "u2", ["u2"]),
        (["not an object"], "u2", ["u2"]),
    ],
)
def test_the_owner_is_the_node_as_it_is_now(owners: list[Any] | None, uid: str, expected: list[str]) -> None:
    lease = {"metadata": {"name": "n1", "ownerReferences": owners}}
    written = renewed(lease, "n1", 40, "t", uid)
    assert [owner["uid"] for owner in written["metadata"]["ownerReferences"]] == expected


def test_an_odd_lease_is_renewed() -> None:
    assert renewed({"spec": None, "metadata": None}, "n1", 40, "t", "u")["spec"]["renewTime"] == "t"
    assert has_owner(new_lease("n1", 40, "t", "u"))
    assert not has_owner({"metadata": None}) and not has_owner({})


def test_it_is_renewed_four_times_in_its_duration() -> None:
    assert renew_interval(40) == 10


def test_a_report_is_due_first_and_then_at_the_frequency() -> None:
    schedule = ReportSchedule(300)
    assert schedule.due(1000)
    schedule.reported(1000, changed=False, chance=0.0)
    assert not schedule.due(1149) and schedule.due(1150)  # the first one spreads by half the frequency
    schedule.reported(1150, changed=False, chance=0.0)
    assert not schedule.due(1449) and schedule.due(1450)
    schedule.reported(1450, changed=True, chance=0.99)
    assert not schedule.due(1890) and schedule.due(1898)
