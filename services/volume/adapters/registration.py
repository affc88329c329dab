"""Makes the calls of plugin registration v1, and NodeGetInfo of a CSI driver, each over a connection of its own;
blocking."""

from services.volume.core.registration.plugin_answers import NodeInfo, PluginInfo
from shared.plugin_grpc.connection import connected
from shared.plugin_grpc.csi_pb2 import NodeGetInfoRequest, NodeGetInfoResponse
from shared.plugin_grpc.registration_pb2 import InfoRequest, RegistrationStatus, RegistrationStatusResponse
from shared.plugin_grpc.registration_pb2 import PluginInfo as InfoAnswer

INFO_TIMEOUT_SECONDS = 10.0  # with the connection
NOTIFY_TIMEOUT_SECONDS = 5.0
NODE_INFO_TIMEOUT_SECONDS = 120.0
_REGISTRATION = "/pluginregistration.Registration"


def get_info(socket: str) -> PluginInfo:
    """Return type, name, endpoint and versions of the plugin at this socket. Raises PluginCallError."""
    with connected(socket) as connection:
        answer = connection.call(f"{_REGISTRATION}/GetInfo", InfoRequest(), InfoAnswer, INFO_TIMEOUT_SECONDS)
    versions = tuple(answer.supported_versions)
    return PluginInfo(type=answer.type, name=answer.name, endpoint=answer.endpoint or socket, versions=versions)


def notify(socket: str, error: str) -> None:
    """Send the plugin its registration status; `error` "" = it is registered. Raises PluginCallError."""
    status = RegistrationStatus(plugin_registered=not error, error=error)
    method = f"{_REGISTRATION}/NotifyRegistrationStatus"
    with connected(socket) as connection:
        connection.call(method, status, RegistrationStatusResponse, NOTIFY_TIMEOUT_SECONDS)


def node_get_info(endpoint: str) -> NodeInfo:
    """Return what the CSI driver at this endpoint reports about the node. Raises PluginCallError."""
    method = "/csi.v1.Node/NodeGetInfo"
    with connected(endpoint) as connection:
        answer = connection.call(method, NodeGetInfoRequest(), NodeGetInfoResponse, NODE_INFO_TIMEOUT_SECONDS)
    topology = dict(answer.accessible_topology.segments)
    return NodeInfo(node_id=answer.node_id, max_volumes=answer.max_volumes_per_node, topology=topology)
