"""Reads and writes the record of the device plugins' sockets, which the next process needs, and removes the sockets of
plugins that must register again. Its calls block.

The record has an entry for each resource:
"example.com/gpu": {"endpoint": "/var/lib/kubelet/device-plugins/gpu.sock", "registry": ""}
"""

import os
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
from msgspec import to_builtins

from services.volume.core.device_plugins.device_resources import PluginSocket
from shared.files.atomic import remove_unfinished, write_atomically

_MAX_RECORD_BYTES = 1 << 20


class DevicePluginRecord:
    """Keeps the sockets of each resource's plugin in the record at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> dict[str, PluginSocket]:
        """Return the sockets by resource; {} without a record. A plugin whose socket below `plugins_registry` has gone
        meanwhile has left: its endpoint is "". Raises OSError, and ValueError for a damaged record."""
        try:
            with self.path.open("rb") as file:
                content = file.read(_MAX_RECORD_BYTES + 1)
        except FileNotFoundError:
            return {}
        if len(content) > _MAX_RECORD_BYTES:
            raise ValueError("it is too long")
        found = orjson.loads(content)
        if not isinstance(found, dict) or not all(map(_has_sockets, found.values())):
            raise ValueError("it is not an object of plugins with their sockets")
        return {name: _present(PluginSocket(each["endpoint"], each["registry"])) for name, each in found.items()}

    def save(self, sockets: Mapping[str, PluginSocket]) -> None:
        """Write the record in place of the one before. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        remove_unfinished(self.path)
        content = {resource: to_builtins(socket) for resource, socket in sockets.items()}
        write_atomically(self.path, orjson.dumps(content, option=orjson.OPT_SORT_KEYS))


def _has_sockets(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("endpoint", "registry"))


def _present(socket: PluginSocket) -> PluginSocket:
    """Return the sockets, or PluginSocket("") where the one below `plugins_registry` is gone: the plugin has left."""
    return socket if not socket.registry or os.path.lexists(socket.registry) else PluginSocket("")


def remove_sockets(directory: Path, kept: Collection[str]) -> None:
    """Remove each socket in the directory whose path is not among `kept`. Its plugin, if it runs, registers again: it
    watches the directory. Raises OSError."""
    for path in directory.iterdir():
        with suppress(FileNotFoundError):
            if str(path) not in kept and stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()
