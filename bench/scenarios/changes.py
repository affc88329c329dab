"""Measures changes that reach a running pod or come from it: a changed Secret in its volume, the first success of its
probe."""

import asyncio
import base64
import random
import time
from pathlib import Path

from aiohttp import web

from bench.errors import BenchError
from bench.figure import Figure, Plan, Samples, Scenario
from bench.site import MAX_POD_SECONDS, Node
from bench.watch import ready
from shared.kube.interface import PatchType
from shared.model.objects import Object

SECRET = Figure("changes.secret", "Secret update → file", "s")
PROBE = Figure("changes.probe", "readiness probe result → Ready for endpoints", "s")
LOOK_SECONDS = 0.01  # between two looks


async def secrets(node: Node, samples: Samples, plan: Plan) -> None:
    """Measure how soon changed Secrets are in the pods: all are changed at once, and each file is read through the
    container's root."""
    names = node.new_names("secret", plan.secrets)
    for name in names:
        await node.post(_secret(name, "before"))
    await node.create_all([_pod_with_secret(node, name) for name in names])
    files = [Path(f"/proc/{await node.first_process(name)}/root/secret/key") for name in names]
    await asyncio.sleep(random.uniform(1, 3))
    took = await asyncio.gather(*(_change(node, name, file) for name, file in zip(names, files, strict=True)))
    for seconds in took:
        samples.sample(SECRET.key, seconds)
    await node.delete_all()
    for name in names:
        await node.admin.delete(f"/api/v1/namespaces/default/secrets/{name}")


async def _change(node: Node, name: str, file: Path) -> float:
    began = time.monotonic()
    body = {"data": _secret(name, "after")["data"]}
    await node.admin.patch(f"/api/v1/namespaces/default/secrets/{name}", body, PatchType.MERGE)
    while time.monotonic() < began + MAX_POD_SECONDS:
        if file.read_text() == "after":
            return time.monotonic() - began
        await asyncio.sleep(LOOK_SECONDS)
    raise BenchError(f"waited {MAX_POD_SECONDS:.0f} s for the new Secret {name} in its volume")


def _secret(name: str, value: str) -> Object:
    data = {"key": base64.b64encode(value.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}, "data": data}


def _pod_with_secret(node: Node, name: str) -> Object:
    pod = node.pod(name, volumes=[{"name": "secret", "secret": {"secretName": name}}])
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "secret", "mountPath": "/secret"}]
    return pod


class Answers:
    """An HTTP server on loopback that probes ask: answers 503 until `good` is set, and notes the first 200 it sends."""

    def __init__(self) -> None:
        self.good = False
        self.first_good = 0.0  # CLOCK_MONOTONIC; 0 = none yet
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> "Answers":
        app = web.Application()
        app.router.add_get("/", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        if self.good and not self.first_good:
            self.first_good = time.monotonic()
        return web.Response(status=200 if self.good else 503)


async def probes(node: Node, samples: Samples, plan: Plan) -> None:
    """Measure how soon the success of a probe is in the API. The probe asks a server of the benchmark, so that the
    moment of the result is known and the probe's period does not count."""
    async with Answers() as answers:
        [name] = node.new_names("probe", 1)
        probe = {"httpGet": {"host": "127.0.0.1", "port": answers.port, "path": "/"}, "periodSeconds": 1}
        pod = node.pod(name)
        pod["spec"]["containers"][0]["readinessProbe"] = {**probe, "failureThreshold": 1}
        running = node.watch.pod(name, _running, "to run")
        await node.post(pod)
        await running.within(MAX_POD_SECONDS)
        for _ in range(plan.probes):
            await asyncio.sleep(random.uniform(0, 1))
            expected = node.watch.pod(name, ready, "to be Ready")
            answers.first_good, answers.good = 0.0, True
            seen = await expected.within(MAX_POD_SECONDS)
            samples.sample(PROBE.key, seen.at - answers.first_good)
            expected = node.watch.pod(name, _not_ready, "not to be Ready")
            answers.good = False
            await expected.within(MAX_POD_SECONDS)
        await node.delete_all()


def _running(kind: str, pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


def _not_ready(kind: str, pod: Object) -> bool:
    return not ready(kind, pod)


SCENARIOS = (
    Scenario("secrets", secrets, (SECRET,)),
    Scenario("probes", probes, (PROBE,)),
)
