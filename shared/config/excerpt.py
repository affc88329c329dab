"""The file `<run dir>/config.json`, read without the types of the configuration: to load them takes longer than a
running agent takes to answer, and most commands of `bulkhead` need few fields."""

import json
from pathlib import Path
from typing import Any

from msgspec import Struct

from shared.errors import OperatorError

CONFIG_NAME = "config.json"
VERSION = 1  # of the file
_FIELDS = ("node_name", "root_dir", "log_dir", "kubeconfig", "container_runtime_endpoint")


class ConfigExcerpt(Struct, frozen=True):
    """These fields of `EffectiveConfig`."""

    node_name: str
    root_dir: str
    log_dir: str
    kubeconfig: str  # "" = standalone
    container_runtime_endpoint: str

    @property
    def joins_cluster(self) -> bool:
        """There is an API server to talk to; otherwise the node runs alone."""
        return bool(self.kubeconfig)


def load_excerpt(run_dir: str) -> ConfigExcerpt:
    """Return the fields of the configuration in force. Raises OSError, and OperatorError when the file cannot be
    used."""
    path = Path(run_dir) / CONFIG_NAME
    try:
        config = checked_envelope(json.loads(path.read_bytes()))["config"]
        values = [config[name] for name in _FIELDS]
        if wrong := [name for name, value in zip(_FIELDS, values, strict=True) if not isinstance(value, str)]:
            raise ValueError(f"{wrong[0]} is no text")
        return ConfigExcerpt(*values)
    except (ValueError, KeyError, TypeError) as error:
        raise unusable(error, str(path)) from error


def checked_envelope(envelope: Any) -> dict[str, Any]:
    """Return the decoded file, with `config` and `generation`. Raises ValueError for another version."""
    if not isinstance(envelope, dict) or envelope.get("version") != VERSION:
        found = envelope.get("version") if isinstance(envelope, dict) else None
        raise ValueError(f"version {found}, not {VERSION}")
    return envelope


def unusable(error: Exception, where: str) -> OperatorError:
    """Return the error for a file that cannot be used."""
    return OperatorError(f"cannot be used: {error}", where=where, remedy="restart bootstrap; it writes the file again")
