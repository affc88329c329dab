"""Makes, finds and removes the directories of pods below the root directory (volumes.md 6–8); blocking."""

import errno
import os
import secrets
from pathlib import Path

from services.volume.adapters.block_maps import NEW_LINK
from services.volume.adapters.mounts import mount_table
from shared.files.tree_removal import RemovalProgress, remove_tree
from shared.host.mountinfo import below
from shared.pods.directory import (
    DEVICES,
    MODE,
    PLUGINS,
    SUBPATHS,
    VOLUMES,
    make_directory,
    make_pod_directory,
    pods_directory,
)

EMPTY_DIR_FOLDER = "kubernetes.io~empty-dir"
_WRAPPED = "wrapped_"  # no name of a volume begins with it, because names of volumes have no underscore
_REMOVING = ".removing-"  # pods/.removing-<uid>.<token>: a pod directory that is being removed


class PodDirectories:
    """The directories below `<root dir>/pods`. Every method raises OSError."""

    def __init__(self, root_dir: str) -> None:
        self._root_dir = root_dir
        self.pods = pods_directory(root_dir)

    def pod(self, uid: str) -> Path:
        """Return `pods/<uid>`."""
        return self.pods / _component(uid)

    def empty_dir(self, uid: str, volume: str) -> Path:
        """Return the directory of the emptyDir."""
        return self.pod(uid) / VOLUMES / EMPTY_DIR_FOLDER / _component(volume)

    def empty_dir_marker(self, uid: str, volume: str) -> Path:
        """Return the directory of the ready marker of the emptyDir."""
        return self.pod(uid) / PLUGINS / EMPTY_DIR_FOLDER / _component(volume)

    def plugin_of_pod(self, uid: str, plugin: str, volume: str) -> Path:
        """Return the directory in which a plugin keeps what it notes of the pod's volume."""
        return self.pod(uid) / PLUGINS / plugin.replace("/", "~") / _component(volume)

    def make(self, uid: str) -> None:
        """Make `pods/<uid>` with `volumes` and `plugins`, with mode 0750 whatever the umask."""
        pod = make_pod_directory(self._root_dir, _component(uid))
        for name in (VOLUMES, PLUGINS):
            make_directory(pod / name, MODE)

    def uids(self) -> list[str]:
        """Return the UID of every pod that has a directory, or whose directory's removal was interrupted."""
        try:
            return sorted({_uid_of(entry.name) for entry in self.pods.iterdir() if entry.is_dir()})
        except FileNotFoundError:
            return []

    def volume(self, uid: str, plugin: str, volume: str) -> Path:
        """Return the directory of a volume. `plugin`: the plugin's name, such as `kubernetes.io/secret`."""
        return self.pod(uid) / VOLUMES / plugin.replace("/", "~") / _component(volume)

    def files_marker(self, uid: str, volume: str) -> Path:
        """Return the directory of the ready marker of a volume of files."""
        return self.pod(uid) / PLUGINS / EMPTY_DIR_FOLDER / f"{_WRAPPED}{_component(volume)}"

    def subpaths(self, uid: str) -> Path:
        """Return the directory below which subpaths are bound for the containers of the pod."""
        return self.pod(uid) / SUBPATHS

    def subpath(self, uid: str, volume: str, container: str, index: int) -> Path:
        """Return the path at which the subpath of a container's mount is bound. `index`: of the mount."""
        return self.subpaths(uid) / _component(volume) / _component(container) / str(index)

    def empty_dirs(self, uid: str) -> list[str]:
        """Return the names of the pod's emptyDirs: those that have a directory, or a marker that a kill left."""
        names: set[str] = set()
        for kind in (VOLUMES, PLUGINS):
            folder = self.pod(uid) / kind / EMPTY_DIR_FOLDER
            if folder.is_dir():
                names |= {entry.name for entry in folder.iterdir()}
        return sorted(name for name in names if not name.startswith(_WRAPPED))

    def volumes_of(self, uid: str, plugin: str) -> list[str]:
        """Return the names of the pod's volumes that have a directory of this plugin."""
        folder = self.pod(uid) / VOLUMES / plugin.replace("/", "~")
        return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []

    def volume_folders(self, uid: str) -> list[Path]:
        """Return the directories of the pod that have volumes of a plugin each, named after it with `~` for `/`."""
        folder = self.pod(uid) / VOLUMES
        found = sorted(folder.iterdir()) if folder.is_dir() else []
        return [path for path in found if path.is_dir() and not path.is_symlink()]

    def block_link(self, uid: str, plugin: str, volume: str) -> Path:
        """Return the link to a block device of the pod."""
        return self.pod(uid) / DEVICES / plugin.replace("/", "~") / _component(volume)

    def block_links_of(self, uid: str, plugin: str) -> list[str]:
        """Return the names of the pod's block volumes that have a link of this plugin."""
        folder = self.pod(uid) / DEVICES / plugin.replace("/", "~")
        names = {entry.name.removeprefix(NEW_LINK) for entry in folder.iterdir()} if folder.is_dir() else set[str]()
        return sorted(names)

    def plugin(self, plugin: str) -> Path:
        """Return `plugins/<plugin>` below the root directory, where a plugin keeps what pods share."""
        return Path(self._root_dir) / PLUGINS / plugin

    def remove(self, uid: str, removed: RemovalProgress | None = None) -> None:
        """Remove `pods/<uid>`; an absent directory is no error. Data in a volume directory, or a mount, is an error,
        and then the directory stays.

        The directory is renamed first. The removal of its content may take long, and does not affect a pod that is
        started with the same UID meanwhile: that pod gets a new directory. `removed` counts entries.
        """
        pod = self.pod(uid)
        if pod.is_dir():
            self._require_unmounted(uid)
            pod.rename(self.pods / f"{_REMOVING}{uid}.{secrets.token_hex(4)}")
        for path in [path for path in self._being_removed() if _uid_of(path.name) == uid]:
            remove_tree(path, removed)

    def _being_removed(self) -> list[Path]:
        try:
            return sorted(path for path in self.pods.iterdir() if path.name.startswith(_REMOVING))
        except FileNotFoundError:
            return []

    def _require_unmounted(self, uid: str) -> None:
        """Raise OSError with the kubelet's text where a volume is mounted or has content; remove the empty directories
        of volumes."""
        pod = self.pod(uid)
        volumes = pod / VOLUMES
        mounted = below(mount_table(pod), str(pod))
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
    """Remove a directory that contains only empty directories; an absent one is no error. Raises OSError for a file or
    a directory with content."""
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


def _uid_of(name: str) -> str:
    """Return the UID of the pod that a directory below `pods` belongs to."""
    return name.removeprefix(_REMOVING).rpartition(".")[0] if name.startswith(_REMOVING) else name


def _component(name: str) -> str:
    """Return the name, which comes from a manifest or from the runtime. Raises OSError where it leads out of its
    directory."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise OSError(errno.EINVAL, "cannot be the name of a directory", ascii(name))
    return name
