"""Lists and inspects what the runtime has, pod by pod, asking only for what can have changed since the last time.

Two list calls show every id and state; an inspection costs the runtime a look at the task, so its answer is kept for
as long as its state in the list shows that nothing in it can have changed. Decides nothing about pods.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cri_api.v1 import api_pb2
from msgspec import Struct

from shared.cri.channel import CriChannel
from shared.cri.decode import (
    LABEL_POD_NAME,
    LABEL_POD_NAMESPACE,
    LABEL_POD_UID,
    container_state,
    decode_container,
    decode_sandbox,
    sandbox_state,
)
from shared.cri.interface import PartialObservationError, RuntimeCallError
from shared.cri.lists import Lists
from shared.cri.termination import read_termination_message
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState, RuntimePod, Sandbox, SandboxState

EXIT_SETTLING_SECONDS = 2.0  # the runtime learns of an OOM kill apart from the exit and may add it afterwards
# Seconds. For the verbose status of a sandbox containerd asks the shim; one that hangs costs us the pid, not the pod.
VERBOSE_TIMEOUT_SECONDS = 5.0
_MAX_INSPECTIONS = 8  # requests for a status that run at the same time
_NO_ANSWER = ("Unavailable", "Canceled")  # errors that are not about the one pod


class _Inspected(Struct, frozen=True):
    """An answer that is kept, of which pod, and when it was first seen in this state."""

    value: Sandbox | Container
    uid: str  # "" = a container without the label
    since: float
    at: float


@dataclass
class _Found:
    """One pod as the two lists show it."""

    uid: str
    name: str = ""
    namespace: str = ""
    sandboxes: list[Any] = field(default_factory=list)
    containers: list[Any] = field(default_factory=list)


class Observer:
    """Builds `RuntimePod`s. Several observations may run at the same time."""

    def __init__(
        self,
        channel: CriChannel,
        lists: Lists,
        timeout: float,
        monotonic: Callable[[], float],
        *,
        pids: bool = True,
    ) -> None:
        self._channel, self._lists = channel, lists
        self._timeout, self._monotonic, self._pids = timeout, monotonic, pids
        self._kept: dict[str, _Inspected] = {}
        self._ids: dict[str, set[str]] = {}  # pod UID -> what is kept of the pod, and perhaps what is no longer kept
        self._unlabelled: set[str] = set()  # UIDs of pods of which a list by label would not show everything
        self._slots = asyncio.Semaphore(_MAX_INSPECTIONS)

    async def observe(self, uid: str | None = None) -> dict[str, RuntimePod]:
        """Return all pods by UID, or the one; see `shared.cri.interface.Runtime.observe`."""
        observed_at = self._monotonic()
        selector: dict[str, str] = {}
        if uid is not None and uid not in self._unlabelled:
            selector[LABEL_POD_UID] = uid
        # Containers first: every container listed then finds its sandbox in the younger list.
        containers = await self._list(
            "ListContainers",
            api_pb2.ListContainersRequest(filter=api_pb2.ContainerFilter(label_selector=selector)),
            narrow=bool(selector),
        )
        sandboxes = await self._list(
            "ListPodSandbox",
            api_pb2.ListPodSandboxRequest(filter=api_pb2.PodSandboxFilter(label_selector=selector)),
            narrow=bool(selector),
        )
        found = self._group(sandboxes.items, containers.containers)
        listed = {entry.id for entry in sandboxes.items} | {entry.id for entry in containers.containers}
        # An observation that runs beside this one may have kept something newer than these lists.
        known = self._kept if uid is None else self._ids.get(uid, ())
        for key in [key for key in known if key not in listed]:
            if (kept := self._kept.get(key)) is not None and kept.at < observed_at:
                del self._kept[key]
        self._index(found, uid)
        wanted = [pod for pod in found.values() if uid in (None, pod.uid)]
        seen, errors = await self._look_at(wanted)
        assembled = (_assemble(pod, seen, observed_at) for pod in wanted if pod.uid not in errors)
        pods = {pod.uid: pod for pod in assembled if pod.sandboxes or pod.containers}
        if errors:
            first = next(iter(errors.values()))
            raise first if uid is not None else PartialObservationError(first, pods, frozenset(errors))
        return pods

    async def _list(self, method: str, request: Any, *, narrow: bool) -> Any:
        """Return a list. That of one pod is never long, and costs less as one answer."""
        if narrow:
            return await self._channel.call(self._channel.runtime, method, request, self._timeout)
        return await self._lists.whole(self._channel.runtime, method, request)

    def _index(self, found: Mapping[str, _Found], uid: str | None) -> None:
        """Note what of each listed pod is kept or about to be."""
        if uid is None:
            self._ids = {}
            for key, kept in self._kept.items():
                self._ids.setdefault(self._pod_of(kept), set()).add(key)
        else:
            self._ids[uid] = {key for key in self._ids.get(uid, ()) if key in self._kept}
        for pod in found.values():
            self._ids.setdefault(pod.uid, set()).update(entry.id for entry in (*pod.sandboxes, *pod.containers))
        if uid is not None and not self._ids[uid]:
            del self._ids[uid]

    def _group(self, sandboxes: Iterable[Any], containers: Iterable[Any]) -> dict[str, _Found]:
        """Group containers by the UID in their sandbox's metadata; a container without a sandbox by its own label."""
        found: dict[str, _Found] = {}
        uid_of: dict[str, str] = {}
        for entry in sandboxes:
            meta = entry.metadata
            if not (entry.HasField("metadata") and meta.uid):
                continue
            pod = found.setdefault(meta.uid, _Found(meta.uid, meta.name, meta.namespace))
            pod.sandboxes.append(entry)
            uid_of[entry.id] = meta.uid
            if entry.labels.get(LABEL_POD_UID) != meta.uid:
                self._unlabelled.add(meta.uid)
        for entry in containers:
            uid = uid_of.get(entry.pod_sandbox_id) or entry.labels.get(LABEL_POD_UID, "")
            if not (uid and entry.HasField("metadata")):
                continue
            name, namespace = entry.labels.get(LABEL_POD_NAME, ""), entry.labels.get(LABEL_POD_NAMESPACE, "")
            found.setdefault(uid, _Found(uid, name, namespace)).containers.append(entry)
            if entry.labels.get(LABEL_POD_UID) != uid:
                self._unlabelled.add(uid)
        return found

    async def _look_at(
        self, found: Iterable[_Found]
    ) -> tuple[dict[str, Sandbox | Container], dict[str, RuntimeCallError]]:
        """Return every listed sandbox and container by id: as kept, else inspected now; what vanished is absent.

        Also the errors by pod UID: one pod that cannot be inspected must not hide the others.
        """
        seen: dict[str, Sandbox | Container] = {}
        errors: dict[str, RuntimeCallError] = {}
        uids: list[str] = []
        inspections: list[Coroutine[Any, Any, Sandbox | Container | None]] = []
        for pod in found:
            for entry in pod.sandboxes:
                kept = self._kept.get(entry.id)
                if kept is not None and _sandbox_holds(kept, sandbox_state(entry.state)):
                    seen[entry.id] = kept.value
                else:
                    verbose = self._pids and sandbox_state(entry.state) is SandboxState.READY
                    inspections.append(self.inspect_sandbox(entry.id, verbose=verbose))
                    uids.append(pod.uid)
            for entry in pod.containers:
                kept = self._kept.get(entry.id)
                if kept is not None and _container_holds(kept, container_state(entry.state), self._monotonic()):
                    seen[entry.id] = kept.value
                else:
                    # Listed as created it may be running by now, so the pid is asked for unless it is over.
                    verbose = self._pids and container_state(entry.state) is not ContainerState.EXITED
                    inspections.append(self.inspect_container(entry.id, entry.pod_sandbox_id, verbose=verbose))
                    uids.append(pod.uid)
        for uid, value in zip(uids, await asyncio.gather(*inspections, return_exceptions=True), strict=True):
            if isinstance(value, RuntimeCallError):
                if value.code in _NO_ANSWER:
                    raise value
                errors.setdefault(uid, value)
            elif isinstance(value, BaseException):
                raise value
            elif value is not None:
                seen[value.id] = value
        return seen, errors

    async def inspect_sandbox(self, sandbox_id: str, *, verbose: bool = False) -> Sandbox | None:
        """Return the sandbox as it is now; None where there is none. Only a verbose answer names its process."""
        request = api_pb2.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id, verbose=verbose)
        response = await self._inspect("PodSandboxStatus", sandbox_id, request)
        if response is None:
            return None
        sandbox = decode_sandbox(response)
        self._keep(sandbox, response.status.metadata.uid)
        return sandbox

    async def inspect_container(self, container_id: str, sandbox_id: str, *, verbose: bool = False) -> Container | None:
        """Return the container as it is now, with its termination message once it is over; None where there is none."""
        request = api_pb2.ContainerStatusRequest(container_id=container_id, verbose=verbose)
        response = await self._inspect("ContainerStatus", container_id, request)
        if response is None:
            return None
        container = decode_container(response, sandbox_id)
        if container.state is ContainerState.EXITED:
            kept = self._kept.get(container.id)
            if kept is not None and kept.value.state is ContainerState.EXITED and isinstance(kept.value, Container):
                # Read once: by now the pod's directory may be on its way out.
                message = kept.value.termination_message
            else:
                message = _termination_message(response.status)
            container = replace(container, termination_message=message)
        self._keep(container, response.status.labels.get(LABEL_POD_UID, ""))
        return container

    async def _inspect(self, method: str, entry_id: str, request: Any) -> Any:
        """Return the status, or None for what vanished since it was listed."""
        timeout = min(VERBOSE_TIMEOUT_SECONDS, self._timeout) if request.verbose else self._timeout
        async with self._slots:
            try:
                return await self._channel.call(self._channel.runtime, method, request, timeout)
            except RuntimeCallError as error:
                if error.code == "NotFound":
                    self._kept.pop(entry_id, None)
                    return None
                if not (request.verbose and error.code == "DeadlineExceeded"):
                    raise
            request.verbose = False
            return await self._channel.call(self._channel.runtime, method, request, self._timeout)

    def _pod_of(self, kept: _Inspected) -> str:
        """Return the UID of a container's pod: that of its sandbox, as long as it is known, else that of its label."""
        sandbox = self._kept.get(kept.value.sandbox_id) if isinstance(kept.value, Container) else None
        return sandbox.uid if sandbox is not None else kept.uid

    def _keep(self, value: Sandbox | Container, uid: str) -> None:
        now, kept = self._monotonic(), self._kept.get(value.id)
        since = kept.since if kept is not None and kept.value.state is value.state else now
        kept = self._kept[value.id] = _Inspected(value, uid, since, now)
        self._ids.setdefault(self._pod_of(kept), set()).add(value.id)


def _sandbox_holds(kept: _Inspected, state: SandboxState) -> bool:
    """Return whether a kept sandbox needs no new look. One that is ready but has no address yet may still get one."""
    value = kept.value
    if not isinstance(value, Sandbox) or value.state is not state:
        return False
    return state is SandboxState.NOTREADY or value.host_network or bool(value.ips)


def _container_holds(kept: _Inspected, state: ContainerState, now: float) -> bool:
    """Return whether a kept container needs no new look: only an exit gets a second one, once it had time to settle."""
    value = kept.value
    if not isinstance(value, Container) or value.state is not state or state is ContainerState.UNKNOWN:
        return False
    settled = kept.at - kept.since >= EXIT_SETTLING_SECONDS
    return state is not ContainerState.EXITED or settled or now - kept.since < EXIT_SETTLING_SECONDS


def _assemble(found: _Found, seen: Mapping[str, Sandbox | Container], observed_at: float) -> RuntimePod:
    sandboxes = [value for entry in found.sandboxes if isinstance(value := seen.get(entry.id), Sandbox)]
    containers = [value for entry in found.containers if isinstance(value := seen.get(entry.id), Container)]
    return RuntimePod(
        uid=found.uid,
        name=found.name,
        namespace=found.namespace,
        observed_at=observed_at,
        # Newest sandbox: highest attempt, then latest creation (pods.md 5.2); newest container: latest
        # creation, because attempts of different names do not compare.
        sandboxes=tuple(sorted(sandboxes, key=lambda s: (-s.attempt, -s.created_at, s.id))),
        containers=tuple(sorted(containers, key=lambda c: (-c.created_at, -c.attempt, c.id))),
    )


def _termination_message(status: Any) -> str:
    return read_termination_message(
        status.annotations,
        ((mount.container_path, mount.host_path) for mount in status.mounts),
        exit_code=status.exit_code,
        reason=status.reason,
        log_path=status.log_path,
    )
