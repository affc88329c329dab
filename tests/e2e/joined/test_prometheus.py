"""Debian's Prometheus scrapes every page of metrics of a node, with a token, as the one of a cluster does. It evaluates
the alerts of examples/prometheus-alerts.yaml."""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from shared.model.objects import Object
from tests.support.agents.agent import NODE
from tests.support.agents.free_ports import free_ports
from tests.support.clusters.cluster import Cluster
from tests.support.installed.lacking import require_command
from tests.support.waits.deadline import WAIT_SECONDS
from tools.home import CHECKOUT

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(600)]

WAIT = 3 * WAIT_SECONDS  # seconds
PAGES = ("metrics", "metrics/cadvisor", "metrics/resource", "metrics/probes", "metrics/slis")
# A fact of each page as dashboards and alerts read it, the resource page as metrics-server does.
QUERIES = {
    "running pods": "kubelet_running_pods >= 1",
    "operations of the runtime": 'sum(rate(kubelet_runtime_operations_total{operation_type="exec_sync"}[1m])) > 0',
    "quantile": "histogram_quantile(0.99, sum by (le) (kubelet_pleg_relist_duration_seconds_bucket)) > 0",
    "CPU of a container": 'rate(container_cpu_usage_seconds_total{pod="probed",container="main"}[1m]) >= 0',
    "memory of a container": 'container_memory_working_set_bytes{pod="probed",container="main",image!=""} > 0',
    "memory of a pod": 'pod_memory_working_set_bytes{pod="probed",namespace="default"} > 0',
    "CPU of the node": "rate(node_cpu_usage_seconds_total[1m]) > 0",
    "probes": 'prober_probe_total{pod="probed",probe_type="Readiness",result="successful"} > 0',
    "health": 'kubernetes_healthcheck{name="ping"} == 1',
    "beats": 'bulkhead_beat_age_seconds{process="podsync"} < 30',
    "file descriptors": "bulkhead_process_open_fds / bulkhead_process_max_fds < 0.8",
}
ALERTS = CHECKOUT / "examples/prometheus-alerts.yaml"


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def cluster(empty: Cluster) -> AsyncIterator[Cluster]:
    require_command("prometheus")
    require_command("promtool")
    pod = empty.pod("probed", "sh", "-c", "while :; do sleep 0.1; done")
    pod["spec"]["containers"][0]["readinessProbe"] = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    await empty.create(pod)
    await empty.wait_ready("probed")
    empty.plane.kubectl("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/healthz")  # a check counts once requested
    yield empty


async def token_with_access(cluster: Cluster) -> str:
    """The token of a service account that may read metrics and nothing else."""
    admin, rbac = cluster.plane.admin, "/apis/rbac.authorization.k8s.io/v1"
    named: Object = {"metadata": {"name": "prometheus"}}
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await admin.create(accounts, {"apiVersion": "v1", "kind": "ServiceAccount", **named})
    rule = {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]}
    kinds = {"apiVersion": "rbac.authorization.k8s.io/v1", **named}
    await admin.create(f"{rbac}/clusterroles", {**kinds, "kind": "ClusterRole", "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "prometheus"}
    subject = {"kind": "ServiceAccount", "name": "prometheus", "namespace": "default"}
    binding = {**kinds, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]}
    await admin.create(f"{rbac}/clusterrolebindings", binding)
    request: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await admin.create(f"{accounts}/prometheus/token", request)
    return str(answer["status"]["token"])


def configuration(kubelet_port: int, token: str, directory: Path) -> Path:
    """A job for each page."""
    (directory / "token").write_text(token)
    jobs = [
        {
            "job_name": page,
            "metrics_path": f"/{page}",
            "scheme": "https",
            "honor_labels": True,
            "authorization": {"credentials_file": str(directory / "token")},
            "tls_config": {"insecure_skip_verify": True},
            "static_configs": [{"targets": [f"127.0.0.1:{kubelet_port}"]}],
        }
        for page in PAGES
    ]
    path = directory / "prometheus.yml"
    # The timeout is that of a busy machine; Prometheus allows no longer one than the interval.
    intervals = {"scrape_interval": "10s", "evaluation_interval": "10s"}
    path.write_text(yaml.safe_dump({"global": intervals, "rule_files": [str(ALERTS)], "scrape_configs": jobs}))
    return path


@contextmanager
def prometheus(configuration: Path, directory: Path) -> Iterator[str]:
    """Run it; yield the URL of its API."""
    [port] = free_ports(1)
    command = ["setpriv", "--pdeathsig", "KILL", "--", "prometheus"]
    flags = {
        "config.file": configuration,
        "storage.tsdb.path": directory / "data",
        "web.listen-address": f"127.0.0.1:{port}",
    }
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([*command, *(f"--{name}={value}" for name, value in flags.items())], stderr=log)
    try:
        yield f"http://127.0.0.1:{port}/api/v1"
    finally:
        process.kill()
        process.wait()


async def data_of(client: aiohttp.ClientSession, path: str, **query: str) -> Any:
    """The `data` of an answer; {} while there is none."""
    try:
        async with client.get(path, params=query) as answer:
            return (await answer.json()).get("data") or {}
    except (aiohttp.ClientError, ValueError) as error:
        return {"error": str(error)}


async def health_of_targets(client: aiohttp.ClientSession) -> dict[str, str]:
    """Job -> `up`, or the error of its last scrape."""
    targets = (await data_of(client, "targets")).get("activeTargets") or ()
    return {target["labels"]["job"]: target["lastError"] or target["health"] for target in targets}


async def without_result(client: aiohttp.ClientSession) -> list[str]:
    """The queries that find nothing yet."""
    answers = {what: await data_of(client, "query", query=query) for what, query in QUERIES.items()}
    return [f"{what}: {QUERIES[what]}" for what, answer in answers.items() if not answer.get("result")]


async def health_of_alerts(client: aiohttp.ClientSession) -> dict[str, str]:
    """Alert -> `ok`, `unknown` before its first evaluation, or the error of its last one."""
    groups = (await data_of(client, "rules")).get("groups") or ()
    return {rule["name"]: rule.get("lastError") or rule["health"] for group in groups for rule in group["rules"]}


async def test_prometheus_scrapes_every_page_and_answers_queries(cluster: Cluster, tmp_path: Path) -> None:
    token = await token_with_access(cluster)
    deadline = time.monotonic() + WAIT
    with prometheus(configuration(cluster.agent._port, token, tmp_path), tmp_path) as api:
        async with aiohttp.ClientSession(f"{api}/") as client:
            while time.monotonic() < deadline:
                targets, missing = await health_of_targets(client), await without_result(client)
                alerts = await health_of_alerts(client)
                if targets == dict.fromkeys(PAGES, "up") and not missing and set(alerts.values()) == {"ok"}:
                    break
                await asyncio.sleep(1)
    assert targets == dict.fromkeys(PAGES, "up")
    assert not missing
    assert set(alerts.values()) == {"ok"}


# Names of cAdvisor, which dashboards expect as they are.
ADVISED_AGAINST = {"cadvisor_version_info", "container_fs_inodes_total", "container_memory_failcnt"}


@pytest.mark.parametrize("page", PAGES)
async def test_promtool_accepts_the_page(cluster: Cluster, page: str) -> None:
    async def served() -> str:  # pleg has 5 s for its part of some pages
        raw = ("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/{page}")
        return (await asyncio.to_thread(cluster.plane.kubectl, *raw, check=False)).stdout

    text: str = await cluster.wait_for(served, f"the page {page}")
    command = ["promtool", "check", "metrics"]
    done = await asyncio.to_thread(subprocess.run, command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stderr  # 3: all of it can be read, and it advises against some names
    assert {line.split()[0] for line in done.stderr.splitlines() if line} <= ADVISED_AGAINST, done.stderr
    assert "# TYPE " in text
