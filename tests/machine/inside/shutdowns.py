"""The steps of tests/machine/test_node_shutdown.py in the machine: `begin` starts pods that note when they are stopped,
`check` is done after the machine went off and booted. Runs as root inside the machine only."""

import sys
from pathlib import Path

from shared.model.objects import Object
from tests.machine.inside import node
from tests.machine.inside.pods import container, pod

ENDS = Path("/var/lib/machine-ends")  # of the host: when each pod was told to stop, in seconds
PRIORITIES = {"low": 0, "middle": 500, "high": 1000}
SECONDS = 60  # of each group
_PERIODS = "".join(
    f"- priority: {priority}\n  shutdownGracePeriodSeconds: {SECONDS}\n" for priority in PRIORITIES.values()
)
_UNFOLLOWED = "logind to be followed by podsync and status"


def noting_pod(name: str, priority: int) -> Object:
    """A pod that runs once, notes when it is told to stop, and takes two seconds for it."""
    script = f"trap 'date +%s >> /ends/{name}; sleep 2; exit 0' TERM; while :; do sleep 0.2; done"
    mounts = [{"name": "ends", "mountPath": "/ends"}]
    volumes = [{"name": "ends", "hostPath": {"path": str(ENDS), "type": "DirectoryOrCreate"}}]
    spec = {"terminationGracePeriodSeconds": 30, "restartPolicy": "Never", "priority": priority, "volumes": volumes}
    return pod(name, container("c", script, volumeMounts=mounts), **spec)


def begin() -> None:
    """Start the agent with time for pods in a shutdown, and the pods."""
    node.install_with_systemd_driver()
    with Path("/etc/bulkhead/kubelet.yaml").open("a") as file:
        file.write(f"shutdownGracePeriodByPodPriority:\n{_PERIODS}")
    node.run("systemctl", "restart", "bulkhead")
    node.put({name: noting_pod(name, priority) for name, priority in PRIORITIES.items()})
    node.wait(lambda: PRIORITIES.keys() <= node.runtime_pods_alive(), "the pods to run")
    node.wait(lambda: node.run("systemd-inhibit", "--list", "--no-pager").count("kubelet") == 2, _UNFOLLOWED)
    node.wait(lambda: all(_is_ready(name) for name in PRIORITIES), "the pods to be ready")


def check() -> None:
    """Compare what the pods noted with what was promised, and wait until they run again."""
    told = {name: list(map(int, (ENDS / name).read_text().split())) for name in PRIORITIES}
    assert [len(moments) for moments in told.values()] == [1, 1, 1], told
    low, middle, high = (moments[0] for moments in told.values())
    assert low + 2 <= middle and middle + 2 <= high, told
    node.wait(lambda: all(_is_ready(name) for name in PRIORITIES), "the pods to run again after the boot")
    for name, shown in node.pods().items():
        assert shown["status"]["phase"] == "Running", (name, shown["status"])
        assert node.status_of(shown)["restartCount"] == 1, (name, shown["status"])
    explained = node.run("bulkhead", "explain", "node")
    assert "the machine shut down (PrepareForShutdown): all had their time by" in explained, explained
    assert "not stopped in time" not in explained, explained
    logged = Path("/var/log/bulkhead/podsync.log").read_text(errors="replace")
    assert "the pods have had their time, and the machine may go on" in logged, logged[-3000:]


def _is_ready(name: str) -> bool:
    shown = node.pods().get(name, {})
    conditions = (shown.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


if __name__ == "__main__":
    {"begin": begin, "check": check}[sys.argv[1]]()
