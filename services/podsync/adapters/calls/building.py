"""Carries out the calls that build a pod: directories and cgroups, sandbox, containers and their start.
The core composes the messages (`*_config`). Nothing is begun for a pod that is to end.
"""

import secrets
from collections.abc import Mapping
from contextlib import AsyncExitStack

from services.podsync.adapters.calls.call_slots import CallPriority
from services.podsync.adapters.calls.device_calls import prepare_devices
from services.podsync.adapters.calls.pod_operations import (
    CallPartError,
    PodOperations,
    PodView,
    SpecChangedError,
    volume_groups,
)
from services.podsync.adapters.cgroups.pod_cgroups import PodCgroups
from services.podsync.adapters.pod.subpaths import has_subpaths
from services.podsync.core.cri.claim_setup import claim_devices
from services.podsync.core.cri.config_errors import ContainerConfigError
from services.podsync.core.cri.container_config import container_config
from services.podsync.core.cri.container_inputs import ContainerInputs
from services.podsync.core.cri.container_mounts import MountedVolume, wanted_subpaths
from services.podsync.core.cri.device_setup import device_setup, with_device_variables
from services.podsync.core.cri.dns import pod_dns
from services.podsync.core.cri.environment import EnvFiles, References, container_environment
from services.podsync.core.cri.hosts_file import hosts_file
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.pod.call_results import ContainerCreated, PartListed, PodListed, PodPrepared
from services.podsync.core.pod.events import DIRECTORIES_FAILED, SANDBOX_STATUS_FAILED, CallDone
from services.podsync.core.pod.instructions import CreateContainer, PreparePod, RunPodSandbox, StartContainer
from shared.cri.interface import RuntimeCallError
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.model.runtime import Container
from shared.podspec.containers import MANY_ENTRIES, every_container
from shared.podspec.exec_space import ExecSpace
from shared.podspec.hashing import container_hash


async def prepare_pod(
    operations: PodOperations, cgroups: PodCgroups, call: PreparePod, view: PodView, done: CallDone
) -> CallDone:
    """Make the pod's directories and cgroups; the result has the newest attempt among each container's log files.
    Raises CallPartError, OSError, RuntimeCallError."""
    names = [str(spec["name"]) for _, spec in every_container(view.pod)]
    try:
        attempts = await operations.build(
            view, lambda: operations.directories.prepare(view.namespace, view.name, view.uid, names)
        )
    except OSError as error:
        raise CallPartError(DIRECTORIES_FAILED, error) from error
    made = await cgroups.prepare(view.pod, operations.node.active_pods, runs=call.runs, placement=view.placement)
    if operations.facts.cgroup_driver != cgroups.facts.cgroup_driver:  # the runtime's driver wins
        operations.facts = replace(operations.facts, cgroup_driver=cgroups.facts.cgroup_driver)
    if not made:
        done = replace(done, cause="the pod runs without its cgroup")
    return replace(done, result=PodPrepared(log_attempts=attempts, cgroup_missing=not made))


async def run_sandbox(operations: PodOperations, call: RunPodSandbox, view: PodView, done: CallDone) -> CallDone:
    """Create and start the pod's sandbox, and read it. Raises CallPartError, RuntimeCallError, SandboxConfigError,
    PodEndsError."""
    facts = operations.facts_now()
    handler = await operations.runtime_handler(view)
    config = await operations.sandbox_message(view, call.attempt)
    first = view.static or view.pod["spec"].get("hostNetwork")
    async with operations.turn(CallPriority.SANDBOX_OF_NODE if first else CallPriority.SANDBOX, view):
        sandbox_id = await operations.runtime.run_pod_sandbox(config, handler)
    dns_warnings = pod_dns(view.pod, facts).warnings
    for warning in dns_warnings:
        if warning.on_node:
            operations.record_node_event(warning.reason, warning.message)
    warnings = tuple((warning.reason, warning.message) for warning in dns_warnings if not warning.on_node)
    done = replace(done, warnings=warnings, completed_at=operations.clock.monotonic())
    try:
        sandbox = await operations.runtime.inspect_sandbox(sandbox_id) if view.quiet else None
        if sandbox is not None:
            return replace(done, result=PartListed(sandbox=sandbox))
        return replace(done, result=PodListed(pod=await operations.look(call.uid)))
    except RuntimeCallError as error:
        raise CallPartError(SANDBOX_STATUS_FAILED, error) from error


async def create_container(operations: PodOperations, call: CreateContainer, view: PodView, done: CallDone) -> CallDone:
    """Create one container, without starting it. Raises RuntimeCallError, ContainerConfigError, SandboxConfigError,
    PodEndsError, SpecChangedError, OSError."""
    spec = view.container(call.container)
    if container_hash(spec) != call.spec_hash:  # a container of the earlier spec would be taken for one of this spec
        raise SpecChangedError
    mounted = {
        name: MountedVolume(
            host_path=volume.host_path,
            readonly=volume.read_only,
            selinux_relabel=volume.selinux_relabel,
            block=volume.block,
        )
        for name, volume in (view.volumes.volumes if view.volumes else {}).items()
    }
    async with AsyncExitStack() as kept:
        async with operations.reading(view):
            await prepare_devices(operations, call, view)
            env_files = await operations.env_files(spec, mounted)  # before a large environment: a volume may hang
            references = await kept.enter_async_context(operations.cluster.references(view.pod, spec))
            service_env = await operations.cluster.service_env(view.pod, static=view.static)
        return await _create(operations, call, view, done, spec, mounted, env_files, references, service_env)


async def _create(
    operations: PodOperations,
    call: CreateContainer,
    view: PodView,
    done: CallDone,
    spec: Object,
    mounted: Mapping[str, MountedVolume],
    env_files: EnvFiles,
    references: References,
    service_env: Mapping[str, str],
) -> CallDone:
    facts = replace(await operations.facts_of(view), node_ips=view.host_ips)
    termination = ""
    if spec.get("terminationMessagePath"):
        termination = operations.directories.new_termination_file(view.uid, call.container, secrets.token_hex(4))
    text = hosts_file(view.pod, call.pod_ips, facts.cluster_domain, facts.hosts_file)
    try:
        subpaths = await _subpaths(operations, call, view, spec, facts, service_env, references, env_files)
        mappings = await operations.mappings(view)
        sandbox = await operations.sandbox_message(view, call.sandbox_attempt)
        etc_hosts = operations.directories.write_etc_hosts(view.uid, text)
        async with operations.turn(CallPriority.CREATE, view):  # so that few large messages are in memory at once
            inputs = ContainerInputs(
                allocation=view.allocation,
                restart_count=call.attempt,
                image_ref=call.image.id,
                image=call.image,
                pod_ips=call.pod_ips,
                volumes=mounted,
                subpaths=subpaths,
                etc_hosts_path=etc_hosts,
                termination_path=termination,
                service_env=service_env,
                references=references,
                env_files=env_files,
                image_volumes=dict(call.image_volumes),
                target_id=call.target_id,
                mappings=mappings,
                claim_devices=claim_devices(spec, view.needed_claims, view.claims),
                volume_groups=volume_groups(view),
            )
            config = await operations.build(
                view,
                lambda: container_config(view.pod, spec, inputs, facts=facts),
                large=len(service_env) > MANY_ENTRIES,
            )
            container_id = await operations.runtime.create_container(call.sandbox_id, config, sandbox)
    except BaseException:
        await operations.subpaths.release(view.uid, spec)  # there will be no start to release them after
        raise
    cpus = str(config["linux"]["resources"].get("cpuset_cpus", ""))
    log_path = f"{sandbox['log_directory']}/{config['log_path']}"
    return replace(done, result=ContainerCreated(container_id=container_id, log_path=log_path, cpus=cpus))


async def _subpaths(
    operations: PodOperations,
    call: CreateContainer,
    view: PodView,
    spec: Object,
    facts: NodeFacts,
    service_env: Mapping[str, str],
    references: References,
    env_files: EnvFiles,
) -> dict[int, str]:
    """Return the host path of each mount that has a subPath, by the index of the mount."""
    if not has_subpaths(spec):
        return {}

    def find_subpaths() -> dict[int, str]:
        env = container_environment(
            view.pod,
            spec,
            facts=facts,
            pod_ips=call.pod_ips,
            service_env=service_env,
            references=references,
            env_files=env_files,
        )
        env = with_device_variables(device_setup(facts.placement, call.container), env, ExecSpace())
        return wanted_subpaths(spec, env, dict(call.image_volumes))

    return await operations.subpaths.prepare(
        view.uid, spec, await operations.build(view, find_subpaths, large=len(service_env) > MANY_ENTRIES)
    )


async def start_container(operations: PodOperations, call: StartContainer, view: PodView, done: CallDone) -> CallDone:
    """Start the created container and link its log. Raises RuntimeCallError, PodEndsError."""
    try:
        async with operations.turn(CallPriority.START, view):
            await operations.runtime.start_container(call.container_id)
    finally:
        await _release_subpaths(operations, call, view)
    done = replace(done, completed_at=operations.clock.monotonic())
    containers = await operations.inspect_containers(view, call.container_id) if view.quiet else ()
    if containers:
        _link_log(operations, call, view, containers)
        return replace(done, result=PartListed(containers=containers))
    seen = await operations.look(call.uid)
    _link_log(operations, call, view, seen.containers)
    return replace(done, result=PodListed(pod=seen))


async def _release_subpaths(operations: PodOperations, call: StartContainer, view: PodView) -> None:
    try:
        spec = view.container(call.container)
    except ContainerConfigError:
        return
    await operations.subpaths.release(view.uid, spec)


def _link_log(operations: PodOperations, call: StartContainer, view: PodView, seen: tuple[Container, ...]) -> None:
    log_path = next((c.log_path for c in seen if c.id == call.container_id), "")
    if log_path:
        operations.directories.link_log(view.namespace, view.name, call.container, call.container_id, log_path)
