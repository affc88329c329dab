"""A Node that names its configuration (spec.configSource), with a real API server of release 1.20 and a real agent."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from shared.kube import paths
from shared.model.objects import Object
from tests.support.agents.agent import NODE
from tests.support.clusters.cluster import Cluster
from tests.support.clusters.cluster_witness import Witness
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

GATES = "--feature-gates=DynamicKubeletConfig=true"
MAP = "/api/v1/namespaces/default/configmaps"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    flags = (f"--dynamic-config-dir={directory}/dynamic", GATES)
    async with Cluster(directory, flags=flags) as running:
        if running.plane.version >= (1, 22):
            pytest.skip("this API server has no dynamic configuration of nodes")
        await running.create(running.pod("stays"))
        await running.wait_ready("stays")
        yield running


async def offer(cluster: Cluster, name: str, **changed: object) -> None:
    """Create or replace a ConfigMap with the local configuration and these changes."""
    local = next(yaml.safe_load_all((cluster.agent.home.path / "kubelet.yaml").read_text()))
    here = {key: str(cluster.agent.home.path / local[key]) for key in ("staticPodPath", "podLogsDir")}
    text = yaml.safe_dump({**local, **here, **changed})
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"kubelet": text}}
    cluster.plane.kubectl("apply", "-f", "-", stdin=json.dumps(config_map))


def name_source(cluster: Cluster, name: str) -> None:
    """Have the Node name the ConfigMap; "" = none."""
    config_map = {"namespace": "default", "name": name, "kubeletConfigKey": "kubelet"}
    source = {"configMap": config_map} if name else None
    cluster.plane.kubectl("patch", "node", NODE, "-p", json.dumps({"spec": {"configSource": source}}))


async def status_config(cluster: Cluster) -> Object:
    """status.config of the Node."""
    found: Object = (await cluster.node())["status"].get("config") or {}
    return found


def named(source: Object | None) -> str:
    """The name of the ConfigMap of a source; "" = the local configuration."""
    return str(source["configMap"]["name"]) if source else ""


def version(source: Object | None) -> str:
    """Return the resource version of the ConfigMap of a source."""
    return str(source["configMap"]["resourceVersion"]) if source else ""


async def wait_config(cluster: Cluster, assigned: str, active: str, error: str, *, but: str = "") -> Object:
    """Wait until status.config shows these ConfigMaps and an error with this text, and return it. `but`: a resource
    version that the active ConfigMap must no longer have."""

    async def shown() -> list[Object]:
        config = await status_config(cluster)
        fits = (named(config.get("assigned")), named(config.get("active"))) == (assigned, active)
        fits = fits and (not but or version(config["active"]) != but)
        return [config] if fits and error in config.get("error", "") and bool(error) == ("error" in config) else []

    config: Object
    what = f"status.config to show {assigned}, {active}, {error!r}"
    [config] = await cluster.wait_for(shown, what, 4 * WAIT_SECONDS)
    return config


async def wait_pods(cluster: Cluster, amount: str) -> None:
    """Wait until the Node has room for so many pods."""

    async def fits() -> bool:
        return bool((await cluster.node())["status"]["allocatable"]["pods"] == amount)

    await cluster.wait_for(fits, f"{amount} allocatable pods", 2 * WAIT_SECONDS)


async def test_a_good_configuration_acts_and_an_edit_of_it_acts(cluster: Cluster) -> None:
    await offer(cluster, "good", maxPods=33)
    name_source(cluster, "good")
    config = await wait_config(cluster, "good", "good", "")
    await wait_pods(cluster, "33")
    assert config["assigned"] == config["active"]
    assert version(config["assigned"])
    assert "lastKnownGood" not in config, "it is on trial"
    await offer(cluster, "good", maxPods=34)
    await wait_pods(cluster, "34")
    await wait_config(cluster, "good", "good", "", but=version(config["active"]))

    async def recorded() -> bool:
        events = await cluster.items(paths.events("default"), fieldSelector="reason=KubeletConfigChanged")
        return any(f"{MAP}/good, UID: " in event["message"] for event in events)

    await cluster.wait_for(recorded, "the change to be recorded", WAIT_SECONDS)


async def test_an_invalid_configuration_is_reported_and_the_local_one_is_used(cluster: Cluster) -> None:
    await offer(cluster, "invalid", maxPods=-5)
    name_source(cluster, "invalid")
    await wait_config(cluster, "invalid", "", "failed to validate config, see Kubelet log for details")
    await wait_pods(cluster, "110")


async def test_a_configuration_that_makes_services_crash_is_rolled_back_and_the_node_stays_ready(
    cluster: Cluster,
) -> None:
    async with Witness(cluster.plane.admin) as seen:
        await offer(cluster, "crashing", maxPods=35, maxOpenFiles=8)
        name_source(cluster, "crashing")
        await wait_config(cluster, "crashing", "", "failed to run config: ")
        await wait_pods(cluster, "110")
        seen.assert_calm()


async def test_a_configmap_that_is_not_there_is_reported_until_it_is(cluster: Cluster) -> None:
    name_source(cluster, "later")
    error = "failed to sync: failed to download config, see Kubelet log for details"
    await wait_config(cluster, "crashing", "", error)
    await offer(cluster, "later", maxPods=36)
    await wait_config(cluster, "later", "later", "")
    await wait_pods(cluster, "36")
    cluster.plane.kubectl("delete", "configmap", "later")
    await wait_config(cluster, "later", "later", error)


async def test_without_a_source_the_local_configuration_is_used(cluster: Cluster) -> None:
    name_source(cluster, "")
    config = await wait_config(cluster, "", "", "")
    assert config == {}
    await wait_pods(cluster, "110")
    await cluster.wait_ready("stays")
