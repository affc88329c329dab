"""A machine of its own as a node of the tests' API server: what an administrator sees of it from outside, on cgroup v2
and systemd."""

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from shared.kube import paths
from shared.model.objects import Object
from tests.machine.joined import MachineCluster
from tests.machine.root import chosen_version
from tests.support.installed.chosen_programs import KEPT_BY
from tests.support.installed.ran_versions import extract_version
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(1800)]

MIB = 1 << 20
MORE = tuple(f"pod-{number}" for number in range(9))  # beside `web`
HANDLER = os.environ.get("MACHINE_HANDLER", "runc")
_LIMITS = {"limits": {"cpu": "500m", "memory": "64Mi"}}
_CONNECT = "use IO::Socket::INET; exit(IO::Socket::INET->new(PeerAddr => $ARGV[0], Timeout => 3) ? 0 : 1)"
# Eight MiB of memory that stay, some CPU, then nothing.
_WORK = """\
head -c 8388608 /dev/zero > /memory/file
i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done
echo done
exec sleep 1000000"""


@pytest_asyncio.fixture(scope="module", loop_scope="package", autouse=True)
async def web(cluster: MachineCluster) -> AsyncIterator[None]:
    pod = cluster.pod("web", "sh", "-c", _WORK)
    pod["spec"]["volumes"] = [{"name": "memory", "emptyDir": {"medium": "Memory"}}]
    pod["spec"]["containers"][0] |= {
        "volumeMounts": [{"name": "memory", "mountPath": "/memory"}], "resources": _LIMITS,
    }  # fmt: skip
    await cluster.create(pod)
    await wait_done(cluster)
    yield
    await cluster.end_pods()


async def wait_done(cluster: MachineCluster) -> None:
    """Wait until the container has done its work, and can be reached from outside."""
    await cluster.wait_served("web")

    async def done() -> bool:
        return cluster.plane.kubectl("logs", "web", check=False).stdout == "done\n"

    await cluster.wait_for(done, "the work of the container", 3 * WAIT_SECONDS, every=1.0)


def container_id(pod: Object) -> str:
    return str(pod["status"]["containerStatuses"][0]["containerID"]).removeprefix("containerd://")


def cgroup_of(cluster: MachineCluster, pod: Object) -> str:
    """Return the directory, in the machine, of the cgroup with the limits of the pod's container. With crun it is one
    below the scope."""
    found = cluster.machine.must("find", "/sys/fs/cgroup", "-type", "d", "-path", f"*{container_id(pod)}*").split()
    assert len(found) == (2 if HANDLER == "crun" else 1), found
    return max(found, key=len)


def read_cgroup(cluster: MachineCluster, directory: str) -> dict[str, int]:
    """Return what the kernel reports of a cgroup: CPU (microseconds), memory and working set (bytes), processes."""
    files = [f"{directory}/{name}" for name in ("memory.current", "pids.current", "cpu.stat", "memory.stat")]
    memory, processes, *rest = cluster.machine.must("cat", *files).splitlines()
    stat = {name: int(value) for name, value in (line.split() for line in rest)}
    working = int(memory) - stat["inactive_file"]
    return {"cpu": stat["usage_usec"], "memory": int(memory), "working": working, "processes": int(processes)}


async def test_the_node_reports_the_machine(cluster: MachineCluster) -> None:
    node = await cluster.node()
    info, addresses = node["status"]["nodeInfo"], node["status"]["addresses"]
    assert {"type": "InternalIP", "address": cluster.machine.ip} in addresses, addresses
    assert info["bootID"] == cluster.machine.boot_id
    assert info["kernelVersion"] == cluster.machine.must("uname", "-r").strip()
    memory = int(cluster.machine.must("sed", "-n", "s/^MemTotal: *\\([0-9]*\\) kB$/\\1/p", "/proc/meminfo"))
    assert node["status"]["capacity"]["memory"] == f"{memory}Ki"
    assert node["status"]["capacity"]["cpu"] == "1"


async def test_its_pods_run_by_the_programs_that_were_chosen_for_the_machine(cluster: MachineCluster) -> None:
    machine, runtime = cluster.machine, (await cluster.node())["status"]["nodeInfo"]["containerRuntimeVersion"]
    assert extract_version(runtime) == chosen_version("containerd", machine)
    handler = machine.must("runc", "--version")  # the name of whatever runs the containers
    assert handler.startswith(f"{HANDLER} ") and extract_version(handler) == chosen_version(HANDLER, machine)
    pod = await cluster.get_pod("web")
    assert pod is not None
    kept = machine.must("ls", f"/run/containerd/runc/k8s.io/{container_id(pod)}").split()
    assert KEPT_BY[HANDLER] in kept


async def test_logs_and_exec_reach_the_pod_from_outside(cluster: MachineCluster) -> None:
    assert cluster.plane.kubectl("exec", "web", "--", "cat", "/proc/1/comm").stdout == "sleep\n"
    done = cluster.plane.kubectl("exec", "-i", "web", "--", "sh", "-c", "cat; exit 7", stdin="in and out", check=False)
    assert (done.returncode, done.stdout) == (7, "in and out")


async def test_summary_and_cadvisor_page_have_the_values_of_the_cgroup_files(cluster: MachineCluster) -> None:
    pod = await cluster.get_pod("web")
    assert pod is not None
    directory, began = cgroup_of(cluster, pod), time.monotonic()
    while True:  # until a reading of pleg is newer than the moment at which the container began to do nothing
        before = read_cgroup(cluster, directory)
        answer = cluster.ask_kubelet("stats/summary", check=False)  # a slow pleg has none
        page = cluster.ask_kubelet("metrics/cadvisor", check=False)
        after = read_cgroup(cluster, directory)
        pods = json.loads(answer)["pods"] if answer and page else []
        container: Object = next(
            (one for pod in pods if pod["podRef"]["name"] == "web" for one in pod["containers"]), {}
        )
        cpu, usage = container.get("cpu", {}), container.get("memory", {})
        shown = (cpu.get("usageCoreNanoSeconds"), usage.get("usageBytes"))
        if before == after and shown == (before["cpu"] * 1000, before["memory"]):
            break
        assert time.monotonic() - began < 2 * WAIT_SECONDS, (before, after, container)
        await asyncio.sleep(2)
    memory = container["memory"]
    assert (memory["usageBytes"], memory["workingSetBytes"]) == (before["memory"], before["working"])
    assert memory["availableBytes"] == 64 * MIB - before["working"]
    assert before["working"] > 8 * MIB
    samples = [
        sample
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.labels.get("pod") == "web" and sample.labels.get("cpu", "total") == "total"
    ]
    of_pod = directory.removeprefix("/sys/fs/cgroup").partition("/cri-containerd-")[0]
    assert of_pod in {sample.labels["id"] for sample in samples}
    found = {sample.name: sample.value for sample in samples if sample.labels.get("container") == "main"}
    assert found["container_cpu_usage_seconds_total"] == pytest.approx(before["cpu"] / 1e6, abs=1e-5)
    assert found["container_memory_usage_bytes"] == before["memory"]
    assert found["container_memory_working_set_bytes"] == before["working"]
    assert found["container_spec_memory_limit_bytes"] == 64 * MIB
    assert (found["container_spec_cpu_quota"], found["container_spec_cpu_period"]) == (50_000, 100_000)
    assert found["container_processes"] == before["processes"] == 1


def connects(cluster: MachineCluster, address: str) -> bool:
    """Whether the machine reaches the address."""
    return cluster.machine.call("perl", "-e", _CONNECT, address).returncode == 0


async def test_the_node_reaches_the_api_server(cluster: MachineCluster) -> None:
    assert connects(cluster, cluster.plane.url.removeprefix("https://"))


async def test_the_node_reaches_nothing_else(cluster: MachineCluster) -> None:
    if not (address := _address_outside()):
        pytest.skip("the host of the machine has no route to others, whose address the machine could try to reach")
    with socket.create_server((address, 0)) as listener:
        assert not connects(cluster, "{}:{}".format(*listener.getsockname()))


def _address_outside() -> str:
    """The address from which the host of the machine reaches others, "" where it reaches none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # which sends nothing
        except OSError:
            return ""
        return str(probe.getsockname()[0])


async def restarts(cluster: MachineCluster) -> dict[str, tuple[str, int, bool]]:
    """Return the UID, the number of restarts and the readiness of each pod, by its name."""
    pods = await cluster.items(paths.pods("default"))
    statuses = {pod["metadata"]["name"]: (pod, *pod["status"]["containerStatuses"]) for pod in pods}
    return {
        name: (pod["metadata"]["uid"], status["restartCount"], status["ready"])
        for name, (pod, status) in statuses.items()
    }


@pytest.mark.parametrize("change", ["reboot", "cut"])
async def test_a_boot_starts_each_of_ten_pods_once_more(cluster: MachineCluster, change: str) -> None:
    names = {pod["metadata"]["name"] for pod in await cluster.items(paths.pods("default"))}
    for name in (new := set(MORE) - names):
        await cluster.create(cluster.pod(name))
    await cluster.wait_ready(*new)
    before = await restarts(cluster)
    assert len(before) == 10
    await asyncio.to_thread(getattr(cluster.machine, change))

    async def again() -> bool:
        now = await restarts(cluster)
        return all(ready and count > before[name][1] for name, (_, count, ready) in now.items())

    await cluster.wait_for(again, "ten pods to run again", 5 * WAIT_SECONDS)
    assert await restarts(cluster) == {name: (uid, count + 1, True) for name, (uid, count, _) in before.items()}

    async def booted() -> bool:  # the status of a pod may be written before that of the node
        return bool((await cluster.node())["status"]["nodeInfo"]["bootID"] == cluster.machine.boot_id)

    await cluster.wait_for(booted, "the Node to show the boot", 5 * WAIT_SECONDS)
    await cluster.wait_node_ready()
    await wait_done(cluster)
