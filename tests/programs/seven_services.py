"""Runs services of an agent that only publish: each in its process, with pods and beats, until SIGTERM.

argv: the run directory, the number of pods, the services. Prints one line when all of them beat. At each SIGUSR1
podsync publishes an event.
"""

import asyncio
import itertools
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from bus.lock import ServiceLock
from bus.manifest import new_manifest
from bus.messages.bootstrap import CertificateState
from bus.messages.device_plugins import Device, DeviceResource
from bus.messages.event import KubeEvent
from bus.messages.pleg import NodeImage, NodeImages, NodeObserved
from bus.messages.pod_preview import GetPodPreview, PodPreview, PreviewedImage
from bus.messages.podsync import AdmittedPod, GivenDevices, NodeResources, NumaMemory, PodState, PodStatus
from bus.messages.resource_claims import ClaimDevice, ClaimState, PodClaim, PodClaims
from bus.messages.sources import DesiredPod
from bus.messages.streams import (
    CERTIFICATES,
    CLAIMS_PREPARED,
    DEVICES_RESOURCES,
    NODE_IMAGES,
    NODE_OBSERVED,
    NODE_RESOURCES,
    PLUGINS_REGISTERED,
    PODS_ADMITTED,
    PODS_DESIRED,
    PODS_STATUS,
    RUNTIME_PODS,
    VOLUMES_MOUNTED,
    Stream,
    events_of,
)
from bus.messages.volume import MountedVolume, MountedVolumes, RegisteredPlugin, VolumeState
from bus.process_bus import ProcessBus
from services.frame.generation import generation_of
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState, RuntimePod
from shared.time.timestamps import rfc3339_micro

STARTED = "2026-01-02T03:04:05Z"
FOLLOWED: dict[str, tuple[Stream[Any], ...]] = {
    "podsync": (PODS_DESIRED, RUNTIME_PODS),
    "server": (PODS_DESIRED, PODS_STATUS),
    "status": (PODS_STATUS,),
}
IMAGES = (
    NodeImage(
        id="sha256:1f2e3d4c5b6a79880000",
        names=(
            "registry.example:5000/web@sha256:ab",
            "registry.example:5000/web:1",
            "registry.example:5000/web:latest",
        ),
        size_bytes=2 << 20,
    ),
    NodeImage(id="sha256:aaaabbbbccccdddd", names=("registry.example/db@sha256:cd",), size_bytes=1 << 10),
    NodeImage(id="sha256:0123", names=(), size_bytes=1),
)
MEMORY = NumaMemory(nodes=(0,), kind="memory", size=3 << 30)  # that containers can get alone
RESOURCES = NodeResources(capacity={}, allocatable={}, exclusive_cpus="1", shared_cpus="0-1", memory=(MEMORY,))
GPUS = (
    Device(id="gpu-0", healthy=True, nodes=(0,), since=2e9),
    Device(id="gpu-1", healthy=False, nodes=(0, 1), since=2e9 + 60),
)
DEVICES = DeviceResource(resource="example.com/gpu", connected=True, since=2e9, devices=GPUS)
DRIVER = RegisteredPlugin(type="DRAPlugin", name="nic.example.com", endpoint="/nic.sock", version="v1.DRAPlugin")
CLAIM_DEVICE = ClaimDevice(driver=DRIVER.name, pool="here", device="nic-0", health="Unhealthy", message="no link")
CLAIM = PodClaim(name="net", claim="net-claim", state=ClaimState.PREPARED, devices=(CLAIM_DEVICE,))
ENVIRONMENT = [{"name": f"VARIABLE_{number}", "value": "x" * 40} for number in range(40)]  # a pod of some kilobytes


def pod(number: int) -> dict[str, Any]:
    """The Pod with this number."""
    containers = [{"name": "web", "image": "registry.example/web:1\x1b[2J", "env": ENVIRONMENT}]
    return {
        "metadata": {"name": f"web-{number}", "namespace": "shop", "uid": f"u{number}"},
        "spec": {"containers": containers},
    }


def status(number: int) -> dict[str, Any]:
    """Pod 0 cannot pull its image, pod 1 waits for a volume, the others run."""
    started = {"name": "web", "image": "registry.example/web:1", "restartCount": number % 3}
    if number == 0:
        message = 'Back-off pulling image "registry.example/web:1"\x1b[31m'
        waiting = {"waiting": {"reason": "ImagePullBackOff", "message": message}}
        return {"phase": "Pending", "containerStatuses": [{**started, "state": waiting, "ready": False}]}
    if number == 1:
        waiting = {"waiting": {"reason": "ContainerCreating"}}
        return {"phase": "Pending", "containerStatuses": [{**started, "state": waiting, "ready": False}]}
    running = {"running": {"startedAt": STARTED}}
    container = {**started, "state": running, "ready": True, "started": True, "containerID": f"containerd://c{number}"}
    return {"phase": "Running", "podIP": f"192.0.2.{number}", "startTime": STARTED, "containerStatuses": [container]}


async def preview(request: GetPodPreview) -> PodPreview:
    """A pod that requests CPU does not fit."""
    asks = any((c.get("resources") or {}).get("requests") for c in request.pod["spec"]["containers"])
    image = PreviewedImage(image="registry.example/web:1\x1b[2J", policy="IfNotPresent", container="web", present=False)
    if not asks:
        return PodPreview(qos_class="BestEffort", images=(image,))
    return PodPreview(reason="OutOfcpu", message="Node didn't have enough resource: cpu\x1b[31m", qos_class="Burstable")


def publish(bus: ProcessBus, count: int, run_dir: Path) -> None:
    """Own the streams of this service, filled."""
    names = [(f"u{number}", f"web-{number}", number) for number in range(count)]
    if bus.service == "sources":
        desired = bus.own(PODS_DESIRED)
        for uid, _, number in names:
            desired.put(uid, DesiredPod(uid=uid, source="api", pod=pod(number)))
        desired.mark_complete()
    if bus.service == "podsync":
        statuses, admitted = bus.own(PODS_STATUS), bus.own(PODS_ADMITTED)
        events = bus.own(events_of("podsync"))
        for uid, name, number in names:
            known = PodStatus(uid=uid, name=name, namespace="shop", version=(1, 1), status=status(number))
            statuses.put(uid, known)
            given = AdmittedPod(uid=uid, name=name, namespace="shop", state=PodState.SYNC, source="api")
            if number == 2:  # it has a CPU, memory and a device alone
                devices: dict[str, tuple[GivenDevices, ...]] = {
                    "web": (GivenDevices(resource=DEVICES.resource, ids=("gpu-1",)),)
                }
                given = replace(given, cpus={"web": "1"}, memory={"web": (replace(MEMORY, size=1 << 30),)})
                given = replace(given, devices=devices)
            admitted.put(uid, given)
        for number, reason in enumerate(("Pulling", "Failed")):
            event = KubeEvent(
                type="Normal", reason=reason, message="x", time=STARTED, namespace="shop", name="web-0", uid="u0"
            )
            events.put(str(number), event)
        of_static = KubeEvent(
            type="Normal",
            reason="Killing",
            message="x",
            time=STARTED,
            namespace="shop",
            name="static-here",
            uid="u-static",
        )
        events.put("2", of_static)
        published = itertools.count(3)

        def publish_event() -> None:
            now = rfc3339_micro(time.time())
            events.put(str(next(published)), KubeEvent(type="Normal", reason="Added", message="x", time=now))

        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, publish_event)
        statuses.mark_complete()
        admitted.mark_complete()
        resources = bus.own(NODE_RESOURCES)
        resources.put("node", RESOURCES)
        resources.mark_complete()
        bus.answer(GetPodPreview, preview)
    if bus.service == "bootstrap":
        serving = str(run_dir.parent / "pki/kubelet.crt")
        state = CertificateState(
            certificate_file=serving, private_key_file="", not_after="2033-05-18T03:30:00Z", self_signed=True
        )
        certificates = bus.own(CERTIFICATES)
        certificates.put("serving", state)
        certificates.mark_complete()
    if bus.service == "volume":
        mounted = bus.own(VOLUMES_MOUNTED)
        failed = MountedVolume(state=VolumeState.ERROR, error="no such secret")
        mounted.put("u1", MountedVolumes(uid="u1", volumes={"data": failed}))
        mounted.mark_complete()
        devices_of_plugins = bus.own(DEVICES_RESOURCES)
        devices_of_plugins.put(DEVICES.resource, DEVICES)
        devices_of_plugins.mark_complete()
        plugins, claims = bus.own(PLUGINS_REGISTERED), bus.own(CLAIMS_PREPARED)
        plugins.put(f"{DRIVER.type}/{DRIVER.name}", DRIVER)
        plugins.mark_complete()
        claims.put("u2", PodClaims(uid="u2", claims=(CLAIM,)))
        claims.mark_complete()
    if bus.service == "pleg":
        observed, pods = bus.own(NODE_OBSERVED), bus.own(RUNTIME_PODS)
        runtime = NodeObserved(
            observed_at=time.monotonic(),
            runtime_reachable=True,
            runtime_name="containerd",
            runtime_version="2.0",
            runtime_ready=True,
            network_ready=True,
        )
        observed.put("node", runtime)
        for uid, name, number in names[2:]:
            container = Container(
                id=f"c{number}", name="web", attempt=0, sandbox_id="s", state=ContainerState.RUNNING, created_at=1
            )
            known_pod = RuntimePod(
                uid=uid, name=name, namespace="shop", observed_at=time.monotonic(), containers=(container,)
            )
            pods.put(uid, known_pod)
        images = bus.own(NODE_IMAGES)
        images.put("node", NodeImages(images=IMAGES))
        images.mark_complete()
        observed.mark_complete()
        pods.mark_complete()


async def run(run_dir: Path, count: int, services: list[str]) -> None:
    """Run until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    buses = []
    for service in services:
        lock = ServiceLock(run_dir, service, generation_of(os.getppid()))
        if not lock.try_acquire():
            raise SystemExit(f"{service} runs already")
        lock.record_start(time.monotonic())
        bus = ProcessBus(service, new_manifest(run_dir), lock=lock)
        publish(bus, count, run_dir)
        for stream in FOLLOWED.get(service, ()):
            bus.follow(stream)
        buses.append(bus)
    for bus in buses:
        await bus.start()
    print("started", flush=True)
    await ended.wait()
    for bus in buses:
        await bus.stop()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
