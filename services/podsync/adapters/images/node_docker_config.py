"""Reads the node's own registry credentials from docker's files, in the kubelet's places (pods.md 7.4).
Logs which file cannot be used and why, and never any of its content.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path

from services.podsync.core.images.docker_config import DockerConfig, DockerConfigError, read_config_json, read_dockercfg
from shared.time.clock import Clock

log = logging.getLogger(__name__)

CACHE_SECONDS = 300.0
_MAX_BYTES = 1 << 20


class NodeDockerConfig:
    """Reads the first file that can be used, and reads again after five minutes."""

    def __init__(self, root_dir: Path, clock: Clock) -> None:
        self._clock = clock
        homes = [Path(home) for home in (os.environ.get("HOME"), "/") if home]
        self._places: list[tuple[Path, Callable[[bytes], DockerConfig]]] = [
            (folder / "config.json", read_config_json)
            for folder in (root_dir, Path(), *(home / ".docker" for home in homes))
        ]
        self._places += [(folder / ".dockercfg", read_dockercfg) for folder in (root_dir, Path(), *homes)]
        self._config: DockerConfig = {}
        self._read_at = -CACHE_SECONDS

    def entries(self) -> DockerConfig:
        """Return the node's credentials; none where it has no such file. Never raises."""
        now = self._clock.monotonic()
        if now - self._read_at >= CACHE_SECONDS:
            self._config, self._read_at = self._read(), now
        return self._config

    def _read(self) -> DockerConfig:
        for path, parse in self._places:
            try:
                with path.open("rb") as file:
                    content = file.read(_MAX_BYTES + 1)
                if len(content) > _MAX_BYTES:
                    raise DockerConfigError(f"it is larger than {_MAX_BYTES} bytes")
                return parse(content)
            except FileNotFoundError:
                continue
            except (OSError, DockerConfigError) as error:
                why = error.strerror if isinstance(error, OSError) else error
                log.warning("%s is no use for image pulls: %s (correct or remove it)", path.absolute(), why)
        return {}
