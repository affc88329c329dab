"""The directories of pods below the root directory: making, finding and removing them (volumes.md 6–8); blocking."""

import errno
import os
import secrets
import stat
from pathlib import Path

from services.volume.adapters.mounts import mount_table
from services.volume.core.mountinfo import below
from shared.tree_removal import Removed, remove_tree

EMPTY_DIR_FOLDER = "kubernetes.io~empty-dir"
_WRAPPED = "wrapped_"  # no volume name begins so: it has no underscore
_ASIDE = ".removing-"  # pods/.removing-<uid>.<token>: a pod directory on its way out
_MODE = 0o750


class PodDirectories:
    """Paths below `<root dir>/pods`. Every method raises OSError."""

    def __init__(self, root_dir: str) -> None:
        self.pods = Path(root_dir) / "pods"

    def pod(self, uid: str) -> Path:
        """`pods/<uid>`."""
        return self.pods / _component(uid)

    def empty_dir(self, uid: str, volume: str) -> Path:
        """Where the emptyDir lies."""
        return self.pod(uid) / "volumes" / EMPTY_DIR_FOLDER / _component(volume)

    def empty_dir_marker(self, uid: str, volume: str) -> Path:
        """The directory of its ready marker."""
        return self.pod(uid) / "plugins" / EMPTY_DIR_FOLDER / _component(volume)

    def make(self, uid: str) -> None:
        """`pods/<uid>` with `volumes` and `plugins`, 0750 whatever the umask."""
        pod = self.pod(uid)
        for path in (self.pods, pod, pod / "volumes", pod / "plugins"):
            make_directory(path, _MODE)

    def uids(self) -> list[str]:
        """Every pod that has a directory, or of whose directory a removal was cut short."""
        try:
            return sorted({_uid_of(entry.name) for entry in self.pods.iterdir() if entry.is_dir()})
        except FileNotFoundError:
            return []

    def volume(self, uid: str, plugin: str, volume: str) -> Path:
        """Where a volume of this plugin is; `plugin` as `kubernetes.io/secret`."""
        return self.pod(uid) / "volumes" / plugin.replace("/", "~") / _component(volume)

    def files_marker(self, uid: str, volume: str) -> Path:
        """The directory of the ready marker of what holds its files."""
        return self.pod(uid) / "plugins" / EMPTY_DIR_FOLDER / f"{_WRAPPED}{_component(volume)}"

    def subpaths(self, uid: str) -> Path:
        """What is bound for the containers of the pod, one part of a volume each."""
        return self.pod(uid) / "volume-subpaths"

    def subpath(self, uid: str, volume: str, container: str, index: int) -> Path:
        """Where the container's mount of this number is bound."""
        return self.subpaths(uid) / _component(volume) / _component(container) / str(index)

    def empty_dirs(self, uid: str) -> list[str]:
        """The names of the pod's emptyDirs: of a directory, or of a marker that a kill left behind."""
        names: set[str] = set()
        for kind in ("volumes", "plugins"):
            folder = self.pod(uid) / kind / EMPTY_DIR_FOLDER
            if folder.is_dir():
                names |= {entry.name for entry in folder.iterdir()}
        return sorted(name for name in names if not name.startswith(_WRAPPED))

    def volumes_of(self, uid: str, plugin: str) -> list[str]:
        """The names of the pod's volumes of files of this plugin."""
        folder = self.pod(uid) / "volumes" / plugin.replace("/", "~")
        return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []

    def remove(self, uid: str, removed: Removed | None = None) -> None:
        """Remove `pods/<uid>`; absent is fine. Data in a volume directory, or a mount, keeps it from being removed.

        The directory first goes aside by one rename, so that removing its content, however much there is, never meets a
        pod of the same UID that is started again meanwhile: that one gets a new directory. `removed` counts entries.
        """
        pod = self.pod(uid)
        if pod.is_dir():
            self._require_unmounted(uid)
            pod.rename(self.pods / f"{_ASIDE}{uid}.{secrets.token_hex(4)}")
        for path in [path for path in self._asides() if _uid_of(path.name) == uid]:
            remove_tree(path, removed)

    def _asides(self) -> list[Path]:
        try:
            return sorted(path for path in self.pods.iterdir() if path.name.startswith(_ASIDE))
        except FileNotFoundError:
            return []

    def _require_unmounted(self, uid: str) -> None:
        """Refuse with the kubelet's texts what a volume still needs; removes the empty directories of volumes."""
        pod = self.pod(uid)
        volumes = pod / "volumes"
        mounted = below(mount_table(), str(pod))
        if any(Path(point).is_relative_to(volumes) for point in mounted):
            raise OSError(errno.EBUSY, "Orphaned pod found, but volumes are not cleaned up")
        if mounted:
            raise OSError(errno.EBUSY, f"cannot delete directory {mounted[0]}: it is a mount point")
        for path in sorted(volumes.glob("*/*")):
            try:
                path.rmdir()
            except OSError as error:
                text = f'orphaned pod "{uid}" found, but failed to rmdir() volume at path {path}: {error.strerror}'
                raise OSError(error.errno, text) from error
        try:
            _remove_empty_directories(volumes)
        except OSError as error:
            text = f'orphaned pod "{uid}" found, but error occurred when trying to remove the volumes dir: {error}'
            raise OSError(error.errno, text) from error


def _remove_empty_directories(path: Path) -> None:
    """Remove a directory that holds empty directories only; absent is fine. Raises OSError (a file, a full one)."""
    try:
        entries = os.scandir(path)
    except FileNotFoundError:
        return
    with entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                raise OSError(errno.ENOTEMPTY, "is no directory", entry.path)
            Path(entry.path).rmdir()
    path.rmdir()


def make_directory(path: Path, mode: int) -> None:
    """A directory (and its parents) of this mode, whatever the umask; a kill between the two steps is mended here."""
    path.mkdir(parents=True, exist_ok=True)
    if stat.S_IMODE(path.stat().st_mode) & 0o777 != mode:
        path.chmod(mode)


def _uid_of(name: str) -> str:
    """The UID a directory below `pods` belongs to."""
    return name.removeprefix(_ASIDE).rpartition(".")[0] if name.startswith(_ASIDE) else name


def _component(name: str) -> str:
    """Names come from manifests and from the runtime: none may lead out of its directory."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise OSError(errno.EINVAL, "cannot be the name of a directory", ascii(name))
    return name
