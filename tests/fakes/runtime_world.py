"""What a fake container runtime holds, and what each changing call does to it: the refusals are containerd 1.6's.

Synchronous and without faults; `tests.fakes.runtime` makes calls of it.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from shared.cri.decode import ANNOTATION_HASH, LABEL_CONTAINER_NAME, restart_count
from shared.cri.interface import ImageStatus, Message, RuntimeCallError, RuntimeEvent
from shared.cri.termination import read_termination_message
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState, RuntimePod, Sandbox, SandboxState
from shared.podspec.pod_source import SOURCE, STATIC_SOURCES
from shared.time.clock import Clock
from tests.fakes.left_tasks import never_ran, refusal_of_removal, refusal_of_start

FIRST_PID = 1 << 23  # above any pid_max, so that a fake pid never names a real process


@dataclass
class _Pod:
    sandbox: Sandbox
    config: Message


@dataclass
class _Held:
    container: Container
    config: Message


class RuntimeWorld:
    """The sandboxes, containers, images and processes, and the outside hand that ends processes."""

    stop_exit_code = 143  # what a container answers a graceful stop with

    def __init__(self, clock: Clock, *, images: Iterable[str] = (), pullable: Iterable[str] = ()) -> None:
        self.clock = clock
        self.images: dict[str, ImageStatus] = {}
        self.pullable: set[str] = set(pullable)
        self.left_tasks: set[str] = set()  # containers with a task that CRI does not know of
        self.on_exit: list[Callable[[int], None]] = []  # called with the pid of each process that ends
        self._sandboxes: dict[str, _Pod] = {}
        self._containers: dict[str, _Held] = {}
        self._names: dict[str, str] = {}  # reserved name -> id
        self._unsettled: list[Callable[[], None]] = []
        self._ended_pids: set[int] = set()
        self._readers: list[asyncio.Queue[RuntimeEvent | RuntimeCallError]] = []
        self._count = 0
        for image in images:
            self.add_image(image)

    def add_image(self, name: str, *, size: int = 1000, uid: int | None = None, username: str = "") -> ImageStatus:
        """Make an image present under its name and its id."""
        image = ImageStatus(
            id=f"sha256:{hashlib.sha256(name.encode()).hexdigest()}",
            size=size,
            repo_tags=(name,),
            uid=uid,
            username=username,
        )
        self.images[name] = self.images[image.id] = image
        return image

    def exit_container(
        self, container_id: str, code: int = 0, *, reason: str = "", message: str = "", settled: bool = True
    ) -> None:
        """Its first process ends. With `settled=False` `on_exit` is called before the runtime has noticed;
        `settle_exits` lets the runtime catch up."""
        held = self._containers[container_id]
        pid = held.container.pid

        def settle() -> None:
            now = self._now()
            current = self._containers.get(container_id)
            if current is None or current.container.state is not ContainerState.RUNNING:
                return
            why = reason or ("Completed" if code == 0 else "Error")
            exited = replace(
                current.container,
                state=ContainerState.EXITED,
                finished_at=now,
                exit_code=code,
                reason=why,
                message=message,
                pid=0,
            )
            text = read_termination_message(
                current.config.get("annotations", {}),
                ((m["container_path"], m["host_path"]) for m in current.config.get("mounts", ())),
                exit_code=code,
                reason=why,
                log_path=exited.log_path,
            )
            current.container = replace(exited, termination_message=text)
            self._emit(self._uid_of(exited.sandbox_id), container_id, "STOPPED")

        self._process_ended(pid, settle, settled)

    def exit_sandbox(self, sandbox_id: str, *, settled: bool = True) -> None:
        """The sandbox's own process ends: it is NOTREADY, its containers go on."""
        pod = self._sandboxes[sandbox_id]
        pid = pod.sandbox.pid

        def settle() -> None:
            pod.sandbox = replace(pod.sandbox, state=SandboxState.NOTREADY, pid=0)
            self._emit(pod.config["metadata"]["uid"], sandbox_id, "STOPPED")

        self._process_ended(pid, settle, settled)

    def settle_exits(self) -> None:
        """The runtime notices what ended unsettled."""
        unsettled, self._unsettled = self._unsettled, []
        for settle in unsettled:
            settle()

    def emit(self, event: RuntimeEvent) -> None:
        """Send an event of the test's making (late, duplicated, made up)."""
        for reader in self._readers:
            reader.put_nowait(event)

    def break_events(self, code: str = "Unavailable", description: str = "stream broke") -> None:
        """End every open event stream with an error."""
        for reader in self._readers:
            reader.put_nowait(RuntimeCallError("GetContainerEvents", code, description))

    def pods(self) -> dict[str, RuntimePod]:
        """What it has now: not a call, so neither recorded nor touched by faults."""
        return self._observed(None, self.clock.monotonic())

    def running_pids(self) -> set[int]:
        """The pids of all processes that have not ended for the kernel."""
        pids = {pod.sandbox.pid for pod in self._sandboxes.values()}
        pids |= {held.container.pid for held in self._containers.values()}
        return pids - {0} - self._ended_pids

    @property
    def event_readers(self) -> int:
        """How many streams of GetContainerEvents are open."""
        return len(self._readers)

    def reopen_log(self, container_id: str) -> None:
        """The log file is made, where its directory is."""
        held = self._containers.get(container_id)
        if held is None:
            what = f'an error occurred when try to find container "{container_id}": not found'
            raise _not_found("ReopenContainerLog", what)
        if held.container.state is not ContainerState.RUNNING:
            raise RuntimeCallError("ReopenContainerLog", "Unknown", "container is not running")
        path = Path(held.container.log_path)
        if held.container.log_path and path.parent.is_dir():
            path.touch()

    def resources_of(self, container_id: str) -> Message:
        """The linux.resources that the container has now."""
        resources: Message = self._containers[container_id].config.get("linux", {}).get("resources", {})
        return resources

    def _update(self, container_id: str, resources: Message) -> None:
        """Zero values, which are absent, leave what the container has."""
        held = self._containers.get(container_id)
        if held is None:
            what = f'failed to find container: an error occurred when try to find container "{container_id}": not found'
            raise _not_found("UpdateContainerResources", what)
        if held.container.state not in (ContainerState.CREATED, ContainerState.RUNNING):
            why = f"failed to update resources: cannot update container in CONTAINER_{held.container.state} state"
            raise RuntimeCallError("UpdateContainerResources", "Unknown", why)
        linux = held.config.get("linux", {})
        before = linux.get("resources", {})
        held.config = {**held.config, "linux": {**linux, "resources": {**before, **resources}}}

    def refuse_exec(self, container_id: str) -> None:
        """Raise what containerd answers an ExecSync into a container that is not there or does not run."""
        held = self._containers.get(container_id)
        if held is None:
            raise _not_found(
                "ExecSync",
                f'an error occurred when try to find container "{container_id}": not found',
            )
        if held.container.state is not ContainerState.RUNNING:
            raise RuntimeCallError(
                "ExecSync",
                "Unknown",
                f"failed to exec in container: container is in CONTAINER_{held.container.state} state",
            )

    # -- what the calls do ---------------------------------------------------------------------------------------

    def _observed(self, uid: str | None, observed_at: float) -> dict[str, RuntimePod]:
        pods: dict[str, RuntimePod] = {}
        for pod in self._sandboxes.values():
            meta = pod.config["metadata"]
            if uid in (None, meta["uid"]):
                pods.setdefault(
                    meta["uid"],
                    RuntimePod(
                        uid=meta["uid"], name=meta["name"], namespace=meta["namespace"], observed_at=observed_at
                    ),
                )
        for found, pod_seen in pods.items():
            sandboxes = [p.sandbox for p in self._sandboxes.values() if p.config["metadata"]["uid"] == found]
            ids = {sandbox.id for sandbox in sandboxes}
            containers = [h.container for h in self._containers.values() if h.container.sandbox_id in ids]
            pods[found] = replace(
                pod_seen,
                sandboxes=tuple(sorted(sandboxes, key=lambda s: (-s.attempt, -s.created_at, s.id))),
                containers=tuple(sorted(containers, key=lambda c: (-c.created_at, -c.attempt, c.id))),
            )
        return pods

    def _sandbox(self, sandbox_id: str) -> Sandbox | None:
        pod = self._sandboxes.get(sandbox_id)
        return pod.sandbox if pod is not None else None

    def _container(self, container_id: str) -> Container | None:
        held = self._containers.get(container_id)
        return held.container if held is not None else None

    def _run_sandbox(self, config: Message, runtime_handler: str) -> str:
        meta = config["metadata"]
        name = "_".join((meta["name"], meta["namespace"], meta["uid"], str(meta.get("attempt", 0))))
        options = config.get("linux", {}).get("security_context", {}).get("namespace_options", {})
        host_network = options.get("network") == "NODE"
        source = config.get("annotations", {}).get(SOURCE, "")
        sandbox_id = self._reserve("RunPodSandbox", "sandbox", name)
        self._sandboxes[sandbox_id] = _Pod(
            Sandbox(
                id=sandbox_id,
                attempt=meta.get("attempt", 0),
                state=SandboxState.READY,
                created_at=self._now(),
                host_network=host_network,
                ips=() if host_network else (f"10.88.{self._count // 250}.{self._count % 250 + 2}",),
                network_reported=True,
                runtime_handler=runtime_handler,
                pid=FIRST_PID + self._count,
                static_source=source if source in STATIC_SOURCES else "",
            ),
            config,
        )
        self._emit(meta["uid"], sandbox_id, "CREATED")
        self._emit(meta["uid"], sandbox_id, "STARTED")
        return sandbox_id

    def _stop_sandbox(self, sandbox_id: str) -> None:
        pod = self._sandboxes.get(sandbox_id)
        if pod is None:
            raise _not_found("StopPodSandbox", f'an error occurred when try to find sandbox "{sandbox_id}": not found')
        for held in self._in_sandbox(sandbox_id):
            self._end(held, 137)
        if pod.sandbox.state is SandboxState.READY:
            self.exit_sandbox(sandbox_id)
        pod.sandbox = replace(pod.sandbox, ips=())

    def _remove_sandbox(self, sandbox_id: str) -> None:
        pod = self._sandboxes.get(sandbox_id)
        if pod is None:
            return
        self._stop_sandbox(sandbox_id)
        for held in self._in_sandbox(sandbox_id):
            self._remove(held.container.id)
        del self._sandboxes[sandbox_id]
        self._release(sandbox_id)
        self._emit(pod.config["metadata"]["uid"], sandbox_id, "DELETED")

    def _create(self, sandbox_id: str, config: Message, sandbox_config: Message) -> str:
        pod = self._sandboxes.get(sandbox_id)
        if pod is None:
            raise _not_found("CreateContainer", f'failed to find sandbox id "{sandbox_id}": not found')
        meta, pod_meta = config["metadata"], sandbox_config["metadata"]
        attempt = meta.get("attempt", 0)
        name = "_".join((meta["name"], pod_meta["name"], pod_meta["namespace"], pod_meta["uid"], str(attempt)))
        if pod.sandbox.state is not SandboxState.READY:
            raise _not_found(
                "CreateContainer", "failed to get sandbox container task: no running task found: not found"
            )
        container_id = self._reserve("CreateContainer", "container", name)
        image = self.images.get(config["image"]["image"])
        if image is None:
            self._release(container_id)
            wanted = config["image"]["image"]
            raise _not_found("CreateContainer", f'failed to resolve image "{wanted}": image "{wanted}": not found')
        annotations, log_path = config.get("annotations", {}), config.get("log_path", "")
        self._containers[container_id] = _Held(
            Container(
                id=container_id,
                name=config.get("labels", {}).get(LABEL_CONTAINER_NAME) or meta["name"],
                attempt=attempt,
                sandbox_id=sandbox_id,
                state=ContainerState.CREATED,
                created_at=self._now(),
                image=image.repo_tags[0],
                image_id=image.id,
                spec_hash=annotations.get(ANNOTATION_HASH, ""),
                restart_count=restart_count(annotations, attempt),
                log_path=f"{pod.config.get('log_directory', '')}/{log_path}" if log_path else "",
            ),
            config,
        )
        self._emit(pod.config["metadata"]["uid"], container_id, "CREATED")
        return container_id

    def _start(self, container_id: str) -> None:
        held = self._containers.get(container_id)
        if held is None:
            text = f'an error occurred when try to find container "{container_id}": not found'
            raise _not_found("StartContainer", text)
        if container_id in self.left_tasks:
            held.container = never_ran(held.container, self._now())
            raise refusal_of_start(container_id)
        if held.container.state is not ContainerState.CREATED:
            text = f'failed to set starting state for container "{container_id}": container is in CONTAINER_'
            raise RuntimeCallError("StartContainer", "Unknown", f"{text}{held.container.state} state")
        self._count += 1
        held.container = replace(
            held.container, state=ContainerState.RUNNING, started_at=self._now(), pid=FIRST_PID + self._count
        )
        self._emit(self._uid_of(held.container.sandbox_id), container_id, "STARTED")

    def _stop(self, container_id: str) -> None:
        held = self._containers.get(container_id)
        if held is None:
            raise _not_found(
                "StopContainer", f'an error occurred when try to find container "{container_id}": not found'
            )
        self._end(held, self.stop_exit_code)

    def _end(self, held: _Held, code: int) -> None:
        if held.container.state is ContainerState.RUNNING:
            self.exit_container(held.container.id, code)

    def _remove(self, container_id: str) -> None:
        held = self._containers.get(container_id)
        if held is None:
            return
        if container_id in self.left_tasks:
            raise refusal_of_removal(container_id)
        self._end(held, 137)
        del self._containers[container_id]
        self._release(container_id)
        self._emit(self._uid_of(held.container.sandbox_id), container_id, "DELETED")

    def _pull(self, name: str) -> str:
        if name not in self.pullable and name not in self.images:
            raise RuntimeCallError(
                "PullImage",
                "NotFound",
                f'failed to pull and unpack image "{name}": failed to resolve reference "{name}": {name}: not found',
            )
        return (self.images.get(name) or self.add_image(name)).id

    # -- small parts ---------------------------------------------------------------------------------------------

    def _reserve(self, method: str, kind: str, name: str) -> str:
        if name in self._names:
            raise RuntimeCallError(
                method,
                "Unknown",
                f'failed to reserve {kind} name "{name}": name "{name}" is reserved for "{self._names[name]}"',
            )
        self._count += 1
        self._names[name] = hashlib.sha256(f"{kind} {self._count}".encode()).hexdigest()
        return self._names[name]

    def _release(self, entry_id: str) -> None:
        self._names = {name: holder for name, holder in self._names.items() if holder != entry_id}

    def _in_sandbox(self, sandbox_id: str) -> list[_Held]:
        return [held for held in self._containers.values() if held.container.sandbox_id == sandbox_id]

    def _uid_of(self, sandbox_id: str) -> str:
        pod = self._sandboxes.get(sandbox_id)
        return str(pod.config["metadata"]["uid"]) if pod is not None else ""

    def _now(self) -> int:
        """Wall time in nanoseconds; a count in the last digits keeps creation order under a stopped clock."""
        self._count += 1
        return int(self.clock.wall() * 1e9) + self._count

    def _emit(self, uid: str, entry_id: str, kind: str) -> None:
        self.emit(RuntimeEvent(pod_uid=uid, container_id=entry_id, type=kind))

    def _process_ended(self, pid: int, settle: Callable[[], None], settled: bool) -> None:
        self._ended_pids.add(pid)
        if settled:
            settle()
        else:
            self._unsettled.append(settle)
        for callback in list(self.on_exit):
            callback(pid)


def _not_found(method: str, description: str) -> RuntimeCallError:
    return RuntimeCallError(method, "NotFound", description)
