"""Which pod each manifest file stands for now, and what is wrong with which file (reference pods.md 1.3).

Knows contents and names only, not how files are found or read. One rule goes further than the Go kubelet: while a file
exists, its last good pod stays, however often the path is listed.
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
    """One look at one manifest file. `content` is None when it could not be read, and `unreadable` says why."""

    path: str  # absolute, as uid and messages name it
    content: bytes | None
    unreadable: str = ""
    being_written: bool = False  # some process has the file open for writing at this moment


@dataclass(frozen=True)
class Problem:
    """What is wrong with one file; `pod` is the pod that goes on running from it, None when there is none."""

    path: str
    reason: str
    pod: Object | None


@dataclass(frozen=True)
class Listing:
    """The outcome of one look at all files: pods by path in lexical order, and every problem there is now.

    `fresh` are the problems not said before of this content.
    """

    pods: dict[str, Object]
    problems: tuple[Problem, ...]
    fresh: tuple[Problem, ...]


@dataclass
class _Known:
    pod: Object | None = None  # the last good one
    content: bytes | None = None  # the last one judged
    said: str = ""  # the reason last reported of `content`
    reason: str = ""  # what is wrong with `content`, "" = nothing
    unsettled: bytes | None = None  # content while being written, at the last full look


@dataclass
class FileSource:
    """The static pod path's files. `make_pod` turns a decoded document and a path into the defaulted pod."""

    make_pod: Callable[[Any, str], Object]
    _known: dict[str, _Known] = field(default_factory=dict)

    def remember(self, path: str, pod: Object) -> None:
        """Take over what an earlier life published from this file, until the file says otherwise."""
        self._known[path] = _Known(pod=pod)

    def look(self, files: Mapping[str, ManifestFile], *, full: bool) -> Listing:
        """Judge all files there are now, by path. `full`: the periodic look, which also takes a file that has been held
        open for writing since the last one without changing."""
        self._known = {path: known for path, known in self._known.items() if path in files}
        for path in sorted(files):
            known = self._known.setdefault(path, _Known())
            if self._is_settled(files[path], known, full=full):
                self._judge(files[path], known)
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

    def _judge(self, file: ManifestFile, known: _Known) -> None:
        if file.content is None:
            known.content, known.reason = None, file.unreadable or "it cannot be read"
            return
        if file.content == known.content:
            return
        known.content, known.said = file.content, ""
        try:
            known.pod, known.reason = self.make_pod(read_document(file.content), file.path), ""
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
                pods[path] = known.pod
            if reason:
                problems.append(Problem(path, reason, pods.get(path)))
        fresh = tuple(problem for problem in problems if self._known[problem.path].said != problem.reason)
        for known in self._known.values():
            known.said = ""
        for problem in problems:
            self._known[problem.path].said = problem.reason
        return Listing(pods, tuple(problems), fresh)

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
