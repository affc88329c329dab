"""Pods with resource claims on a real containerd, with a driver as a process: a container gets the CDI devices of its
claim and keeps them through kills of podsync and volume. Its pod has ended once the claim is unprepared (node.md 4.16).
"""

import contextlib
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shared.config.loader import load_effective
from shared.kube import paths
from shared.model.objects import Object
from tests.e2e.test_device_plugin_containers import CDI, has_cdi
from tests.fakes.api_http import HttpApiServer
from tests.programs.dra_driver import HEALTH_V1, PREPARE, UNPREPARE, V1, DraDriver
from tests.programs.running import running_program
from tests.support.agents.agent import NODE
from tests.support.agents.behaviour import container, pod_of, status_of
from tests.support.agents.conditions import condition_of, is_ready
from tests.support.agents.world import World
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio, pytest.mark.timeout(300)]

DRIVER = "gpu.example.com"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


class ClaimStage:
    """Has an agent that has joined the double of the API server, and the files of a driver."""

    def __init__(self, api: HttpApiServer, world: World) -> None:
        self.api, self.world = api, world
        root = Path(load_effective(str(world.home.run_dir)).root_dir)
        self.driver = DraDriver(root, DRIVER, cdi=CDI)

    def create(self, name: str, script: str = "exec sleep 1000000", **spec: Any) -> None:
        """Create a pod whose container has the claim `<name>-gpu`, which is not there yet."""
        used = {"claims": [{"name": "gpu"}]}
        claims = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
        pod = pod_of(name, container("c", script, resources=used), resourceClaims=claims, **spec)
        self.api.do(lambda: self.api.server.bind(pod, NODE))

    def allocate(self, name: str) -> str:
        """Create the claim of the pod, allocated and reserved; return its UID."""
        path, pod = f"{CLAIMS}/{name}-gpu", self.get(name)
        user = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
        results = [{"driver": DRIVER, "pool": "node", "device": f"{name}-gpu", "request": "r0"}]
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": [user]}

        def put() -> Object:
            made = self.api.server.put(path, {"metadata": {"name": f"{name}-gpu"}, "spec": {}})
            return self.api.server.put(path, {**made, "status": status})

        return str(self.api.do(put)["metadata"]["uid"])

    def get(self, name: str) -> Object:
        """Return the pod as the API server has it; {} = it has none."""
        return self.api.do(lambda: self.api.server.get(paths.pod("default", name)) or {})

    async def until(self, name: str, holds: Callable[[Object], object], what: str) -> Object:
        """Wait until the API server's pod is as wanted; {} = it is gone."""

        def found() -> Object | None:
            pod = self.get(name)
            return (pod or {"gone": True}) if holds(pod) else None

        pod: Object = await self.world.wait_for(found, f"pod {name} {what}")
        return pod

    def driver_process(self) -> AbstractContextManager["subprocess.Popen[bytes]"]:
        services = ("--service", V1, "--service", HEALTH_V1)
        root = str(self.driver.directory.parents[1])
        return running_program("dra_driver", root, DRIVER, "--cdi", str(CDI), *services)

    def remove_cdi(self) -> None:
        """Remove the specifications, but not their directory, into which a driver of another test may write now."""
        for uid in self.driver.prepared():
            (CDI / f"{uid}.json").unlink(missing_ok=True)


@asynccontextmanager
async def claim_stage(directory: Path) -> AsyncIterator[ClaimStage]:
    kubeconfig = directory / "kubeconfig"
    with HttpApiServer() as api:
        api.write_kubeconfig(kubeconfig, NODE)
        async with World(flags=(f"--kubeconfig={kubeconfig}",)) as world:

            def ready() -> bool:
                return is_ready(api.do(lambda: api.server.get(paths.node(NODE)) or {}))

            await world.wait_for(ready, "the node to be ready", 2 * WAIT_SECONDS)
            stage = ClaimStage(api, world)
            with contextlib.ExitStack() as left:
                left.callback(stage.remove_cdi)
                yield stage


def health(pod: Object) -> list[Object]:
    return list(status_of(pod, "c").get("allocatedResourcesStatus", ()))


def of_claim(uid: str, state: str) -> list[Object]:
    return [{"name": "claim:gpu", "resources": [{"resourceID": f"{DRIVER}/claim={uid}", "health": state}]}]


def container_of(pod: Object) -> str:
    """Return the id of the pod's container."""
    return str(status_of(pod, "c")["containerID"]).partition("://")[2]


def waits_for(pod: Object) -> str:
    return str(condition_of(pod, "PodReadyToStartContainers").get("message", ""))


async def test_a_container_gets_the_devices_of_its_claim_and_keeps_them_through_kills(tmp_path: Path) -> None:
    async with claim_stage(tmp_path) as stage:
        world = stage.world
        stage.create("web")
        await stage.until("web", lambda pod: "web-gpu" in waits_for(pod), "to name the claim that is not there")
        uid = stage.allocate("web")
        text = f"DRA driver {DRIVER} is not registered"
        await stage.until("web", lambda pod: text in waits_for(pod), "to name the driver that is away")
        with stage.driver_process():
            first = container_of(await stage.until("web", is_ready, "to run"))
            answer = await world.runtime.exec_sync(first, ["sh", "-c", "echo $CLAIM_WEB_GPU"], timeout=60)
            assert answer.stdout.decode().strip() == (uid if has_cdi() else "")
            stage.driver.set_health("web-gpu", "UNHEALTHY")
            await stage.until("web", lambda pod: health(pod) == of_claim(uid, "Unhealthy"), "to have a broken device")

            for service in ("podsync", "volume"):
                await world.wait_back(service, world.kill(service))
            stage.driver.set_health("web-gpu", "HEALTHY")
            pod = await stage.until("web", lambda pod: health(pod) == of_claim(uid, "Healthy"), "to have a good device")
            assert (container_of(pod), status_of(pod, "c")["restartCount"]) == (first, 0)
            assert stage.driver.calls(PREPARE) == [["web-gpu"]]

            stage.api.do(lambda: stage.api.server.delete(paths.pod("default", "web")))
            await stage.until("web", lambda pod: not pod, "to be gone")
            assert stage.driver.prepared() == {}


async def test_a_pod_has_ended_once_its_claim_is_unprepared(tmp_path: Path) -> None:
    async with claim_stage(tmp_path) as stage:
        world = stage.world
        with stage.driver_process():
            stage.driver.fault(UNPREPARE, "UNAVAILABLE")
            stage.create("job", "exit 0", restartPolicy="Never")
            uid = stage.allocate("job")
            await stage.until("job", lambda pod: "terminated" in status_of(pod, "c").get("state", {}), "to have run")
            await world.wait_for(lambda: stage.driver.calls(UNPREPARE), "the driver to be called")
            await world.wait_back("podsync", world.kill("podsync"))
            await world.wait_for(lambda: len(stage.driver.calls(UNPREPARE)) > 1, "the driver to be called again")
            assert stage.get("job")["status"]["phase"] not in ("Succeeded", "Failed")
            assert stage.driver.prepared() == {uid: "job-gpu"}
            stage.driver.fault(UNPREPARE)
            await stage.until("job", lambda pod: pod["status"]["phase"] == "Succeeded", "to have succeeded")
            assert stage.driver.prepared() == {}
