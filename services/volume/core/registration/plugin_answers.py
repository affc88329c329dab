"""Checks whether a plugin's answers at its registration can be used, with the kubelet's texts (node.md 8.1, 8.2);
pure."""

import json
import re
from collections.abc import Mapping

from msgspec import Struct, field

from bus.messages.volume import CsiNode, RegisteredPlugin
from services.volume.core.device_plugins import plugin_checks
from services.volume.core.resource_claims import driver_checks
from shared.model.frozen_copy import replace
from shared.podspec.names import dns_subdomain, label_value, qualified_name

CSI, DEVICE, DRA = "CSIPlugin", "DevicePlugin", "DRAPlugin"
HANDLED = (CSI, DEVICE, DRA)
_MAX_VOLUME_COUNT = 2**31 - 1  # a CSINode takes no larger one
_MAX_CHARACTERS = 4096  # of an endpoint, and of all versions together; those of real plugins are much shorter
_MAX_SEGMENTS = 64
_MAX_NAME_CHARACTERS = 63
_MAX_NODE_ID_CHARACTERS = 192  # a CSINode takes no longer one
_VERSION = re.compile(r"v?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?")


class PluginInfo(Struct, frozen=True):
    """The answer to GetInfo. `endpoint`: the absolute path of the plugin's own socket."""

    type: str
    name: str
    endpoint: str
    versions: tuple[str, ...]


class NodeInfo(Struct, frozen=True):
    """The answer to NodeGetInfo of a CSI driver."""

    node_id: str
    max_volumes: int = 0
    topology: Mapping[str, str] = field(default_factory=dict)


class UnusablePluginError(Exception):
    """The plugin cannot be registered; the text is sent to it. `final`: a further attempt cannot succeed."""

    def __init__(self, text: str, *, final: bool = True) -> None:
        super().__init__(text)
        self.final = final


def version_of(info: PluginInfo, socket: str, other: RegisteredPlugin | None) -> str:
    """Return the version of the plugin's interface that is used. `other`: a plugin of the same type and name at another
    socket. Raises UnusablePluginError."""
    if info.type not in HANDLED:
        handler = f"no handler registered for plugin type: {info.type[:64]} at socket {socket}"
        raise UnusablePluginError(f"RegisterPlugin error -- {handler}")
    if info.type == DEVICE:
        return _device_plugin_version(info)
    if info.type == DRA:
        return _dra_version(info)
    found = _validated(info, other)
    if isinstance(found, str):
        return found
    why = f"validation failed for CSI Driver {info.name[:64]} at endpoint {info.endpoint[:128]}: {found[0]}"
    final = other is None  # the other one may be gone by the next attempt
    raise UnusablePluginError(f"RegisterPlugin error -- plugin validation failed with err: {why}", final=final)


def registered_csi(info: PluginInfo, version: str, node: NodeInfo) -> RegisteredPlugin:
    """Return the driver as it is published. Raises UnusablePluginError for an answer that no CSINode can show."""
    problem = _node_problem(node)
    if problem:
        failed = f"RegisterPlugin error -- plugin registration failed with err: {problem}"
        raise UnusablePluginError(failed, final=False)
    csi = CsiNode(node_id=node.node_id, max_volumes=_count(node), topology=dict(node.topology))
    return RegisteredPlugin(type=info.type, name=info.name, endpoint=info.endpoint, version=version, csi=csi)


def with_limit(plugin: RegisteredPlugin, node: NodeInfo) -> RegisteredPlugin:
    """Return the driver with a newly read number of volumes; the rest of its first answer stays."""
    return replace(plugin, csi=replace(plugin.csi, max_volumes=_count(node))) if plugin.csi is not None else plugin


def _count(node: NodeInfo) -> int:
    return min(max(node.max_volumes, 0), _MAX_VOLUME_COUNT)


def registered_plugin(info: PluginInfo, version: str) -> RegisteredPlugin:
    """Return the device plugin or DRA driver as it is published."""
    health = driver_checks.health_service_of(info.versions) if info.type == DRA else ""
    return RegisteredPlugin(type=info.type, name=info.name, endpoint=info.endpoint, version=version, health=health)


def unusable_device_plugin(error: Exception) -> UnusablePluginError:
    """Return the error for a device plugin that cannot be used now."""
    text = f"RegisterPlugin error -- plugin registration failed with err: {error}"
    return UnusablePluginError(text, final=False)


def _device_plugin_version(info: PluginInfo) -> str:
    try:
        plugin_checks.check_resource(info.name)
        plugin_checks.check_socket(info.endpoint)
        if plugin_checks.VERSION not in info.versions:
            raise plugin_checks.UnusableDevicesError(
                f"manager version, {plugin_checks.VERSION}, is not among plugin supported versions "
                f"[{' '.join(info.versions)[:128]}]"
            )
    except plugin_checks.UnusableDevicesError as error:
        raise UnusablePluginError(f"RegisterPlugin error -- plugin validation failed with err: {error}") from None
    return plugin_checks.VERSION


def _dra_version(info: PluginInfo) -> str:
    try:
        driver_checks.check_name(info.name)
        plugin_checks.check_socket(info.endpoint)
        return driver_checks.service_of(info.versions)
    except (driver_checks.DriverError, plugin_checks.UnusableDevicesError) as error:
        text = f"invalid versions of plugin {info.name[:64]}: {error}"
        raise UnusablePluginError(f"RegisterPlugin error -- plugin validation failed with err: {text}") from None


def _validated(info: PluginInfo, other: RegisteredPlugin | None) -> str | tuple[str]:
    """Return the version that is used, or a tuple with the reason why there is none."""
    prefix = f"ValidatePlugin for CSI driver {_quoted(info.name[:64])} failed."
    if problems := dns_subdomain(info.name.lower()):
        return (f"{prefix} The name is invalid: {problems[0]}",)
    if len(info.name) > _MAX_NAME_CHARACTERS:
        return (f"{prefix} The name is invalid: must be no more than {_MAX_NAME_CHARACTERS} characters",)
    if not info.endpoint.startswith("/") or len(info.endpoint) > _MAX_CHARACTERS or "\0" in info.endpoint:
        return (f"{prefix} The endpoint must be an absolute path",)
    if not info.versions:
        return (f"{prefix} Plugin returned an empty list for supported versions",)
    if sum(map(len, info.versions)) > _MAX_CHARACTERS:
        return (f"{prefix} The list of supported versions is too long",)
    parsed = {version: _parsed(version) for version in info.versions}
    usable = {version: parts for version, parts in parsed.items() if parts is not None and parts[0] == 1}
    if not usable:
        listed = " ".join(map(_quoted, info.versions))
        malformed = [version for version, parts in parsed.items() if parts is None]
        cause = f"could not parse {_quoted(malformed[0])} as version" if malformed else "<nil>"
        return (f"{prefix} None of the versions specified [{listed}] are supported. err={cause}",)
    highest = max(usable, key=lambda version: usable[version])
    if other is not None and (_parsed(other.version) or (0, 0, 0)) >= usable[highest]:
        taken = "Another driver with the same name is already registered with a higher supported version"
        return (f"{prefix} {taken}: {_quoted(other.version)}",)
    return highest


def _parsed(version: str) -> tuple[int, int, int] | None:
    found = _VERSION.fullmatch(version)
    return (int(found[1]), int(found[2] or 0), int(found[3] or 0)) if found else None


def _node_problem(node: NodeInfo) -> str:
    if not node.node_id:
        return "NodeGetInfo returned an empty node_id"
    if len(node.node_id) > _MAX_NODE_ID_CHARACTERS:
        return f"NodeGetInfo returned a node_id of more than {_MAX_NODE_ID_CHARACTERS} characters"
    if len(node.topology) > _MAX_SEGMENTS:
        return f"NodeGetInfo returned more than {_MAX_SEGMENTS} topology segments"
    for key, value in node.topology.items():
        if problems := [*qualified_name(key), *label_value(value)]:
            segment = _quoted(f"{key}={value}"[:128])
            return f"NodeGetInfo returned a topology segment that is no label: {segment}: {problems[0]}"
    return ""


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
