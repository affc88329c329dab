"""Calls the Node service of a CSI driver, with one connection for each operation; blocking (volumes.md 14.4).

All calls of one operation share its time limit. No error and no log line contains a secret.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct

from bus.messages.volume import VolumeHealth
from services.volume.core.operations.outcome import DriverCall
from services.volume.core.specs.csi_volume import CsiVolume
from shared.plugin_grpc import csi_pb2 as csi
from shared.plugin_grpc.connection import Answer, PluginCallError, PluginConnection, PluginMessage, connected
from shared.process.crash import crash_point

TIMEOUT_SECONDS = 120.0  # of one operation
# After a failure with one of these codes the driver may have done the work, or may still be doing it.
_UNCERTAIN = frozenset({"Canceled", "DeadlineExceeded", "Unavailable", "ResourceExhausted", "Aborted"})
_MAX_CONDITION_CHARACTERS = 1024  # of the message of a volume condition: an Event takes no more
# The API server refuses the status of a pod in which a volume has more conditions, or one that is longer.
_MAX_CONDITIONS, _MAX_REASON_BYTES, _MAX_MESSAGE_BYTES = 16, 256, 1024
_HEALTH = {csi.INACCESSIBLE: "Inaccessible", csi.DATA_LOSS: "DataLoss", csi.DEGRADED: "Degraded"}


class CsiDrivers(Struct, frozen=True):
    """The CSI drivers that are registered.

    `socket` returns the path of a driver's socket, None = the driver is not registered; `called` is called in the
    thread of a call when the call has ended.
    """

    socket: Callable[[str], str | None] = lambda _: None
    called: Callable[[DriverCall], None] = lambda _: None


NO_DRIVERS = CsiDrivers()


class UnknownDriverError(Exception):
    """The driver is not registered now."""

    def __init__(self, driver: str) -> None:
        super().__init__(f"driver name {driver} not found in the list of registered CSI drivers")


def is_final(code: str) -> bool:
    """Return whether a call that failed with this code has had no effect and will have none."""
    return code not in _UNCERTAIN


class VolumeStats(Struct, frozen=True):
    """The answer to NodeGetVolumeStats.

    `figures`: unit ("BYTES", "INODES"), available, total, used; `abnormal`: whether the volume is damaged, None = the
    driver reports no condition.
    """

    figures: tuple[tuple[str, int, int, int], ...]
    abnormal: bool | None = None
    condition: str = ""


class CsiClient:
    """Makes the calls of one operation; each is passed to `called` once it has ended. Methods raise PluginCallError."""

    def __init__(
        self, connection: PluginConnection, driver: str = "", called: Callable[[DriverCall], None] = lambda _: None
    ) -> None:
        self._connection, self._ends_by = connection, time.monotonic() + TIMEOUT_SECONDS
        self._driver, self._called = driver, called
        self._capabilities: frozenset[str] | None = None

    def has(self, capability: str) -> bool:
        """Return whether the driver's Node service has this capability now."""
        if self._capabilities is None:
            answer = self._call(
                "NodeGetCapabilities", csi.NodeGetCapabilitiesRequest(), csi.NodeGetCapabilitiesResponse
            )
            kinds = csi.NodeServiceCapability.RPC.Type
            known = {number: name for name, number in kinds.items()}
            self._capabilities = frozenset(known.get(found.rpc.type, "") for found in answer.capabilities)
        return capability in self._capabilities

    def stage(
        self, volume: CsiVolume, path: str, publish_context: Mapping[str, str], secrets: Mapping[str, str], group: str
    ) -> None:
        """Call NodeStageVolume. `group`: a group ID that the driver mounts the volume for, "" = none."""
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
        """Call NodeUnstageVolume."""
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
        """Call NodePublishVolume. `staging` "" = the volume is not staged; `group` as for `stage`."""
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
        """Call NodeUnpublishVolume."""
        request = csi.NodeUnpublishVolumeRequest(volume_id=handle, target_path=target)
        self._call("NodeUnpublishVolume", request, csi.NodeUnpublishVolumeResponse)

    def expand(self, volume: CsiVolume, path: str, staging: str, size: int, secrets: Mapping[str, str]) -> None:
        """Call NodeExpandVolume, to `size` bytes, without a group. `path`: where the volume is published; `staging` as
        for `publish`."""
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
        """Call NodeGetVolumeStats and return its answer."""
        request = csi.NodeGetVolumeStatsRequest(volume_id=handle, volume_path=path, staging_target_path=staging)
        answer = self._call("NodeGetVolumeStats", request, csi.NodeGetVolumeStatsResponse)
        names = {number: name for name, number in csi.VolumeUsage.Unit.items()}
        usages = answer.usage
        figures = tuple((names.get(usage.unit, ""), usage.available, usage.total, usage.used) for usage in usages)
        if not answer.HasField("volume_condition"):
            return VolumeStats(figures)
        condition = answer.volume_condition
        return VolumeStats(figures, condition.abnormal, condition.message[:_MAX_CONDITION_CHARACTERS])

    def health(self, handle: str, path: str, staging: str) -> tuple[VolumeHealth, ...]:
        """Call NodeGetVolumeHealth and return the adverse conditions, the worst first; those without a reason or with a
        status that is not known are left out."""
        request = csi.NodeGetVolumeHealthRequest(
            volume_id=handle, volume_publish_path=path, staging_target_path=staging
        )
        answer = self._call("NodeGetVolumeHealth", request, csi.NodeGetVolumeHealthResponse)
        found = {}
        reported = answer.volume_health.health_statuses
        for entry in sorted(reported, key=lambda each: (each.status, each.reason, each.message)):
            status, reason = _HEALTH.get(entry.status), _cut(entry.reason, _MAX_REASON_BYTES)
            if status and reason:
                message = _cut(entry.message, _MAX_MESSAGE_BYTES)
                found[status, reason] = VolumeHealth(status=status, reason=reason, message=message)
        return tuple(found.values())[:_MAX_CONDITIONS]

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


def _cut(text: str, limit: int) -> str:
    """Return what of the text has at most `limit` bytes of UTF-8."""
    return text.encode()[:limit].decode(errors="ignore")


@contextmanager
def csi_client(driver: str, drivers: CsiDrivers) -> Iterator[CsiClient]:
    """Connect to a registered driver for one operation. Raises UnknownDriverError."""
    socket = drivers.socket(driver)
    if socket is None:
        raise UnknownDriverError(driver)
    with connected(socket) as connection:
        yield CsiClient(connection, driver, drivers.called)
