"""Behind an API server that takes longer for each list and GET than a short timeout, the node becomes Ready and pods
with claims and Secrets run."""

from pathlib import Path

import pytest

from shared.kube import paths
from shared.model.objects import Object
from tests.fakes.api_http import HttpApiServer
from tests.support.agents.agent import NODE
from tests.support.agents.behaviour import container, pod_of
from tests.support.agents.conditions import is_ready
from tests.support.agents.world import World
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.timeout(400)]

SECONDS = 8.0  # longer than the first timeout of a list
NAMESPACE = "/api/v1/namespaces/default"


def put_objects(api: HttpApiServer, directory: Path) -> None:
    """A claim that is bound to a directory, and a Secret."""
    server = api.server
    made = server.put(f"{NAMESPACE}/persistentvolumeclaims/data", {"spec": {"volumeName": "pv"}})
    server.put(f"{NAMESPACE}/persistentvolumeclaims/data", {**made, "status": {"phase": "Bound"}})
    claim = {"name": "data", "namespace": "default", "uid": made["metadata"]["uid"]}
    volume = {"hostPath": {"path": str(directory)}, "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"]}
    server.put("/api/v1/persistentvolumes/pv", {"metadata": {"name": "pv"}, "spec": {"claimRef": claim, **volume}})
    server.put(f"{NAMESPACE}/secrets/s", {"data": {"word": "c2VjcmV0"}})


async def test_pods_with_claims_and_secrets_that_are_read_singly_run(tmp_path: Path) -> None:
    kubeconfig, data = tmp_path / "kubeconfig", tmp_path / "data"
    data.mkdir()
    seen = data / "seen"
    sources: list[Object] = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "secret", "secret": {"secretName": "s"}},
    ]
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("data", "secret")]
    env = [{"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "word"}}}]
    script = 'echo "$WORD $(cat /secret/word)" > /data/seen; exec sleep 1000000'
    pod = pod_of("web", container("c", script, volumeMounts=mounts, env=env), volumes=sources)
    with HttpApiServer() as api:

        def run() -> None:
            api.server.slow(lambda received: SECONDS if received.method == "GET" else 0.0)
            put_objects(api, data)
            api.server.bind(pod, NODE)

        def ready(path: str) -> bool:
            found = api.do(lambda: api.server.get(path))
            return found is not None and is_ready(found)

        api.do(run)
        api.write_kubeconfig(kubeconfig, NODE)
        config = {"configMapAndSecretChangeDetectionStrategy": "Get"}
        async with World(flags=(f"--kubeconfig={kubeconfig}",), config=config) as world:
            await world.wait_for(lambda: ready(paths.node(NODE)), "the node to be ready", 2 * WAIT_SECONDS)
            await world.wait_for(lambda: ready(paths.pod("default", "web")), "the pod to run", 3 * WAIT_SECONDS)
            await world.wait_for(lambda: seen.exists() and seen.read_text(), "the container to write")
            assert seen.read_text() == "secret secret\n"
