"""Sets up csi volumes, which are staged once for all pods and published for each; inline volumes are only published;
the device of a block volume is mapped for each pod (volumes.md 14).

The record of a volume is written before the driver is called, and removed after the driver was called to unpublish it.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bus.messages.usage import FilesystemUsage
from bus.messages.volume import VolumeHealth
from services.volume.adapters.csi_block_directories import CsiBlockDirectories
from services.volume.adapters.csi_client import CsiClient, UnknownDriverError, csi_client, is_final
from services.volume.adapters.csi_records import CsiRecordError, has_record, load_record, remove_record, save_record
from services.volume.adapters.mounts import mount_table
from services.volume.adapters.ownership import OwnershipChange, belongs_to_group, give_to_group
from services.volume.core.files.payload import ContentError, FailureKind, Problem, SetUpInputs
from services.volume.core.operations.outcome import FoundDevice, FoundVolume, VolumeReading
from services.volume.core.specs.csi_attachment import publish_context_of, secret_of
from services.volume.core.specs.csi_volume import (
    EPHEMERAL,
    LABEL,
    PERSISTENT,
    PREFIX,
    CsiVolume,
    inline_volume,
    persistent_csi_volume,
    publish_context,
    refused_mode,
    takes_mount_label,
    with_mount_label,
)
from services.volume.core.specs.expansion import ExpansionError, ExpansionFailure, failure_of_code
from services.volume.core.specs.gates import GET_VOLUME_HEALTH, VOLUME_CONDITION
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.selinux_mount import mount_label, selinux_use
from services.volume.core.specs.volume_spec import Node, Refused, SELinuxUse, VolumeSpec
from services.volume.plugins.csi_block import CsiBlockVolumes
from services.volume.plugins.csi_staging import CsiStagedVolumes, mount_group, require_unmounted
from services.volume.plugins.plugin import BlockVolumePlugin, ExpandableVolumePlugin, MeasuredVolumePlugin
from shared.files.tree_removal import RemovalProgress
from shared.host.mountinfo import containing
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.plugin_grpc.connection import PluginCallError
from shared.pods.directory import make_directory
from shared.podspec.names import dns_subdomain

_TARGET = "mount"
_SET_UP = f"{PREFIX}mounter.SetUpAt failed"


class CsiPlugin(BlockVolumePlugin[CsiVolume], ExpandableVolumePlugin[CsiVolume], MeasuredVolumePlugin[CsiVolume]):
    """Sets up csi volumes: makes the directories, keeps the records and calls the driver, which mounts."""

    name = "kubernetes.io/csi"
    persistent = True
    mount_options = True
    attachable = True

    @classmethod
    def read(cls, pod: Object, volume: str, source: Object, node: Node) -> VolumeSpec | Refused:
        """Return the spec of an inline volume; see VolumePlugin.read."""
        found = inline_volume(pod, volume, source, node.name, node.csi_driver)
        found = replace(found, health=node.health_capability)
        if why := refused_mode(found.driver, node.csi_driver, EPHEMERAL):
            return Refused(f"{_SET_UP} to check volume lifecycle mode: {why}")
        return _spec(found)

    @classmethod
    def read_persistent(cls, pod: Object, persistent: PersistentVolume, source: Object) -> VolumeSpec | Refused:
        """Return the spec of a PersistentVolume; see VolumePlugin.read_persistent."""
        driver = persistent.node.csi_driver
        found = persistent_csi_volume(pod, persistent, source, persistent.node.name, driver)
        found = replace(found, health=persistent.node.health_capability)
        if why := refused_mode(found.driver, driver, PERSISTENT):
            return Refused(f"{_SET_UP} to check volume lifecycle mode: {why}")
        if not found.handle:
            return Refused(f"{PREFIX}the PersistentVolume has no volumeHandle")
        use = selinux_use(pod, persistent) if takes_mount_label(driver) else None
        label = mount_label(use)
        return label if isinstance(label, Refused) else _spec(with_mount_label(found, label), use)

    def mount_device(self, volume_name: str, source: CsiVolume, gathered: SetUpInputs) -> str:
        """Stage the volume and return where; "" = the driver does not stage volumes."""
        return self._staged.mount(source, gathered)

    def unmount_device(self, volume_name: str) -> None:
        """Unstage the volume, unless it is still mounted elsewhere or mapped for a pod. Raises OSError."""
        driver, _, handle = volume_name.partition("^")
        self._blocks.unmap_device(driver, handle)
        self._staged.unmount(driver, handle)

    def reconstruct_devices(self) -> list[FoundDevice]:
        """Return every volume with a record of being staged or mapped."""
        self._blocks.directories.remove_unrecorded()
        records = [*self._staged.records(), *self._blocks.directories.records().values()]
        return [
            FoundDevice(self.name, f"{record['driverName']}^{record['volumeHandle']}", label=record.get(LABEL, ""))
            for record in records
        ]

    def set_up(self, uid: str, volume: str, source: CsiVolume, gathered: SetUpInputs) -> str:
        """Publish the volume, and give it to the pod's fsGroup at once."""
        target, rest = self.begin_set_up(uid, volume, source, gathered)
        if rest is not None:
            rest()
        return target

    def begin_set_up(
        self, uid: str, volume: str, source: CsiVolume, gathered: SetUpInputs
    ) -> tuple[str, Callable[[], None] | None]:
        """Publish the volume, which the driver mounts at `mount`. A repeated call never unpublishes it. The returned
        rest gives it to the pod's fsGroup, unless the driver has done so or the policy of the CSIDriver excludes it."""
        self._directories.make(uid)
        directory = self._directories.volume(uid, self.name, volume)
        target = directory / _TARGET
        with self._client(source.driver, f"{_SET_UP} to get CSI client") as client:
            attachment = publish_context_of(source, gathered)
            secrets = secret_of(source.publish_secret, "NodePublishSecretRef", gathered)
            context = publish_context(source, gathered, secrets)
            is_new = not has_record(directory)
            make_directory(directory.parent, 0o750)
            make_directory(directory, 0o750)
            save_record(directory, source.record())
            group = mount_group(client, source)
            staging = gathered.device_path
            try:
                client.publish(source, str(target), staging, attachment, context.volume, context.secrets, group)
            except PluginCallError as error:
                if is_new and is_final(error.code):
                    self._remove_published(directory)
                raise
        if group or source.fs_group is None or not source.applies_fs_group():
            return str(target), None
        return str(target), partial(self._give_to_group, uid, source, target, source.fs_group)

    def takes_labels(self, path: str) -> bool:
        """Return whether the files can have labels of their own: the driver may mount a file system without labels, or
        with one label for all files."""
        mount = containing(mount_table(), path)
        if mount is None:
            return False
        options = mount.options | mount.super_options
        return "seclabel" in options and not any(option.startswith("context=") for option in options)

    def tear_down(self, uid: str, volume: str, removed: RemovalProgress) -> None:
        """Unpublish the volume and remove its directory. Files that the driver left in it stay, and are an error."""
        directory = self._directories.volume(uid, self.name, volume)
        if not directory.is_dir():
            return
        record = load_record(directory)
        if record is not None:
            with self._client(record["driverName"], f"{PREFIX}Unmounter.TearDownAt failed to get CSI client") as client:
                client.unpublish(record["volumeHandle"], str(directory / _TARGET))
        self._remove_published(directory)

    def map_block(self, uid: str, volume: str, source: CsiVolume, gathered: SetUpInputs) -> str:
        """Publish the device for the pod, map it, and return the path of the pod's link to it."""
        self._directories.make(uid)
        link = self._directories.block_link(uid, self.name, volume)
        path = self._blocks.map(link, uid, volume, source, gathered)
        self.report_mapped(uid, volume, self._blocks.directories.global_map(volume), link)
        return path

    def unmap_block(self, uid: str, volume: str) -> None:
        """Unmap the device from the pod, and unpublish it."""
        self._blocks.unmap(self._directories.block_link(uid, self.name, volume), uid, volume)

    def expand(self, uid: str, volume: str, source: CsiVolume, capacity: int, gathered: SetUpInputs) -> None:
        """Let the driver expand the volume; see ExpandableVolumePlugin.expand."""
        target = self._published(uid, volume, source)
        failed = f"{PREFIX}Expander.NodeExpand failed to"
        with self._client(source.driver, f"{failed} get CSI client") as client:
            if not client.has("EXPAND_VOLUME"):
                text = f"NodeExpand is not supported by the CSI driver {source.driver}"
                raise ExpansionError(ExpansionFailure.UNSUPPORTED, f"{PREFIX}{text}")
            secrets = secret_of(source.expand_secret, "NodeExpandSecretRef", gathered)
            staging = str(self._staged.path(source)) if client.has("STAGE_UNSTAGE_VOLUME") else ""
            try:
                client.expand(source, str(target), staging, capacity, secrets)
            except PluginCallError as error:
                kind = failure_of_code(error.code, final=is_final(error.code))
                raise ExpansionError(kind, f"{failed} expand the volume: {error}") from None

    def usage(self, uid: str, volume: str, source: CsiVolume) -> VolumeReading | None:
        """Return the usage and the health that the driver reports. None = it has no usage, and did not answer for the
        health."""
        target, found = self._published(uid, volume, source), FilesystemUsage(time=self._clock.wall())
        with self._client(source.driver, f"{PREFIX}failed to get CSI client") as client:
            is_staged = bool(source.volume_name) and client.has("STAGE_UNSTAGE_VOLUME")
            staging = str(self._staged.path(source)) if is_staged else ""
            health: tuple[VolumeHealth, ...] | None = ()
            if source.health == GET_VOLUME_HEALTH and client.has(GET_VOLUME_HEALTH):
                try:
                    health = client.health(source.handle, str(target), staging)
                except PluginCallError:  # which is no recovery: what was known stays
                    health = None
            if not client.has("GET_VOLUME_STATS"):
                return VolumeReading(None, health=health) if health is not None else None
            stats = client.usage(source.handle, str(target), staging)
            for unit, available, total, used in stats.figures:
                if unit == "BYTES":
                    found = replace(found, available=available, capacity=total, used=used)
                elif unit == "INODES":
                    found = replace(found, inodes_free=available, inodes=total, inodes_used=used)
            asked = source.health == VOLUME_CONDITION and stats.abnormal is not None
            reports = asked and client.has(VOLUME_CONDITION)
        condition = (stats.abnormal, stats.condition) if reports else (None, "")
        return VolumeReading(found, *condition, health)

    def _published(self, uid: str, volume: str, source: CsiVolume) -> Path:
        if source.block:
            return self._blocks.directories.target(volume, uid)
        return self._directories.volume(uid, self.name, volume) / _TARGET

    def reconstruct(self, uid: str) -> list[FoundVolume]:
        """Return every volume of the pod that is on disk. One whose record cannot be read is returned as well: its
        teardown reports why it fails."""
        blocks = {*self._directories.block_links_of(uid, self.name), *self._blocks.directories.published(uid)}
        return [
            *(
                self._found(volume, self._directories.volume(uid, self.name, volume))
                for volume in self._directories.volumes_of(uid, self.name)
            ),
            *(self._found(volume, self._blocks.directories.data(volume)) for volume in sorted(blocks)),
        ]

    @property
    def _blocks(self) -> CsiBlockVolumes:
        return CsiBlockVolumes(CsiBlockDirectories(self._root), self._client)

    @property
    def _staged(self) -> CsiStagedVolumes:
        return CsiStagedVolumes(self._root, self._blocks, self._client)

    @property
    def _root(self) -> Path:
        return self._directories.pods.parent / "plugins" / self.name

    def _found(self, volume: str, directory: Path) -> FoundVolume:
        try:
            record = load_record(directory) or {}
        except CsiRecordError:
            return FoundVolume(volume, self.name, device_unknown=True)
        staged = bool(record) and record.get("volumeLifecycleMode") != EPHEMERAL
        unique_name = f"{self.name}/{record['driverName']}^{record['volumeHandle']}" if staged else ""
        return FoundVolume(volume, self.name, unique_name=unique_name)

    @contextmanager
    def _client(self, driver: str, failed: str) -> Iterator[CsiClient]:
        """Connect to the driver, and raise its errors as OSError. Raises ContentError, whose text begins with `failed`,
        for a driver that is not registered."""
        try:
            with csi_client(driver, self._drivers) as client:
                yield client
        except UnknownDriverError as error:
            # After a restart drivers register within moments, and volumes are tried again at once.
            raise ContentError([Problem(f"{failed}: {error}", FailureKind.UNANSWERED)]) from None
        except PluginCallError as error:
            raise OSError(errno.EIO, str(error)) from None

    def _give_to_group(self, uid: str, source: CsiVolume, target: Path, group: int) -> None:
        if not source.always_change_group and belongs_to_group(target, group):
            return
        try:
            change = OwnershipChange(uid, target, self._clock, self.report)
            give_to_group(target, group, visited=change.visited)
        except OSError as error:
            why = f"applyFSGroup failed for vol {source.handle}: {error.strerror}"
            raise OSError(error.errno, f"{_SET_UP} to set fsGroup: {why}") from None

    def _remove_published(self, directory: Path) -> None:
        target = directory / _TARGET
        require_unmounted(target)
        if target.is_dir() and not target.is_symlink():
            target.rmdir()
        remove_record(directory)
        if directory.is_dir():
            directory.rmdir()


def _spec(volume: CsiVolume, use: SELinuxUse | None = None) -> VolumeSpec | Refused:
    if problems := dns_subdomain(volume.driver.lower()):
        return Refused(f"{PREFIX}the name of the driver is invalid: {problems[0]}")
    return VolumeSpec(
        plugin=CsiPlugin.name,
        source=volume,
        volume_name=volume.volume_name,
        block=volume.block,
        read_only=volume.read_only,
        selinux_relabel=not volume.read_only and not volume.block and not volume.mount_label,
        mount_label=volume.mount_label,
        selinux=use,
        requires_remount=volume.republish,
        objects=volume.objects,
        expansion_objects=frozenset({volume.expand_secret} if volume.expand_secret is not None else ()),
        tokens=tuple(key for _, key in volume.tokens),
        attachable=bool(volume.attachment),
        served_by=volume.driver,
        reports_health=volume.health == GET_VOLUME_HEALTH,
        updates_limit=volume.updates_limit,
    )
