"""`bulkhead what-if` on a real node of a cluster: its answers, and what becomes of the same pods when they are created.

Every answer is given before any of these pods is created, and nothing on the node changes for it.
"""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from services.cli.what_if.answers import NO_ANSWER
from shared.model.objects import Object
from shared.model.quantity import parse_quantity
from tests.support.agents.agent import BIN
from tests.support.clusters.cluster import Cluster
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

PORT = 28_431  # of the node, which `holder` has; no process listens on it


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        holder = running.pod("holder", hostNetwork=True)
        holder["spec"]["containers"][0]["ports"] = [{"containerPort": PORT}]
        await running.create(holder)
        await running.wait_ready("holder")
        stories = running.agent.home.path / "kubelet/bulkhead/podsync/stories"
        await running.agent.wait_for(lambda: list(stories.glob("*.jsonl")), "the story of the pod")
        yield running


def requesting(pod: Object, **amounts: str) -> Object:
    """The pod, whose container requests this."""
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts}
    return pod


async def pods_of(cluster: Cluster) -> dict[str, Object]:
    """The pods of the API server that are asked about, by name."""
    allocatable = (await cluster.node())["status"]["allocatable"]
    port = cluster.pod("port", hostNetwork=True)
    port["spec"]["containers"][0]["ports"] = [{"containerPort": PORT}]
    never = cluster.pod("never")
    never["spec"]["containers"][0] |= {"image": "registry.invalid/absent:1", "imagePullPolicy": "Never"}
    bad = cluster.pod("bad-name")
    bad["spec"]["containers"][0] |= {"image": "Not/An:Image"}
    rbd = cluster.pod("rbd", volumes=[{"name": "v", "rbd": {"monitors": ["192.0.2.1"], "image": "x"}}])
    rbd["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    volumes = [{"name": "scratch", "emptyDir": {}}, {"name": "host", "hostPath": {"path": "/usr"}}]
    mounted = cluster.pod("mounted", volumes=volumes)
    mounted["spec"]["containers"][0] |= {
        "volumeMounts": [
            {"name": "scratch", "mountPath": "/scratch"},
            {"name": "host", "mountPath": "/host", "readOnly": True},
        ],
        "resources": {"requests": {"cpu": "50m", "memory": "16Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}},
    }
    pods = [
        requesting(cluster.pod("fits"), cpu="10m", memory="8Mi"),
        requesting(cluster.pod("cpu"), cpu=str(parse_quantity(allocatable["cpu"]).milli() + 1) + "m"),
        requesting(cluster.pod("memory"), memory=str(parse_quantity(allocatable["memory"]).base() + 1)),
        port,
        cluster.pod("selector", nodeSelector={"disk": "absent"}),
        cluster.pod("sysctl", securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}),
        never,
        bad,
        rbd,
        mounted,
    ]
    return {str(pod["metadata"]["name"]): pod for pod in pods}


REASONS = {
    "fits": "",
    "cpu": "OutOfcpu",
    "memory": "OutOfmemory",
    "port": "NodePorts",
    "selector": "NodeAffinity",
    "sysctl": "SysctlForbidden",
    "never": "",
    "bad-name": "",
    "rbd": "",
    "mounted": "",
}


async def what_if(cluster: Cluster, pods: list[Object], *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run the command until podsync answers within its 5 s. Return its exit code, and its answers by pod name."""
    command = [str(BIN / "bulkhead"), "what-if", "-", "--run-dir", str(cluster.agent.home.run_dir), "-o", "json"]

    async def answered() -> "subprocess.CompletedProcess[str] | None":
        done = await asyncio.to_thread(
            subprocess.run,
            [*command, *words],
            input=json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}),
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * WAIT_SECONDS,
        )
        return done if done.returncode != NO_ANSWER else None

    done: subprocess.CompletedProcess[str] = await cluster.wait_for(answered, "an answer of podsync")
    assert done.stdout, done.stderr
    return done.returncode, {one["name"]: one for one in json.loads(done.stdout)["pods"]}


async def node_state(cluster: Cluster) -> Any:
    """What a pod that is started or rejected would change: the runtime's pods, the records, the API server's pods."""
    observed = await cluster.agent.runtime.observe()
    home = cluster.agent.home.path
    kept = home / "kubelet" / "bulkhead" / "podsync"
    records = sorted(path.name for path in [*(kept / "pods").glob("*.json"), *(kept / "stories").glob("*.jsonl")])
    assert records
    directories = sorted(path.name for path in (home / "kubelet" / "pods").iterdir())
    listed = {str(pod["metadata"]["name"]) for pod in await cluster.items("/api/v1/pods")}
    return {uid: [c.id for c in pod.containers] for uid, pod in observed.items()}, records, directories, listed


async def test_each_answer_is_what_becomes_of_the_pod(cluster: Cluster) -> None:
    pods = await pods_of(cluster)
    before = await node_state(cluster)
    code, answers = await what_if(cluster, list(pods.values()))
    assert await node_state(cluster) == before
    assert code == 1
    assert {name: answer["reason"] for name, answer in answers.items()} == REASONS
    assert answers["port"]["host_ports"][0]["pods"] == ["default/holder"]
    assert {name for name, answer in answers.items() if answer["obstacles"]} == {"never", "bad-name", "rbd"}
    assert [(one["field"], one["effect"]) for one in answers["rbd"]["unsupported"]] == [
        ("spec.volumes[0].rbd", "waits")
    ]
    assert answers["fits"]["images"][0]["present"] is True

    for name in sorted(pods, key=lambda name: not REASONS[name]):  # what is admitted takes of what the others ask for
        await cluster.create(pods[name])
    for name, answer in answers.items():
        if answer["reason"]:
            found = await cluster.wait_pod(name, lambda pod: pod["status"].get("reason"), "to be rejected")
            assert (found["status"]["phase"], found["status"]["reason"]) == ("Failed", answer["reason"])
            assert found["status"]["message"].endswith(answer["message"])
        elif answer["unsupported"]:
            await cluster.wait_for(partial(is_not_mounted, cluster, name), f"pod {name} to wait for its volume")
        elif answer["obstacles"]:
            waiting = answer["obstacles"][0].split(": ")[1]
            await cluster.wait_pod(name, partial(waits_with, reason=waiting), f"to be {waiting}")
    await cluster.wait_ready("fits", "mounted")
    await check_mounted(cluster, answers["mounted"])


def waits_with(pod: Object, reason: str) -> bool:
    """The first container waits with this reason."""
    statuses = pod["status"].get("containerStatuses") or [{}]
    return bool(((statuses[0].get("state") or {}).get("waiting") or {}).get("reason") == reason)


async def is_not_mounted(cluster: Cluster, name: str) -> bool:
    """The pod has an event that its volume cannot be mounted."""
    return any(event["reason"] == "FailedMount" for event in await cluster.events_of(name))


async def check_mounted(cluster: Cluster, answer: dict[str, Any]) -> None:
    """QoS class, cgroup and mounts of the running pod are those of the answer."""
    pod = await cluster.get_pod("mounted")
    assert pod is not None
    uid = str(pod["metadata"]["uid"])
    assert pod["status"]["qosClass"] == answer["qos_class"] == "Burstable"
    cgroup = answer["cgroup"].replace("<uid>", uid)
    files = {file: text for file, text in answer["cgroup_files"].items() if file.startswith(("cpu.", "memory."))}
    assert len(files) >= 3
    for file, text in files.items():
        (found,) = [
            *Path("/sys/fs/cgroup").glob(f"*{cgroup}/{file}"),
            *Path("/sys/fs/cgroup").glob(f"{cgroup[1:]}/{file}"),
        ]
        assert found.read_text().split() == text.split(), file
    container = (await cluster.agent.runtime.observe(uid))[uid].containers[0]
    shown = {one["container_path"]: one["host_path"].replace("<uid>", uid) for one in answer["containers"][0]["mounts"]}
    score = Path(f"/proc/{container.pid}/oom_score_adj").read_text()
    assert int(score) == answer["containers"][0]["oom_score_adj"]
    mounts = Path(f"/proc/{container.pid}/mountinfo").read_text().splitlines()
    inside = {line.split()[4]: line.split()[5].split(",") for line in mounts}
    assert set(shown) - {"/var/run/secrets/kubernetes.io/serviceaccount"} <= set(inside)
    assert "ro" in inside["/host"] and "rw" in inside["/scratch"]
    assert Path(shown["/scratch"]).is_dir() and shown["/host"] == "/usr"


async def test_a_static_pod_names_the_pod_that_it_then_preempts(cluster: Cluster) -> None:
    allocatable = parse_quantity((await cluster.node())["status"]["allocatable"]["cpu"]).milli()
    await cluster.create(requesting(cluster.pod("victim"), cpu=f"{allocatable // 2}m"))
    await cluster.wait_ready("victim")
    critical = requesting(cluster.pod("critical"), cpu=f"{allocatable * 2 // 3}m")
    del critical["spec"]["nodeName"]
    code, answers = await what_if(cluster, [critical], "--static")
    ((name, answer),) = answers.items()
    assert (code, answer["verdict"]) == (0, "admitted"), answer
    assert "victim" in [one["name"] for one in answer["preempted"]]
    code, others = await what_if(cluster, [{**critical, "spec": {**critical["spec"]}}])
    assert (code, others["critical"]["reason"]) == (1, "OutOfcpu")  # as a pod of the API server

    cluster.agent.put_manifest("critical", critical)
    await cluster.wait_ready(name)
    gone = await cluster.wait_pod("victim", lambda pod: pod["status"]["phase"] == "Failed", "to be preempted")
    assert gone["status"]["reason"] == "Preempting"
