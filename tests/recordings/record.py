"""Records what an agent asks of its runtime for the pods of this directory: `python -m tests.recordings.record --help`.

Starts a proxy before the runtime; the agent under record, a Go kubelet, is started by whoever records, with the proxy's
socket as its runtime endpoint. README.md says with which versions the recordings were made.
"""

import argparse
import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from shared.kube import paths
from shared.kube.client import kube_client
from shared.kube.credentials import Credentials, credentials_path, encode_credentials
from shared.kube.interface import ApiClient, ApiStatusError
from shared.model.objects import Object
from tests.fakes.cri_proxy import CriProxy, Recorded, of_pod

SPACE = "rec"
LOOK_SECONDS, SETTLED_SECONDS, GONE_SECONDS = 0.25, 1.2, 30.0
# Seconds for which a pod is watched; one not named here until it is Ready or has ended.
WATCHED_SECONDS = {
    "crashloop": 14.0,
    "poststart-fails": 6.0,
    "image-absent": 8.0,
    "deadline": 7.0,
    "init-containers": 6.0,
    "bad-command": 5.0,
    "missing-configmap-env": 4.0,
}
LONGEST_SECONDS = 12.0


async def record(client: ApiClient, proxy: CriProxy, submitted: Object, look_seconds: float | None = None) -> Object:
    """Post the pod, watch it, delete it; return the recording, as README.md describes it."""
    name, space = submitted["metadata"]["name"], submitted["metadata"]["namespace"]
    before, began = len(proxy.calls), proxy.seconds
    created = await client.create(paths.pods(space), submitted)
    pod = await _watched(client, space, name, look_seconds)
    found = await client.get(paths.events(space), {"fieldSelector": f"involvedObject.uid={created['metadata']['uid']}"})
    until = len(proxy.calls)
    deleted = time.monotonic()
    await client.delete(paths.pod(space, name))
    while time.monotonic() - deleted < GONE_SECONDS and await _get(client, space, name):
        await asyncio.sleep(LOOK_SECONDS / 5)
    gone = round(time.monotonic() - deleted, 2)
    await asyncio.sleep(SETTLED_SECONDS / 3)
    return {
        "name": name,
        "submitted": submitted,
        "api_pod": {**pod, "metadata": {k: v for k, v in pod["metadata"].items() if k != "managedFields"}},
        "events": sorted((_event(event) for event in found.get("items") or ()), key=str),
        "cri_until_delete": _calls(proxy.calls[before:until], name, began),
        "cri_after_delete": _calls(proxy.calls[until:], name, began),
        "delete_to_gone_s": gone,
    }


async def _watched(client: ApiClient, space: str, name: str, seconds: float | None) -> Object:
    """The pod at the end of the time for which it is watched."""
    deadline = time.monotonic() + (LONGEST_SECONDS if seconds is None else seconds)
    while time.monotonic() < deadline:
        await asyncio.sleep(LOOK_SECONDS)
        status = (await client.get(paths.pod(space, name))).get("status") or {}
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
        if seconds is None and (ready or status.get("phase") in ("Succeeded", "Failed")):
            await asyncio.sleep(SETTLED_SECONDS)
            break
    return await client.get(paths.pod(space, name))


async def _get(client: ApiClient, space: str, name: str) -> Object | None:
    try:
        return await client.get(paths.pod(space, name))
    except ApiStatusError as error:
        if error.not_found:
            return None
        raise


def _event(event: Object) -> Object:
    return {key: event.get(key) for key in ("type", "reason", "message", "count", "involvedObject")}


def _calls(calls: Sequence[Recorded], name: str, began: float) -> list[dict[str, Any]]:
    """`t` in seconds since the post; `response` only where there is one."""
    kept = [{key: value for key, value in asdict(call).items() if key != "pod"} for call in of_pod(calls, name)]
    for call in kept:
        call["t"] = round(call["t"] - began, 3)
        if not call["response"]:
            del call["response"]
    return kept


async def prepare(client: ApiClient) -> None:
    """The namespace with what the pods refer to; raises ApiStatusError where it is there already."""
    await client.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    place = f"/api/v1/namespaces/{SPACE}"
    data = {"k1": "v1", "k2": "v2"}
    await client.create(f"{place}/configmaps", {"metadata": {"name": "cm"}, "data": data})
    await client.create(f"{place}/secrets", {"metadata": {"name": "sec"}, "stringData": {"pw": "s3cret"}})


def credentials_of(kubeconfig: Path) -> Credentials:
    """Those of the first cluster and user, which must name files."""
    document = yaml.safe_load(kubeconfig.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    return Credentials(
        version=1,
        server=cluster["server"],
        ca_file=cluster["certificate-authority"],
        client_certificate_file=user["client-certificate"],
        client_key_file=user["client-key"],
    )


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.recordings.record", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="an administrator's, with files")
    parser.add_argument("--runtime", default="unix:///run/containerd/containerd.sock", help="the runtime's endpoint")
    parser.add_argument("--socket", type=Path, default=Path("/run/cri-proxy.sock"), help="the endpoint for the agent")
    parser.add_argument("--node", default="node1", help="the node's name (default node1)")
    parser.add_argument("--out", type=Path, default=Path("recordings"), help="directory for the recordings")
    parser.add_argument("names", nargs="*", help="recordings to make again (default all)")
    given = parser.parse_args()
    run_dir = Path(tempfile.mkdtemp())
    file = credentials_path(run_dir)
    file.parent.mkdir(parents=True)
    file.write_bytes(encode_credentials(credentials_of(given.kubeconfig)))
    client = kube_client(run_dir, qps=-1, burst=0, timeout=30)
    given.out.mkdir(parents=True, exist_ok=True)
    try:
        async with CriProxy(given.runtime, given.socket) as proxy:
            await asyncio.to_thread(
                input, f"Start the agent with the runtime endpoint {proxy.endpoint}, then press Enter."
            )
            await prepare(client)
            for path in sorted(Path(__file__).parent.glob("*.json")):
                if not given.names or path.stem in given.names:
                    submitted = json.loads(path.read_text())["submitted"]
                    submitted["metadata"]["namespace"] = SPACE
                    submitted["spec"]["nodeName"] = given.node
                    made = await record(client, proxy, submitted, WATCHED_SECONDS.get(path.stem))
                    (given.out / path.name).write_text(json.dumps(made, indent=1))
                    print(path.stem, made["api_pod"]["status"].get("phase"), f"gone after {made['delete_to_gone_s']} s")
    finally:
        await client.close()
        shutil.rmtree(run_dir)


if __name__ == "__main__":
    asyncio.run(main())
