"""A node whose records of pods are enabled, and what a test puts into its API server and reads from its record."""

import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from shared.config.effective import OfflinePods
from shared.files.atomic import write_atomically
from shared.kube import paths
from shared.kube.credentials import Credentials, credentials_path, encode_credentials
from shared.model import objects
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.offline.answers import WITHOUT_ANSWER_SECONDS
from tests.service.sources.cluster import NODE, ClusterNode, cluster_node, pod

SECRETS = {f"secret-{number}": f"hunter2-{number}-correct-horse" for number in range(3)}
SAVED_WITHIN = 11.0  # the record follows within five seconds; and a change in between within five more
NOTICED_WITHIN = 5.0  # seconds after the return of the API server, while pods run from the record
USED_WITHIN = WITHOUT_ANSWER_SECONDS + 1.0


def write_credentials(run_dir: str, server: str = "https://10.0.0.1:6443") -> None:
    """As bootstrap does."""
    path = credentials_path(run_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, encode_credentials(Credentials(version=1, server=server)))


@contextlib.asynccontextmanager
async def offline_node(tmp_path: Path, **settings: Any) -> AsyncIterator[ClusterNode]:
    """A node whose records are enabled."""
    async with cluster_node(tmp_path, offline_pods=OfflinePods(**settings)) as node:
        write_credentials(node.config.run_dir)
        yield node


def put_objects(node: ClusterNode) -> None:
    """Secrets, a ConfigMap and a bound claim."""
    for name, value in SECRETS.items():
        data = {"data": {"password": base64.b64encode(value.encode()).decode()}}
        node.api.put(f"{paths.referenced('Secret', 'default')}/{name}", {"metadata": {"name": name}, **data})
    node.api.put(
        f"{paths.referenced('ConfigMap', 'default')}/settings", {"metadata": {"name": "settings"}, "data": {"a": "1"}}
    )
    node.api.put(
        paths.persistent_volume_claim("default", "data"),
        {"metadata": {"name": "data", "uid": "c1"}, "spec": {"volumeName": "pv1"}, "status": {"phase": "Bound"}},
    )
    node.api.put(paths.persistent_volume("pv1"), {"metadata": {"name": "pv1"}, "spec": {"claimRef": {"uid": "c1"}}})


def pod_with(name: str, secret: str, *, claim: bool = False, **spec: Any) -> Object:
    """A pod with a Secret in a volume, another in a variable, a ConfigMap, and perhaps a claim."""
    volumes: list[Object] = [{"name": "s", "secret": {"secretName": secret}}]
    volumes += [{"name": "c", "persistentVolumeClaim": {"claimName": "data"}}] if claim else []
    made = pod(name, volumes=volumes, **spec)
    made["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "settings"}}]
    return made


async def record_everything(node: ClusterNode, names: tuple[str, ...] = ("web", "db", "job")) -> dict[str, str]:
    """Run these pods, request what they need as the other services do, and let the record follow. Return their UIDs."""
    put_objects(node)
    uids = {}
    for name, secret in zip(names, SECRETS, strict=False):
        uids[name] = objects.uid(node.api.bind(pod_with(name, secret, claim=name == "db"), NODE))
    await node.start()
    for kind, name in (*(("Secret", name) for name in SECRETS), ("ConfigMap", "settings")):
        await node.ask(kind, name)
    await node.ask("PersistentVolumeClaim", "data")
    await node.ask("PersistentVolume", "pv1", namespace="")
    await node.pass_time(SAVED_WITHIN)
    return uids


async def boot_without_api_server(node: ClusterNode) -> None:
    """Sources ends, the API server is gone, and sources starts."""
    await node.kill()
    node.api.down()
    await node.start()
    await node.pass_time(USED_WITHIN)


def record_files(node: ClusterNode) -> list[Path]:
    """All files of the feature, below both directories."""
    places = (Path(place) / "bulkhead" / "offline" for place in (node.config.root_dir, node.config.run_dir))
    return [path for place in places for path in place.rglob("*") if path.is_file()]


def recorded(node: ClusterNode) -> list[str]:
    """Names of the pods that are marked as from the record."""
    return sorted(objects.name(one.pod) for one in node.desired.state.values() if one.recorded)


def replace_config(node: ClusterNode, settings: OfflinePods | None, **fields: Any) -> Any:
    """The configuration of the next start."""
    return replace(node.config, offline_pods=settings, **fields)
