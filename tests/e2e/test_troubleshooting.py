"""docs/troubleshooting.md shows what a real agent shows of pods that do not run: a pod for each row of two tables."""

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shared.model.objects import Object
from tests.process.supervised import CHECKOUT
from tests.support.agents.agent import BIN
from tests.support.agents.world import World, busybox_pod
from tests.support.installed.chosen_programs import chosen_suite
from tests.support.installed.debian_containerd import INSTALLED
from tests.support.source.document_blocks import fits
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

PAGE = CHECKOUT / "docs/troubleshooting.md"
NEEDS_A_CLUSTER = ("PVC is not bound", "failed to fetch PVC", "driver name", "Unable to attach or mount")
OF_A_POWER_CUT = ("failed to get network", "FailedKillPod")
RESULTS = Path("/var/lib/cni/results")


def table(name: str) -> list[str]:
    """The messages in the first column of the table that follows the comment with this name."""
    rows = PAGE.read_text().partition(f"<!-- {name} -->")[2].strip().partition("\n\n")[0].splitlines()[2:]
    found = [message for row in rows for message in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    return [message for message in found if not message.startswith((*NEEDS_A_CLUSTER, *OF_A_POWER_CUT))]


def pod(name: str, volume: Object | None = None, spec: Object | None = None, **container: Any) -> Object:
    made = busybox_pod(name, **(spec or {}))
    made["spec"]["containers"][0] |= container
    if volume is not None:
        made["spec"]["volumes"] = [{"name": "v", **volume}]
        made["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    return made


NFS = {"nfs": {"server": "127.0.0.1", "path": "/none"}}
# No test shuts this machine down; tests/service/podsync/test_node_shutdown.py shows the message.
IN_A_SHUTDOWN = "nothing: it is rejected (Pod was rejected: Pod was rejected as the node is shutting down.)"
PODS = [
    pod("unpulled", image="127.0.0.1:1/none:1"),
    pod("never", image="none:1", imagePullPolicy="Never"),
    pod("name", image="Not A Name"),
    pod("variable", envFrom=[{"configMapRef": {"name": "absent"}}]),
    pod("root", securityContext={"runAsNonRoot": True}),
    pod("ends", command=["sh", "-c", "exit 3"]),
    pod("unready", readinessProbe={"exec": {"command": ["false"]}, "periodSeconds": 1}),
    pod("elsewhere", spec={"nodeSelector": {"a": "b"}}),
    pod("port", ports=[{"containerPort": 80, "hostPort": 31998}]),
    pod("same-port", ports=[{"containerPort": 80, "hostPort": 31998}]),
    pod("large", resources={"requests": {"cpu": "9000"}}),
    pod("class", spec={"runtimeClassName": "none"}),
    pod("configmap", {"configMap": {"name": "absent"}}),
    pod("secret", {"secret": {"secretName": "absent"}}),
    pod("hostpath", {"hostPath": {"path": "/none/none", "type": "Directory"}}),
    pod("nfs", NFS),
    pod("flocker", {"flocker": {"datasetName": "d"}}),
]


async def bulkhead(world: World, *words: str, text: str = "") -> str:
    """What `bulkhead …` prints; it must succeed."""
    done = await bulkhead_ends(world, *words, text=text)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def bulkhead_ends(world: World, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command and return its outcome. It fails where no process of a busy agent answers within a second."""
    environment = {**os.environ, "BULKHEAD_HOME": str(world.home.path)}
    command = [str(BIN / "bulkhead"), *words]
    return await asyncio.to_thread(
        subprocess.run,
        command,
        input=text,
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * WAIT_SECONDS,
        check=False,
    )


@pytest.mark.asyncio
async def test_every_message_of_the_page_about_pods_is_shown_for_such_a_pod() -> None:
    messages = {*table("pods"), *table("volumes")}
    assert IN_A_SHUTDOWN in messages
    expected = {f"…{message}…": message for message in messages - {IN_A_SHUTDOWN}}
    assert len(expected) >= 17
    seen: set[str] = set()
    async with World() as world:
        await bulkhead(world, "pods", "apply", "-f", "-", text="\n---\n".join(map(json.dumps, PODS)))

        def missing() -> list[str]:
            return [message for form, message in expected.items() if not any(fits(form, line) for line in seen)]

        async def all_shown() -> bool:
            pods = await bulkhead_ends(world, "pods", "-o", "json")
            seen.update(row["waits_for"] for row in json.loads(pods.stdout or "[]"))
            return not missing()

        await world.wait_for(all_shown, lambda: f"{missing()} among {sorted(seen)}", 2 * WAIT_SECONDS)


@pytest.mark.versions
@pytest.mark.asyncio
async def test_a_file_of_libcni_that_a_power_cut_emptied_is_reported_and_its_removal_lets_the_pod_end() -> None:
    message = 'failed to get network "…" cached result: … unexpected end of JSON input'
    row = next(line for line in PAGE.read_text().splitlines() if message in line)
    assert "FailedKillPod" in row and f"`{RESULTS}`" in row
    async with World() as world:
        world.put_manifest("cut", pod("cut"))
        sandbox = (await world.wait_running("cut")).sandboxes[0].id
        (result,) = [file for file in RESULTS.iterdir() if file.name.endswith(f"-{sandbox}-eth0")]
        os.truncate(result, 0)
        world.remove_manifest("cut")

        async def reported() -> bool:
            lines = (await bulkhead_ends(world, "events")).stdout.splitlines()
            return any(fits(f"…FailedKillPod…{message}…", line) for line in lines)

        if chosen_suite() == INSTALLED:  # containerd 2 stops the sandbox without the file
            await world.wait_for(reported, "an event with the message of the page", WAIT_SECONDS)
            result.unlink()
        await world.wait_gone("cut", WAIT_SECONDS)
