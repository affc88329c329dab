"""Serves the local API that applies, lists and removes objects. A success means that the file is on disk.

The files are the only state: `StaticPods` follows their directory, so a kill after the write loses nothing.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.sources.adapters.applied_files import AppliedFiles
from services.sources.adapters.apply_socket import ApplySocket, failure
from services.sources.controllers.troubles import Troubles
from services.sources.core.applied_object import (
    Identity,
    RefusedError,
    check_applied,
    check_immutable,
    check_room,
    identity,
    parse_file_name,
)
from services.sources.core.yaml_document import UnreadableManifestError, read_document
from shared.agent.apply_api import MAX_APPLIED_BYTES, PATH, SOCKET
from shared.model.objects import Object
from shared.process.crash import crash_point

log = logging.getLogger(__name__)

_RETRY_SECONDS = 5.0  # until a socket that cannot be opened is tried again


class ApplyEndpoint:
    """Answers requests on the socket. `make_pod`, whose arguments are manifest and path, raises InvalidPod for a pod
    that this node cannot run."""

    def __init__(
        self, store: AppliedFiles, run_dir: str, troubles: Troubles, make_pod: Callable[[object, str], Object]
    ) -> None:
        self._store, self._troubles, self._make_pod = store, troubles, make_pod
        self._socket = ApplySocket(Path(run_dir) / SOCKET, self.handle)
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Serve until cancelled."""
        with contextlib.suppress(OSError):  # on a read-only disk, for example, the manifests can still be listed
            await asyncio.to_thread(self._store.remove_unfinished)
        try:
            while True:
                try:
                    await self._socket.open()
                    break
                except OSError as error:
                    self._troubles.set(
                        SOCKET, f"{SOCKET} cannot be opened: {error.strerror or error}; it is tried again"
                    )
                await asyncio.sleep(_RETRY_SECONDS)
            self._troubles.set(SOCKET, None)
            await asyncio.Event().wait()
        finally:
            await self._socket.close()

    async def handle(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Return the status code and the JSON object of the answer."""
        parts = path.removeprefix(PATH).strip("/").split("/") if path.startswith(PATH) else []
        try:
            match method, parts:
                case "GET", [""]:
                    return 200, await self._list()
                case "POST", [""]:
                    return await self._apply(body)
                case "DELETE", [kind, namespace, name]:
                    return await self._delete(identity(kind, namespace, name))
        except (RefusedError, UnreadableManifestError) as error:
            reason, code = (error.reason, error.code) if isinstance(error, RefusedError) else ("BadRequest", 400)
            return code, failure(str(error), reason, code)
        except OSError as error:
            line = f"{self._store.directory}: {error.strerror or error} (free some space, or repair the disk)"
            log.error("an applied object cannot be saved or removed: %s", line)
            return 507, failure(line, "InternalError", 507)
        return 404, failure("the server could not find the requested resource", "NotFound", 404)

    async def _list(self) -> dict[str, Any]:
        names = sorted(await asyncio.to_thread(self._store.sizes))
        found = [item for item in map(parse_file_name, names) if item is not None]
        return {"kind": "List", "apiVersion": "v1", "items": [_shown(item) for item in found]}

    async def _apply(self, body: bytes) -> tuple[int, dict[str, Any]]:
        if len(body) > MAX_APPLIED_BYTES:
            raise RefusedError(
                f"larger than the {MAX_APPLIED_BYTES} bytes an object may have", "RequestEntityTooLarge", 413
            )
        found, content = await asyncio.to_thread(self._checked, body)
        async with self._writing:
            before = await asyncio.to_thread(self._store.read, found.file_name)
            if before == content:
                return 200, _shown(found) | {"result": "unchanged"}
            check_immutable(before, content)
            check_room(await asyncio.to_thread(self._store.sizes), found.file_name, len(content))
            await asyncio.to_thread(self._store.write, found.file_name, content)
        crash_point("sources.applied")
        log.info("%s was applied", found)
        created = before is None
        return (201 if created else 200), _shown(found) | {"result": "created" if created else "configured"}

    def _checked(self, body: bytes) -> tuple[Identity, bytes]:
        path = str(self._store.directory / "applied")
        return check_applied(read_document(body), lambda pod: self._make_pod(pod, path))

    async def _delete(self, found: Identity) -> tuple[int, dict[str, Any]]:
        async with self._writing:
            if not await asyncio.to_thread(self._store.remove, found.file_name):
                raise RefusedError(f"{found} not found", "NotFound", 404)
        log.info("%s was deleted by a request", found)
        return 200, _shown(found) | {"result": "deleted"}


def _shown(found: Identity) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": found.kind, "metadata": {"namespace": found.namespace, "name": found.name}}
