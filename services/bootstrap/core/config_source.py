"""Reads a ConfigMap and the Node's reference to it, and the record of one version of it (config.md 4.1, 4.2). Pure.

Objects of the API server and contents of files are not trusted: names become names of files only after a check.
"""

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from shared.model.config_source import ConfigSource
from shared.model.objects import Object

LOAD_ERROR = "failed to load config, see Kubelet log for details"
VALIDATE_ERROR = "failed to validate config, see Kubelet log for details"
ALL_NIL_ERROR = "invalid NodeConfigSource, exactly one subfield must be non-nil, but all were nil"
DOWNLOAD_ERROR = "failed to download config, see Kubelet log for details"
INTERNAL_ERROR = "internal failure, see Kubelet log for details"

MAX_CONFIG_MAP_BYTES = 2 * 2**20  # of all values; the API server stores at most 1 MiB
_MAX_KEYS = 1000
_MAX_FILE_NAME_BYTES = 255
_API_VERSION, _KIND = "kubelet.config.k8s.io/v1beta1", "SerializedNodeConfigSource"
_FIELDS = {  # of the API, by field of ConfigSource
    "namespace": "namespace",
    "name": "name",
    "uid": "uid",
    "resource_version": "resourceVersion",
    "kubelet_config_key": "kubeletConfigKey",
}


class ConfigSourceError(Exception):
    """A source cannot be used. `error`: the text for status.config.error; `str()`: the line for the log."""

    def __init__(self, error: str, line: str) -> None:
        self.error = error
        super().__init__(line)


class SourceReference(Struct, frozen=True):
    """The `spec.configSource` of a Node: a ConfigMap without a version."""

    namespace: str
    name: str
    kubelet_config_key: str

    def is_of(self, source: ConfigSource | None) -> bool:
        """Return whether the source is a version of this ConfigMap, with the same key."""
        return source is not None and self == SourceReference(source.namespace, source.name, source.kubelet_config_key)


def referenced_source(node: Object) -> SourceReference | None:
    """Return the ConfigMap that a Node names; None = none, and the local configuration is used. Raises
    ConfigSourceError."""
    spec = node.get("spec")
    source = spec.get("configSource") if isinstance(spec, dict) else None
    if source is None:
        return None
    config_map = source.get("configMap") if isinstance(source, dict) else None
    if not isinstance(config_map, dict):
        raise ConfigSourceError(ALL_NIL_ERROR, "spec.configSource has no configMap")
    names = [config_map.get(name) for name in ("namespace", "name", "kubeletConfigKey")]
    if not all(isinstance(name, str) and is_file_name(name) for name in names):
        line = "spec.configSource.configMap: namespace, name and kubeletConfigKey must be names"
        raise ConfigSourceError(INTERNAL_ERROR, line)
    return SourceReference(*(str(name) for name in names))


def config_map_files(reference: SourceReference, config_map: Object) -> tuple[ConfigSource, dict[str, bytes]]:
    """Return the version of the ConfigMap, and the content of each key of its data. Raises ConfigSourceError."""
    metadata = config_map.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    versions = [metadata.get(name) for name in ("uid", "resourceVersion")]
    if not all(isinstance(each, str) and is_file_name(each) for each in versions):
        raise ConfigSourceError(DOWNLOAD_ERROR, "the ConfigMap has no uid or no resourceVersion")
    data = config_map.get("data")
    data = data if isinstance(data, dict) else {}
    files = {key: value.encode(errors="surrogatepass") for key, value in data.items() if isinstance(value, str)}
    if len(files) < len(data) or not all(map(is_file_name, files)):
        raise ConfigSourceError(INTERNAL_ERROR, "a key of the ConfigMap cannot be the name of a file")
    if len(files) > _MAX_KEYS or sum(map(len, files.values())) > MAX_CONFIG_MAP_BYTES:
        line = f"the ConfigMap has more than {_MAX_KEYS} keys or {MAX_CONFIG_MAP_BYTES // 2**20} MiB"
        raise ConfigSourceError(DOWNLOAD_ERROR, line)
    source = ConfigSource(
        namespace=reference.namespace,
        name=reference.name,
        uid=str(versions[0]),
        resource_version=str(versions[1]),
        kubelet_config_key=reference.kubelet_config_key,
    )
    return source, files


def is_file_name(text: str) -> bool:
    """Return whether the text can be the name of a file in a directory."""
    is_text = text.isprintable() and "/" not in text and text not in ("", ".", "..")
    return is_text and len(text.encode(errors="replace")) <= _MAX_FILE_NAME_BYTES


def encode_source(source: ConfigSource | None) -> bytes:
    """Return the record of a source; empty = the local configuration."""
    if source is None:
        return b""
    lines = (f"    {name}: {json.dumps(getattr(source, field))}" for field, name in sorted(_FIELDS.items()))
    head = (f"apiVersion: {_API_VERSION}", f"kind: {_KIND}", "source:", "  configMap:")
    return "".join(f"{line}\n" for line in (*head, *lines)).encode()


def decode_source(record: Any) -> ConfigSource:
    """Return the source of a record that was read from YAML. Raises ValueError."""
    if not isinstance(record, Mapping) or (record.get("apiVersion"), record.get("kind")) != (_API_VERSION, _KIND):
        raise ValueError(f"it is no {_KIND} of {_API_VERSION}")
    return source_of(record.get("source"))


def source_of(source: Any) -> ConfigSource:
    """Return the source of a NodeConfigSource of the API. Raises ValueError."""
    config_map = source.get("configMap") if isinstance(source, Mapping) else None
    config_map = config_map if isinstance(config_map, Mapping) else {}
    values = {field: config_map.get(name) for field, name in _FIELDS.items()}
    for field, value in values.items():
        if not isinstance(value, str) or not is_file_name(value):
            raise ValueError(f"source.configMap.{_FIELDS[field]} is missing or is no name")
    return ConfigSource(**{field: str(value) for field, value in values.items()})
