"""The Node service of a CSI driver: requests from values, a connection for each operation; blocking (volumes.md 14.4).

All calls of one operation share its time limit. No error and no log line contains a secret.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from services.volume.core.csi_volume import CsiVolume
from services.volume.core.outcome import DriverCall
from shared.plugin_grpc import csi_pb2 as csi
from shared.plugin_grpc.connection import Answer, PluginCallError, PluginConnection, PluginMessage, connected
from shared.process.crash import crash_point

TIMEOUT = 120.0  # seconds of one operation
# With these codes, the driver may have done what it was asked for, or be at it; with all others it has not.
_UNCERTAIN = frozenset({"Canceled", "DeadlineExceeded", "Unavailable", "ResourceExhausted", "Aborted"})
_LONGEST_CONDITION = 1024  # characters, the most of an Event


@dataclass(frozen=True)
class CsiDrivers:
    """The registered drivers. `socket` returns the path of the socket of one, None = it is not registered; `called` is
    called with each call that has ended, in its thread."""

    socket: Callable[[str], str | None] = lambda _: None
    called: Callable[[DriverCall], None] = lambda _: None


NO_DRIVERS = CsiDrivers()


class UnknownDriverError(Exception):
    """The driver is not registered now."""

    def __init__(self, driver: str) -> None:
        super().__init__(f"driver name {driver} not found in the list of registered CSI drivers")


def is_final(code: str) -> bool:
    """Return whether a call that failed with this code has had, and will have, no effect."""
    return code not in _UNCERTAIN


@dataclass(frozen=True)
class VolumeStats:
    """The answer to NodeGetVolumeStats. `figures`: unit ("BYTES", "INODES"), available, total, used; `abnormal` None =
    the driver reports no condition."""

    figures: tuple[tuple[str, int, int, int], ...]
    abnormal: bool | None = None
    condition: str = ""


class CsiClient:
    """The calls of one operation; each is passed to `called` once it has ended. Raises PluginCallError."""

    def __init__(
        self, connection: PluginConnection, driver: str = "", called: Callable[[DriverCall], None] = lambda _: None
    ) -> None:
        self._connection, self._ends_by = connection, time.monotonic() + TIMEOUT
        self._driver, self._called = driver, called
        self._capabilities: frozenset[str] | None = None

    def has(self, capability: str) -> bool:
        """Return whether the driver has this capability of the Node service now."""
        if self._capabilities is None:
            answer = self._call(
                "NodeGetCapabilities", csi.NodeGetCapabilitiesRequest(), csi.NodeGetCapabilitiesResponse
            )
            kinds = csi.NodeServiceCapability.RPC.Type
            known = {number: name for name, number in kinds.items()}
            self._capabilities = frozenset(known.get(each.rpc.type, "") for each in answer.capabilities)
        return capability in self._capabilities

    def stage(
        self, volume: CsiVolume, path: str, publish_context: Mapping[str, str], secrets: Mapping[str, str], group: str
    ) -> None:
        """NodeStageVolume. `group`: a group ID that the driver mounts the volume for, "" = none."""
        request = csi.NodeStageVolumeRequest(
            volume_id=volume.handle,
            publish_context=publish_context,
            staging_target_path=path,
            volume_capability=self._capability(volume, group),
            secrets=secrets,
            volume_context=dict(volume.attributes),
        )
        self._call("NodeStageVolume", request, csi.NodeStageVolumeResponse)

    def unstage(self, handle: str, path: str) -> None:
        """NodeUnstageVolume."""
        request = csi.NodeUnstageVolumeRequest(volume_id=handle, staging_target_path=path)
        self._call("NodeUnstageVolume", request, csi.NodeUnstageVolumeResponse)

    def publish(
        self,
        volume: CsiVolume,
        target: str,
        staging: str,
        publish_context: Mapping[str, str],
        volume_context: Mapping[str, str],
        secrets: Mapping[str, str],
        group: str,
    ) -> None:
        """NodePublishVolume. `staging` "" = the volume is not staged; `group` as for `stage`."""
        request = csi.NodePublishVolumeRequest(
            volume_id=volume.handle,
            publish_context=publish_context,
            staging_target_path=staging,
            target_path=target,
            volume_capability=self._capability(volume, group),
            readonly=volume.read_only,
            secrets=secrets,
            volume_context=volume_context,
        )
        self._call("NodePublishVolume", request, csi.NodePublishVolumeResponse)

    def unpublish(self, handle: str, target: str) -> None:
        """NodeUnpublishVolume."""
        request = csi.NodeUnpublishVolumeRequest(volume_id=handle, target_path=target)
        self._call("NodeUnpublishVolume", request, csi.NodeUnpublishVolumeResponse)

    def expand(self, volume: CsiVolume, path: str, staging: str, size: int, secrets: Mapping[str, str]) -> None:
        """NodeExpandVolume, to `size` bytes, without a group. `path`: where the volume is published; `staging` as for
        `publish`."""
        request = csi.NodeExpandVolumeRequest(
            volume_id=volume.handle,
            volume_path=path,
            capacity_range=csi.CapacityRange(required_bytes=size),
            staging_target_path=staging,
            volume_capability=self._capability(volume, ""),
            secrets=secrets,
        )
        self._call("NodeExpandVolume", request, csi.NodeExpandVolumeResponse)

    def usage(self, handle: str, path: str, staging: str) -> VolumeStats:
        """NodeGetVolumeStats."""
        request = csi.NodeGetVolumeStatsRequest(volume_id=handle, volume_path=path, staging_target_path=staging)
        answer = self._call("NodeGetVolumeStats", request, csi.NodeGetVolumeStatsResponse)
        names = {number: name for name, number in csi.VolumeUsage.Unit.items()}
        figures = tuple((names.get(each.unit, ""), each.available, each.total, each.used) for each in answer.usage)
        if not answer.HasField("volume_condition"):
            return VolumeStats(figures)
        condition = answer.volume_condition
        return VolumeStats(figures, condition.abnormal, condition.message[:_LONGEST_CONDITION])

    def _capability(self, volume: CsiVolume, group: str) -> csi.VolumeCapability:
        mode = volume.access_mode(multi_writer=self.has("SINGLE_NODE_MULTI_WRITER"))
        access = csi.VolumeCapability.AccessMode(mode=mode)
        if volume.block:
            return csi.VolumeCapability(block=csi.VolumeCapability.BlockVolume(), access_mode=access)
        mount = csi.VolumeCapability.MountVolume(
            fs_type=volume.fs_type, mount_flags=volume.mount_options, volume_mount_group=group
        )
        return csi.VolumeCapability(mount=mount, access_mode=access)

    def _call(self, method: str, request: PluginMessage, answer: type[Answer]) -> Answer:
        crash_point(f"volume.csi.calling.{method}")
        path, code, began = f"/csi.v1.Node/{method}", "OK", time.monotonic()
        try:
            found = self._connection.call(path, request, answer, max(0.001, self._ends_by - began))
        except PluginCallError as error:
            code = error.code
            raise
        finally:
            self._called(DriverCall(self._driver, path, code, time.monotonic() - began))
        crash_point(f"volume.csi.answered.{method}")
        return found


@contextmanager
def csi_client(driver: str, drivers: CsiDrivers) -> Iterator[CsiClient]:
    """The client of a registered driver. Raises UnknownDriverError."""
    socket = drivers.socket(driver)
    if socket is None:
        raise UnknownDriverError(driver)
    with connected(socket) as connection:
        yield CsiClient(connection, driver, drivers.called)
