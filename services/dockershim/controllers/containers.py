"""Containers of pods: made, started, stopped, removed and shown."""

import asyncio
import os
from pathlib import Path
from typing import Any

from cri_api.v1 import api_pb2

from services.dockershim.adapters.engine import Engine, Json
from services.dockershim.adapters.statuses import (
    container_entry,
    container_status,
    identity_of,
    state_of,
    verbose_info,
)
from services.dockershim.controllers.log_files import LogFiles
from services.dockershim.controllers.profiles import read_profile
from services.dockershim.controllers.sandboxes import Sandboxes, reserved
from services.dockershim.core.create_requests import Host, container_body, container_identity
from services.dockershim.core.errors import CallError, not_found
from services.dockershim.core.identity import CONTAINER, SANDBOX_ID, TYPE, name_of, parse_name
from services.dockershim.core.resources import resources_of
from services.dockershim.core.security import localhost_seccomp
from shared.process.crash import crash_point


class Containers:
    """Answers the calls about containers."""

    def __init__(self, engine: Engine, sandboxes: Sandboxes, logs: LogFiles, host: Host) -> None:
        self._engine, self._sandboxes, self._logs, self._host = engine, sandboxes, logs, host

    async def create(self, sandbox_id: str, config: Any, sandbox_config: Any) -> str:
        """CreateContainer: return the id of a container that does not run. Raises CallError."""
        sandbox = await self._sandboxes.find_identity(sandbox_id)
        pod = parse_name(sandbox["Name"])
        assert pod is not None
        image = await self._engine.image(config.image.image)
        if image is None:
            raise not_found("image", config.image.image)
        profile = await asyncio.to_thread(read_profile, localhost_seccomp(config.linux.security_context))
        body = container_body(config, sandbox_config, sandbox["Id"], image["Id"], self._host, profile)
        await asyncio.to_thread(_make_sources, [mount.host_path for mount in config.mounts if mount.host_path])
        identity = container_identity(config, pod)
        try:
            made = await self._engine.create(name_of(identity), body)
        except CallError as error:
            if error.code == "FailedPrecondition":
                holder = (await self._engine.inspect(name_of(identity)))["Id"]
                raise reserved("container", identity.reserved_name, holder) from None
            raise
        crash_point("dockershim.container.created")
        return made

    async def start(self, container_id: str) -> None:
        """StartContainer. Raises CallError: NotFound, or Unknown for one that was started before."""
        inspected = await self._find(container_id)
        state = state_of(inspected)
        if state != api_pb2.CONTAINER_CREATED:
            raise CallError("Unknown", f"container is in {api_pb2.ContainerState.Name(state)} state")
        await asyncio.to_thread(self._logs.make, inspected)
        try:
            await self._engine.start(container_id)
        except CallError as error:
            # Docker's code for a program that cannot be run is 400; CRI's for a failed start is Unknown.
            code = error.code if error.code in ("Unavailable", "DeadlineExceeded") else "Unknown"
            raise CallError(code, f"failed to start container {container_id!r}: {error}") from None
        crash_point("dockershim.container.started")
        self._logs.open(await self._engine.inspect(container_id))  # Docker names its own log from the start on

    async def stop(self, container_id: str, grace: int) -> None:
        """StopContainer: return when it has ended and its log is complete. Raises CallError NotFound."""
        inspected = await self._find(container_id)
        if state_of(inspected) == api_pb2.CONTAINER_RUNNING:
            await self._engine.stop(container_id, max(grace, 0))
            crash_point("dockershim.container.stopped")
            await self._logs.drain(container_id)

    async def remove(self, container_id: str) -> None:
        """RemoveContainer, running or not. One that is not there is no error."""
        try:
            await self._find(container_id)
        except CallError as error:
            if error.code == "NotFound":
                return
            raise
        await self._engine.remove(container_id)
        crash_point("dockershim.container.removed")
        self._logs.close(container_id)

    async def update(self, container_id: str, resources: Any) -> None:
        """UpdateContainerResources. Raises CallError."""
        await self._find(container_id)
        await self._engine.update(container_id, resources_of(resources))

    async def reopen_log(self, container_id: str) -> None:
        """ReopenContainerLog. Raises CallError: Unknown where it does not run."""
        inspected = await self._find(container_id)
        if state_of(inspected) != api_pb2.CONTAINER_RUNNING:
            raise CallError("Unknown", "container is not running")
        await self._logs.reopen(inspected)

    async def status(self, container_id: str, verbose: bool) -> Any:
        """ContainerStatus. Raises CallError NotFound."""
        inspected = await self._find(container_id)
        if state_of(inspected) == api_pb2.CONTAINER_EXITED:
            await self._logs.drain(inspected["Id"])
        image = await self._engine.image(inspected["Image"])
        status = container_status(inspected, image or {})
        return api_pb2.ContainerStatusResponse(status=status, info=verbose_info(inspected) if verbose else {})

    async def list(self, wanted: Any) -> Any:
        """ListContainers with its filter."""
        labels = [f"{TYPE}={CONTAINER}", *(f"{name}={value}" for name, value in wanted.label_selector.items())]
        if wanted.pod_sandbox_id:
            labels.append(f"{SANDBOX_ID}={wanted.pod_sandbox_id}")
        entries = []
        for listed in await self._engine.containers(labels):
            failed = listed["State"] == "created" and await self._has_failed(listed["Id"])
            entry = container_entry(listed, failed)
            if entry is None or (wanted.id and not entry.id.startswith(wanted.id)):
                continue
            if wanted.HasField("state") and wanted.state.state != entry.state:
                continue
            entries.append(entry)
        return api_pb2.ListContainersResponse(containers=entries)

    async def _has_failed(self, container_id: str) -> bool:
        try:
            return state_of(await self._engine.inspect(container_id)) == api_pb2.CONTAINER_EXITED
        except CallError as error:
            if error.code == "NotFound":
                return False
            raise

    async def _find(self, container_id: str) -> Json:
        """Return an inspected container of a pod. Raises CallError NotFound, also for somebody else's container."""
        inspected = await self._engine.inspect(container_id)
        identity = identity_of(inspected)
        if identity is None or not identity.container:
            raise not_found("container", container_id)
        return inspected


def _make_sources(paths: list[str]) -> None:
    """Make the directories that are mounted and missing, as other runtimes do. Raises CallError; blocks."""
    for path in paths:
        try:
            if not os.path.lexists(path):
                Path(path).mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            raise CallError("Unknown", f"the directory {path} to mount cannot be made: {error.strerror}") from None
