"""Keeps the ConfigMaps and Secrets of a node without a cluster, which are files beside its applied pods. Pure.

The last good content of a file stays while the file exists.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from bus.messages.sources import FoundObject
from services.sources.core.applied_object import RefusedError, identity_of, stored_object
from services.sources.core.file_source import ManifestFile, Problem
from services.sources.core.yaml_document import UnreadableManifestError, read_document
from shared.model.objects import Object
from shared.podspec.references import Reference

KINDS = ("ConfigMap", "Secret")


@dataclass(frozen=True)
class DataObject:
    """A ConfigMap or Secret, with its metadata; `version` follows from the content."""

    object: Object = field(repr=False)
    version: str


@dataclass
class _Known:
    content: bytes | None = None  # the content that was last checked
    reference: Reference | None = None
    found: DataObject | None = None
    reason: str = ""  # the problem of `content`, "" = none


@dataclass
class AppliedData:
    """The objects of the last look that has ended. `looked`: there was one."""

    looked: bool = False
    _known: dict[str, _Known] = field(default_factory=dict)
    _objects: dict[Reference, DataObject] = field(default_factory=dict)

    def look(self, files: Mapping[str, ManifestFile]) -> tuple[dict[str, str], tuple[Problem, ...]]:
        """Read all files of objects, by path. Return the changed versions by the key of their object, "" = it is gone,
        and the problems of the files. It takes seconds for large files; `get` may be called meanwhile."""
        self._known = {path: known for path, known in self._known.items() if path in files}
        for path, file in sorted(files.items()):
            self._check(file, self._known.setdefault(path, _Known()))
        objects = {
            known.reference: known.found
            for _, known in sorted(self._known.items())  # of two files with one object the last name wins
            if known.reference and known.found is not None
        }
        changes = {gone.key: "" for gone in self._objects.keys() - objects.keys()}
        for reference, found in objects.items():
            before = self._objects.get(reference)
            if before is None or before.version != found.version:
                changes[reference.key] = found.version
        self._objects, self.looked = objects, True
        problems = (Problem(path, known.reason, None) for path, known in sorted(self._known.items()) if known.reason)
        return changes, tuple(problems)

    def get(self, kind: str, namespace: str, name: str) -> FoundObject:
        """Return the object, or why there is none, with the kubelet's text."""
        if not self.looked:
            return FoundObject(object=None, error=f'object "{namespace}"/"{name}" not registered')
        found = self._objects.get(Reference(kind, namespace, name))
        if found is None:
            return FoundObject(object=None, not_found=True, error=f'{kind.lower()} "{name}" not found')
        return FoundObject(object=found.object)

    def _check(self, file: ManifestFile, known: _Known) -> None:
        if file.content is None:
            known.content, known.reason = None, file.unreadable or "it cannot be read"
            return
        if file.content == known.content or file.being_written:
            return
        known.content, known.reason = file.content, ""
        try:
            document = read_document(file.content)
            metadata = document.get("metadata") if isinstance(document, dict) else None
            if not isinstance(metadata, dict) or document.get("kind") not in KINDS:
                raise RefusedError(f"its kind is not {' or '.join(KINDS)}")
            found = identity_of(document["kind"], metadata)
            stored = stored_object(document)
        except (UnreadableManifestError, RefusedError) as error:
            known.reason = str(error).replace("\n", "; ")
            return
        version = hashlib.sha256(file.content).hexdigest()[:16]
        metadata = {**stored["metadata"], "uid": found.file_name, "resourceVersion": version}
        known.reference = Reference(found.kind, found.namespace, found.name)
        known.found = DataObject({**stored, "metadata": metadata}, version)
