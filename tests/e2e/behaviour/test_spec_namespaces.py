"""What pods share with the host and containers with each other: processes, IPC, network, kernel settings."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shared.model.objects import Object
from tests.behaviour import Node, container, pod_of, status_of

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]

SYSCTLS = [
    {"name": "net.ipv4.ip_unprivileged_port_start", "value": "81"},
    {"name": "kernel/shm_rmid_forced", "value": "1"},
]
PODS = {
    "spec-apart": pod_of("spec-apart", container("c"), container("d", "exec sleep 2000000")),
    "spec-share": pod_of(
        "spec-share", container("c"), container("d", "exec sleep 2000000"), shareProcessNamespace=True
    ),
    "spec-host-pid": pod_of("spec-host-pid", container("c"), hostPID=True),
    "spec-host-ipc": pod_of("spec-host-ipc", container("c"), hostIPC=True),
    "spec-host-net": pod_of("spec-host-net", container("c"), hostNetwork=True),
    "spec-sysctls": pod_of("spec-sysctls", container("c"), securityContext={"sysctls": SYSCTLS}),
    "spec-bad-sysctl": pod_of(
        "spec-bad-sysctl",
        container("c"),
        securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]},
    ),
    "spec-init": pod_of(
        "spec-init",
        container("c", "cat /v/log; exec sleep 1000000", volumeMounts=[{"name": "v", "mountPath": "/v"}]),
        initContainers=[
            container(name, f"echo {name} $(hostname) >> /v/log", volumeMounts=[{"name": "v", "mountPath": "/v"}])
            for name in ("one", "two")
        ],
        volumes=[{"name": "v", "emptyDir": {}}],
    ),
    "spec-users": pod_of("spec-users", container("c"), hostUsers=False),
}


@pytest_asyncio.fixture(scope="module", loop_scope="package", autouse=True)
async def pods(node: Node) -> AsyncIterator[None]:
    node.put(PODS)
    yield
    await node.take_away(PODS)


async def inside(node: Node, pod: str, *command: str, name: str = "c") -> str:
    await node.wait_static(pod, lambda p: "running" in (status_of(p, name).get("state") or {}), f"{name} to run")
    return (await node.inside(pod, name, *command)).strip()


def of_host(kind: str) -> str:
    return os.readlink(f"/proc/self/ns/{kind}")  # noqa: PTH115


async def namespaces(node: Node, pod: str, name: str = "c") -> dict[str, str]:
    kinds = ("pid", "ipc", "net", "uts", "user")
    found = await inside(
        node, pod, "sh", "-c", f"for kind in {' '.join(kinds)}; do readlink /proc/self/ns/$kind; done", name=name
    )
    return dict(zip(kinds, found.split(), strict=True))


async def test_containers_of_a_pod_share_network_and_ipc_and_not_processes(node: Node) -> None:
    one, two = await namespaces(node, "spec-apart"), await namespaces(node, "spec-apart", "d")
    assert one["pid"] != two["pid"]
    assert [one[kind] for kind in ("ipc", "net", "uts")] == [two[kind] for kind in ("ipc", "net", "uts")]
    assert all(one[kind] != of_host(kind) for kind in ("pid", "ipc", "net", "uts"))


async def test_a_container_is_process_1_of_its_own(node: Node) -> None:
    assert await inside(node, "spec-apart", "cat", "/proc/1/comm") == "sleep"


async def test_processes_are_shared_where_asked_for(node: Node) -> None:
    one, two = await namespaces(node, "spec-share"), await namespaces(node, "spec-share", "d")
    assert one["pid"] == two["pid"] != of_host("pid")
    seen = await inside(node, "spec-share", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "sleep 2000000" in seen


async def test_the_hosts_processes(node: Node) -> None:
    found = await namespaces(node, "spec-host-pid")
    assert found["pid"] == of_host("pid")
    assert found["net"] != of_host("net")


async def test_the_hosts_ipc(node: Node) -> None:
    found = await namespaces(node, "spec-host-ipc")
    assert found["ipc"] == of_host("ipc")
    assert found["pid"] != of_host("pid")


async def test_the_hosts_network(node: Node) -> None:
    found = await namespaces(node, "spec-host-net")
    assert found["net"] == of_host("net")
    status = (await node.wait_phase("spec-host-net", "Running"))["status"]
    assert status["podIP"] == status["hostIP"]


async def test_users_are_the_hosts(node: Node) -> None:
    assert (await namespaces(node, "spec-apart"))["user"] == of_host("user")


async def test_kernel_settings_of_the_pod_are_not_the_hosts(node: Node) -> None:
    paths = ["/proc/sys/net/ipv4/ip_unprivileged_port_start", "/proc/sys/kernel/shm_rmid_forced"]
    assert (await inside(node, "spec-sysctls", "cat", *paths)).split() == ["81", "1"]
    assert Path(paths[0]).read_text().strip() != "81"


async def test_a_kernel_setting_that_nobody_allowed_is_refused(node: Node) -> None:
    status = (await node.wait_phase("spec-bad-sysctl", "Failed"))["status"]
    assert status["reason"] == "SysctlForbidden"
    assert status["message"] == 'Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted'


async def test_init_containers_run_one_after_the_other_in_the_pods_sandbox(node: Node) -> None:
    await inside(node, "spec-init", "true")

    async def lines() -> list[str]:
        return await node.log("spec-init", "c")

    assert await node.wait_for(lines, "the log") == ["one spec-init-node-a", "two spec-init-node-a"]


async def test_users_of_its_own_are_refused_where_the_runtime_has_none(node: Node) -> None:
    """containerd 1.x tells of no handler that could."""
    text = "Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user namespaces"
    assert (await node.wait_event("spec-users", "FailedCreatePodSandBox", "hostUsers"))[1] == text
    pod: Object = await node.wait_phase("spec-users", "Pending")
    assert not (node.agent.home.path / "kubelet" / "pods" / pod["metadata"]["uid"] / "userns").exists()
