"""Who containers run as and what they may do, seen from inside: /proc/1/status, mounts, what the kernel refuses."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shared.model.objects import Object
from tests.support.agents.behaviour import Node, container, pod_of, status_of
from tests.support.runtime.docker_limits import Limit, lacks_capabilities

pytestmark = [pytest.mark.root, pytest.mark.docker, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]

NET_ADMIN, CHOWN = 12, 0  # bits of capabilities
MASKED = {"/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi", "/sys/firmware"}
READONLY = {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
NO_NAME = {  # everything but setting the host name
    "defaultAction": "SCMP_ACT_ALLOW",
    "syscalls": [{"names": ["sethostname"], "action": "SCMP_ACT_ERRNO"}],
}


def secured(name: str, **context: object) -> Object:
    return container(name, securityContext=context)


GROUPS = {"runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000, "supplementalGroups": [4000]}
PODS = {
    "spec-may": pod_of(
        "spec-may",
        secured("usual"),
        secured("caps", capabilities={"add": ["NET_ADMIN"], "drop": ["ALL"]}),
        secured("mighty", privileged=True),
        secured("meek", allowPrivilegeEscalation=False),
        secured("filtered", seccompProfile={"type": "RuntimeDefault"}),
        secured("local", seccompProfile={"type": "Localhost", "localhostProfile": "no-name.json"},
                capabilities={"add": ["SYS_ADMIN"]}),
        secured("no-file", seccompProfile={"type": "Localhost", "localhostProfile": "none.json"}),
        secured("fixed", readOnlyRootFilesystem=True),
    ),
    "spec-who": pod_of(
        "spec-who",
        {**container("c", "touch /v/mine; exec sleep 1000000"), "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        securityContext=GROUPS,
        volumes=[{"name": "v", "emptyDir": {}}],
    ),
    "spec-root": pod_of("spec-root", secured("c", runAsNonRoot=True)),
}  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="package", autouse=True)
async def pods(node: Node) -> AsyncIterator[None]:
    profiles = node.agent.home.path / "kubelet" / "seccomp"
    profiles.mkdir(parents=True, exist_ok=True)
    (profiles / "no-name.json").write_text(json.dumps(NO_NAME))
    node.put(PODS)
    yield
    await node.take_away(PODS)


async def process(node: Node, pod: str, name: str) -> dict[str, str]:
    """/proc/1/status of a container, once it runs."""
    await node.wait_static(pod, lambda p: "running" in (status_of(p, name).get("state") or {}), f"{name} to run")
    lines = (await node.inside(pod, name, "cat", "/proc/1/status")).splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


async def capabilities(node: Node, name: str) -> int:
    return int((await process(node, "spec-may", name))["CapEff"], 16)


async def mounted(node: Node, name: str) -> dict[str, set[str]]:
    """Mount point -> its options, in the container."""
    await process(node, "spec-may", name)
    lines = (await node.inside("spec-may", name, "cat", "/proc/1/mountinfo")).splitlines()
    return {line.split()[4]: set(line.split()[5].split(",")) for line in lines}


async def test_a_container_runs_as_root_with_the_usual_capabilities_and_no_filter(node: Node) -> None:
    found = await process(node, "spec-may", "usual")
    assert (found["Uid"].split(), found["Gid"].split()) == (["0"] * 4, ["0"] * 4)
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("0", "0")
    has = int(found["CapEff"], 16)
    assert has >> CHOWN & 1
    assert not has >> NET_ADMIN & 1


async def test_all_capabilities_dropped_and_one_added(node: Node) -> None:
    assert await capabilities(node, "caps") == 1 << NET_ADMIN


@pytest.mark.beyond_docker(Limit.PRIVILEGED, where=lacks_capabilities())
async def test_a_privileged_container_has_every_capability_the_machine_has(node: Node) -> None:
    own = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapBnd"))
    assert await capabilities(node, "mighty") == int(own.split()[1], 16)


@pytest.mark.beyond_docker(Limit.PRIVILEGED, where=lacks_capabilities())
async def test_a_privileged_container_sees_all_of_proc_and_sys(node: Node) -> None:
    mounts = await mounted(node, "mighty")
    assert not MASKED & mounts.keys()
    assert "rw" in mounts["/sys"]


async def test_without_escalation_no_new_privileges_are_to_be_had(node: Node) -> None:
    assert (await process(node, "spec-may", "meek"))["NoNewPrivs"] == "1"


async def test_the_runtimes_own_filter_of_system_calls(node: Node) -> None:
    assert (await process(node, "spec-may", "filtered"))["Seccomp"] == "2"


async def test_a_filter_of_the_nodes_own_refuses_what_it_names(node: Node) -> None:
    assert (await process(node, "spec-may", "local"))["Seccomp"] == "2"
    output = await node.inside("spec-may", "local", "sh", "-c", "hostname other 2>&1; true")
    assert "Operation not permitted" in output


async def test_a_filter_that_is_not_on_the_node_keeps_its_container_from_being_made(node: Node) -> None:
    pod = await node.wait_static(
        "spec-may", lambda p: "waiting" in (status_of(p, "no-file").get("state") or {})
        and status_of(p, "no-file")["state"]["waiting"]["reason"] != "ContainerCreating", "no-file to be refused"
    )  # fmt: skip
    waiting = status_of(pod, "no-file")["state"]["waiting"]
    assert waiting["reason"] == "CreateContainerError"
    assert "seccomp/none.json" in waiting["message"]


async def test_a_root_filesystem_that_is_read_only(node: Node) -> None:
    assert "ro" in (await mounted(node, "fixed"))["/"]
    output = await node.inside("spec-may", "fixed", "sh", "-c", "touch /new 2>&1; true")
    assert "Read-only file system" in output


async def test_parts_of_proc_and_sys_are_hidden(node: Node) -> None:
    mounts = await mounted(node, "usual")
    seen = await node.inside("spec-may", "usual", "sh", "-c", "for p in /proc/* /sys/*; do echo $p; done")
    there = set(seen.split())
    assert MASKED & there <= mounts.keys()
    assert (await node.inside("spec-may", "usual", "cat", "/proc/keys")) == ""


async def test_parts_of_proc_are_read_only(node: Node) -> None:
    mounts = await mounted(node, "usual")
    found = READONLY & mounts.keys()
    assert found >= {"/proc/sys", "/proc/irq"}
    assert all("ro" in mounts[path] for path in found)
    output = await node.inside("spec-may", "usual", "sh", "-c", "echo x 2>&1 > /proc/sys/kernel/hostname; true")
    assert "Read-only file system" in output or (await node.inside("spec-may", "usual", "hostname")).strip() != "x"


async def test_user_and_groups_of_the_pod(node: Node) -> None:
    found = await process(node, "spec-who", "c")
    assert (found["Uid"].split(), found["Gid"].split()) == (["1000"] * 4, ["3000"] * 4)
    assert {"2000", "4000"} <= set(found["Groups"].split())
    assert int(found["CapEff"], 16) == 0


async def test_a_volume_is_the_fs_groups(node: Node) -> None:
    await process(node, "spec-who", "c")
    script = "until [ -e /v/mine ]; do sleep 0.1; done; stat -c '%g %a' /v /v/mine"
    directory, file = (await node.inside("spec-who", "c", "sh", "-c", script)).splitlines()
    assert directory == "2000 2777"
    assert file.split()[0] == "2000"


async def waits(node: Node, pod: str, name: str) -> Object:
    """Why a container cannot be described."""
    found = await node.wait_static(
        pod,
        lambda p: (
            ((status_of(p, name).get("state") or {}).get("waiting") or {}).get("reason") == "CreateContainerConfigError"
        ),
        f"{name} to be refused",
    )
    waiting: Object = status_of(found, name)["state"]["waiting"]
    return waiting | {"who": f'(pod: "{pod}-node-a_default({found["metadata"]["uid"]})", container: {name})'}


async def test_who_must_not_be_root_is_not_made_root_by_the_image(node: Node) -> None:
    waiting = await waits(node, "spec-root", "c")
    text = f"container has runAsNonRoot and image will run as root {waiting['who']}"
    assert waiting["message"] == text
    event = await node.wait_event("spec-root", "Failed", "runAsNonRoot")
    assert event[1:] == (f"Error: {text}", "spec.containers{c}")
