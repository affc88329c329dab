"""The operator's commands on a node of a cluster: a bundle without any Secret, explanations through the API server."""

import asyncio
import base64
import json
import os
import subprocess
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from services.cli.agent.support_bundle import MAX_ARCHIVE_BYTES
from tests.support.agents.agent import BIN
from tests.support.clusters.cluster import Cluster
from tests.support.node_page.browser import browser
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(400)]

TOOLS = Path(__file__).parents[3] / "tools"
VALUES = {"first": "Ohzah4eiQu", "second": "ieSh7Ahpoo"}
PULL = json.dumps({"auths": {"registry.example": {"username": "u", "password": "Aev5ohchai"}}})


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def cluster(empty: Cluster) -> AsyncIterator[Cluster]:
    metadata = {"namespace": "default"}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "values", **metadata},
        "stringData": VALUES,
    }
    await empty.create(secret)
    pull = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull", **metadata}}
    await empty.create({**pull, "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": PULL}})
    volumes = [{"name": "values", "secret": {"secretName": "values"}}]
    web = empty.pod("web", "sleep", "1000000", volumes=volumes, imagePullSecrets=[{"name": "pull"}])
    web["spec"]["containers"][0] |= {
        "envFrom": [{"secretRef": {"name": "values"}}],
        "volumeMounts": [{"name": "values", "mountPath": "/values"}],
    }
    await empty.create(web)
    await empty.wait_served("web")
    yield empty


async def bulkhead(cluster: Cluster, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command for the agent of the cluster."""
    command = [str(BIN / "bulkhead"), name, "--run-dir", str(cluster.agent.home.run_dir), *words]
    return await asyncio.to_thread(
        subprocess.run, command, capture_output=True, check=False, text=True, timeout=4 * WAIT_SECONDS
    )


async def test_a_support_bundle_has_every_part_and_no_secret_of_the_node(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    secrets = [*VALUES.values(), "Aev5ohchai"]
    hidden = [*secrets, *(base64.b64encode(value.encode()).decode() for value in (*secrets, PULL))]
    hidden += [file.read_text() for file in keys_of(cluster)]
    assert len(hidden) > 7

    async def complete() -> dict[str, str]:
        """Return the texts of a bundle by name; {} where a process has not answered in time."""
        path.unlink(missing_ok=True)
        answer = await bulkhead(cluster, "support-bundle", "--file", str(path))
        assert answer.returncode == 0, answer.stderr
        with tarfile.open(path) as archive:
            files = {entry.name: archive.extractfile(entry) for entry in archive.getmembers()}
            found = {name.partition("/")[2]: file.read().decode() for name, file in files.items() if file is not None}
        assert not [(name, value[:20]) for name, text in found.items() for value in hidden if value in text]
        whole = not found["problems.txt"].strip() and "web" in found["status.txt"]
        return found if whole else {}

    texts: dict[str, str] = await cluster.wait_for(complete, "a complete bundle", 2 * WAIT_SECONDS)
    assert path.stat().st_size <= MAX_ARCHIVE_BYTES
    assert "default" in texts["status.txt"] and "web" in texts["status.txt"]
    assert "stacks/podsync.txt" in texts and "kubelet_node_name" in texts["metrics.txt"]


def keys_of(cluster: Cluster) -> list[Path]:
    """The files of private keys and tokens below the agent's home."""
    walked = os.walk(cluster.agent.home.path)  # which passes over directories that are removed meanwhile
    found = [
        Path(directory, name) for directory, _, names in walked for name in names if name.endswith((".key", ".pem"))
    ]
    return [path for path in found if path.is_file() and "PRIVATE KEY" in path.read_text(errors="replace")]


async def test_the_api_server_passes_an_explanation_on(cluster: Cluster) -> None:
    node = (await cluster.node())["metadata"]["name"]
    proxy = f"/api/v1/nodes/{node}/proxy/bulkhead/explain"

    async def explains_the_pod() -> bool:
        found = await cluster.plane.admin.get(f"{proxy}/default/web", {"output": "json"})
        return found["name"] == "web" and bool(found["story"])

    async def explains_the_node() -> bool:
        found = await cluster.plane.admin.get(f"{proxy}/node", {"output": "json"})
        return ("Ready", "True") in {(one["type"], one["status"]) for one in found["changes"]}

    await cluster.wait_for(explains_the_pod, "the story of the pod")
    await cluster.wait_for(explains_the_node, "the conditions of the node")


async def test_the_node_page_is_opened_through_kubectl_proxy_and_the_api_server(
    cluster: Cluster, tmp_path: Path
) -> None:
    node = (await cluster.node())["metadata"]["name"]
    async with kubectl_proxy(cluster) as address, browser(tmp_path / "profile") as page:
        await page.open(f"{address}/api/v1/nodes/{node}/proxy/bulkhead/")
        await page.until("document.querySelectorAll('#pods tbody tr').length")
        await page.until("byId('connection').textContent", lambda text: text == "Connected")
        await page.until("byId('verdict').textContent", lambda text: text == "Ready")
        await cluster.create(cluster.pod("late", "sh", "-c", "echo from late; exec sleep 1000000"))
        await page.until("byId('pods').textContent.includes('late')")
        await page.until("byId('conditions').textContent.includes('kubelet is posting ready status')")
        late = "Object.values(state.pods).find(pod => pod.name === 'late').uid"
        await page.until(f"state.usage[{late}]?.[0] !== undefined && state.usage[{late}]?.[1] > 0")
        await cluster.wait_for(partial(has_logged, cluster, "late"), "a line in the log, which the page reads once")
        await page.value(
            f"openStory({late}); document.querySelector('#story-views [data-container]:last-child').click()"
        )
        await page.until("byId('story-body').querySelector('pre')?.textContent === 'from late\\n'")
        await page.value("byId('story').close()")
        await page.value("document.querySelector('#pods tbody button').click()")
        await page.until("byId('story-body').querySelectorAll('li').length > 1")
        for fact in ("API server: reachable", "lease: renewed"):
            await page.until(f"byId('facts').textContent.includes('{fact}')")
        assert page.problems == []
        cluster.agent.kill("server")
        row = "[...byId('processes').tBodies[0].rows].find(row => row.cells[0].textContent === 'server')"
        await page.until(f"{row}.cells[6].textContent !== '0' && byId('connection').textContent === 'Connected'")
        await page.until("byId('verdict').textContent === 'Ready' && byId('pods').textContent.includes('late')")
    await cluster.delete_pod("late", grace=0)


async def has_logged(cluster: Cluster, pod: str) -> bool:
    """Return whether kubectl shows a line of the pod."""
    return bool((await asyncio.to_thread(cluster.plane.kubectl, "logs", pod, check=False)).stdout)


@asynccontextmanager
async def kubectl_proxy(cluster: Cluster) -> AsyncIterator[str]:
    """The address of a `kubectl proxy`."""
    command = cluster.plane.kubectl_command("proxy", "--port=0")
    process = await asyncio.create_subprocess_exec(
        *command, env=cluster.plane.kubectl_environment, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(WAIT_SECONDS):
            line = (await process.stdout.readline()).decode()
        assert line.startswith("Starting to serve on "), line
        yield f"http://{line.removeprefix('Starting to serve on ').strip()}"
    finally:
        process.kill()
        await process.wait()


async def test_kubectl_bulkhead_explains_a_pod_the_node_and_images(cluster: Cluster) -> None:
    node = (await cluster.node())["metadata"]["name"]

    async def tells_the_start() -> bool:  # the story is written a moment after the start
        story = await plugin(cluster, "explain", "web")
        assert story.returncode == 0, story.stderr
        assert story.stdout.startswith("default/web (")
        return "container main of attempt 0 is started" in story.stdout

    await cluster.wait_for(tells_the_start, "the start in the story")
    found = json.loads((await plugin(cluster, "explain", "default/web", "-o", "json")).stdout)
    assert found["name"] == "web" and found["story"]
    assert "Ready is True" in (await plugin(cluster, "explain", "--node", node, "node")).stdout
    assert "default" in (await plugin(cluster, "explain", "--node", node)).stdout
    assert "busybox" in (await plugin(cluster, "explain", "--node", node, "image", "busybox")).stdout


async def test_kubectl_bulkhead_explains_only_what_it_can(cluster: Cluster) -> None:
    missing = await plugin(cluster, "explain", "nothing")
    assert missing.returncode == 1 and 'pods "nothing" not found' in missing.stderr
    wrong = await plugin(cluster, "explain", "web", "--since", "1h&x=y")
    assert wrong.returncode == 2 and "has a character that no name has" in wrong.stderr
    node = (await cluster.node())["metadata"]["name"]
    gone = await plugin(cluster, "explain", "nothing", "--node", node, "-n", "default")
    assert gone.returncode == 1 and f"node {node} shows no record of it (" in gone.stderr


async def plugin(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `kubectl bulkhead` with the real kubectl, which finds the plugin in PATH."""
    kubectl = cluster.plane.kubectl_command()[0]
    path = f"{TOOLS}:{Path(kubectl).parent}:{os.environ['PATH']}"
    environment = {**cluster.plane.kubectl_environment, "PATH": path, "KUBECONFIG": str(cluster.plane.kubeconfig)}
    return await asyncio.to_thread(
        subprocess.run,
        [kubectl, "bulkhead", *words],
        capture_output=True,
        check=False,
        text=True,
        timeout=4 * WAIT_SECONDS,
        env=environment,
    )


async def test_logs_and_exec_need_no_credentials(cluster: Cluster) -> None:
    answer = await bulkhead(cluster, "exec", "web", "--", "cat", "/values/first")
    assert (answer.stdout, answer.returncode) == (VALUES["first"], 0), answer.stderr
    assert (await bulkhead(cluster, "logs", "web")).returncode == 0
