"""Pods as the API server would store them, each made to be as costly as its bytes allow; the same for the same seed."""

import base64
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from bus.interface import Bus
from bus.messages.sources import FoundObject, FoundServices, GetObject, GetServices
from shared.model.objects import Object
from shared.podspec.defaults import apply_defaults

LARGEST_POD = 1_400_000  # bytes of JSON: etcd takes 1.5 MiB
IMAGE = "busybox:1"
ANNOTATIONS = 256 << 10  # bytes, in all, that the API server takes
OBJECT = 1 << 20  # bytes of a Secret or ConfigMap
ENV_FILE = 1 << 20  # bytes of a file of variables, about

Make = Callable[[random.Random, int], Object]


def hostile_pods(seed: int, total: int, largest: int = LARGEST_POD) -> Iterator[tuple[str, Object]]:
    """Name of the kind and pod, until `total` bytes of JSON are reached; every kind comes at least once."""
    draw, made, number = random.Random(seed), 0, 0
    sizes = [min(largest, total // len(KINDS))] * len(KINDS)
    while made < total:
        kind = list(KINDS)[number % len(KINDS)]
        size = sizes[number] if number < len(sizes) else draw.choice((largest // 30, largest // 4, largest))
        pod = _finished(KINDS[kind](draw, size), f"{kind}-{number}", f"uid-{seed}-{number}")
        made += len(orjson.dumps(pod))
        number += 1
        yield kind, pod


def _finished(spec: Object, name: str, uid: str) -> Object:
    metadata = spec.pop("metadata", {})
    spec = {"imagePullSecrets": [{"name": "wild"}], "nodeName": "node1", **spec}
    pod: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    metadata |= {"name": name, "namespace": "hostile", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"}
    apply_defaults(pod)
    return pod


def _container(name: str = "c", **fields: Any) -> Object:
    return {"name": name, "image": IMAGE, **fields}


def _many(size: int, each: int, make: Callable[[int], Any]) -> list[Any]:
    """As many as fit into `size` bytes when one takes `each`."""
    return [make(number) for number in range(max(2, size // each))]


def _doubling(draw: random.Random, size: int) -> Object:
    env = [{"name": "A0", "value": "x" * draw.randint(1, 9)}]
    env += _many(size // 2, 60, lambda n: {"name": f"A{n + 1}", "value": f"$(A{n})$(A{n})"})
    return {"containers": [_container(env=env), _container("d", args=["$(A0)" * (size // 20)] * 4)]}


def _unclosed(draw: random.Random, size: int) -> Object:
    parts = [draw.choice(("$(", "$$(", "$", "$(A", "$()", "$(A)$(")) for _ in range(3)]
    return {"containers": [_container(f"c{n}", args=[part * (size // 3 // len(part))]) for n, part in enumerate(parts)]}


def _multiplied(draw: random.Random, size: int) -> Object:
    env = [{"name": "A", "value": "x" * min(size // 2, 120_000)}]
    words = ["$(A)" * draw.randint(1, 3)] * (size // 20)
    probe = {"exec": {"command": words[: size // 60]}}
    return {"containers": [_container(env=env, args=words[: size // 60], livenessProbe=probe)]}


def _keys_of_one_secret(draw: random.Random, size: int) -> Object:
    def variable(number: int) -> Object:
        return {"name": f"V{number}", "valueFrom": {"secretKeyRef": {"name": "large", "key": draw.choice("ab")}}}

    return {"containers": [_container(env=_many(size, 90, variable))]}


def _whole_objects(draw: random.Random, size: int) -> Object:
    kind = draw.choice(("secretRef", "configMapRef"))
    return {
        "containers": [_container(envFrom=_many(size, 60, lambda n: {"prefix": f"P{n}_", kind: {"name": "large"}}))]
    }


def _many_objects(draw: random.Random, size: int) -> Object:
    return {"containers": [_container(envFrom=_many(size // 10, 60, lambda n: {"secretRef": {"name": f"large-{n}"}}))]}


def _fields(draw: random.Random, size: int) -> Object:
    paths = ("metadata.annotations", "metadata.labels", "metadata.annotations['k']", "limits.cpu", "requests.memory")

    def variable(number: int) -> Object:
        path = draw.choice(paths)
        if path.startswith("metadata"):
            return {"name": f"V{number % 7}", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        named = {"resource": path, "containerName": f"c{number}", "divisor": "1"}
        return {"name": f"V{number}", "valueFrom": {"resourceFieldRef": named}}

    left = max(size - ANNOTATIONS, size // 2)
    annotations = {f"k{n}": '"\\\n\x01é\U0001f600' * 4 for n in range(min(ANNOTATIONS, size // 2) // 60)}
    others = [_container(f"c{n}") for n in range(20)]
    return {
        "metadata": {"annotations": annotations, "labels": {f"l{n}": "v" * 63 for n in range(500)}},
        "containers": [_container("first", env=_many(left, 110, variable)), *others],
    }


def _deep_annotations(draw: random.Random, size: int) -> Object:
    size = min(size, ANNOTATIONS)
    opening, closing = draw.choice((("[", "]"), ('{"a":', "}")))
    depth = size // 2 // (len(opening) + len(closing))
    values = {"deep": opening * depth + closing * depth, "open": opening * (size // 2 // len(opening))}
    names = ("pod.alpha", "seccomp.security", "container.apparmor.security.beta", "kubernetes.io/config.mirror-pod")
    return {
        "metadata": {"annotations": {draw.choice(names) + f"/{key}": text for key, text in values.items()}},
        "containers": [_container()],
    }


def _long_texts(draw: random.Random, size: int) -> Object:
    part = size // 8
    text = draw.choice(("a", "é", "\U0001f600", "a-", "../", "/a", "\\", '"', "\n", "$("))
    return {
        "hostname": "h" * 63,
        "serviceAccountName": "s" * 253,
        "containers": [
            _container("workdir", workingDir="/" + text * (part // len(text.encode()))),
            _container("term", terminationMessagePath="/" + text * (part // len(text.encode()))),
            _container("image", image=draw.choice(("a-", "a/", "a.", "A")) * (part // 2)),
            _container("env", env=[{"name": "N" * part, "value": text}]),
            _container(
                "mount", volumeMounts=[{"name": "v", "mountPath": "/" + text * (part // 4), "subPathExpr": "$(X)"}]
            ),
            _container("probe", readinessProbe={"httpGet": {"path": text * (part // 4), "port": "p" * 15}}),
            _container("hook", lifecycle={"preStop": {"exec": {"command": [text * (part // 4)]}}}),
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
    }


def _containers(draw: random.Random, size: int) -> Object:
    size = draw.choice((size, min(size, 200 * 330)))  # more than the node takes, or nearly as many
    return {"containers": _many(size, 330, lambda n: _container(f"c{n}"))}


def _init_containers(draw: random.Random, size: int) -> Object:
    policy, size = draw.choice(({}, {"restartPolicy": "Always"})), draw.choice((size, min(size, 200 * 350)))
    return {"initContainers": _many(size, 350, lambda n: _container(f"i{n}", **policy)), "containers": [_container()]}


def _absent_images(draw: random.Random, size: int) -> Object:
    size = draw.choice((size, min(size, 100 * 400)))
    return {"containers": _many(size, 400, lambda n: _container(f"c{n}", image=f"{'a' * 63}.example/absent-{n}:1"))}


def _volumes(draw: random.Random, size: int) -> Object:
    size = draw.choice((size, min(size, 950 * 140)))
    volumes = _many(size // 2, 70, lambda n: {"name": f"v{n}", "emptyDir": {}})
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]
    return {"volumes": volumes, "containers": [_container(volumeMounts=mounts)]}


def _mounts(draw: random.Random, size: int) -> Object:
    mounts = _many(size, 90, lambda n: {"name": "v", "mountPath": f"/m{n}", "subPathExpr": "$(A)"})
    env = [{"name": "A", "value": "a" * 200}]
    return {"volumes": [{"name": "v", "emptyDir": {}}], "containers": [_container(env=env, volumeMounts=mounts)]}


def _env_files(draw: random.Random, size: int) -> Object:
    def variable(number: int) -> Object:
        path = draw.choice((f"file-{number}", "./" * number + "file-0", "d/../" * number + "file-0"))
        reference = {"volumeName": "files", "path": path, "key": draw.choice(("none", "A1"))}
        return {"name": f"V{number}", "valueFrom": {"fileKeyRef": reference}}

    env = [variable(number) for number in range(min(200, size // 300))]
    mounts = [{"name": "files", "mountPath": "/files"}]
    return {"volumes": [{"name": "files", "emptyDir": {}}], "containers": [_container(env=env, volumeMounts=mounts)]}


def _ports(draw: random.Random, size: int) -> Object:
    def port(number: int) -> Object:
        return {"containerPort": number % 65_535 + 1, "hostPort": number % 65_535 + 1, "protocol": "TCP"}

    return {"containers": [_container(ports=_many(size, 65, port))]}


def _variables(draw: random.Random, size: int) -> Object:
    return {"containers": [_container(env=_many(size, 40, lambda n: {"name": f"V{n}", "value": f"$(V{n - 1})"}))]}


def _lists(draw: random.Random, size: int) -> Object:
    part = size // 8
    return {
        "hostAliases": _many(part, 60, lambda n: {"ip": "10.0.0.1", "hostnames": [f"h{n}", "h"]}),
        "dnsConfig": {
            "searches": _many(part, 40, lambda n: f"s{n}.example"),
            "nameservers": ["10.0.0.2"] * 3,
            "options": _many(part, 40, lambda n: {"name": f"o{n}", "value": "1"}),
        },
        "tolerations": _many(part, 60, lambda n: {"key": f"k{n}", "operator": "Exists"}),
        "readinessGates": _many(part, 40, lambda n: {"conditionType": f"example.com/gate-{n}"}),
        "imagePullSecrets": _many(part, 30, lambda n: {"name": f"wild-{n}"}),
        "securityContext": {
            "supplementalGroups": _many(part, 8, lambda n: n + 1),
            "sysctls": _many(part, 50, lambda n: {"name": f"net.ipv4.x{n}", "value": "1"}),
        },
        "nodeSelector": {f"k{n}": "v" for n in range(part // 20)},
        "containers": [_container()],
    }


def _quantities(draw: random.Random, size: int) -> Object:
    texts = ("1e999999999", "1" * 400, "0." + "0" * 397 + "1", "9" * 300 + "Ei", "1e-999999999", "-1", "1" * 399 + "x")
    count = size // 2 // 420
    amounts = {f"example.com/r{n}": draw.choice(texts) for n in range(count)}
    return {"containers": [_container("c", resources={"limits": amounts, "requests": dict(amounts)})]}


def _selectors(draw: random.Random, size: int) -> Object:
    def expression(number: int) -> Object:
        return {"key": f"k{number}", "operator": draw.choice(("In", "NotIn", "Gt")), "values": ["9" * 400]}

    terms = [{"matchExpressions": _many(size // 2, 480, expression)} for _ in range(2)]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    return {"affinity": affinity, "containers": [_container()]}


KINDS: dict[str, Make] = {
    "doubling": _doubling,
    "unclosed": _unclosed,
    "multiplied": _multiplied,
    "secret-keys": _keys_of_one_secret,
    "complete-objects": _whole_objects,
    "many-objects": _many_objects,
    "fields": _fields,
    "annotations": _deep_annotations,
    "long-texts": _long_texts,
    "containers": _containers,
    "init-containers": _init_containers,
    "absent-images": _absent_images,
    "volumes": _volumes,
    "mounts": _mounts,
    "env-files": _env_files,
    "ports": _ports,
    "variables": _variables,
    "lists": _lists,
    "quantities": _quantities,
    "selectors": _selectors,
}


def write_env_files(directory: Path, size: int = ENV_FILE, files: int = 30) -> None:
    """What a pod may have written into the volume that its environment names: files of very many variables."""
    (directory / "d").mkdir(parents=True)
    lines = "".join(f"A{number:x}=\n" for number in range(size // 8))
    for number in range(files):
        (directory / f"file-{number}").write_text(lines)


class HostileSources:
    """Answers what podsync asks of sources: Secrets and ConfigMaps of `size` bytes, pull secrets full of wildcards, and
    `services` Services."""

    def __init__(self, bus: Bus, seed: int, size: int = OBJECT, services: int = 50) -> None:
        draw = random.Random(seed)
        text = base64.b64encode(b"x" * 1000).decode()
        texts = {f"key-{n}": text for n in range(size // 1400 // 2)}
        self._large = {"data": {**texts, "a": text, "b": base64.b64encode(b"\xff" * (size // 4)).decode()}}
        auths = {f"{'*a' * draw.randint(1, 31)}{n}.example": {"username": "u"} for n in range(300)}
        document = base64.b64encode(orjson.dumps({"auths": auths})).decode()
        self._wild = {
            "metadata": {"namespace": "hostile", "name": "wild", "uid": "w"},
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": document},
        }
        ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
        self._services = tuple(
            {
                "metadata": {"name": f"service-{n}", "namespace": "hostile"},
                "spec": {"clusterIP": "10.0.0.1", "ports": ports},
            }
            for n in range(services)
        )
        bus.answer(GetObject, self._object)
        bus.answer(GetServices, self._all_services)

    async def _object(self, request: GetObject) -> FoundObject:
        return FoundObject(object=self._wild if request.name.startswith("wild") else self._large)

    async def _all_services(self, request: GetServices) -> FoundServices:
        return FoundServices(services=self._services, synced=True)
