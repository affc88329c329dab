"""What users and their processes do in one run. Nothing here depends on when the agent acts: the end is the same."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from shared.model.frozen_copy import replace

IMAGES = ("busybox:1", "busybox:2")
SECRET = "key"
CONFIG_MAP = "settings"
CLAIM = "data"
GPU = "example.com/gpu"


@dataclass(frozen=True)
class Run:
    """One start of a container: it ends by itself with `code` after `seconds` (None = never). `stop`: seconds from TERM
    to its end (None = it does not listen). `ready`: seconds until its readiness probe succeeds, `alive` until its
    liveness probe fails (None = never)."""

    seconds: float | None = None
    code: int = 0
    stop: float | None = 0.0
    ready: float = 0.0
    alive: float | None = None


@dataclass(frozen=True)
class Act:
    """Something done to a pod: `delete`, `image`, `label`, `move` (to another node), `recreate`, `secret`. Done `after`
    seconds after the pod was created and, with `starts`, after its containers have been started that often."""

    kind: str
    after: float
    starts: int = 0
    grace: int | None = None


@dataclass(frozen=True)
class PodPlan:
    """One pod of the API server or of a manifest, its containers' runs and what is done to it."""

    name: str
    at: float
    policy: str
    runs: tuple[tuple[Run, ...], ...]  # of each container c0, c1 …; the last run repeats
    acts: tuple[Act, ...] = ()
    grace: int = 30
    volumes: tuple[str, ...] = ()  # secret | config | empty | claim | token
    probes: tuple[str, ...] = ()  # readiness | liveness
    deadline: int | None = None
    static: bool = False
    init: tuple[tuple[Run, ...], ...] = ()  # of each init container i0, i1 …
    sidecar: tuple[Run, ...] = ()  # of the sidecar s0, the first init container; () = there is none
    hook: bool = False  # preStop, of every container that can have one
    devices: int = 0  # of c0
    cpus: int = 0  # that each container has alone
    claims: tuple[str, ...] = ()  # names of ResourceClaims, whose devices c0 has

    def runs_of(self, container: str) -> tuple[Run, ...]:
        """The runs of the container of this name."""
        if container[0] == "s":
            return self.sidecar
        return (self.init if container[0] == "i" else self.runs)[int(container[1:])]

    @property
    def initializes(self) -> bool:
        """Its init containers come to their end, and the others start."""
        return all(runs[-1].code == 0 for runs in self.init)

    @property
    def deleted(self) -> bool:
        """Nothing of it is there in the end."""
        return any(act.kind == "delete" for act in self.acts)


@dataclass(frozen=True)
class PluginPlan:
    """The device plugin of the node. `anew`: it starts again whenever the agent's socket is replaced. `prefers`: it
    answers GetPreferredAllocation. `prepares`: it requires PreStartContainer."""

    anew: bool = False
    prefers: bool = False
    prepares: bool = False


@dataclass(frozen=True)
class Workload:
    """The pods, when the Secret and ConfigMap appear, and whether the runtime has an event stream. With a `plugin` the
    node has devices, and static policies for CPUs and memory. `offline`: the node keeps a record of its pods
    (`offlinePods`)."""

    pods: tuple[PodPlan, ...]
    secret_at: float = 0.0
    runtime_events: bool = False
    late_images: tuple[str, ...] = field(default=())  # have to be pulled
    plugin: PluginPlan | None = None
    offline: bool = False

    def without(self, name: str) -> "Workload":
        """The same without one pod."""
        return replace(self, pods=tuple(pod for pod in self.pods if pod.name != name))


def draw_workload(rng: Random) -> Workload:
    """One to four pods."""
    count = rng.choice((1, 1, 2, 2, 3, 4))
    pods = tuple(_pod(rng, f"p{number}") for number in range(count))
    return Workload(
        pods=pods,
        secret_at=rng.choice((0.0, 0.0, 0.0, 6.0)),
        runtime_events=rng.random() < 0.5,
        late_images=(IMAGES[1],) if rng.random() < 0.5 else (),
    )


def _pod(rng: Random, name: str) -> PodPlan:
    at = round(rng.choice((0.0, 0.0, rng.uniform(0.0, 6.0))), 3)
    static = rng.random() < 0.12
    policy = "Always" if static else rng.choice(("Always", "Always", "OnFailure", "Never"))
    probes: tuple[str, ...] = ()
    if policy == "Always" and rng.random() < 0.35:
        probes = tuple(kind for kind in ("readiness", "liveness") if rng.random() < 0.6)
    volumes = tuple(kind for kind in ("secret", "config", "empty") if rng.random() < 0.35)
    if static:
        volumes = tuple(kind for kind in volumes if kind == "empty")
    containers = rng.choice((1, 1, 1, 2))
    runs = tuple(_runs(rng, policy, "liveness" in probes) for _ in range(containers))
    grace = rng.choice((0, 1, 3, 10, 30))
    deadline = rng.choice((5, 12)) if policy != "Always" and rng.random() < 0.12 else None
    if deadline is not None:  # a race between an end and a deadline would have two right answers
        runs = tuple((replace(each[-1], seconds=None),) for each in runs)
    init, sidecar = _before(rng, policy, static)
    if deadline is not None:
        init = tuple((replace(each[-1], code=0),) for each in init)
    forever = policy == "Always" and all(len(each) == 1 for each in (*runs, *init))
    return PodPlan(
        name=name,
        at=at,
        policy=policy,
        runs=runs,
        acts=_acts(rng, containers, forever, static, volumes),
        grace=grace,
        volumes=volumes,
        probes=probes,
        deadline=deadline,
        static=static,
        init=init,
        sidecar=sidecar,
        hook=rng.random() < 0.25,
    )


def _before(rng: Random, policy: str, static: bool) -> tuple[tuple[tuple[Run, ...], ...], tuple[Run, ...]]:
    """Init containers and a sidecar. One that ends while the pod does may be restarted or not: both would be right, so
    only the sidecar of a pod that never ends by itself ends by itself."""
    init: list[tuple[Run, ...]] = []
    if rng.random() < 0.3:
        for _ in range(rng.choice((1, 1, 2))):
            runs = [Run(round(rng.uniform(0.02, 2.0), 3), 0)]
            if rng.random() < 0.25:
                failed = Run(round(rng.uniform(0.02, 2.0), 3), rng.choice((1, 137)))
                runs = [failed] if policy == "Never" else [failed, *runs]
            init.append(tuple(runs))
    sidecar: tuple[Run, ...] = ()
    if not static and rng.random() < 0.2:
        stays = Run(stop=rng.choice((0.0, 0.7, 2.5)))
        sidecar = (stays,)
        if policy == "Always" and rng.random() < 0.4:
            sidecar = (replace(stays, seconds=round(rng.uniform(0.5, 5.0), 3), code=1), stays)
    return tuple(init), sidecar


def _runs(rng: Random, policy: str, liveness: bool) -> tuple[Run, ...]:
    stop = rng.choice((0.0, 0.0, 0.05, 0.7, 2.5, None))
    ready = rng.choice((0.0, 0.0, 3.0))
    last = Run(stop=stop, ready=ready)
    lasting = round(rng.uniform(0.02, 5.0), 3)
    if policy == "Never":
        return (Run(lasting, rng.choice((0, 0, 1, 137)), stop=stop),) if rng.random() < 0.7 else (last,)
    failures = rng.choice((0, 0, 0, 1, 1, 2))
    first = tuple(Run(round(rng.uniform(0.02, 4.0), 3), rng.choice((1, 2, 137)), stop=stop) for _ in range(failures))
    if policy == "OnFailure":
        return (*first, Run(lasting, 0, stop=stop) if rng.random() < 0.6 else last)
    if liveness and not failures and rng.random() < 0.5:
        return (Run(stop=stop, ready=ready, alive=4.0), last)
    return (*first, last)


def _acts(rng: Random, containers: int, forever: bool, static: bool, volumes: tuple[str, ...]) -> tuple[Act, ...]:
    acts: list[Act] = []
    roll = rng.random()
    after = round(rng.uniform(0.0, 15.0), 3)
    if roll < 0.35:
        grace = rng.choice((None, None, 0, 2)) if not static else None
        acts.append(Act("delete", after, grace=grace))
        # A manifest that goes and comes back while podsync is dead was never away, nor are its containers' restarts.
        if rng.random() < 0.3 and (forever or not static):
            acts.append(Act("recreate", after + rng.uniform(0.0, 3.0)))
    elif roll < 0.50 and forever:
        acts.append(Act("image", after, starts=containers))
    elif roll < 0.60:
        acts.append(Act("label", after))
    elif roll < 0.75 and "secret" in volumes:
        acts.append(Act("secret", after))
    return tuple(acts)


def pod_object(plan: PodPlan, *, image: str = IMAGES[0]) -> dict[str, Any]:
    """As a user writes it."""
    sources: dict[str, dict[str, Any]] = {
        "secret": {"secret": {"secretName": SECRET}},
        "config": {"configMap": {"name": CONFIG_MAP}},
        "empty": {"emptyDir": {}},
        "claim": {"persistentVolumeClaim": {"claimName": CLAIM}},
        "token": {"projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "api"}}]}},
    }
    probe = {"periodSeconds": 1, "failureThreshold": 2, "timeoutSeconds": 1}
    containers = [_container(plan, f"c{number}", image) for number in range(len(plan.runs))]
    for container in containers:
        for kind in plan.probes:
            container[f"{kind}Probe"] = {**probe, "exec": {"command": [kind]}}
    init = [_container(plan, f"i{number}", IMAGES[0]) for number in range(len(plan.init))]
    if plan.sidecar:
        init.insert(0, {**_container(plan, "s0", IMAGES[0]), "restartPolicy": "Always"})
    spec: dict[str, Any] = {
        "restartPolicy": plan.policy,
        "terminationGracePeriodSeconds": plan.grace,
        "dnsPolicy": "Default",
        "containers": containers,
        "volumes": [{"name": kind, **sources[kind]} for kind in plan.volumes],
    }
    if "token" in plan.volumes:
        spec["serviceAccountName"] = "default"
    if plan.claims:
        spec["resourceClaims"] = [{"name": claim, "resourceClaimName": claim} for claim in plan.claims]
    if init:
        spec["initContainers"] = init
    if plan.deadline is not None:
        spec["activeDeadlineSeconds"] = plan.deadline
    metadata = {"name": plan.name, "namespace": "default", "labels": {"app": plan.name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(plan: PodPlan, name: str, image: str) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "volumeMounts": [{"name": kind, "mountPath": f"/{kind}"} for kind in plan.volumes],
    }
    amounts = {"cpu": str(plan.cpus), "memory": "64Mi"} if plan.cpus else {}
    if plan.devices and name == "c0":
        amounts[GPU] = str(plan.devices)
    if amounts:
        container["resources"] = {"limits": amounts, "requests": amounts}
    if plan.claims and name == "c0":
        container["resources"] = {
            **container.get("resources", {}),
            "claims": [{"name": claim} for claim in plan.claims],
        }
    if plan.hook and name[0] != "i":
        container["lifecycle"] = {"preStop": {"exec": {"command": ["hook"]}}}
    return container
