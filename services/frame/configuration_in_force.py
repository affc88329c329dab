"""Follows config.json while a service runs, and decides whether the service restarts for a change.

bootstrap alone writes the file, and only a configuration that is valid. Each service compares it with its own, so a
kill of bootstrap or of the service at any moment leaves none with an outdated configuration.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from asyncinotify import Inotify, Mask

from services.frame.configuration_wait import ConfigurationWait
from shared.config.effective import EffectiveConfig
from shared.config.excerpt import CONFIG_NAME
from shared.config.loader import load_generation
from shared.config.readers import changes
from shared.errors import OperatorError

log = logging.getLogger(__name__)


class ConfigurationInForce:
    """Follows the configuration. `newest` is the one in force; `config` is the one that the service started with."""

    def __init__(self, service: str, run_dir: Path, generation: str, config: EffectiveConfig) -> None:
        self._service, self._run_dir, self._generation = service, run_dir, generation
        self._config = self.newest = config

    async def follow(self, changed: Callable[[EffectiveConfig], None]) -> bool:
        """Return True when the service has to be restarted, False where the file cannot be followed.

        `changed` gets each configuration for which the service is not restarted.
        """
        try:
            with Inotify() as inotify:
                inotify.add_watch(self._run_dir, Mask.MOVED_TO | Mask.CLOSE_WRITE)
                while not self._look(changed):  # the first look finds what was written before the watch
                    while str((await inotify.get()).name) != CONFIG_NAME:
                        continue
        except OSError as error:
            log.warning("a reload does not reach %s: %s (raise fs.inotify.max_user_instances)", self._service, error)
            return False
        return True

    async def back_off(self, seconds: float) -> EffectiveConfig:
        """Wait after failed starts, and return the newest configuration. A change that the service reads ends the wait,
        because it may end the cause."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if not await self.follow(lambda _: None):
                    await asyncio.sleep(seconds)
        return ConfigurationWait(self._run_dir, self._generation).look() or self.newest

    def _look(self, changed: Callable[[EffectiveConfig], None]) -> bool:
        try:
            config, generation = load_generation(str(self._run_dir))
        except (OSError, OperatorError):
            return False  # the file is removed or damaged; bootstrap writes it again
        if self._generation not in ("", generation) or config == self.newest:
            return False
        causes = [change.name for change in changes(self._config, config) if self._service in change.services]
        if causes:
            log.info("%s restarts for the changed configuration: %s", self._service, ", ".join(causes))
            return True
        self.newest = config
        changed(config)
        return False
