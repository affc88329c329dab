"""What users do to a node: pods created, changed and deleted, Secrets written; and how their processes behave."""

import asyncio
import contextvars
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from shared.kube import paths
from shared.model.objects import Object
from shared.model.runtime import ContainerState
from tests.fakes.api_resources import target_of
from tests.simulation import patches
from tests.simulation.api import SimulationApi
from tests.simulation.claim_driver import DRIVER
from tests.simulation.oracle import Oracle
from tests.simulation.runtime import SimulationRuntime
from tests.simulation.story import Story
from tests.simulation.workload import CLAIM, CONFIG_MAP, GPU, IMAGES, SECRET, Act, PodPlan, Run, Workload, pod_object

NAME = "node1"
MIRROR = "kubernetes.io/config.mirror"


class Users:
    """Of one run. `acts_left`: what they have not done yet."""

    def __init__(self, workload: Workload, story: Story, oracle: Oracle, api: SimulationApi, manifests: Path) -> None:
        self.workload, self.story, self.oracle, self.api, self.manifests = workload, story, oracle, api, manifests
        self.runtime: SimulationRuntime
        self.acts_left = 0
        self._uids: dict[str, PodPlan] = {}
        self._secret_version = 0

    def begin(self) -> None:
        """Plan what they do."""
        self._later(self.workload.secret_at, self._put_secret)
        if any("claim" in plan.volumes for plan in self.workload.pods):
            self._put_claim()
        for plan in self.workload.pods:
            self.acts_left += 1 + len(plan.acts)
            self._later(plan.at, self._create, plan)

    def _later(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        asyncio.get_running_loop().call_later(seconds, do, *args, context=contextvars.Context())

    def _put_secret(self) -> None:
        self._secret_version += 1
        data = {"password": "dmFsdWU" + "=" if self._secret_version == 1 else "bmV3"}
        self.story.add("user", f"writes the Secret, version {self._secret_version}")
        self.api.put(f"/api/v1/namespaces/default/secrets/{SECRET}", {"data": data})
        self.api.put(f"/api/v1/namespaces/default/configmaps/{CONFIG_MAP}", {"data": {"mode": "fast"}})

    def _put_claim(self) -> None:
        """A claim and the volume that it is bound to, a directory of the node."""
        modes, volume = ["ReadWriteMany"], f"volume-{CLAIM}"
        claim = {"spec": {"volumeName": volume, "accessModes": modes}, "status": {"phase": "Bound"}}
        made = self.api.put(paths.persistent_volume_claim("default", CLAIM), claim)
        bound = {"namespace": "default", "name": CLAIM, "uid": made["metadata"]["uid"]}
        spec = {"claimRef": bound, "accessModes": modes, "hostPath": {"path": "/data"}}
        self.api.put(paths.persistent_volume(volume), {"spec": spec, "status": {"phase": "Bound"}})

    def _create(self, plan: PodPlan) -> None:
        if plan.devices and not self._has_devices():  # a scheduler would bind it to no node without the resource
            self._later(0.25, self._create, plan)
            return
        self.acts_left -= 1
        self._make(plan)
        for act in plan.acts:
            self._later(act.after, self._act, plan, act)

    def _has_devices(self) -> bool:
        """Return whether the Node has the resource of the device plugin, with whatever amount."""
        node = self.api.get(paths.node(NAME)) or {}
        return GPU in (node.get("status", {}).get("allocatable") or {})

    def _make(self, plan: PodPlan, **change: Any) -> None:
        self.story.add("user", f"creates pod {plan.name}")
        if plan.static:
            self._write_manifest(plan, **change)
            return
        bound = self.api.bind(pod_object(plan, **change), NAME)
        self._know(str(bound["metadata"]["uid"]), plan)
        for claim in plan.claims:
            self._reserve(claim, plan.name, str(bound["metadata"]["uid"]))

    def _reserve(self, claim: str, pod: str, uid: str) -> None:
        """Allocate the ResourceClaim, and reserve it for the pod too, as the scheduler does."""
        path = paths.resource_claim("default", claim)
        before = (self.api.get(path) or {}).get("status") or {}
        device = {"driver": DRIVER, "pool": "node", "device": claim, "request": "r"}
        users = [*(before.get("reservedFor") or ()), {"resource": "pods", "name": pod, "uid": uid}]
        status = {"allocation": {"devices": {"results": [device]}}, "reservedFor": users}
        self.api.put(path, {"spec": {}, "status": status})

    def _write_manifest(self, plan: PodPlan, **labels: str) -> None:
        pod = pod_object(plan)
        pod["metadata"]["labels"].update(labels)
        (self.manifests / f"{plan.name}.yaml").write_bytes(orjson.dumps(pod))
        patches.manifests_changed()

    def _know(self, uid: str, plan: PodPlan) -> None:
        self._uids[uid] = plan
        self.oracle.knows(uid, plan.policy, plan.grace)

    def _act(self, plan: PodPlan, act: Act) -> None:
        if act.starts and sum(self._starts_of(plan).values()) < act.starts:
            self._later(0.25, self._act, plan, act)
            return
        path = paths.pod("default", plan.name)
        present = self.api.get(path)
        if act.kind == "recreate" and present is not None and not plan.static:
            self._later(0.25, self._act, plan, act)
            return
        self.acts_left -= 1
        if act.kind != "recreate":
            self.story.add(
                "user", f"{act.kind} of pod {plan.name}{f' with grace {act.grace}' if act.grace is not None else ''}"
            )
        match act.kind:
            case "delete" if plan.static:
                (self.manifests / f"{plan.name}.yaml").unlink(missing_ok=True)
                patches.manifests_changed()
            case "delete" if present is not None:
                self.api.delete(path, act.grace)
            case "move" if present is not None:
                self.api.delete(path, 0)
                self.api.bind(pod_object(plan), "elsewhere")
            case "recreate":
                self._make(plan)
            case "image" if plan.static:
                self._write_manifest(plan, changed="yes")
            case "image" if present is not None:
                spec = present["spec"]
                containers = [{**c, "image": IMAGES[1]} for c in spec["containers"]]
                self.api.put(path, {**present, "spec": {**spec, "containers": containers}})
            case "label" if plan.static:
                self._write_manifest(plan, changed="yes")
            case "label" if present is not None:
                metadata = present["metadata"]
                self.api.put(path, {**present, "metadata": {**metadata, "labels": {"app": "changed"}}})
            case "secret":
                self._put_secret()
            case _:
                pass

    def is_at_its_end(self) -> bool:
        """Every process that will end by itself has ended, and none waits to be started again."""
        present = self._uids_in_the_api()
        for (uid, container), count in self.oracle.starts.items():
            plan = self.plan_of(uid)
            if plan is None or uid not in present:
                continue
            runs = plan.runs_of(container)
            if count < len(runs) or (runs[-1].seconds is not None and self._is_running(uid, container)):
                return False
        for _, pod in self.api.store.below(target_of(paths.PODS)):
            if pod["status"].get("reason") == "DeadlineExceeded" or pod["spec"].get("nodeName") != NAME:
                continue
            if pod["spec"].get("activeDeadlineSeconds"):
                return False
            if not self._has_initialized(pod):
                return False
            wanted = [c["image"] for c in pod["spec"]["containers"]]
            shown = [c["image"] for c in pod["status"].get("containerStatuses") or ()]
            if pod["metadata"].get("deletionTimestamp") or shown != wanted:
                return False
        return True

    def _has_initialized(self, pod: Object) -> bool:
        """Its regular containers were started, or never will be."""
        metadata = pod["metadata"]
        uid = (metadata.get("annotations") or {}).get(MIRROR) or metadata["uid"]
        plan = self.plan_of(uid)
        if plan is None or not plan.init or not plan.initializes or metadata.get("deletionTimestamp"):
            return True
        return all((uid, f"c{number}") in self.oracle.starts for number in range(len(plan.runs)))

    def _is_running(self, uid: str, container: str) -> bool:
        seen = self.runtime.pods().get(uid)
        return seen is not None and any(
            c.name == container and c.state is ContainerState.RUNNING for c in seen.containers
        )

    def _uids_in_the_api(self) -> set[str]:
        found = set()
        for _, pod in self.api.store.below(target_of(paths.PODS)):
            metadata = pod["metadata"]
            found |= {metadata["uid"], (metadata.get("annotations") or {}).get(MIRROR, "")}
        return found

    def _starts_of(self, plan: PodPlan) -> dict[str, int]:
        """Starts of each regular container of the pods made by this plan."""
        found: dict[str, int] = {}
        for (uid, container), count in self.oracle.starts.items():
            if self.plan_of(uid) is plan and container[0] == "c":
                found[container] = found.get(container, 0) + count
        return found

    def plan_of(self, uid: str) -> PodPlan | None:
        """Return the plan of the pod with this UID; None = it is of no plan."""
        if uid in self._uids:
            return self._uids[uid]
        pod = self.runtime.pods().get(uid)
        name = pod.name if pod else ""
        for plan in self.workload.pods:
            if plan.static and name == f"{plan.name}-{NAME}":
                self._know(uid, plan)
                return plan
        return None

    def run_of(self, uid: str, container: str, number: int) -> Run:
        plan = self.plan_of(uid)
        if plan is None:
            return Run()
        runs = plan.runs_of(container)
        return runs[min(number, len(runs) - 1)]
