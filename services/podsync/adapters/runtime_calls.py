"""Carries out podsync's calls: turns each `Call` into runtime requests and files, and the outcome into an event.

Decides nothing: what is asked comes from the core, how a message looks from the core's `*_config` modules.
"""

import asyncio
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from bus.messages.volume import MountedVolumes
from services.podsync.adapters import cgroups
from services.podsync.adapters.cluster_reads import ClusterReads, NoCluster
from services.podsync.adapters.image_pulls import ImagePulls
from services.podsync.adapters.node_facts_reader import read_node_facts, with_host_files
from services.podsync.adapters.pod_directories import PodDirectories
from services.podsync.core.config_errors import ContainerConfigError, SandboxConfigError
from services.podsync.core.container_config import container_config
from services.podsync.core.container_mounts import MountedVolume
from services.podsync.core.dns import pod_dns
from services.podsync.core.events import CallDone, CallFailed
from services.podsync.core.hosts_file import hosts_file
from services.podsync.core.instructions import (
    Call,
    CreateContainer,
    FetchNode,
    InspectImage,
    KillContainer,
    KillPod,
    LookAtPod,
    PreparePod,
    PullImage,
    ReleasePod,
    RemoveContainers,
    RemovePodLogs,
    RemoveSandboxes,
    RunPodSandbox,
    StartContainer,
)
from services.podsync.core.node_facts import NodeFacts
from services.podsync.core.pod_cgroup import (
    pod_cgroup_name,
    pod_cgroup_values,
    possible_pod_cgroup_names,
    qos_cgroup_name,
    qos_cgroup_values,
)
from services.podsync.core.sandbox_config import sandbox_config
from shared.clock import Clock
from shared.config.effective import EffectiveConfig
from shared.cri.interface import Message, Runtime, RuntimeCallError
from shared.model.objects import Object
from shared.model.runtime import RuntimePod
from shared.podspec.qos import QosClass

ABSENT = frozenset({"NotFound"})


@dataclass(frozen=True)
class PodView:
    """What the outside needs to know of a pod to act on it."""

    uid: str
    name: str
    namespace: str
    pod: Object
    volumes: MountedVolumes | None
    active_pods: tuple[Object, ...]  # of the node, for the QoS cgroups
    static: bool = True  # from any source but the API

    def container(self, name: str) -> Object:
        """The spec of one container."""
        for container in self.pod["spec"]["containers"]:
            if container["name"] == name:
                return dict(container)
        raise ContainerConfigError(f"the pod has no container {name} any more")


class RuntimeCalls:
    """Performs calls; one instance per process."""

    def __init__(
        self,
        runtime: Runtime,
        pulls: ImagePulls,
        facts: NodeFacts,
        directories: PodDirectories,
        hierarchies: cgroups.Hierarchies,
        clock: Clock,
        *,
        resolv_conf: str,
    ) -> None:
        self.runtime, self.pulls, self.facts, self.directories = runtime, pulls, facts, directories
        self.hierarchies, self.clock, self.resolv_conf = hierarchies, clock, resolv_conf
        self.cluster: ClusterReads = NoCluster()

    async def perform(self, call: Call, view: PodView) -> CallDone | CallFailed:
        """Do it; never raises for anything the outside world may answer."""
        try:
            done = await self._perform(call, view)
            return replace(done, completed_at=self._completion(done))
        except RuntimeCallError as error:
            return self._failed(call, error.code, str(error), error.description)
        except ContainerConfigError as error:
            return self._failed(call, "", error.message, error.message, reason=error.reason)
        except SandboxConfigError as error:
            return self._failed(call, "", error.message, error.message)
        except OSError as error:
            return self._failed(call, "", str(error), str(error))

    def _completion(self, done: CallDone) -> float:
        """Observations older than this say nothing about the call: where the adapter looked after it, its look."""
        return done.observation.observed_at if done.observation is not None else self.clock.monotonic()

    def _failed(self, call: Call, code: str, text: str, description: str, reason: str = "") -> CallFailed:
        return CallFailed(
            cause=f"{type(call).__name__} failed",
            uid=call.uid,
            call=call,
            completed_at=self.clock.monotonic(),
            code=code,
            text=text,
            description=description,
            reason=reason,
        )

    async def _perform(self, call: Call, view: PodView) -> CallDone:
        done = CallDone(cause=f"{type(call).__name__} done", uid=call.uid, call=call, completed_at=0.0)
        match call:
            case LookAtPod():
                return replace(done, observation=await self._look(call.uid))
            case FetchNode():
                return replace(done, node=await self.cluster.node())
            case PreparePod():
                return replace(done, log_attempts=await self._prepare(view))
            case RunPodSandbox(attempt=attempt):
                facts = self._facts()
                handler = await self.cluster.runtime_handler(view.pod)
                await self.runtime.run_pod_sandbox(sandbox_config(view.pod, facts=facts, attempt=attempt), handler)
                warnings = tuple((w.reason, w.message) for w in pod_dns(view.pod, facts).warnings if not w.on_node)
                return replace(done, observation=await self._look(call.uid), warnings=warnings)
            case InspectImage(image=image):
                return replace(done, image=await self.runtime.image_status(image))
            case PullImage():
                return await self._pull(call, view, done)
            case CreateContainer():
                return await self._create(call, view, done)
            case StartContainer():
                await self.runtime.start_container(call.container_id)
                seen = await self._look(call.uid)
                self._link_log(call, view, seen)
                return replace(done, observation=seen)
            case KillContainer():
                await self._stop(call.container_id, call.grace_seconds)
                return replace(done, observation=await self._look(call.uid))
            case KillPod():
                await self._kill_pod(call)
                return replace(done, observation=await self._look(call.uid))
            case RemoveContainers(containers=containers):
                for container_id, _, log_path in containers:
                    await self._unless_absent(self.runtime.remove_container(container_id))
                    self.directories.remove_container_logs(container_id, log_path)
                return replace(done, observation=await self._look(call.uid))
            case RemoveSandboxes(sandboxes=sandboxes):
                for sandbox_id in sandboxes:
                    await self._unless_absent(self.runtime.stop_pod_sandbox(sandbox_id))
                    await self._unless_absent(self.runtime.remove_pod_sandbox(sandbox_id))
                return replace(done, observation=await self._look(call.uid))
            case ReleasePod():
                await asyncio.to_thread(self._release, view)
                return done
            case RemovePodLogs(name=name, namespace=namespace):
                await asyncio.to_thread(self.directories.remove_pod_logs, namespace, name, call.uid)
                return done
            case _:
                raise NotImplementedError(type(call).__name__)

    async def _look(self, uid: str) -> RuntimePod:
        """What the runtime has of the pod; an empty view, with the moment of the look, when it has nothing."""
        before = self.clock.monotonic()
        seen = await self.runtime.observe(uid)
        return seen.get(uid) or RuntimePod(uid=uid, name="", namespace="", observed_at=before)

    def _facts(self) -> NodeFacts:
        return with_host_files(self.facts, self.resolv_conf)

    async def _prepare(self, view: PodView) -> dict[str, int]:
        names = [c["name"] for c in view.pod["spec"]["containers"]]
        attempts = self.directories.prepare(view.namespace, view.name, view.uid, names)
        if self.facts.cgroups_per_qos:
            await asyncio.to_thread(self._make_cgroups, view)
        return attempts

    def _make_cgroups(self, view: PodView) -> None:
        """QoS cgroups first, as the kubelet does right before it makes a pod's."""
        for qos in (QosClass.BEST_EFFORT, QosClass.BURSTABLE):
            values = qos_cgroup_values(qos, view.active_pods, self.facts)
            cgroups.ensure(self.hierarchies, qos_cgroup_name(qos, self.facts), values)
        cgroups.ensure(self.hierarchies, pod_cgroup_name(view.pod, self.facts), pod_cgroup_values(view.pod, self.facts))

    def _release(self, view: PodView) -> None:
        """Destroy the pod's cgroup; of a pod known only from the runtime the QoS class is not known: try each."""
        if not self.facts.cgroups_per_qos:
            return
        own = (pod_cgroup_name(view.pod, self.facts),) if view.pod else ()
        for name in own or possible_pod_cgroup_names(view.uid, self.facts):
            cgroups.destroy(self.hierarchies, name)

    def _sandbox_message(self, view: PodView, attempt: int) -> Message:
        return sandbox_config(view.pod, facts=self._facts(), attempt=attempt)

    async def _pull(self, call: PullImage, view: PodView, done: CallDone) -> CallDone:
        image: Message = {"image": call.image}
        annotations = (view.pod.get("metadata") or {}).get("annotations")
        if annotations:
            image["annotations"] = dict(annotations)
        took, waited = await self.pulls.pull(image, self._sandbox_message(view, call.sandbox_attempt))
        status = await self.runtime.image_status(call.image)
        return replace(done, image=status, took=took, waited=waited)

    async def _create(self, call: CreateContainer, view: PodView, done: CallDone) -> CallDone:
        spec = view.container(call.container)
        references = await self.cluster.references(view.pod, spec)
        service_env = await self.cluster.service_env(view.pod, static=view.static)
        facts = self._facts()
        termination = ""
        if spec.get("terminationMessagePath"):
            termination = self.directories.new_termination_file(view.uid, call.container, secrets.token_hex(4))
        text = hosts_file(view.pod, call.pod_ips, facts.cluster_domain, facts.hosts_file)
        mounted = {
            name: MountedVolume(host_path=volume.host_path, readonly=volume.read_only)
            for name, volume in (view.volumes.volumes if view.volumes else {}).items()
        }
        config = container_config(
            view.pod,
            spec,
            facts=facts,
            restart_count=call.attempt,
            image_ref=call.image.id,
            image=call.image,
            pod_ips=call.pod_ips,
            volumes=mounted,
            subpaths={},
            etc_hosts_path=self.directories.write_etc_hosts(view.uid, text),
            termination_path=termination,
            service_env=service_env,
            references=references,
        )
        sandbox = self._sandbox_message(view, call.sandbox_attempt)
        container_id = await self.runtime.create_container(call.sandbox_id, config, sandbox)
        log_path = f"{sandbox['log_directory']}/{config['log_path']}"
        return replace(done, container_id=container_id, log_path=log_path)

    def _link_log(self, call: StartContainer, view: PodView, seen: RuntimePod) -> None:
        log_path = next((c.log_path for c in seen.containers if c.id == call.container_id), "")
        if log_path:
            self.directories.link_log(view.namespace, view.name, call.container, call.container_id, log_path)

    async def _stop(self, container_id: str, grace: int) -> None:
        await self._unless_absent(self.runtime.stop_container(container_id, grace))

    async def _kill_pod(self, call: KillPod) -> None:
        """Containers in parallel, then sandboxes; everything is tried before the first error is told."""
        stopped = await asyncio.gather(*(self._stop(c, grace) for c, grace in call.containers), return_exceptions=True)
        failures = [result for result in stopped if isinstance(result, BaseException)]
        for sandbox_id in call.sandboxes:
            try:
                await self._unless_absent(self.runtime.stop_pod_sandbox(sandbox_id))
            except RuntimeCallError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    async def _unless_absent(self, request: object) -> None:
        """What is gone already has been stopped or removed."""
        try:
            await request  # type: ignore[misc]
        except RuntimeCallError as error:
            if error.code not in ABSENT:
                raise


def calls_over(runtime: Runtime, config: EffectiveConfig, clock: Clock) -> RuntimeCalls:
    """The calls of this node: its cgroups, directories and facts are looked up once."""
    hierarchies = cgroups.find_hierarchies()
    facts = read_node_facts(config, cgroup_v2=hierarchies.unified is not None)
    directories = PodDirectories(Path(config.root_dir), Path(config.pod_logs_dir))
    pulls = ImagePulls(runtime, clock, config)
    return RuntimeCalls(runtime, pulls, facts, directories, hierarchies, clock, resolv_conf=config.resolv_conf)
