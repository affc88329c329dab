"""Has what this process has made, saved, published and computed for a pod: frozen values.
None of it is saved: the next process makes and publishes it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from services.podsync.core.pod.published import Published
from services.podsync.core.pod.saved import Attempts, Pod, Saved
from shared.podspec.containers import ContainerKind, every_container
from shared.podspec.resources import ResourceList, pod_requests


@dataclass(frozen=True, kw_only=True)
class PodSetup:
    """Has what was made and removed for the pod outside the runtime."""

    prepared: bool = False  # whether directories and cgroup were made
    cgroup_missing: bool = False  # whether containers run without it: they are stopped before it is made
    resources: Mapping[str, Any] | None = None  # as the pod's cgroup has them; None = not read by this process
    released: bool = False  # whether the cgroup was destroyed
    logs_removed: bool = False
    stopped_sandboxes: frozenset[str] = frozenset()  # ids of those for which StopPodSandbox succeeded


@dataclass(frozen=True, kw_only=True)
class LastWritten:
    """Has what was saved and published last: only a change is saved and published again."""

    saved: tuple[Saved, Attempts] | None = None  # of the newest SavePod
    version: int = 0  # number of the newest status within this boot
    status: dict[str, Any] = field(default_factory=dict)
    container_ids: tuple[str, ...] = ()  # of the running instances, published with the status
    published: Published | None = None
    published_from: Saved | None = None  # the value that `published` was compared with last


@dataclass(frozen=True, eq=False)
class PodVersion:
    """Has one version of the pod's object, and values that depend on it alone, computed when they are first read."""

    pod: Pod
    # What the status shows of this version; the room `status` fills it.
    shown: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def containers(self) -> dict[str, tuple[ContainerKind, dict[str, Any]]]:
        """The kind and spec of each container by name; the first of a name counts."""
        named: dict[str, tuple[ContainerKind, dict[str, Any]]] = {}
        for kind, spec in every_container(self.pod):
            named.setdefault(str(spec.get("name")), (kind, spec))
        return named

    @cached_property
    def requests(self) -> ResourceList:
        """The total requests of the pod, which must not be changed in place."""
        return pod_requests(self.pod)
