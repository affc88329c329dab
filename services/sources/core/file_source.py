"""Decides which pod each manifest file stands for, and finds the problems of the files (pods.md 1.3).

It depends only on contents and names, not on how files are found or read. Two rules go further than the Go kubelet:
while a file exists, its last good pod stays, however often the path is listed; and a pod whose manifest moves to
another file keeps its UID, so that nothing of it restarts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from services.sources.core.yaml_document import UnreadableManifestError, read_document
from shared.model import objects
from shared.model.objects import Object
from shared.podspec.static_pod import InvalidPod


class ManifestFile(Struct, frozen=True, kw_only=True):
    """One manifest file as it was read. `content` is None when it could not be read, and `unreadable` is the reason."""

    path: str  # absolute, as in the UID and in messages
    content: bytes | None
    unreadable: str = ""
    being_written: bool = False  # some process has the file open for writing at this moment


class Problem(Struct, frozen=True):
    """The problem of one file. `pod`: the pod that keeps running from it, None when there is none."""

    path: str
    reason: str
    pod: Object | None


class Listing(Struct, frozen=True):
    """The result of one look at all files: pods by path in lexical order, and every present problem. `fresh`: the
    problems that were not in the last listing."""

    pods: dict[str, Object]
    problems: tuple[Problem, ...]
    fresh: tuple[Problem, ...]


@dataclass
class _Known:
    pod: Object | None = None  # the last good pod
    origin: str = ""  # the path from which its UID is made: that of the file from which it was first published
    document: Any = None  # the document from which it was made; None = it comes from a record
    content: bytes | None = None  # the content that was last checked
    reported: str = ""  # the problem of `content` that was last reported
    reason: str = ""  # the problem of `content`, "" = none
    unsettled: bytes | None = None  # the content at the last full look, while the file was being written


@dataclass
class FileSource:
    """The manifest files of the static pod path. `make_pod` makes the pod with defaults from a decoded document and the
    path from which its UID is made; a document may be valid at only one path."""

    make_pod: Callable[[Any, str], Object]
    _known: dict[str, _Known] = field(default_factory=dict)
    _listed: dict[str, tuple[str, str]] = field(default_factory=dict)  # full name -> UID and origin in the last listing

    def remember(self, path: str, pod: Object, origin: str) -> None:
        """Use the pod that an earlier process published from this file, until the file has other content. Call it in
        the order of the paths."""
        self._known[path] = _Known(pod=pod, origin=origin)
        self._listed[objects.full_name(pod)] = (objects.uid(pod), origin)

    def origin(self, path: str) -> str:
        """Return the path from which the UID of this file's pod is made."""
        return self._known[path].origin

    def lacks(self, files: Mapping[str, ManifestFile]) -> bool:
        """Return whether a file that has a pod is not among these."""
        return any(known.pod is not None and path not in files for path, known in self._known.items())

    def look(self, files: Mapping[str, ManifestFile], *, full: bool) -> Listing:
        """Check all files, by path. `full`: the periodic look, which also accepts a file that has been open for writing
        since the last full look and has not changed. It takes seconds for large files that have changed."""
        self._known = {path: known for path, known in self._known.items() if path in files}
        for path in sorted(files):
            known = self._known.setdefault(path, _Known())
            if self._is_settled(files[path], known, full=full):
                self._check(files[path], known)
        return self._listing()

    def _is_settled(self, file: ManifestFile, known: _Known, *, full: bool) -> bool:
        if not file.being_written or file.content == known.content:
            known.unsettled = None
            return True
        if full and known.unsettled is not None and known.unsettled == file.content:
            return True
        if full:
            known.unsettled = file.content
        return False

    def _check(self, file: ManifestFile, known: _Known) -> None:
        if file.content is None:
            known.content, known.reason = None, file.unreadable or "it cannot be read"
            return
        if file.content == known.content:
            return
        known.content, known.reported = file.content, ""
        try:
            document = read_document(file.content)
            known.pod, known.reason = self.make_pod(document, file.path), ""
            known.document, known.origin = document, file.path
        except (UnreadableManifestError, InvalidPod) as error:
            known.reason = str(error).replace("\n", "; ")

    def _listing(self) -> Listing:
        pods: dict[str, Object] = {}
        problems: list[Problem] = []
        losers = self._duplicates()
        for path, known in sorted(self._known.items()):
            reason = known.reason
            if path in losers:
                reason = f"{losers[path]} has the same pod and wins, being the later file name"
            elif known.pod is not None:
                pods[path] = self._same_uid(known, known.pod)
            if reason:
                problems.append(Problem(path, reason, pods.get(path)))
        listed = ((pod, self._known[path].origin) for path, pod in pods.items())
        self._listed = {objects.full_name(pod): (objects.uid(pod), origin) for pod, origin in listed}
        fresh = tuple(problem for problem in problems if self._known[problem.path].reported != problem.reason)
        for known in self._known.values():
            known.reported = ""
        for problem in problems:
            self._known[problem.path].reported = problem.reason
        return Listing(pods, tuple(problems), fresh)

    def _same_uid(self, known: _Known, pod: Object) -> Object:
        """Return the pod, with the UID of the pod that was last listed under its name if that had the same content."""
        uid, origin = self._listed.get(objects.full_name(pod), ("", known.origin))
        if origin == known.origin or known.document is None:
            return pod
        try:
            same = self.make_pod(known.document, origin)
        except InvalidPod:
            return pod  # it is valid only at its present path, so the earlier pod had another content
        if objects.uid(same) != uid:
            return pod
        known.pod, known.origin = same, origin
        return same

    def _duplicates(self) -> dict[str, str]:
        """Return the paths whose pod is replaced by that of another file, with that file's path. The last file in
        lexical order wins a pod name or a UID."""
        winner: dict[str, str] = {}
        losers: dict[str, str] = {}
        for path, known in sorted(self._known.items()):
            if known.pod is None:
                continue
            for identity in (objects.full_name(known.pod), objects.uid(known.pod)):
                earlier = winner.get(identity)
                if earlier is not None and earlier != path:
                    losers[earlier] = path
                winner[identity] = path
        return losers
