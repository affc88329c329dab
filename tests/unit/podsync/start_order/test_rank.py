"""The rank of a pod in the order of starts."""

from typing import Any

import pytest

from services.podsync.core.start_order.rank import rank_of

CNI = {"hostPath": {"path": "/etc/cni/net.d"}}
SOCKETS = {"hostPath": {"path": "/srv/kubelet/plugins_registry/"}}


def a_pod(*volumes: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"volumes": [{"name": f"v{n}", **volume} for n, volume in enumerate(volumes)], **spec}}


IN_ORDER = (
    ("static", a_pod(), True),
    ("node-critical network plugin", a_pod(CNI, hostNetwork=True, priority=2_000_001_000), False),
    ("node-critical driver", a_pod(SOCKETS, priority=2_000_001_000), False),
    ("node-critical", a_pod(priority=2_000_001_000), False),
    ("network plugin", a_pod(CNI, hostNetwork=True), False),
    ("CSI driver", a_pod({"emptyDir": {}}, {"hostPath": {"path": "/srv/kubelet/plugins/csi.example"}}), False),
    ("cluster-critical", a_pod(priority=2_000_000_000), False),
    ("important", a_pod(priority=1000), False),
    ("no priority", a_pod(), False),
    ("negative", a_pod(priority=-5), False),
)


def test_static_and_node_critical_pods_come_first_then_what_others_need_then_all_by_priority() -> None:
    ranks = {name: rank_of(pod, static=static, root_dir="/srv/kubelet") for name, pod, static in IN_ORDER}
    assert sorted(ranks, key=lambda name: ranks[name]) == [name for name, _, _ in IN_ORDER]
    assert len(set(map(str, ranks.values()))) == len(IN_ORDER)


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(CNI),  # without the node's network it needs a network plugin itself
        a_pod({"hostPath": {"path": "/etc/cni2"}}, hostNetwork=True),
        a_pod({"hostPath": {"path": "/srv/kubelet/plugins2"}}),
        a_pod({"hostPath": {"path": "/srv/kubelet"}}),  # as a monitoring agent mounts it
        a_pod({"hostPath": {"path": "/var/lib/kubelet/plugins"}}),  # of another agent
        a_pod({"hostPath": {}}, {"hostPath": None}, priority=None),
        {"spec": {"priority": "high"}},
        {"spec": {}},
        {},
    ],
)
def test_other_pods_have_the_rank_of_a_pod_without_a_priority(pod: dict[str, Any]) -> None:
    assert rank_of(pod, static=False, root_dir="/srv/kubelet") == rank_of(a_pod(), static=False, root_dir="/")
