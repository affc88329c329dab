"""Computes what would become of a pod on this node, with the real decisions: the answer to GetPodPreview.
Builds the messages that would be sent and describes them; changes no tracked pod. Admission's verdict is an argument.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from bus.messages.pod_preview import (
    PodPreview,
    PreemptedPod,
    PreviewedContainer,
    PreviewedImage,
    PreviewedMount,
    PreviewedPort,
)
from services.podsync.core.admission.node_view import NodeView
from services.podsync.core.admission.predicates import collide
from services.podsync.core.admission.taints import tolerates
from services.podsync.core.admission.verdict import Verdict
from services.podsync.core.cgroups.cgroup_files import v1_files, v2_files
from services.podsync.core.cgroups.pod_cgroup import pod_cgroup_name, pod_cgroup_values
from services.podsync.core.cri.config_errors import ContainerConfigError, SandboxConfigError
from services.podsync.core.cri.container_mounts import MountedVolume, block_devices, container_mounts
from services.podsync.core.cri.container_resources import container_resources
from services.podsync.core.cri.sandbox_config import sandbox_config
from services.podsync.core.cri.security_context import refuse_user_namespace, verify_non_root
from services.podsync.core.cri.user_namespaces import needs_user_namespace
from services.podsync.core.images.credential_plugin import is_for
from services.podsync.core.images.image_reference import InvalidImageNameError, pull_policy, with_default_tag
from services.podsync.core.images.image_repository import repository
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.placement.pod_placement import ContainerPlacement
from services.podsync.core.pod.published_items import given_devices, numa_memory
from shared.config.effective import CredentialProvider
from shared.cri.interface import ImageStatus
from shared.model.cpu_list import write_cpus
from shared.model.frozen_copy import replace
from shared.model.objects import Object, name, namespace
from shared.podspec.containers import every_container
from shared.podspec.ports import HostPort, host_ports
from shared.podspec.qos import qos_class
from shared.podspec.volume_types import TYPES

# Field of a volume's source -> the directory of such volumes below pods/<uid>/volumes.
DIRECTORIES = {name: kind.directory for name, kind in TYPES.items() if kind.directory}
_ANY_IP = ("192.0.2.1",)  # stands for the pod's address, which it gets with its sandbox; no text shows it
_NUMBERS = ("cpu_shares", "cpu_period", "cpu_quota", "memory_limit_in_bytes")


class PodPaths(Struct, frozen=True, kw_only=True):
    """Has the absolute paths of what the pod would have on the node."""

    volumes: str
    devices: str
    containers: str
    etc_hosts: str


class PreviewInputs(Struct, frozen=True, kw_only=True):
    """Has what the preview of one pod is computed from. `verdict` None = admission waits for `waits_for`."""

    pod: Object
    verdict: Verdict | None
    view: NodeView
    others: Mapping[str, Object]  # the other active pods by UID, without one that the pod replaces
    facts: NodeFacts  # with the features of the pod's runtime handler
    paths: PodPaths
    images: Mapping[str, ImageStatus | None] = field(default_factory=dict)  # by name with tag; absent = not known
    providers: Sequence[CredentialProvider] = ()
    waits_for: str = ""
    problems: tuple[str, ...] = ()  # of the RuntimeClass and of the network, which the caller has found


def image_names(pod: Object) -> tuple[str, ...]:
    """Return the images of containers and volumes with their tags, each once, without those that cannot be parsed."""
    return tuple(dict.fromkeys(previewed.image for previewed in _images(pod) if not previewed.problem))


def preview(inputs: PreviewInputs) -> PodPreview:
    """Return the answer for this pod."""
    pod, verdict = inputs.pod, inputs.verdict
    decided = verdict or Verdict()
    facts = replace(inputs.facts, placement=decided.placement)
    inputs = replace(inputs, facts=facts)
    values = pod_cgroup_values(pod, facts)
    files = []
    if facts.cgroups_per_qos:
        to_files = v2_files if facts.cgroup_v2 else v1_files
        files = to_files(values, facts.page_sizes)
    taken = _taken_ports(inputs.others.values())
    intolerable = (taint for taint in inputs.view.taints if not tolerates(pod, taint))
    return PodPreview(
        waits_for="" if verdict else inputs.waits_for,
        reason=decided.reason,
        message=decided.explanation,
        preempted=tuple(_preempted(victim, inputs.others[victim]) for victim in decided.victims),
        qos_class=str(qos_class(pod)),
        cgroup=pod_cgroup_name(pod, facts) if facts.cgroups_per_qos else "",
        cgroup_files={file.file: file.text for file in files if not file.if_present},
        pod_cpus=write_cpus(decided.placement.cpus),
        pod_memory=numa_memory(decided.placement.memory),
        containers=() if decided.reason == "PodFeatureUnsupported" else tuple(_containers(inputs)),
        images=tuple(_with_presence(previewed, inputs) for previewed in _images(pod)),
        host_ports=tuple(_host_port(port, taken.get((port.protocol, port.port), ())) for port in host_ports(pod)),
        pressures=inputs.view.pressures,
        taints=tuple(_taint(taint) for taint in intolerable),
        problems=(*inputs.problems, *_sandbox_problems(pod, facts)),
    )


def _preempted(victim: str, pod: Object) -> PreemptedPod:
    return PreemptedPod(uid=victim, namespace=namespace(pod), name=name(pod))


def _taint(taint: Mapping[str, Any]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def _taken_ports(pods: Iterable[Object]) -> Mapping[tuple[str, int], list[tuple[HostPort, Object]]]:
    """Return the ports of these pods, by protocol and number."""
    taken: dict[tuple[str, int], list[tuple[HostPort, Object]]] = defaultdict(list)
    for pod in pods:
        for port in host_ports(pod):
            taken[port.protocol, port.port].append((port, pod))
    return taken


def _host_port(port: HostPort, taken: Iterable[tuple[HostPort, Object]]) -> PreviewedPort:
    pods = dict.fromkeys(f"{namespace(pod)}/{name(pod)}" for theirs, pod in taken if collide(port, theirs))
    return PreviewedPort(protocol=port.protocol, ip=port.ip, port=port.port, pods=tuple(pods))


def _images(pod: Object) -> Iterator[PreviewedImage]:
    for _, container in every_container(pod):
        yield _image(str(container.get("image") or ""), pull_policy(container), container=str(container["name"]))
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if source := volume.get("image"):
            image = str(source.get("reference") or "")
            policy = pull_policy({"image": image, "imagePullPolicy": source.get("pullPolicy")})
            yield _image(image, policy, volume=str(volume["name"]))


def _image(image: str, policy: str, container: str = "", volume: str = "") -> PreviewedImage:
    try:
        return PreviewedImage(image=with_default_tag(image), policy=policy, container=container, volume=volume)
    except InvalidImageNameError as error:
        problem = f"InvalidImageName: {error}"
        return PreviewedImage(image=image, policy=policy, container=container, volume=volume, problem=problem)


def _with_presence(previewed: PreviewedImage, inputs: PreviewInputs) -> PreviewedImage:
    image, policy = previewed.image, previewed.policy
    if previewed.problem or image not in inputs.images:
        return previewed
    present = inputs.images[image] is not None
    if policy == "Never" and not present:
        why = f'ErrImageNeverPull: Container image "{image}" is not present with pull policy of Never'
        return replace(previewed, present=False, problem=why)
    if present and policy != "Always":
        return replace(previewed, present=True)
    full = repository(image)
    return replace(previewed, present=present, providers=tuple(p.name for p in inputs.providers if is_for(p, full)))


def _sandbox_problems(pod: Object, facts: NodeFacts) -> Iterator[str]:
    try:
        if needs_user_namespace(pod):
            refuse_user_namespace(pod, facts)
        else:
            sandbox_config(pod, facts=facts, attempt=0)
    except SandboxConfigError as error:
        yield f"Failed to create pod sandbox: {error.message}"


def _containers(inputs: PreviewInputs) -> Iterator[PreviewedContainer]:
    pod, facts = inputs.pod, inputs.facts
    volumes = _volumes(pod, inputs.paths)
    kinds = {volume["name"]: kind for volume, kind in _kinds(pod)}
    for kind, container in every_container(pod):
        resources = container_resources(pod, container, facts)
        given = facts.placement.containers.get(container["name"], ContainerPlacement())
        previewed = PreviewedContainer(
            name=str(container["name"]),
            kind=str(kind),
            cpus=write_cpus(given.cpus),
            pool_cpus=write_cpus(given.pool),
            memory=numa_memory(given.memory),
            devices=given_devices(given.devices),
            oom_score_adj=int(resources.get("oom_score_adj", 0)),
            resources={key: int(resources[key]) for key in _NUMBERS if resources.get(key)},
        )
        try:
            mounts = tuple(_mounts(inputs, container, volumes, kinds))
            image = inputs.images.get(_tagged(container))
            if image is not None:
                verify_non_root(pod, container, image)
            yield replace(previewed, mounts=mounts)
        except ContainerConfigError as error:
            yield replace(previewed, problem=f"{error.reason}: {error.message}")


def _tagged(container: Object) -> str:
    try:
        return with_default_tag(str(container.get("image") or ""))
    except InvalidImageNameError:
        return ""


def _kinds(pod: Object) -> Iterator[tuple[Object, str]]:
    """Yield each volume of the pod with the field of its source."""
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        yield volume, next((field for field in volume if field != "name"), "emptyDir")


def _volumes(pod: Object, paths: PodPaths) -> dict[str, MountedVolume]:
    """Return where each volume would be on the host, "" = not known yet."""
    devices = {device.get("name") for _, c in every_container(pod) for device in c.get("volumeDevices") or ()}
    volumes = {}
    for volume, kind in _kinds(pod):
        own = str(volume["name"])
        if kind == "hostPath":
            path = str((volume["hostPath"] or {}).get("path") or "")
        elif own in devices:
            path = paths.devices
        elif kind in DIRECTORIES:
            path = f"{paths.volumes}/{DIRECTORIES[kind]}/{own}" + ("/mount" if kind == "csi" else "")
        else:
            path = ""
        read_only = bool((volume.get(kind) or {}).get("readOnly")) or kind in ("secret", "configMap", "projected")
        volumes[own] = MountedVolume(host_path=path, readonly=read_only or kind == "downwardAPI", block=own in devices)
    return volumes


def _mounts(
    inputs: PreviewInputs, container: Object, volumes: Mapping[str, MountedVolume], kinds: Mapping[str, str]
) -> Iterator[PreviewedMount]:
    """Yield the mounts and block devices of the container. Raises ContainerConfigError."""
    pod, facts, paths = inputs.pod, inputs.facts, inputs.paths
    listed = list(container.get("volumeMounts") or ())
    termination = container.get("terminationMessagePath")
    messages = container_mounts(
        pod,
        container,
        facts=facts,
        pod_ips=_ANY_IP,
        volumes=volumes,
        subpaths={index: _subpath(mount, volumes) for index, mount in enumerate(listed) if _has_subpath(mount)},
        etc_hosts_path=paths.etc_hosts,
        termination_path=f"{paths.containers}/{container['name']}" if termination else "",
        image_volumes={str(v["name"]): v["image"].get("reference") for v, kind in _kinds(pod) if kind == "image"},
    )
    names = [str(mount.get("name") or "") for mount in listed] + [""] * (len(messages) - len(listed))
    devices = block_devices(container, volumes)
    names += [str(device.get("name") or "") for device in container.get("volumeDevices") or ()]
    for volume, made in zip(names, [*messages, *devices], strict=True):
        yield PreviewedMount(
            container_path=made["container_path"],
            host_path=made.get("host_path", ""),
            volume=volume,
            kind=kinds.get(volume, ""),
            read_only=bool(made.get("readonly")) or made.get("permissions") == "r",
        )


def _has_subpath(mount: Mapping[str, Any]) -> bool:
    return bool(mount.get("subPath") or mount.get("subPathExpr"))


def _subpath(mount: Mapping[str, Any], volumes: Mapping[str, MountedVolume]) -> str:
    volume = volumes.get(str(mount.get("name") or ""))
    part = str(mount.get("subPath") or mount.get("subPathExpr"))
    return f"{volume.host_path}/{part}" if volume is not None and volume.host_path else part
