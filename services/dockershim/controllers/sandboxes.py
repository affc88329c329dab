"""Pod sandboxes: pause containers of Docker with their network."""

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cri_api.v1 import api_pb2

from services.dockershim.adapters.engine import Engine, Json
from services.dockershim.adapters.network import Networks
from services.dockershim.adapters.statuses import (
    container_entry,
    identity_of,
    is_running,
    sandbox_entry,
    sandbox_status,
    verbose_info,
)
from services.dockershim.controllers.profiles import read_profile
from services.dockershim.core.cni_requests import Attachment, capabilities_of, resolv_conf
from services.dockershim.core.create_requests import Host, sandbox_body, sandbox_identity
from services.dockershim.core.errors import CallError, not_found
from services.dockershim.core.identity import CONTAINER, SANDBOX, SANDBOX_ID, TYPE, name_of
from services.dockershim.core.security import localhost_seccomp
from shared.process.crash import crash_point

log = logging.getLogger(__name__)


class Sandboxes:
    """Answers the calls about sandboxes. Calls about one sandbox run one after another."""

    def __init__(self, engine: Engine, networks: Networks, host: Host) -> None:
        self._engine, self._networks, self._host = engine, networks, host
        self._locks: dict[str, asyncio.Lock] = {}

    async def run(self, config: Any, runtime_handler: str) -> str:
        """RunPodSandbox: return the id of a sandbox that has its network. Raises CallError."""
        identity = sandbox_identity(config)
        name = name_of(identity)
        profile = await asyncio.to_thread(read_profile, localhost_seccomp(config.linux.security_context))
        body = sandbox_body(config, self._host, runtime_handler, profile)
        try:
            sandbox_id = await self._engine.create(name, body)
        except CallError as error:
            if error.code == "FailedPrecondition":
                holder = (await self._engine.inspect(name))["Id"]
                raise reserved("sandbox", identity.reserved_name, holder) from None
            if error.code == "NotFound":
                image = self._host.sandbox_image
                raise CallError("NotFound", f"the image of sandboxes, {image}, is not present: pull it") from None
            raise
        crash_point("dockershim.sandbox.created")
        async with self._lock(sandbox_id):
            await self._engine.start(sandbox_id)
            crash_point("dockershim.sandbox.started")
            inspected = await self._engine.inspect(sandbox_id)
            if config.HasField("dns_config"):
                path, text = Path(inspected["ResolvConfPath"]), resolv_conf(config.dns_config)
                await asyncio.to_thread(_write_in_place, path, text)
            if _has_own_network(inspected):
                attachment = Attachment(
                    sandbox_id=sandbox_id,
                    name=identity.name,
                    namespace=identity.namespace,
                    uid=identity.uid,
                    capabilities=capabilities_of(config),
                )
                await self._set_up(attachment, inspected["State"]["Pid"])
        return sandbox_id

    async def stop(self, sandbox_id: str) -> None:
        """StopPodSandbox: end its containers and its network, then itself. One that is not there is no error."""
        async with self._lock(sandbox_id):
            inspected = await self._find(sandbox_id)
            if inspected is not None and ((identity := identity_of(inspected)) is None or identity.container):
                raise not_found("sandbox", sandbox_id)  # someone else's container
            for container in await self._containers_of(sandbox_id):
                if container["State"] != "created":
                    await self._engine.stop(container["Id"], 0)
            crash_point("dockershim.sandbox.emptied")
            inspected = await self._find(sandbox_id)  # again: its process may have ended meanwhile
            running = inspected is not None and is_running(inspected)
            pid = inspected["State"]["Pid"] if inspected is not None and running else 0
            await self._networks.tear_down(sandbox_id, pid)
            if running:
                await self._engine.stop(sandbox_id, 0)
            crash_point("dockershim.sandbox.stopped")

    async def remove(self, sandbox_id: str) -> None:
        """RemovePodSandbox: remove it and its containers. One that is not there is no error."""
        await self.stop(sandbox_id)
        for container in await self._containers_of(sandbox_id):
            await self._engine.remove(container["Id"])
        await self._engine.remove(sandbox_id)
        crash_point("dockershim.sandbox.removed")
        self._locks.pop(sandbox_id, None)

    async def status(self, sandbox_id: str, verbose: bool) -> Any:
        """PodSandboxStatus. Raises CallError NotFound."""
        inspected = await self._find(sandbox_id)
        record = self._networks.find(sandbox_id)
        status = None
        if inspected is not None:
            addresses = record.addresses if record is not None else ()
            status = sandbox_status(inspected, addresses, self._is_connected(inspected["HostConfig"], sandbox_id))
        if inspected is None or status is None:
            raise not_found("sandbox", sandbox_id)
        info = verbose_info(inspected) if verbose else {}
        return api_pb2.PodSandboxStatusResponse(status=status, info=info)

    async def list(self, wanted: Any) -> Any:
        """ListPodSandbox with its filter."""
        labels = [f"{TYPE}={SANDBOX}", *(f"{name}={value}" for name, value in wanted.label_selector.items())]
        entries = []
        for listed in await self._engine.containers(labels):
            entry = sandbox_entry(listed, self._is_connected_listed(listed))
            if entry is None or (wanted.id and not entry.id.startswith(wanted.id)):
                continue
            if wanted.HasField("state") and wanted.state.state != entry.state:
                continue
            entries.append(entry)
        return api_pb2.ListPodSandboxResponse(items=entries)

    async def find_identity(self, sandbox_id: str) -> Json:
        """Return an inspected sandbox. Raises CallError NotFound for one that is not there."""
        inspected = await self._find(sandbox_id)
        identity = None if inspected is None else identity_of(inspected)
        if inspected is None or identity is None or identity.container:
            raise not_found("sandbox", sandbox_id)
        return inspected

    async def remove_lost_networks(self) -> None:
        """End the networks of sandboxes that Docker no longer has: they were removed by hand, or with its data."""
        recorded = self._networks.sandboxes()  # first: a sandbox is made before its record, so that it is listed
        present = {listed["Id"] for listed in await self._engine.containers([f"{TYPE}={SANDBOX}"])}
        for sandbox_id in recorded - present:
            try:
                async with self._lock(sandbox_id):
                    await self._networks.tear_down(sandbox_id, 0)
            except CallError as error:
                log.warning("The network of the removed sandbox %s is still there: %s", sandbox_id, error)

    async def _set_up(self, attachment: Attachment, pid: int) -> None:
        try:
            await self._networks.set_up(attachment, pid)
        except CallError as error:
            text = f'failed to setup network for sandbox "{attachment.sandbox_id}": {error}'
            try:
                await self._networks.tear_down(attachment.sandbox_id, pid)
            except CallError as left:
                log.warning("What is left of the network of sandbox %s: %s", attachment.sandbox_id, left)
            await self._engine.stop(attachment.sandbox_id, 0)
            raise CallError(error.code, text) from None

    async def _containers_of(self, sandbox_id: str) -> Sequence[Json]:
        """Return what Docker lists of a sandbox, without somebody else's containers that have its label."""
        listed = await self._engine.containers([f"{TYPE}={CONTAINER}", f"{SANDBOX_ID}={sandbox_id}"])
        return [container for container in listed if container_entry(container, failed=False) is not None]

    async def _find(self, sandbox_id: str) -> Json | None:
        try:
            return await self._engine.inspect(sandbox_id)
        except CallError as error:
            if error.code == "NotFound":
                return None
            raise

    def _is_connected(self, host_config: Json, sandbox_id: str) -> bool:
        record = self._networks.find(sandbox_id)
        return host_config["NetworkMode"] == "host" or (record is not None and record.is_up)

    def _is_connected_listed(self, listed: Json) -> bool:
        return self._is_connected(listed["HostConfig"], listed["Id"])

    def _lock(self, sandbox_id: str) -> asyncio.Lock:
        return self._locks.setdefault(sandbox_id, asyncio.Lock())


def reserved(kind: str, name: str, holder: str) -> CallError:
    """Return the refusal of a name that is taken, in containerd's words."""
    return CallError("Unknown", f'failed to reserve {kind} name "{name}": name "{name}" is reserved for "{holder}"')


def _has_own_network(inspected: Json) -> bool:
    return bool(inspected["HostConfig"]["NetworkMode"] != "host")


def _write_in_place(path: Path, text: str) -> None:
    """Write into the file that Docker has bound into the containers: another file would not be seen there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
