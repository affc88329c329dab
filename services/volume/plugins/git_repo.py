"""Sets up gitRepo volumes: a directory into which git clones a repository (volumes.md 13.7).

The marker of the directory is that of the kubelet's wrapped emptyDir, the one of the clone stands beside it. A clone
that was killed begins anew. A git that outlives the process that began it holds a lock on the directory, and neither a
further clone nor the teardown begins before its end.
"""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from services.volume.adapters.backing_directory import is_ready, mark_ready, set_up_at, tear_down_at
from services.volume.adapters.programs import locked, run
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.operations.outcome import FoundVolume
from services.volume.core.specs.gates import GIT_REPO
from services.volume.core.specs.pod_fields import fs_group
from services.volume.core.specs.volume_spec import Node, Refused, VolumeSpec
from services.volume.plugins.plugin import VolumePlugin
from shared.files.tree_removal import RemovalProgress, remove_tree
from shared.model.fields import dictionary, text
from shared.model.objects import Object
from shared.podspec.field_ref import go_quote
from shared.podspec.support import why_unmounted

PROTOCOLS = "git:http:https:ssh"  # of remote repositories: one of the node may be that of another pod
# No repository decides what git runs here, and none of its submodules is fetched.
_OPTIONS = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "submodule.recurse=false")
_MAX_GIT_SECONDS = 100  # less than `run` waits
_MAX_LINKS_SHOWN = 3


class GitRepo(Struct, frozen=True):
    """A repository. `directory`: where it is cloned to, inside the volume, "" = into a directory that git names;
    `revision`: what is checked out, "" = the default branch; `fs_group`: the group ID its files belong to."""

    repository: str
    directory: str = ""
    revision: str = ""
    fs_group: int | None = None


class GitRepoPlugin(VolumePlugin[GitRepo]):
    """Sets up gitRepo volumes, with the feature gate GitRepoVolumeDriver."""

    name = "kubernetes.io/git-repo"

    @classmethod
    def read(cls, pod: Object, volume: str, source: Object, node: Node) -> VolumeSpec | Refused:
        """Return the spec, or why the repository is not cloned: values that git would read as options are refused."""
        if GIT_REPO not in node.gates:
            return Refused(why_unmounted("gitRepo"), unsupported=True)
        repository, directory, revision = (text(source.get(name)) for name in ("repository", "directory", "revision"))
        found = GitRepo(repository, directory, revision, fs_group(pod))
        if not found.repository:
            return Refused("a gitRepo volume needs a repository")
        for what in ("repository", "directory", "revision"):
            value = getattr(found, what)
            if value.startswith("-") or "\0" in value:
                return Refused(f"{go_quote(value)} is an invalid value for {what}")
        parts = found.directory.lower().split("/")
        if found.directory.startswith("/") or ".." in parts or ".git" in parts:
            return Refused(f"gitRepo directory {found.directory!a}: must be a relative path without .. and .git")
        return VolumeSpec(
            plugin=cls.name,
            source=found,
            selinux_relabel=True,
            # Not the repository: a clone counts for its server, and none waits for that of another pod.
            node_path=f"{_server(repository)}:/ for {text(dictionary(pod.get('metadata')).get('uid'))}/{volume}",
            node_check="git clone",
        )

    def set_up(self, uid: str, volume: str, source: GitRepo, gathered: SetUpInputs) -> str:
        """Clone the repository unless that has been done, and return the path of the volume."""
        self._directories.make(uid)
        path, marker = self._directories.volume(uid, self.name, volume), self._cloned(uid, volume)
        if is_ready(marker) and path.is_dir():
            return str(path)
        set_up_at(path, self._directories.files_marker(uid, volume), tmpfs=False, fs_group=source.fs_group)
        with locked(str(path), _busy(path)) as lock:
            for entry in path.iterdir():  # of a clone that was killed
                remove_tree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            self._clone(path, source, lock)
        mark_ready(marker)
        return str(path)

    def tear_down(self, uid: str, volume: str, removed: RemovalProgress) -> None:
        """Remove the volume with its content."""
        path = self._directories.volume(uid, self.name, volume)
        if path.is_dir():
            with locked(str(path), _busy(path)):
                remove_tree(self._cloned(uid, volume))
        remove_tree(self._cloned(uid, volume))
        tear_down_at(path, self._directories.files_marker(uid, volume), removed)

    def reconstruct(self, uid: str) -> list[FoundVolume]:
        """Return a volume for each directory, and for each marker of a clone that a killed teardown left."""
        folder = self._cloned(uid, "v").parent
        names = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
        return [
            FoundVolume(name, self.name) for name in sorted(names.union(self._directories.volumes_of(uid, self.name)))
        ]

    def _cloned(self, uid: str, volume: str) -> Path:
        """Return the directory of the marker that the repository is cloned."""
        return self._directories.plugin_of_pod(uid, self.name, volume)

    def _clone(self, path: Path, source: GitRepo, lock: int) -> None:
        _git(path, lock, "clone", "--", source.repository, *([source.directory] if source.directory else []))
        if source.revision:
            clone = path / source.directory
            if not source.directory:
                entries = sorted(path.iterdir())
                if len(entries) != 1:
                    raise OSError(f"unexpected directory contents: {[entry.name for entry in entries]}")
                clone = entries[0]
            for words in (("checkout", source.revision), ("reset", "--hard")):
                _git(clone, lock, *words, options=("--git-dir=.git", "--work-tree=."))  # files are never taken for it
        if links := _links_out(path):
            shown = ", ".join(ascii(link) for link in links[:_MAX_LINKS_SHOWN])
            raise OSError(f"the repository {source.repository!a} has links that leave the volume: {shown}")


def _git(directory: Path, lock: int, *words: str, options: Sequence[str] = ()) -> None:
    """Run git in the directory. Raises OSError with the kubelet's text.

    The program `timeout` ends git with all programs that it has begun, also when this process has been killed: each of
    them holds the lock, and waits without end for a server that does not answer.
    """
    limit = ("timeout", "-s", "KILL", str(_MAX_GIT_SECONDS))
    variables = (f"GIT_ALLOW_PROTOCOL={PROTOCOLS}", "GIT_TERMINAL_PROMPT=0", "GIT_LFS_SKIP_SMUDGE=1")
    done = run(*limit, "env", *variables, "git", "-C", str(directory), *_OPTIONS, *options, *words, keep_open=(lock,))
    if done.code == -signal.SIGKILL:
        why = f"git was killed, for want of memory or because it did not end within {_MAX_GIT_SECONDS} s"
        raise OSError(f"failed to exec 'git {' '.join(words)}': {why}")
    if done.code != 0:
        raise OSError(f"failed to exec 'git {' '.join(words)}': {done.output}: exit status {done.code}")


def _links_out(path: Path) -> list[str]:
    """Return the symbolic links, relative to the volume, whose target is outside of it."""
    top, found = os.path.realpath(path), []
    for directory, folders, files in os.walk(top):
        for link in (Path(directory, name) for name in [*folders, *files]):
            if link.is_symlink() and not Path(os.path.realpath(link)).is_relative_to(top):
                found.append(str(link.relative_to(top)))
    return sorted(found)


def _server(repository: str) -> str:
    """Return the server of a URL, or of `<user>@<server>:<path>`."""
    address = repository.partition("://")[2] or repository.partition(":")[0]
    return address.partition("/")[0].rpartition("@")[2]


def _busy(path: Path) -> str:
    return f"an earlier git of {path} has not ended"
