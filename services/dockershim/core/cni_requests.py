"""Network configurations of CNI, and what its plugins are called with and answer (CNI specification 1.0). Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

MAX_CONFIGURATION_BYTES = 1024 * 1024
_SUFFIXES = (".conf", ".conflist", ".json")
_INTERFACE = "eth0"


class NetworkConfigurationError(ValueError):
    """A configuration file of CNI cannot be used, or there is none."""


class Network(Struct, frozen=True):
    """A network: what it is called and the configurations of its plugins, in the order of ADD."""

    name: str
    version: str
    plugins: tuple[Mapping[str, Any], ...]


class Attachment(Struct, frozen=True, kw_only=True):
    """The sandbox that a network is set up for. `capabilities`: values for the plugins that have the capability."""

    sandbox_id: str
    name: str
    namespace: str
    uid: str
    capabilities: Mapping[str, Any] = {}


def is_configuration(name: str) -> bool:
    """Return whether a file of this name counts as a configuration."""
    return name.endswith(_SUFFIXES)


def parse_network(text: bytes) -> Network:
    """Return the network of a configuration or a list of configurations. Raises NetworkConfigurationError."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise NetworkConfigurationError(f"it is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise NetworkConfigurationError("it is no JSON object")
    plugins = content.get("plugins", [content])
    name, version = content.get("name"), content.get("cniVersion", "0.2.0")
    if not (isinstance(name, str) and name and isinstance(version, str)):
        raise NetworkConfigurationError("it has no name")
    if not isinstance(plugins, list) or not plugins:
        raise NetworkConfigurationError("it has no plugins")
    for plugin in plugins:
        kind = plugin.get("type") if isinstance(plugin, dict) else None
        if not isinstance(kind, str) or not kind or "/" in kind:
            raise NetworkConfigurationError("the type of a plugin is not the name of a program")
    return Network(name, version, tuple(plugins))


def environment_of(command: str, attachment: Attachment, netns: str, path: str) -> dict[str, str]:
    """Return the variables of a call. `netns` may be empty for DEL: the namespace is gone."""
    arguments = {
        "IgnoreUnknown": "1",
        "K8S_POD_NAMESPACE": attachment.namespace,
        "K8S_POD_NAME": attachment.name,
        "K8S_POD_INFRA_CONTAINER_ID": attachment.sandbox_id,
        "K8S_POD_UID": attachment.uid,
    }
    return {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": attachment.sandbox_id,
        "CNI_NETNS": netns,
        "CNI_IFNAME": _INTERFACE,
        "CNI_PATH": path,
        "CNI_ARGS": ";".join(f"{name}={value}" for name, value in arguments.items()),
    }


def input_of(network: Network, plugin: Mapping[str, Any], attachment: Attachment, result: Any) -> bytes:
    """Return what a plugin reads: its configuration, the network's name, and the result of the one before it."""
    capabilities = plugin.get("capabilities") or {}
    wanted = {name: value for name, value in attachment.capabilities.items() if capabilities.get(name)}
    content: dict[str, Any] = {**plugin, "name": network.name, "cniVersion": network.version}
    content.pop("capabilities", None)
    if wanted:
        content["runtimeConfig"] = wanted
    if result is not None:
        content["prevResult"] = result
    return json.dumps(content).encode()


def addresses_of(result: Any) -> tuple[str, ...]:
    """Return the addresses of a result, without their masks: those of the container's interface, else all."""
    if not isinstance(result, dict):
        return ()
    found = [entry for entry in result.get("ips") or () if isinstance(entry, dict)]
    interfaces = result.get("interfaces") or ()
    inside = [entry for entry in found if _is_inside(entry, interfaces)]
    texts = [entry.get("address") for entry in inside or found]
    texts += [result[key].get("ip") for key in ("ip4", "ip6") if isinstance(result.get(key), dict)]
    return tuple(text.partition("/")[0] for text in texts if isinstance(text, str))


def _is_inside(entry: Mapping[str, Any], interfaces: Sequence[Any]) -> bool:
    index = entry.get("interface")
    if not isinstance(index, int) or not 0 <= index < len(interfaces):
        return False
    interface = interfaces[index]
    return isinstance(interface, dict) and bool(interface.get("sandbox"))


def capabilities_of(config: Any) -> dict[str, Any]:
    """Return the values for plugins with capabilities of a PodSandboxConfig: host ports and DNS."""
    protocols = ("tcp", "udp", "sctp")
    ports = [
        {
            "hostPort": mapping.host_port,
            "containerPort": mapping.container_port,
            "protocol": protocols[mapping.protocol],
            "hostIP": mapping.host_ip,
        }
        for mapping in config.port_mappings
        if mapping.host_port > 0
    ]
    values: dict[str, Any] = {"portMappings": ports} if ports else {}
    if config.HasField("dns_config") and config.dns_config.servers:
        dns = config.dns_config
        values["dns"] = {
            "servers": list(dns.servers),
            "searches": list(dns.searches),
            "options": list(dns.options),
        }
    return values


def resolv_conf(dns: Any) -> str:
    """Return the text of a sandbox's resolv.conf."""
    lines = [f"nameserver {server}" for server in dns.servers]
    if dns.searches:
        lines.append("search " + " ".join(dns.searches))
    if dns.options:
        lines.append("options " + " ".join(dns.options))
    return "".join(line + "\n" for line in lines)
