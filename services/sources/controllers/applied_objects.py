"""Answers requests for ConfigMaps and Secrets applied to a node without a cluster, and publishes their versions."""

import asyncio
import logging
from collections.abc import Mapping

from bus.interface import OwnedStream
from bus.messages.sources import ChangedObject, FoundObject, GetObject
from services.sources.core.applied_data import KINDS, AppliedData
from services.sources.core.file_source import ManifestFile, Problem

log = logging.getLogger(__name__)

_PREFIXES = tuple(f"{kind.lower()}." for kind in KINDS)  # of the names of their files


class AppliedObjects:
    """Owns `objects.changed` on a node without a cluster. `directory`: the absolute path of all applied files, those
    of pods included."""

    def __init__(self, directory: str, changed: OwnedStream[ChangedObject]) -> None:
        self.directory, self._changed = directory, changed
        self._objects = AppliedData()
        self._reported: tuple[Problem, ...] = ()

    async def take(self, files: Mapping[str, ManifestFile]) -> tuple[dict[str, ManifestFile], tuple[Problem, ...]]:
        """Read the files of objects among all files, and publish their changes. Return the other files, and the
        problems of the objects' files. Call it again only when it has returned."""
        own = {path: file for path, file in files.items() if self._is_object(path)}
        changes, problems = await asyncio.to_thread(self._objects.look, own)
        for key, version in changes.items():
            log.info("%s is %s", key, f"version {version}" if version else "gone")
            self._changed.put(key, ChangedObject(resource_version=version), "applied" if version else "deleted")
            if not version:
                self._changed.delete(key, "deleted")
        self._changed.mark_complete()
        for problem in problems:
            if problem not in self._reported:
                log.error("%s: %s; what was read from it before stays", problem.path, problem.reason)
        self._reported = problems
        return {path: file for path, file in files.items() if path not in own}, problems

    def get(self, request: GetObject) -> FoundObject:
        """Answer GetObject for one of KINDS."""
        return self._objects.get(request.kind, request.namespace, request.name)

    def _is_object(self, path: str) -> bool:
        directory, _, name = path.rpartition("/")
        return directory == self.directory and name.startswith(_PREFIXES)
