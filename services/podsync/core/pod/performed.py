"""What this process has made, saved and published for a pod, and what it made of the pod's object: frozen values.

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
    """What was made and removed outside of the runtime's pod."""

    prepared: bool = False  # directories and cgroup
    cgroup_missing: bool = False  # while containers run: they are stopped before it is made
    resources: Mapping[str, Any] | None = None  # as the pod's cgroup has them; None = not read by this process
    released: bool = False  # the cgroup was destroyed
    logs_removed: bool = False
    stopped_sandboxes: frozenset[str] = frozenset()  # ids; StopPodSandbox succeeded


@dataclass(frozen=True, kw_only=True)
class LastWritten:
    """What was saved and published last: only a change is saved and published again."""

    saved: tuple[Saved, Attempts] | None = None  # what the newest SavePod holds
    version: int = 0  # number of the newest status within this boot
    status: dict[str, Any] = field(default_factory=dict)
    container_ids: tuple[str, ...] = ()  # of the running instances, published with the status
    published: Published | None = None
    published_from: Saved | None = None  # the value that `published` was compared with last


@dataclass(frozen=True, eq=False)
class PodVersion:
    """One version of the pod's object, with what depends on it alone: computed when it is first read."""

    pod: Pod
    shown: dict[str, Any] = field(default_factory=dict)  # what the status shows of it; filled by the room `status`

    @cached_property
    def containers(self) -> dict[str, tuple[ContainerKind, dict[str, Any]]]:
        """Kind and spec of each container by name; the first of a name counts."""
        named: dict[str, tuple[ContainerKind, dict[str, Any]]] = {}
        for kind, spec in every_container(self.pod):
            named.setdefault(str(spec.get("name")), (kind, spec))
        return named

    @cached_property
    def requests(self) -> ResourceList:
        """What the pod requests in total; it is not to be changed."""
        return pod_requests(self.pod)
