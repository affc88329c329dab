"""Which pod each manifest file stands for now, and what is wrong with which file (pods.md 1.3).

Knows contents and names only, not how files are found or read. Two rules go further than the Go kubelet: while a file
exists, its last good pod stays, however often the path is listed; and a pod whose manifest moves to another file keeps
its UID, so that nothing of it restarts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from services.sources.core.yaml_document import UnreadableManifestError, read_document
from shared.model import objects
from shared.model.objects import Object
from shared.podspec.static_pod import InvalidPod


@dataclass(frozen=True, kw_only=True)
class ManifestFile:
    """One look at one manifest file. `content` is None when it could not be read, and `unreadable` is the reason."""

    path: str  # absolute, as uid and messages name it
    content: bytes | None
    unreadable: str = ""
    being_written: bool = False  # some process has the file open for writing at this moment


@dataclass(frozen=True)
class Problem:
    """What is wrong with one file; `pod` is the pod that keeps running from it, None when there is none."""

    path: str
    reason: str
    pod: Object | None


@dataclass(frozen=True)
class Listing:
    """The outcome of one look at all files: pods by path in lexical order, and every problem there is now.

    `fresh`: the problems that were not in the last listing.
    """

    pods: dict[str, Object]
    problems: tuple[Problem, ...]
    fresh: tuple[Problem, ...]


@dataclass
class _Known:
    pod: Object | None = None  # the last good one
    origin: str = ""  # the path its UID is made from: that of the file it was first published from
    document: Any = None  # what it was made from; None = it is that of a record
    content: bytes | None = None  # the last one checked
    reported: str = ""  # the reason last reported of `content`
    reason: str = ""  # what is wrong with `content`, "" = nothing
    unsettled: bytes | None = None  # content while being written, at the last full look


@dataclass
class FileSource:
    """The static pod path's files. `make_pod` turns a decoded document and the path that its UID is made from into the
    defaulted pod; a document may be valid at one path alone."""

    make_pod: Callable[[Any, str], Object]
    _known: dict[str, _Known] = field(default_factory=dict)
    _listed: dict[str, tuple[str, str]] = field(default_factory=dict)  # full name -> UID and origin in the last listing

    def remember(self, path: str, pod: Object, origin: str) -> None:
        """Take the pod that an earlier process published from this file, until the file has other content. Call it in
        the order of the paths."""
        self._known[path] = _Known(pod=pod, origin=origin)
        self._listed[objects.full_name(pod)] = (objects.uid(pod), origin)

    def origin(self, path: str) -> str:
        """The path that the UID of this file's pod is made from."""
        return self._known[path].origin

    def lacks(self, files: Mapping[str, ManifestFile]) -> bool:
        """A file that has a pod is not among these."""
        return any(known.pod is not None and path not in files for path, known in self._known.items())

    def look(self, files: Mapping[str, ManifestFile], *, full: bool) -> Listing:
        """Check all files, by path. `full`: the periodic look, which also takes a file that was open for writing since
        the last full look and has not changed. Takes seconds for large files that have changed."""
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
        """The pod, with the UID of the one listed last under its name where that was made from the same content."""
        uid, origin = self._listed.get(objects.full_name(pod), ("", known.origin))
        if origin == known.origin or known.document is None:
            return pod
        try:
            same = self.make_pod(known.document, origin)
        except InvalidPod:
            return pod  # valid only where it is now: the same name, but not the same content
        if objects.uid(same) != uid:
            return pod
        known.pod, known.origin = same, origin
        return same

    def _duplicates(self) -> dict[str, str]:
        """Paths whose pod another file displaces: the last in lexical order wins a pod name, or a UID."""
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
