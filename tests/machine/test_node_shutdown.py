"""`systemctl poweroff` on a real systemd, of a node of the tests' API server: logind waits for the pods by their
priority, the API server has their statuses when the machine is off, and they run again after the boot. `NIGHT=1`: ten
times, in six of them with a SIGKILL of a process of the agent in the middle."""

import asyncio
import itertools
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shared.kube import paths
from shared.model.conditions import SHUTDOWN_MESSAGE
from shared.model.objects import Object, uid
from tests.machine.joined import MachineCluster
from tests.machine.root import Root
from tests.support.agents.conditions import condition_of, is_ready
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(7200)]

PRIORITIES = {"low": 0, "middle": 500, "high": 1000, "critical": 2_000_000_000}
PODS = [f"{group}-{number}" for group in PRIORITIES for number in range(5)]
STUBBORN = [f"{group}-4" for group in PRIORITIES]  # these ignore SIGTERM
SECONDS = 300  # of each group at most; each takes some on an idle machine
PERIODS = [{"priority": value, "shutdownGracePeriodSeconds": SECONDS} for value in PRIORITIES.values()]
MIN_GRACE, END_SECONDS = 4, 1  # the grace period of those that ignore SIGTERM; how long the others take for their end
STARTED = 10 * WAIT_SECONDS  # for 20 pods, one after the other on one processor

ENDS = "/var/lib/machine-ends"  # of the machine: when each pod was told to stop, and when it had ended
KUBELET = "/var/lib/bulkhead/kubelet"
KILLS = ("", "podsync", "status", "bootstrap", "", "podsync", "status", "bootstrap", "", "")
_NOTE = 'note() { read -r up idle < /proc/uptime; echo "$1 $up" >> /ends/$HOSTNAME; }; '
_START = "for one in kept lost; do echo a start >> /$one/starts; done; "
_RUN = f"{_NOTE}trap 'note told; sleep {END_SECONDS}; note alive; exit 0' TERM; {_START}sleep 1000000 & wait"
_IGNORE = f"{_NOTE}trap 'note told' TERM; {_START}sleep 1000000 & wait; while :; do note alive; sleep 0.2; done"
# Once a pod of the second group was told to stop, while those after it run.
_KILL = f"until [ -s {ENDS}/middle-0 ]; do sleep 0.1; done; pkill -KILL -x $1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(
    installed_root: Root, package: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[MachineCluster]:
    """A machine that has joined, whose pods have time in a shutdown."""
    directory, config = tmp_path_factory.mktemp("shutdown"), {"shutdownGracePeriodByPodPriority": PERIODS}
    async with MachineCluster(directory, root=installed_root, package=package, config=config) as running:
        yield running


def noting_pod(cluster: MachineCluster, name: str, policy: str) -> Object:
    """A pod that notes when it is told to stop and that it runs still, and counts its starts in two emptyDirs."""
    ignores, group = name in STUBBORN, name.split("-")[0]
    grace, script = (MIN_GRACE, _IGNORE) if ignores else (30, _RUN)
    pod = cluster.pod(name, "sh", "-c", script, grace=grace, restartPolicy=policy)
    pod["spec"]["priorityClassName"] = "system-cluster-critical" if group == "critical" else group
    pod["spec"]["volumes"] = [
        {"name": "ends", "hostPath": {"path": ENDS, "type": "DirectoryOrCreate"}},
        {"name": "kept", "emptyDir": {}},
        {"name": "lost", "emptyDir": {"medium": "Memory"}},
        {"name": "secret", "secret": {"secretName": "secret"}},
    ]
    names = [volume["name"] for volume in pod["spec"]["volumes"]]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": one, "mountPath": f"/{one}"} for one in names]
    return pod


async def pods_of(cluster: MachineCluster) -> dict[str, Object]:
    """The pods that the API server has, by name."""
    return {pod["metadata"]["name"]: pod for pod in await cluster.items(paths.pods("default"))}


def noted(cluster: MachineCluster) -> tuple[dict[str, float], dict[str, float]]:
    """When each pod was told to stop, and when it noted last that it runs, in seconds of the boot that has ended."""
    lines = cluster.machine.must("sh", "-c", f"cd {ENDS} && grep . *").splitlines()
    told: dict[str, list[float]] = {}
    last: dict[str, float] = {}
    for line in lines:
        name, what, moment = re.split("[: ]", line)
        if what == "told":
            told.setdefault(name, []).append(float(moment))
        last[name] = float(moment)
    assert {name: len(moments) for name, moments in told.items()} == dict.fromkeys(PODS, 1), told
    return {name: moments[0] for name, moments in told.items()}, last


def starts(cluster: MachineCluster, volume: str) -> set[int]:
    """How often the pods have started, by their volumes of that name."""
    found = cluster.machine.must("sh", "-c", f"wc -l {KUBELET}/pods/*/volumes/kubernetes.io~empty-dir/{volume}/starts")
    counts = [int(line.split()[0]) for line in found.splitlines() if not line.endswith(" total")]
    assert len(counts) == len(PODS), found
    return set(counts)


def check_order(told: dict[str, float], last: dict[str, float]) -> None:
    """One group has ended before the next one is told, and each pod had its grace period."""
    groups = [[name for name in PODS if name.startswith(group)] for group in PRIORITIES]
    for earlier, later in itertools.pairwise(groups):
        assert max(last[name] for name in earlier) <= min(told[name] for name in later), (told, last)
    for name in PODS:
        least = MIN_GRACE - 1.0 if name in STUBBORN else END_SECONDS  # it notes five times a second, on a busy machine
        assert last[name] - told[name] >= least, (name, told[name], last[name])


async def check_statuses_of_the_shutdown(cluster: MachineCluster, restarts: int) -> None:
    """The API server has them, and the machine has no network any more."""
    ready = condition_of(await cluster.node(), "Ready")
    assert (ready["status"], ready["message"]) == ("False", "node is shutting down"), ready
    for name, pod in (await pods_of(cluster)).items():
        status, container = pod["status"], pod["status"]["containerStatuses"][0]
        assert status["phase"] == "Running" and not is_ready(pod), (name, status)
        assert condition_of(pod, "DisruptionTarget")["message"] == SHUTDOWN_MESSAGE, (name, status)
        # A pod that does not restart is Running still: its container waits for the boot.
        ended = container["state"].get("terminated") or container["lastState"]["terminated"]
        assert ended["exitCode"] == (137 if name in STUBBORN else 0), (name, status)
        assert container["restartCount"] == restarts, (name, status)


async def check_after_the_boot(cluster: MachineCluster, uids: dict[str, str], restarts: int) -> None:
    """Each pod runs again in place, with one restart more, and has its volumes once."""
    pods = await pods_of(cluster)
    assert {name: uid(pod) for name, pod in pods.items()} == uids
    for name, pod in pods.items():
        assert pod["status"]["phase"] == "Running" and not condition_of(pod, "DisruptionTarget"), (name, pod["status"])
        assert pod["status"]["containerStatuses"][0]["restartCount"] == restarts, (name, pod["status"])
    assert starts(cluster, "kept") == {restarts + 1} and starts(cluster, "lost") == {1}
    mounts = [line.split()[4] for line in cluster.machine.must("cat", "/proc/self/mountinfo").splitlines()]
    volumes = [path for path in mounts if path.startswith(f"{KUBELET}/pods/")]
    assert len(set(volumes)) == len(volumes), volumes
    assert set(cluster.machine.must("ls", f"{KUBELET}/pods").split()) == set(uids.values())


async def test_pods_stop_by_priority_before_the_machine_goes_off_and_run_again_after_the_boot(
    node: MachineCluster,
) -> None:
    cluster, machine = node, node.machine
    for name, value in list(PRIORITIES.items())[:3]:
        await cluster.plane.admin.create(
            "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value}
        )
    await cluster.create({"kind": "Secret", "metadata": {"name": "secret"}, "stringData": {"password": "hunter2"}})
    policies = ("Always", "OnFailure", "Never")
    uids = {}
    for number, name in enumerate(PODS):
        uids[name] = uid(await cluster.create(noting_pod(cluster, name, policies[number % 3])))
    await cluster.wait_ready(*PODS, seconds=STARTED)
    for run, kill in enumerate(KILLS if os.environ.get("NIGHT") else KILLS[:1]):
        machine.must("sh", "-c", f"rm -f {ENDS}/*")
        machine.wait_until('[ "$(systemd-inhibit --list --no-pager | grep -c kubelet)" = 2 ]')
        await asyncio.to_thread(
            machine.shut_down, *(("sh", "-c", _KILL, "sh", f"bulkhead-{kill}"[:15]) if kill else ())
        )
        await check_statuses_of_the_shutdown(cluster, run)
        await asyncio.to_thread(machine.boot)
        told, last = noted(cluster)
        check_order(told, last)
        await cluster.wait_node_ready()
        await cluster.wait_ready(*PODS, seconds=STARTED)
        await check_after_the_boot(cluster, uids, run + 1)
        explained = machine.must("bulkhead", "explain", "node")
        assert "the machine shut down (PrepareForShutdown): all had their time by" in explained, explained
        assert "not stopped in time" not in explained, explained
        groups = [
            f"{group} {min(told[name] for name in PODS if name.startswith(group)):.1f}"
            f"-{max(last[name] for name in PODS if name.startswith(group)):.1f}"
            for group in PRIORITIES
        ]
        print(f"run {run + 1}, SIGKILL of {kill or 'nothing'}: seconds of the boot: {', '.join(groups)}")
