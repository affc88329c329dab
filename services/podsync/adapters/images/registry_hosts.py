"""Finds syntax errors in the `hosts.toml` of a registry, which names mirrors, CA certificates and headers.

containerd reads the file at each pull. It only logs that it cannot parse it, and pulls as if there were none. With the
error in the event of the failed pull, the operator learns that no mirror was asked.
"""

import tomllib
from contextlib import suppress
from pathlib import Path

from services.podsync.core.images.image_repository import registry_of, repository

_MAX_BYTES = 256 * 1024  # of a hosts.toml


def find_damaged_hosts(config_path: str, image: str) -> str:
    """Return which `hosts.toml` containerd does not use for the image, and its syntax error; "" where there is none.
    `config_path`: the directory of all such files, "" = none."""
    if not config_path:
        return ""
    for name in _directory_names(registry_of(repository(image))):
        directory = Path(config_path) / name
        if directory.exists():  # containerd looks no further
            return _find_damage(directory / "hosts.toml")
    return ""


def _directory_names(registry: str) -> list[str]:
    host, colon, port = registry.rpartition(":")
    return [*([f"{host}_{port}_"] if colon else []), registry, "_default"]


def _find_damage(file: Path) -> str:
    with suppress(OSError), file.open("rb") as opened:
        try:
            tomllib.loads(opened.read(_MAX_BYTES).decode())
        except ValueError as error:  # TOMLDecodeError, or bytes that are no UTF-8
            return f"containerd does not use {file}: {error}"
    return ""
