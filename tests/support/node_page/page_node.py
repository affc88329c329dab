"""A node for the node page: processes, pods in several states, their stories and an hour of samples."""

import asyncio
import json
import os
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bus.interface import RequestRefusedError
from bus.manifest import Holder
from bus.messages.pleg import NodeObserved
from bus.messages.podsync import AdmittedPod, NodePressure, NodeResources, PodState, PodStatus
from bus.messages.services import SERVICES
from bus.messages.sources import DesiredPod
from bus.messages.usage import (
    CgroupUsage,
    FilesystemUsage,
    FoundUsage,
    GetUsage,
    InterfaceUsage,
    NetworkUsage,
    NodeUsage,
    PodUsage,
)
from bus.messages.volume import MountedVolume, MountedVolumes, VolumeState
from services.report.processes import ProcessFacts
from services.server.controllers.node_state import NodeState
from services.server.core.pages.node_history import NodeHistory
from shared.model.frozen_copy import replace
from shared.process.identity import identity_of
from shared.story.files import directory_of
from tests.fakes.memory_bus import ManualClock, MemoryNetwork
from tests.fakes.runtime import FakeRuntime
from tests.service.server.main_listener import MainListener, main_listener
from tests.service.server.running import Node, configuration

STARTED = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 95_000))
HOSTILE = "<script>document.title='run'</script>"
NAMES = ("web", "cart", "search", "mail", "images", "login", "billing", "report")


def status(number: int, restarts: int = 0) -> dict[str, Any]:
    """Pod 3 cannot pull its image, pod 5 waits for a volume, pod 7 is restarted, the others run."""
    if number == 3:
        message = 'Back-off pulling image "registry.example/web:1"'
        state: dict[str, Any] = {"waiting": {"reason": "ImagePullBackOff", "message": message}}
    elif number == 5:
        state = {"waiting": {"reason": "ContainerCreating"}}
    elif number == 7:
        message = "back-off 40s restarting failed container"
        state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    else:
        state = {"running": {"startedAt": STARTED}}
    well = "running" in state
    statuses = [
        {
            "name": name,
            "image": "registry.example/web:1",
            "containerID": f"containerd://c-{number}-{name}",
            "restartCount": 0 if index else restarts,
            "state": state,
            "ready": well,
            "started": well,
        }
        for index, name in enumerate(containers(number))
    ]
    address = {"podIP": f"10.89.0.{number % 250}"} if well else {}
    return {"phase": "Running" if well else "Pending", "startTime": STARTED, "containerStatuses": statuses} | address


def containers(number: int) -> tuple[str, ...]:
    """Return the names of the containers of a pod: each fourth one has two."""
    return ("main", "proxy") if number % 4 == 2 else ("main",)


class PageNode(Node):
    """Publishes pods; every service runs in the process of the test."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.network = MemoryNetwork(ManualClock(wall=time.time()))
        self.cri = FakeRuntime(self.network.clock)
        self.asked: list[GetUsage] = []  # requests for what pods use
        self.refuses = False
        self._run_dir, self._stories = directory / "run", directory_of(str(directory / "root"))
        self._pod_logs = directory / "pods"

    def start_processes(self) -> None:
        """Name the process of the test in the lock file of each service."""
        locks = self._run_dir / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        for service in SERVICES:
            record = {
                "pid": os.getpid(), "process": identity_of(os.getpid()), "supervisord": "", "starts": [[1.0, 0.0]]
            }  # fmt: skip
            (locks / f"{service}.lock").write_text(json.dumps(record))

    def shown_processes(self, _run_dir: str, _before: Mapping[str, ProcessFacts]) -> dict[str, ProcessFacts]:
        """Return seven processes with ids, memory and CPU time of their own, for pictures; they do not run."""
        age = 95_000 + self.network.clock.monotonic()
        return {
            service: ProcessFacts(
                holder=Holder(pid=4702 + 9 * number, process=service, supervisord=""),
                age=age,
                cpu=0.003 * (1 + number % 3) * age,
                memory=megabytes << 20,
            )
            for number, (service, megabytes) in enumerate(zip(SERVICES, (52, 74, 83, 58, 66, 61, 70), strict=True))
        }

    def observe_node(self) -> None:
        """The runtime is ready, and the node uses something."""
        now = self.network.clock.monotonic()
        runtime = NodeObserved(
            observed_at=now,
            runtime_reachable=True,
            runtime_name="containerd",
            runtime_version="1.7.24",
            runtime_ready=True,
            network_ready=True,
        )
        self.observed.put("node", runtime)
        self.use_node()
        no_pressure = ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available")
        disk = ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure")
        pids = ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available")
        conditions = tuple(
            {"type": kind, "status": "False", "reason": reason, "message": message, "lastTransitionTime": STARTED}
            for kind, reason, message in (no_pressure, disk, pids)
        )
        self.pressure.put("node", NodePressure(conditions=conditions))
        capacity = {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "80Gi", "pods": "110"}
        allocatable = capacity | {"cpu": "3800m", "memory": "7Gi"}
        self.resources.put("node", NodeResources(capacity=capacity, allocatable=allocatable))

    def use_node(self, seconds: float = 0.0) -> None:
        """Publish a reading of the node; its network card has been in use for so many seconds."""
        now = self.network.clock.monotonic()
        counters = {"rx_errors": 0, "tx_errors": 0, "rx_dropped": 3}
        card = InterfaceUsage(
            name="eth0", rx_bytes=int(9e9 + 2_400_000 * seconds), tx_bytes=int(4e9 + 310_000 * seconds), **counters
        )
        bridge = InterfaceUsage(name="bulkhead0", rx_bytes=int(3e9), tx_bytes=int(2e9 + 90_000 * seconds), **counters)
        disk = FilesystemUsage(time=now, available=48 << 30, capacity=80 << 30, used=28 << 30, inodes=5_242_880)
        nodefs = replace(disk, inodes_free=4_900_000, inodes_used=342_880)
        imagefs = replace(nodefs, used=9 << 30, inodes_used=120_000)
        self.usage.put(
            "node",
            NodeUsage(
                read_at=now,
                started_at=1.0,
                cgroup=CgroupUsage(time=now, cpu_nanocores=420_000_000, memory_working_set=3 << 30),
                memory_capacity=8 << 30,
                network=NetworkUsage(time=now, interfaces=(card, bridge)),
                nodefs=nodefs,
                imagefs=imagefs,
            ),
        )

    async def answer_usage(self, request: GetUsage) -> FoundUsage:
        """Every pod that runs uses something, which depends on its number."""
        self.asked.append(request)
        if self.refuses:
            raise RequestRefusedError("this pleg reads nothing")
        node = self.usage.get("node")
        assert node is not None
        pods = tuple(
            _pod_usage(uid, number) for number, uid in enumerate(self.status.keys()) if number not in (3, 5, 7)
        )
        return FoundUsage(node=node, pods=pods, complete=True)

    def put_pod(self, number: int, name: str = "", **more: Any) -> str:
        """Publish the pod with this number and return its UID."""
        uid = f"uid-{number}"
        name = name or f"{NAMES[number % len(NAMES)]}-{number}"
        namespace = "shop" if number % 3 else "kube-system"
        metadata = {"name": name, "namespace": namespace, "uid": uid}
        resources = {"requests": {"cpu": "20m", "memory": "32Mi"}}
        spec = {"containers": [{"name": one, "resources": resources} for one in containers(number)]}
        pod = {"metadata": metadata, "spec": spec}
        named: dict[str, Any] = {"uid": uid, "name": name, "namespace": namespace}
        self.desired.put(uid, DesiredPod(uid=uid, source="api", pod=pod))
        self.status.put(uid, PodStatus(**named, version=(1, 1), status=status(number, **more)))
        self.admitted.put(uid, AdmittedPod(**named, state=PodState.SYNC, source="api"))
        if number == 5:
            missing = MountedVolume(state=VolumeState.ERROR, error='secret "shop/mail-password" not found')
            self.volumes.put(uid, MountedVolumes(uid=uid, volumes={"password": missing}))
        return uid

    def write_story(self, uid: str, name: str, count: int = 12) -> None:
        """Write the story of a pod."""
        calls = ({"what": "done", "call": "PullImage", "image": f"registry.example/{name}:{n}"} for n in range(count))
        self._write_lines(uid, name, [(number, {"took": 1.5} | call) for number, call in enumerate(calls)])

    def write_failed_pull(self, uid: str, name: str) -> None:
        """Write the story of a pod whose image comes slowly, and then not at all."""
        image = "registry.example/web:1"
        pull = {"what": "pull", "image": image, "total": 48 << 20, "layers": 3}
        why = f"failed to copy: httpReadSeeker: GET https://{image}: unexpected EOF"
        waits_for = f'main: ImagePullBackOff (Back-off pulling image "{image}")'
        lines: list[tuple[float, dict[str, Any]]] = [
            (-190, {"what": "seen", "change": "new", "source": "api"}),
            (-190, {"what": "state", "state": "sync"}),
            (-189, {"what": "done", "call": "RunPodSandbox", "attempt": 0, "took": 0.42}),
            (-189, {"what": "event", "reason": "Pulling", "message": f'Pulling image "{image}"'}),
            (-178, pull | {"seconds": 10.0, "arrived": 12 << 20, "rate": 1_300_000}),
            (-128, pull | {"seconds": 60.0, "arrived": 31 << 20, "idle": 24.0}),
            (-94, {"what": "failed", "call": "PullImage", "image": image, "text": why}),
            (-93, {"what": "waits", "waits_for": waits_for}),
        ]
        self._write_lines(uid, name, lines)

    def write_log(self, number: int, lines: Sequence[str], container: str = "main") -> None:
        """Write the log of a container of a pod that runs and was never restarted."""
        uid = f"uid-{number}"
        pod = self.status.get(uid)
        assert pod is not None
        directory = self._pod_logs / f"{pod.namespace}_{pod.name}_{uid}" / container
        directory.mkdir(parents=True, exist_ok=True)
        moment = "2026-01-01T00:00:00.000000000Z"
        (directory / "0.log").write_text("".join(f"{moment} stdout F {line}\n" for line in lines))

    def _write_lines(self, uid: str, name: str, written: Sequence[tuple[float, dict[str, Any]]]) -> None:
        """Lines with the seconds from now at which each was written."""
        self._stories.mkdir(parents=True, exist_ok=True)
        head: dict[str, Any] = {"what": "pod", "uid": uid, "name": name, "namespace": "shop", "source": "api"}
        at = self.network.clock.wall()
        lines = [head, *({"at": at + seconds} | line for seconds, line in written)]
        (self._stories / f"{uid}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def delete_pod(self, uid: str) -> None:
        """Remove the pod from all streams."""
        for stream in (self.desired, self.status, self.admitted):
            stream.delete(uid)

    def publish(self, count: int) -> None:
        """Publish so many pods; pod 2 has a hostile name."""
        self.start_processes()
        self.observe_node()
        for number in range(count):
            name = HOSTILE if number == 2 else ""
            uid = self.put_pod(number, name, restarts=4 if number == 7 else 0)
            name = name or f"{NAMES[number % len(NAMES)]}-{number}"
            if number == 3:
                self.write_failed_pull(uid, name)
            else:
                self.write_story(uid, name, 3)

    @asynccontextmanager
    async def listener(self, directory: Path, pods: int, pace: float = 1.0) -> AsyncIterator[MainListener]:
        """Run a server of this node with so many pods in the block, while time passes: so many seconds each second."""
        (directory / "root" / "pod-resources").mkdir(parents=True)
        async with main_listener(configuration(directory), node=self) as server:
            self.publish(pods)
            await self.network.settle()
            async with self.time(pace):
                yield server

    @asynccontextmanager
    async def time(self, pace: float = 1.0) -> AsyncIterator[None]:
        """Let so many seconds pass in each second of the block."""

        async def pass_on() -> None:
            while True:
                await asyncio.sleep(0.1)
                await self.network.advance(0.1 * pace)

        passing = asyncio.create_task(pass_on())
        try:
            yield
        finally:
            passing.cancel()


def _pod_usage(uid: str, number: int) -> PodUsage:
    nanocores, memory = (3 + number * 7 % 90) * 1_000_000, (18 + number * 13 % 210) << 20
    return PodUsage(
        uid=uid,
        name=uid,
        namespace="shop",
        created_at=1,
        read_at=1.0,
        cgroup=CgroupUsage(time=1.0, cpu_nanocores=nanocores, memory_working_set=memory),
        ephemeral_storage=FilesystemUsage(time=1.0, used=(1 + number % 40) << 20),
    )


def add_hour(state: NodeState, wall: float) -> None:
    """Replace the history by an hour before `wall`, the same every time."""
    state.history = NodeHistory()
    chance = random.Random(7)
    load = 1.0
    for number in range(360):
        load = max(0.4, load + chance.gauss((1 - load) * 0.08, 0.07) + (1.2 if number in (130, 290) else 0.0))
        shares = {f"cpu/{service}": 0.3 * load * (1 + index % 3) for index, service in enumerate(SERVICES)}
        state.cpu = {service: round(shares[f"cpu/{service}"], 1) for service in SERVICES}
        state.history.add(
            wall - (360 - number) * 10,
            {
                **shares,
                "agent.cpu": sum(shares.values()),
                "agent.memory": (430 << 20) * (1 + number / 4000 + 0.02 * load),
                "node.cpu": 0.6 * load,
                "node.memory": (3 << 30) * (1 + 0.05 * load),
                "nodefs.used": (27 << 30) + (number << 22),
                "imagefs.used": (9 << 30) if number > 130 else (8 << 30),
                "network.received": 1_900_000 * load,
                "network.sent": 270_000 * load,
                "beats.interval": 2.4 if number == 200 else 1.0 + 0.01 * load,
                "messages.delay": 0.0011 * load,
                "pods.start": 1.2 * load if number % 23 == 5 else None,
            },
        )
