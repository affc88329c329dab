"""Makes the calls of drivers of dynamic resource allocation, v1 and v1beta1, follows the health of their devices, and
converts their messages (interfaces.md). Each call has a connection of its own."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, closing

from msgspec import Struct

from services.volume.core.resource_claims.device_health import Health, ReportedDevice
from services.volume.core.resource_claims.driver_checks import Answer, Device
from shared.plugin_grpc.async_connection import NewestMessage, connected_async
from shared.plugin_grpc.connection import decoded
from shared.plugin_grpc.dra_health_pb2 import NodeWatchResourcesRequest, NodeWatchResourcesResponse
from shared.plugin_grpc.dra_pb2 import (
    Claim,
    NodePrepareResourcesRequest,
    NodePrepareResourcesResponse,
    NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
)

CALL_TIMEOUT_SECONDS = 45.0  # with the connection
_WATCH = "NodeWatchResources"
_HEALTH = {1: Health.HEALTHY, 2: Health.UNHEALTHY}
PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"


class CalledClaim(Struct, frozen=True, kw_only=True):
    """Names a claim in a call."""

    namespace: str
    uid: str
    name: str


def full_method(service: str, method: str) -> str:
    """Return the method of a service as gRPC names it."""
    return f"/k8s.io.kubelet.pkg.apis.dra.{service}/{method}"


async def prepare(endpoint: str, service: str, claims: Iterable[CalledClaim]) -> Mapping[str, Answer]:
    """Have the driver prepare the claims; return its answers by the claims' UIDs. `endpoint`: the absolute path of its
    socket; `service`: such as `v1.DRAPlugin`. Raises PluginCallError."""
    request = NodePrepareResourcesRequest(claims=_messages(claims))
    method = full_method(service, PREPARE)
    async with connected_async(endpoint) as connection:
        found = await connection.call(method, request, NodePrepareResourcesResponse, CALL_TIMEOUT_SECONDS)
    return {
        uid: Answer(
            error=answer.error,
            devices=tuple(
                Device(
                    pool=each.pool_name,
                    device=each.device_name,
                    share_id=each.share_id,
                    requests=tuple(each.request_names),
                    cdi_devices=tuple(each.cdi_device_ids),
                )
                for each in answer.devices
            ),
        )
        for uid, answer in found.claims.items()
    }


async def unprepare(endpoint: str, service: str, claims: Iterable[CalledClaim]) -> Mapping[str, Answer]:
    """Have the driver unprepare the claims; return its answers by the claims' UIDs. Raises PluginCallError."""
    request = NodeUnprepareResourcesRequest(claims=_messages(claims))
    method = full_method(service, UNPREPARE)
    async with connected_async(endpoint) as connection:
        found = await connection.call(method, request, NodeUnprepareResourcesResponse, CALL_TIMEOUT_SECONDS)
    return {uid: Answer(error=answer.error) for uid, answer in found.claims.items()}


@asynccontextmanager
async def followed_health(endpoint: str, service: str) -> AsyncIterator[NewestMessage]:
    """Yield the reports about the health of the driver's devices. `service`: such as `v1.DRAResourceHealth`."""
    async with connected_async(endpoint) as connection:
        with closing(connection.follow(f"/{service}/{_WATCH}", NodeWatchResourcesRequest())) as reports:
            yield reports


def decode_health(message: bytes) -> tuple[Iterable[ReportedDevice], int]:
    """Return the devices of a report, and how many there are. Raises PluginCallError."""
    found = decoded(message, NodeWatchResourcesResponse, _WATCH).devices
    reported = (
        ReportedDevice(
            pool=each.device.pool_name,
            device=each.device.device_name,
            health=_HEALTH.get(each.health, Health.UNKNOWN),
            timeout=float(each.health_check_timeout_seconds),
            message=each.message,
        )
        for each in found
    )
    return reported, len(found)


def _messages(claims: Iterable[CalledClaim]) -> list[Claim]:
    return [Claim(namespace=claim.namespace, uid=claim.uid, name=claim.name) for claim in claims]
