"""Builds what goes to other processes: the items of a pod on `pods.admitted`, `pods.volumes` and `pods.probes`.
Decides nothing about the pod, and does not know what was published before.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from bus.messages.podsync import AdmittedPod, GivenDevices, NumaMemory, PodProbes, PodState, PodVolumes
from services.podsync.core.placement.pod_placement import NOT_PLACED, ContainerDevices, MemoryBlock
from services.podsync.core.pod.claim_status import has_claims
from services.podsync.core.pod.saved import Pod, Saved
from shared.model.cpu_list import write_cpus
from shared.podspec.containers import used_volumes
from shared.podspec.resources import is_sidecar

_METADATA = ("annotations", "labels", "name", "namespace", "uid")
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_FOR_VOLUMES = ("name", "resources", "restartPolicy", "securityContext", "volumeDevices", "volumeMounts")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


class Published(Struct, frozen=True, kw_only=True):
    """Has the items of one pod. `probes` is None where there is nothing to probe."""

    admitted: AdmittedPod
    volumes: PodVolumes
    probes: PodProbes | None


def published(uid: str, name: str, namespace: str, saved: Saved) -> Published:
    """Return the items of a pod whose admission is decided."""
    volumes, probed = mounted_volumes(saved), _probed_containers(saved)
    placement = saved.placement if _may_run(saved) else NOT_PLACED
    given = placement.containers
    probes = PodProbes(
        name=name,
        namespace=namespace,
        spec=probed,
        terminating=saved.state is PodState.TERMINATING or saved.shutdown is not None,
        deletion_requested=bool((saved.pod.get("metadata") or {}).get("deletionTimestamp")),
    )
    return Published(
        admitted=AdmittedPod(
            uid=uid,
            name=name,
            namespace=namespace,
            state=saved.state,
            source=saved.source,
            rejected=saved.rejected,
            grace_seconds=None if saved.state is PodState.SYNC else saved.grace_seconds,
            cpus={name: write_cpus(own.cpus) for name, own in given.items() if own.cpus},
            memory={name: numa_memory(own.memory) for name, own in given.items() if own.memory},
            devices={name: given_devices(own.devices) for name, own in given.items() if own.devices},
            pod_cpus=write_cpus(placement.cpus),
            pod_memory=numa_memory(placement.memory),
            pool_cpus={name: write_cpus(own.pool) for name, own in given.items() if own.pool},
        ),
        volumes=PodVolumes(
            uid=uid,
            name=name,
            namespace=namespace,
            state=saved.state,
            pod=_for_volumes(saved) if volumes or (has_claims(saved) and _may_run(saved)) else {},
            volumes=volumes,
        ),
        probes=probes if probed else None,
    )


def numa_memory(blocks: Iterable[MemoryBlock]) -> tuple[NumaMemory, ...]:
    """Return the blocks as messages have them."""
    return tuple(NumaMemory(nodes=tuple(sorted(b.nodes)), kind=b.kind, size=b.size) for b in blocks)


def given_devices(given: Iterable[ContainerDevices]) -> tuple[GivenDevices, ...]:
    """Return the devices as messages have them."""
    return tuple(GivenDevices(resource=each.resource, ids=tuple(sorted(each.ids))) for each in given)


def mounted_volumes(saved: Saved) -> tuple[str, ...]:
    """Return the names of the volumes that containers mount; none once the containers are gone (pods.md 5.1.10). A pod
    that is stopped for a shutdown keeps those that would lose their content."""
    if not _may_run(saved):
        return ()
    mounted = used_volumes(saved.pod)
    volumes = (saved.pod.get("spec") or {}).get("volumes") or []
    if saved.shutdown is not None and saved.shutdown.stopped:
        volumes = [volume for volume in volumes if _is_lost_with_its_mount(volume)]
    # Image volumes are not among them, because the runtime mounts them.
    return tuple(str(v["name"]) for v in volumes if v.get("name") in mounted and not v.get("image"))


def _is_lost_with_its_mount(volume: dict[str, Any]) -> bool:
    """Return whether the volume is removed, or emptied by its driver, when it is unmounted: emptyDir, which is also the
    type of a volume without a source, and a volume of a CSI driver that lives as long as the pod."""
    sources = [source for source in volume if source != "name"]
    return not sources or any(source in sources for source in ("emptyDir", "csi"))


def _may_run(saved: Saved) -> bool:
    return saved.admission_decided and not saved.rejected and saved.state in (PodState.SYNC, PodState.TERMINATING)


def _for_volumes(saved: Saved) -> Pod:
    """Return the pod with only the fields from which volumes are made, and those that name its resource claims."""
    spec = dict(saved.pod.get("spec") or {})
    for kind in _CONTAINERS:
        if spec.get(kind):
            spec[kind] = [_only(container, _FOR_VOLUMES) for container in spec[kind]]
    fields = {"metadata": _only(saved.pod.get("metadata") or {}, _METADATA), "spec": spec}
    return fields | ({"status": dict(saved.claim_status)} if saved.claim_status else {})


def _probed_containers(saved: Saved) -> dict[str, Any]:
    """Return the containers and sidecars that have probes, by field of the spec, with the fields that probes use."""
    if not _may_run(saved) or (saved.shutdown is not None and saved.shutdown.stopped):
        return {}
    spec = saved.pod.get("spec") or {}
    regular = spec.get("containers") or []
    sidecars = [container for container in spec.get("initContainers") or [] if is_sidecar(container)]
    listed = {"initContainers": sidecars, "containers": regular}
    probed = {kind: [_for_probes(c) for c in every if _only(c, _PROBES)] for kind, every in listed.items()}
    return {kind: containers for kind, containers in probed.items() if containers}


def _for_probes(container: dict[str, Any]) -> dict[str, Any]:
    """Return the container with its probes, the names of all its environment variables, and the values that the spec
    has."""
    environment = [_only(variable, ("name", "value")) for variable in container.get("env") or []]
    return _only(container, ("name", "ports", "restartPolicy", *_PROBES)) | (
        {"env": environment} if environment else {}
    )


def _only(fields: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: fields[name] for name in names if name in fields}
