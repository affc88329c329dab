"""Carries out podsync's calls: turns each `Call` into runtime requests and files, and the outcome into an event.

Decides nothing: the core decides which call. The calls themselves are in `building`, `hooks` and `stopping`, those
about images at the end; how an image is pulled is in `image_pulls`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bus.messages.event import KubeEvent
from services.podsync.adapters.calls import building, device_calls, resizing, stopping
from services.podsync.adapters.calls.device_calls import DevicesNotGivenError
from services.podsync.adapters.calls.hooks import HookFailedError, run_hook
from services.podsync.adapters.calls.pod_operations import (
    CallPartError,
    NodeReads,
    PodEndsError,
    PodOperations,
    PodView,
    SpecChangedError,
    WatchPull,
)
from services.podsync.adapters.cgroups.pod_cgroups import PodCgroups
from services.podsync.adapters.cluster_reads import ClusterReads
from services.podsync.adapters.device_requests import DeviceRequests
from services.podsync.adapters.images.image_pulls import ImageCallError, ImagePulls
from services.podsync.adapters.node_facts_reader import ids_per_pod
from services.podsync.adapters.pod.memory_volumes import MemoryVolumes
from services.podsync.adapters.pod.pod_directories import PodDirectories
from services.podsync.adapters.pod.subpaths import Subpaths
from services.podsync.adapters.pod.user_namespaces import UserNamespaces
from services.podsync.core.cri.config_errors import ContainerConfigError, SandboxConfigError
from services.podsync.core.cri.resize_writes import MemoryInUseError
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.pod.call_results import (
    ImageInspected,
    ImagePulled,
    NodeRead,
    PartListed,
    PodListed,
    PodResized,
)
from services.podsync.core.pod.events import CallDone, CallFailed
from services.podsync.core.pod.instructions import (
    AllocatePodDevices,
    AskPreferredDevices,
    Call,
    CreateContainer,
    EndTasks,
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
    ResizePod,
    RunPodSandbox,
    RunPostStartHook,
    SetContainerCpus,
    StartContainer,
)
from shared.config.effective import EffectiveConfig
from shared.cri.interface import Runtime, RuntimeCallError
from shared.host import cgroup_layout
from shared.metrics.registry import Registry
from shared.model.frozen_copy import replace
from shared.process.deadlines import waiting_for
from shared.time.clock import Clock

__all__ = ["PodView", "RuntimeCalls", "calls_over"]

# At once; where the shared CPUs change, each container on them gets its cpuset, and other calls must not wait for all.
MAX_CPU_UPDATES = 8

Warnings = list[tuple[str, str, str]]  # Warning events of containers during a call: reason, message, container


@dataclass(kw_only=True)
class RuntimeCalls(PodOperations):
    """Performs the calls of the core; a process has one instance."""

    cgroups: PodCgroups
    cpu_updates: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CPU_UPDATES))

    async def perform(self, call: Call, view: PodView) -> CallDone | CallFailed:
        """Carry out the call and return its outcome; an error of the runtime or of the node is an outcome, too."""
        warnings: Warnings = []
        outcome = await self._outcome(call, view, warnings)
        return replace(outcome, container_warnings=(*outcome.container_warnings, *warnings)) if warnings else outcome

    async def _outcome(self, call: Call, view: PodView, warnings: Warnings) -> CallDone | CallFailed:
        try:
            done = await self._perform(call, view, warnings)
            return replace(done, completed_at=self._completion(done))
        except ImageCallError as error:
            failed = self._failed(call, error.code, str(error), error.description, reason=error.reason)
            return replace(failed, warnings=error.warnings)
        except RuntimeCallError as error:
            return self._failed(call, error.code, str(error), error.description)
        except CallPartError as error:
            return self._failed(call, error.code, str(error), error.description, reason=error.reason)
        except DevicesNotGivenError as error:
            return self._failed(call, "", str(error), str(error), reason=error.reason)
        except (PodEndsError, SpecChangedError):
            return replace(self._failed(call, "", "not begun", "not begun"), interrupted=True)
        except ContainerConfigError as error:
            return self._failed(call, "", error.message, error.message, reason=error.reason)
        except HookFailedError as error:
            return self._failed(call, "", str(error), error.without_output)
        except (SandboxConfigError, MemoryInUseError, OSError) as error:
            return self._failed(call, "", str(error), str(error))

    def _completion(self, done: CallDone) -> float:
        """Return the moment from which observations show the call's effect. Where the adapter listed the pod after the
        call, it is the time of that list, taken before its request: a later list has what changed during it."""
        if isinstance(done.result, PodListed):
            return done.result.pod.observed_at
        return done.completed_at or self.clock.monotonic()

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

    async def _perform(self, call: Call, view: PodView, warnings: Warnings) -> CallDone:
        done = CallDone(cause=f"{type(call).__name__} done", uid=call.uid, call=call, completed_at=0.0)
        match call:
            case LookAtPod():
                missing = bool(view.pod) and self.cgroups.is_missing(view.pod)
                seen = await self.look(call.uid)
                others = await self.uids_of(view) - {call.uid} if call.namesakes else ()
                namesakes = tuple([await self.look(uid) for uid in sorted(others)])
                listed = PodListed(pod=seen, cgroup_missing=missing, namesakes=namesakes)
                if call.resources and view.pod:
                    resources = await self.cgroups.resources_of(view.pod, view.resources, view.placement)
                    listed = replace(listed, resources=resources)
                return replace(done, result=listed)
            case FetchNode():
                return replace(done, result=NodeRead(node=await self.cluster.node()))
            case AskPreferredDevices():
                return await device_calls.ask_preferred(self.devices, call, done)
            case AllocatePodDevices():
                return await device_calls.allocate(self.devices, call, done)
            case PreparePod():
                return await building.prepare_pod(self, self.cgroups, call, view, done)
            case RunPodSandbox():
                return await building.run_sandbox(self, call, view, done)
            case InspectImage():
                with waiting_for("the records of pulls"):
                    return await inspect_image(self, call, view, done)
            case PullImage():
                with waiting_for("the image"):
                    return await pull_image(self, call, view, done)
            case CreateContainer():
                return await building.create_container(self, call, view, done)
            case StartContainer():
                return await building.start_container(self, call, view, done)
            case RunPostStartHook(container=name, container_id=container_id):
                with waiting_for("the postStart hook"):
                    await run_hook(self, view, view.container(name), container_id, "postStart")
                return done
            case ResizePod():
                with waiting_for("the resize"):
                    await resizing.resize_pod(self, self.cgroups, call, view)
                resources = await self.cgroups.resources_of(view.pod, view.resources, view.placement)
                return replace(done, result=PodResized(resources=resources))
            case SetContainerCpus(container_id=container_id, cpus=cpus):
                with waiting_for("the cpusets of other containers"):
                    await self.cpu_updates.acquire()
                try:
                    await self.runtime.update_container_resources(container_id, {"cpuset_cpus": cpus})
                finally:
                    self.cpu_updates.release()
                return done
            case ReleasePod():
                await self.cgroups.release(view.uid, view.pod)
                await asyncio.to_thread(self.user_namespaces.release, call.uid)
                return done
            case RemovePodLogs(name=name, namespace=namespace):
                await asyncio.to_thread(self.directories.remove_pod_logs, namespace, name, call.uid)
                return done
            case _:
                return await self._stop_or_remove(call, view, done, warnings)

    async def _stop_or_remove(self, call: Call, view: PodView, done: CallDone, warnings: Warnings) -> CallDone:
        def warn(reason: str, message: str, container: str) -> None:
            warnings.append((reason, message, container))

        removed = frozenset[str]()
        match call:
            case KillContainer(stop=stop):
                await stopping.stop_container(self, view, stop, warn)
            case KillPod():
                await stopping.kill_pod(self, call, view, warn)
                done = replace(done, completed_at=self.clock.monotonic())
                stopped = await self.inspect_containers(view, *(stop.container_id for stop in call.containers))
                if len(stopped) == len(call.containers):
                    return replace(done, result=PartListed(containers=stopped))
            case EndTasks():
                await stopping.end_tasks(self, call, view)
            case RemoveContainers(containers=containers):
                await stopping.remove_containers(self, call, view)
                removed = frozenset(container_id for container_id, _, _ in containers)
            case RemoveSandboxes(sandboxes=sandboxes):
                await stopping.remove_sandboxes(self, call)
                removed = frozenset(sandboxes)
            case _:
                raise NotImplementedError(type(call).__name__)
        if removed and view.quiet:
            return replace(done, completed_at=self.clock.monotonic(), result=PartListed(removed=removed))
        return replace(done, result=PodListed(pod=await self.look(call.uid)))


def calls_over(
    runtime: Runtime,
    config: EffectiveConfig,
    clock: Clock,
    metrics: Registry,
    facts: NodeFacts,
    *,
    node: NodeReads,
    cluster: ClusterReads,
    subpaths: Subpaths,
    volumes: MemoryVolumes,
    devices: DeviceRequests,
    record: Callable[[KubeEvent], object],
    watch_pull: WatchPull,
) -> RuntimeCalls:
    """Make the calls of this node. `record` takes Events that are not about a pod, `watch_pull` is entered during
    pulls."""
    return RuntimeCalls(
        runtime=runtime,
        pulls=ImagePulls(runtime, clock, config),
        facts=facts,
        directories=PodDirectories(Path(config.root_dir), Path(config.pod_logs_dir)),
        cgroups=PodCgroups(facts, cgroup_layout.find_hierarchies(), runtime, clock, metrics),
        clock=clock,
        resolv_conf=config.resolv_conf,
        user_namespaces=UserNamespaces(
            Path(config.root_dir), ids_per_pod=ids_per_pod(config), max_pods=config.max_pods
        ),
        node=node,
        cluster=cluster,
        subpaths=subpaths,
        volumes=volumes,
        devices=devices,
        record=record,
        watch_pull=watch_pull,
    )


async def inspect_image(operations: PodOperations, call: InspectImage, view: PodView, done: CallDone) -> CallDone:
    """Inspect the image and decide whether this pod may use it. Raises RuntimeCallError."""
    inspected = await operations.pulls.inspect(
        view.pod, call.image, call.policy, operations.cluster, backed_off=call.backed_off
    )
    result = ImageInspected(image=inspected.image, must_pull=inspected.must_pull)
    return replace(done, result=result, warnings=inspected.warnings)


async def pull_image(operations: PodOperations, call: PullImage, view: PodView, done: CallDone) -> CallDone:
    """Pull the image and inspect it. Raises RuntimeCallError, SandboxConfigError, PodEndsError."""
    sandbox = await operations.sandbox_message(view, call.sandbox_attempt)
    watched = operations.watch_pull(view.pod, call.container, call.image)
    pulled = await operations.pulls.pull(view.pod, call.image, call.policy, sandbox, operations.cluster, watched)
    result = ImagePulled(image=pulled.image, took=pulled.took, waited=pulled.waited)
    return replace(done, result=result, warnings=pulled.warnings)
