"""Keeps the pods of this node from the API server's lists and changes, those to run and the mirrors (pods.md 1.5).

An object that cannot be understood is no reason to end a pod: its last known state stays. While a listed object cannot
be understood, no missing pod counts as deleted, and the set is not complete.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from bus.messages.sources import MirrorPod
from services.sources.core.api_objects import metadata_text, without_managed_fields
from shared.model import objects
from shared.model.objects import Object
from shared.podspec.containers import every_container
from shared.podspec.defaults import apply_defaults
from shared.podspec.pod_source import MIRROR, is_mirror
from shared.podspec.schema import plain_copy, type_errors
from shared.podspec.volume_types import VOLUME_TYPES

# The UID becomes the name of a directory and of a cgroup.
_UID = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]{0,126}[A-Za-z0-9])?", re.ASCII)


class UnreadablePod(Exception):  # noqa: N818 - the counterpart of InvalidPod
    """The API server sent an object that is no valid pod; `str()` is one line."""


@dataclass
class ApiPods:
    """The pods of one node in the API server. `notices` collects lines for the log; the caller clears it."""

    node_name: str
    listed: bool = field(default=False, init=False)
    notices: list[str] = field(default_factory=list, init=False)
    _pods: list[Object] = field(default_factory=list, init=False)  # in the order of the list, then of arrival
    _unreadable: dict[str, str] = field(default_factory=dict, init=False)  # <name>_<namespace> or "" -> what is wrong

    @property
    def complete(self) -> bool:
        """Return whether the API server was listed, and every pod of this node was understood."""
        return self.listed and not self._unreadable

    @property
    def problems(self) -> tuple[str, ...]:
        """Return one line for each object that cannot be understood now."""
        return tuple(self._unreadable.values())

    @property
    def to_run(self) -> list[Object]:
        """Return the pods that are no mirrors, with defaults."""
        return [pod for pod in self._pods if not is_mirror(pod)]

    @property
    def mirrors(self) -> dict[str, MirrorPod]:
        """Return the mirror pods by full name."""
        return {
            objects.full_name(pod): MirrorPod(
                uid=objects.uid(pod),
                name=objects.name(pod),
                namespace=objects.namespace(pod),
                config_hash=objects.annotations(pod)[MIRROR],
                pod=pod,
            )
            for pod in self._pods
            if is_mirror(pod)
        }

    def restore(self, items: list[Any]) -> None:
        """Begin with pods that were known before; the API server was not listed."""
        self.replace(items)
        self.listed, self._unreadable = False, {}

    def replace(self, items: list[Any]) -> None:
        """Replace all pods by those of a complete list."""
        known = {identity(pod): pod for pod in self._pods}
        noted, self._unreadable = self._unreadable, {}
        pods: list[Object] = []
        for item in items:
            try:
                pod = self._read(item, known.get(name := identity(item)))
            except UnreadablePod as problem:
                self._unreadable[name] = str(problem)
                if noted.get(name) != str(problem):
                    self.notices.append(f"{problem}; {_standing(known.get(name))}")
                if name in known:
                    pods.append(known[name])
                continue
            if pod is not None:
                pods.append(pod)
        if "" in self._unreadable:  # the unnamed object may be any of the pods that seem to be absent
            there = {objects.uid(pod) for pod in pods}
            pods += [pod for pod in self._pods if objects.uid(pod) not in there]
        self._pods, self.listed = pods, True

    def change(self, kind: str, item: Any) -> None:
        """Apply one change: ADDED, MODIFIED or DELETED."""
        name = identity(item)
        if kind == "DELETED":
            if not name:
                self.notices.append("the API server reports that a pod was deleted, but not which one; ignored")
                return
            uid = metadata_text(item, "uid")
            self._forget(name, uid)
            return
        place = self._place(name)
        known = self._pods[place] if place is not None else None
        try:
            pod = self._read(item, known)
        except UnreadablePod as problem:
            if self._unreadable.get(name) != str(problem):
                self.notices.append(f"{problem}; {_standing(known)}")
            if name:  # without a name, no later change could end the problem
                self._unreadable[name] = str(problem)
            return
        self._unreadable.pop(name, None)
        if pod is None:
            self._forget(name, objects.uid(item))
            return
        if place is not None and known is not None and objects.uid(known) == objects.uid(pod):
            self._pods[place] = pod
        else:  # the API has one pod for each name, so a pod with another UID replaces the earlier one
            self._pods = [known for known in self._pods if not _has_name(known, name)] + [pod]

    def _place(self, name: str) -> int | None:
        return next((index for index, known in enumerate(self._pods) if _has_name(known, name)), None)

    def _forget(self, name: str, uid: str) -> None:
        self._unreadable.pop(name, None)
        self._pods = [pod for pod in self._pods if not _has_name(pod, name) or uid not in ("", objects.uid(pod))]

    def _read(self, item: Any, known: Object | None) -> Object | None:
        """Return the pod with defaults; None when it is bound to another node. Raises UnreadablePod."""
        pod = read_pod(item, known)
        node = pod["spec"]["nodeName"]
        if node == self.node_name:
            return pod
        self.notices.append(f"pod {objects.describe(pod)} is bound to node {node} and not to this one")
        return None


def _has_name(pod: Object, name: str) -> bool:
    """Return whether a pod that was read has this `<name>_<namespace>`."""
    metadata = pod["metadata"]
    return name.startswith(metadata["name"]) and name == f"{metadata['name']}_{metadata['namespace']}"


def identity(item: Any) -> str:
    """Return `<name>_<namespace>` of any object; "" when it has none."""
    name, namespace = metadata_text(item, "name"), metadata_text(item, "namespace")
    return f"{name}_{namespace}" if name and namespace else ""


def read_pod(item: Any, known: Object | None = None) -> Object:
    """Return the pod that the API server sent, without managedFields and with defaults; `item` stays as it was.

    A spec that equals that of `known`, the same pod as it was read before, is taken from it, because most changes are
    of the status alone. Raises UnreadablePod for an object without identity, node or containers, or with known fields
    of another type.
    """
    label = f"pod {identity(item) or '(unnamed)'} from the API server"
    if not isinstance(item, dict):
        raise UnreadablePod(f"{label} cannot be understood: it is no object")
    spec_read = known is not None and item.get("spec") == known["spec"]
    rest = {key: value for key, value in item.items() if key != "spec"} if spec_read else item
    pod, errors = plain_copy(without_managed_fields(rest), nul=True)
    errors = errors or type_errors(pod)
    if errors:
        raise UnreadablePod(f"{label} cannot be understood: {'; '.join(errors[:3])}")
    if known is not None and spec_read:
        pod["spec"] = known["spec"]
    spec = pod.get("spec") or {}
    missing = [f"metadata.{key}" for key in ("name", "namespace", "uid") if not metadata_text(pod, key)]
    missing += [f"spec.{key}" for key in ("nodeName", "containers") if not spec.get(key)]
    missing += [] if isinstance(pod.get("status", {}), dict) else ["a readable status"]
    missing += [] if spec_read else _unnamed(pod)
    if missing:
        raise UnreadablePod(f"{label} cannot be understood: it lacks {', '.join(missing)}")
    if not _UID.fullmatch(objects.uid(pod)):
        raise UnreadablePod(f"{label} cannot be understood: its UID is no name for a directory")
    return pod if spec_read else _defaulted(pod)


def _defaulted(pod: Object) -> Object:
    spec = pod["spec"]
    unknown = [volume for volume in spec.get("volumes") or () if volume.keys() - {"name"} - VOLUME_TYPES.keys()]
    kinds = [set(volume) for volume in unknown]
    apply_defaults(pod)
    for volume, before in zip(unknown, kinds, strict=True):
        if "emptyDir" not in before:  # a type of volume that this version does not know is no emptyDir
            volume.pop("emptyDir", None)
    return pod


def _unnamed(pod: Object) -> list[str]:
    """Return the parts without the name or path that identifies them, which the API server would have refused."""
    spec, containers = pod.get("spec") or {}, [container for _, container in every_container(pod)]
    mounts = [mount for container in containers for mount in container.get("volumeMounts") or ()]
    kinds = {
        "a container's name": (containers, "name"),
        "a volume mount's name": (mounts, "name"),
        "a volume mount's mountPath": (mounts, "mountPath"),
        "a volume's name": (spec.get("volumes") or (), "name"),
        "a sysctl's name": ((spec.get("securityContext") or {}).get("sysctls") or (), "name"),
    }
    return [what for what, (parts, key) in kinds.items() if not all(part.get(key) for part in parts)]


def _standing(pod: Object | None) -> str:
    return "it is left out" if pod is None else "it stays as it was known"
