"""Draws pods, what a runtime has of them and what was shown of them before, for the comparison with the oracle.

Every draw is a state that a kubelet can find: after a kill, a reboot, a removal by another program. What podsync itself
has under way (RestartAllContainers, resizes, starts) is left out: tables by hand test it.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from bus.messages.pleg import ProbeResults
from services.podsync.core.pod.progress import InstanceFacts
from services.podsync.core.pod.saved import Saved
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.model.frozen_copy import replace
from shared.model.probes import ProbeResult
from shared.model.runtime import Container, ContainerState, RuntimePod, Sandbox, SandboxState
from shared.podspec.hashing import container_hash

Json = dict[str, Any]
RUNTIME = "containerd"
LISTS = {"initContainers": "initContainerStatuses", "containers": "containerStatuses"}
_AMOUNTS = {"cpu": ("100m", "0.5", "1", "2"), "memory": ("64Mi", "128Mi", "1Gi", "2Gi"), "example.com/gpu": ("1", "2")}


@dataclass(frozen=True)
class Drawn:
    """One pod with its sandboxes and instances (newest first), probe results by instance id and the status before."""

    pod: Json
    sandboxes: tuple[Sandbox, ...]
    instances: tuple[Container, ...]
    probes: dict[str, ProbeResults] = field(default_factory=dict)
    before: Json = field(default_factory=dict)

    def record(self) -> TrackedPod:
        """Return the record that podsync has of this pod once it has listed it."""
        metadata = self.pod["metadata"]
        tracked = TrackedPod(
            uid=metadata["uid"],
            name=metadata["name"],
            namespace=metadata["namespace"],
            saved=Saved(source="api", pod=self.pod, deleted="deletionTimestamp" in metadata),
            status=self.before,
            instance_facts={instance: InstanceFacts(probes=results) for instance, results in self.probes.items()},
        )
        return tracked.with_observation(
            RuntimePod(
                uid=tracked.uid,
                name=tracked.name,
                namespace=tracked.namespace,
                observed_at=1.0,
                sandboxes=self.sandboxes,
                containers=self.instances,
            ),
            1.0,
        )


def draw_pod(chance: random.Random) -> Drawn:
    """Return a pod of one to three regular and at most three init containers, and what became of it."""
    spec: Json = {"restartPolicy": chance.choice(["Always", "OnFailure", "Never"])}
    inits = [_draw_container(chance, f"i{number}", init=True) for number in range(chance.choice([0, 0, 1, 2, 3]))]
    regulars = [_draw_container(chance, f"c{number}", init=False) for number in range(chance.choice([1, 1, 2, 3]))]
    if inits:
        spec["initContainers"] = inits
    spec["containers"] = regulars
    metadata: Json = {"name": "web", "namespace": "default", "uid": "u1"}
    if chance.random() < 0.1:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    elif chance.random() < 0.1:
        spec["ephemeralContainers"] = [{"name": "e0", "image": "debug:1"}]
    if chance.random() < 0.15:
        spec["hostNetwork"] = True
    if chance.random() < 0.2:
        spec["resources"] = _draw_resources(chance)
    if chance.random() < 0.2:
        spec["overhead"] = {"cpu": "50m", "memory": "10Mi"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    sandboxes = _draw_sandboxes(chance, host_network=bool(spec.get("hostNetwork")))
    instances: list[Container] = []
    for container in [*inits, *regulars, *spec.get("ephemeralContainers", [])]:
        instances += _draw_instances(chance, container, sandboxes)
    probes = {i.id: _draw_probes(chance, i) for i in instances if i.state is ContainerState.RUNNING}
    return Drawn(pod, sandboxes, tuple(instances), probes, _draw_status(chance, pod, instances))


def _draw_container(chance: random.Random, name: str, *, init: bool) -> Json:
    container: Json = {"name": name, "image": "busybox:1"}
    policies = (
        [None, None, "Always", "Always", "OnFailure", "Never"]
        if init
        else [None, None, None, "Always", "OnFailure", "Never"]
    )
    if (policy := chance.choice(policies)) is not None:
        container["restartPolicy"] = policy
        if (policy != "Always" or not init) and chance.random() < 0.4:
            rule = {"operator": chance.choice(["In", "NotIn"]), "values": chance.sample([0, 1, 7, 137], 2)}
            container["restartPolicyRules"] = [{"action": "Restart", "exitCodes": rule}]
    if chance.random() < 0.6:
        container["resources"] = _draw_resources(chance)
    for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
        if chance.random() < 0.3 and (not init or policy == "Always"):
            container[kind] = {"exec": {"command": ["true"]}}
    return container


def _draw_resources(chance: random.Random) -> Json:
    limits = {name: chance.choice(amounts) for name, amounts in _AMOUNTS.items() if chance.random() < 0.5}
    if chance.random() < 0.4:
        return {"limits": limits, "requests": dict(limits)}  # as the API server's defaults leave them
    requests = {name: chance.choice(amounts) for name, amounts in _AMOUNTS.items() if chance.random() < 0.4}
    return {kind: amounts for kind, amounts in (("limits", limits), ("requests", requests)) if amounts}


def _draw_sandboxes(chance: random.Random, *, host_network: bool) -> tuple[Sandbox, ...]:
    sandboxes = []
    for attempt in range(chance.choice([0, 1, 1, 1, 1, 2, 2, 3])):
        newest_is_ready = chance.random() < 0.75
        network = host_network if chance.random() < 0.95 else not host_network
        reported = chance.random() < 0.9
        sandboxes.append(
            Sandbox(
                id=f"s{attempt}",
                attempt=attempt,
                state=SandboxState.READY if newest_is_ready else SandboxState.NOTREADY,
                created_at=attempt + 1,
                host_network=network,
                network_reported=reported,
                ips=("10.0.0.1",) if not network and chance.random() < 0.95 else (),
            )
        )
    for older in range(len(sandboxes) - 1):  # mostly one alone is ready
        if chance.random() < 0.9:
            sandboxes[older] = Sandbox(id=f"s{older}", attempt=older, state=SandboxState.NOTREADY, created_at=older + 1)
    return tuple(reversed(sandboxes))


def _draw_instances(chance: random.Random, spec: Json, sandboxes: tuple[Sandbox, ...]) -> list[Container]:
    """Return the instances of one container, newest first; an earlier one has ended, or is in no known state."""
    instances = []
    for attempt in range(chance.choice([0, 1, 1, 1, 2, 2, 3]) if sandboxes else 0):
        state = chance.choice([*ContainerState, ContainerState.RUNNING, ContainerState.RUNNING, ContainerState.EXITED])
        code = chance.choice([0, 0, 1, 7, 137])
        changed = chance.random() < 0.1
        instances.append(
            Container(
                id=f"{spec['name']}-{attempt}",
                name=spec["name"],
                attempt=attempt,
                restart_count=attempt,
                sandbox_id=sandboxes[0].id,
                state=state,
                created_at=10 * attempt + 1,
                started_at=0 if state is ContainerState.CREATED else 10 * attempt + 2,
                finished_at=10 * attempt + 3 if state is ContainerState.EXITED else 0,
                exit_code=code if state is ContainerState.EXITED else 0,
                reason=_draw_reason(chance, code) if state is ContainerState.EXITED else "",
                image=spec["image"],
                image_id="sha256:1",
                spec_hash="changed" if changed else container_hash(spec),
            )
        )
    for older in range(len(instances) - 1):
        if instances[older].state in (ContainerState.RUNNING, ContainerState.CREATED):
            instances[older] = _ended(instances[older])
    return instances[::-1]


def _draw_reason(chance: random.Random, code: int) -> str:
    return "OOMKilled" if chance.random() < 0.05 else ("Completed" if code == 0 else "Error")


def _ended(instance: Container) -> Container:
    at = 10 * instance.attempt
    ended = replace(instance, created_at=at + 1, started_at=at + 2, finished_at=at + 3)
    return replace(ended, state=ContainerState.EXITED, exit_code=1, reason="Error")


def _draw_probes(chance: random.Random, instance: Container) -> ProbeResults:
    def draw() -> ProbeResult:
        return chance.choice([ProbeResult.SUCCESS, ProbeResult.SUCCESS, ProbeResult.NONE, ProbeResult.FAILURE])

    return ProbeResults(pod_uid="u1", container=instance.name, liveness=draw(), readiness=draw(), startup=draw())


def _draw_status(chance: random.Random, pod: Json, instances: list[Container]) -> Json:
    """Return a status that may have been shown before: of an instance that is there, of an earlier one, or none."""
    if chance.random() < 0.3:
        return {}
    status: Json = {"phase": "Running" if chance.random() < 0.7 else "Pending"}
    for containers, statuses in LISTS.items():
        shown = [_draw_container_status(chance, spec, instances) for spec in pod["spec"].get(containers, [])]
        if any(shown):
            status[statuses] = [one for one in shown if one]
    return status


def _draw_container_status(chance: random.Random, spec: Json, instances: list[Container]) -> Json:
    own = [instance for instance in instances if instance.name == spec["name"]]
    shown = chance.choice([*own, None])
    container_id = f"{RUNTIME}://{shown.id if shown is not None else spec['name'] + '-gone'}"
    count = shown.attempt if shown is not None else chance.choice([0, 1, 4])
    ended = {"exitCode": chance.choice([0, 1]), "reason": "Error", "containerID": container_id}
    state: Json = chance.choice(
        [{"waiting": {"reason": "ContainerCreating"}}, {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
         {"terminated": ended}]
    )  # fmt: skip
    status: Json = {
        "name": spec["name"], "image": spec["image"], "imageID": "", "state": state, "ready": False,
        "restartCount": count, "started": False, "lastState": {},
    }  # fmt: skip
    if "waiting" not in state:
        status["containerID"] = container_id
    if chance.random() < 0.3:
        status["lastState"] = {"terminated": {"exitCode": 3, "reason": "Error", "containerID": f"{RUNTIME}://older"}}
    return status
