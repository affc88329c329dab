"""Stages volumes of CSI drivers once for all pods, as file systems and for block devices (volumes.md 14.5, 14.8,
14.10).

The record is written before the driver is called, and removed after the driver was called to unstage the volume.
"""

import errno
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from hashlib import sha256
from pathlib import Path

from services.volume.adapters.csi_block_directories import FOLDER
from services.volume.adapters.csi_client import CsiClient, is_final
from services.volume.adapters.csi_records import CsiRecordError, has_record, load_record, remove_record, save_record
from services.volume.adapters.mounts import is_mount_point, mount_table
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.specs.csi_attachment import publish_context_of, secret_of
from services.volume.core.specs.csi_volume import PREFIX, CsiVolume
from services.volume.plugins.csi_block import CsiBlockVolumes
from shared.host.mountinfo import references
from shared.plugin_grpc.connection import PluginCallError
from shared.pods.directory import make_directory

_GLOBAL = "globalmount"


class CsiStagedVolumes:
    """Stages volumes of CSI drivers. `root`: `plugins/kubernetes.io/csi`; `client` connects to the driver of this name;
    its second argument begins the text of an error. Methods raise OSError."""

    def __init__(
        self, root: Path, blocks: CsiBlockVolumes, client: Callable[[str, str], AbstractContextManager[CsiClient]]
    ) -> None:
        self._root, self._blocks, self._client = root, blocks, client

    def path(self, source: CsiVolume) -> Path:
        """Return where the volume is staged."""
        return self._staged(source)[1]

    def mount(self, source: CsiVolume, gathered: SetUpInputs) -> str:
        """Stage the volume and return its path; "" = the driver does not stage volumes. Raises also ContentError."""
        directory, path, record = self._staged(source)
        what = "blockMapper.SetUpDevice failed" if source.block else "attacher.MountDevice failed"
        with self._client(source.driver, f"{PREFIX}{what} to create newCsiDriverClient") as client:
            attachment = publish_context_of(source, gathered)
            if not client.has("STAGE_UNSTAGE_VOLUME"):
                return ""
            secrets = secret_of(source.stage_secret, "NodeStageSecretRef", gathered)
            is_new = not has_record(directory)
            make_directory(directory, 0o750)
            save_record(directory, record)
            make_directory(path, 0o750)
            try:
                client.stage(source, str(path), attachment, secrets, mount_group(client, source))
            except PluginCallError as error:
                if is_new and is_final(error.code):
                    if source.block:
                        self._blocks.directories.remove(source.spec_name)
                    else:
                        _remove(directory)
                raise
        return str(path)

    def unmount(self, driver: str, handle: str) -> None:
        """Unstage the volume, unless it is still mounted elsewhere."""
        directory = self._directory(driver, handle)
        if not directory.is_dir():
            return
        path = directory / _GLOBAL
        if others := references(mount_table(), str(path)):
            listed = " ".join(others)
            raise OSError(
                errno.EBUSY, f'the device mount path "{path}" is still mounted by other references [{listed}]'
            )
        if load_record(directory) is not None or is_mount_point(path):
            with self._client(driver, f"{PREFIX}attacher.UnmountDevice failed to create newCsiDriverClient") as client:
                if client.has("STAGE_UNSTAGE_VOLUME"):
                    client.unstage(handle, str(path))
        _remove(directory)

    def records(self) -> list[dict[str, str]]:
        """Return the record of each staged file system. A directory without a record was left empty by a kill, before a
        driver was called or after it has unstaged the volume, and is removed. A directory whose record cannot be read
        is left as it is: a pod that needs the volume stages it again."""
        found = []
        for directory in sorted(self._root.glob("*/*")):
            if directory.parent.name == FOLDER or not directory.is_dir():
                continue
            try:
                record = load_record(directory)
            except CsiRecordError:
                continue
            if record is not None:
                found.append(record)
                continue
            with suppress(OSError):
                _remove(directory)
        return found

    def _staged(self, source: CsiVolume) -> tuple[Path, Path, dict[str, str]]:
        """Return the directory of the record, the path where the volume is staged, and the record."""
        if source.block:
            blocks = self._blocks.directories
            return blocks.data(source.spec_name), blocks.staging(source.spec_name), source.record()
        directory = self._directory(source.driver, source.handle)
        return directory, directory / _GLOBAL, source.staging_record()

    def _directory(self, driver: str, handle: str) -> Path:
        return self._root / driver / sha256(handle.encode()).hexdigest()


def mount_group(client: CsiClient, volume: CsiVolume) -> str:
    """Return the group ID that the driver mounts the volume for, "" = the driver gives volumes to no group."""
    return str(volume.fs_group) if volume.fs_group is not None and client.has("VOLUME_MOUNT_GROUP") else ""


def require_unmounted(path: Path) -> None:
    """Raise OSError where the driver answered but left its mount, so that nothing is removed below it."""
    if is_mount_point(path):
        raise OSError(errno.EBUSY, f"{PREFIX}{path} is still mounted after the driver answered")


def _remove(directory: Path) -> None:
    path = directory / _GLOBAL
    require_unmounted(path)
    if path.is_dir():
        path.rmdir()
    remove_record(directory)
    if directory.is_dir():
        directory.rmdir()
