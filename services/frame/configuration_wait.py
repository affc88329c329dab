"""Waits, with inotify, until bootstrap has written a configuration that is in force for this process.
Decides which configuration counts: the one for our supervisord's generation. Another one is of an earlier run or of
another agent.
"""

import asyncio
import logging
from pathlib import Path

from asyncinotify import Inotify, Mask

from bus.manifest import MANIFEST_FILE, read_manifest
from shared.config.effective import EffectiveConfig
from shared.config.loader import load_generation
from shared.errors import OperatorError

log = logging.getLogger(__name__)

_QUIET_SECONDS = 10.0  # of waiting before it is logged


class ConfigurationWait:
    """Waits for the configuration. `generation` is that of this process; without a supervisord ("") any configuration
    counts."""

    def __init__(self, run_dir: Path, generation: str) -> None:
        self._run_dir, self._generation = run_dir, generation
        self._complaint = ""

    async def wait(self) -> EffectiveConfig:
        """Return the configuration, once there is one in force and a manifest beside it."""
        loop = asyncio.get_running_loop()
        reminder = loop.call_later(
            _QUIET_SECONDS, log.warning, "still waiting for bootstrap to write %s", self._run_dir
        )
        try:
            with Inotify() as inotify:
                inotify.add_watch(self._run_dir, Mask.MOVED_TO | Mask.CLOSE_WRITE)
                while (config := self.look()) is None:
                    await inotify.get()
                return config
        finally:
            reminder.cancel()

    def look(self) -> EffectiveConfig | None:
        """Return the configuration if it exists and is in force, else None; an unreadable one is logged once."""
        try:
            config, generation = load_generation(str(self._run_dir))
            if self._generation not in ("", generation):
                return None
            if not (self._run_dir / MANIFEST_FILE).exists():
                return None
            read_manifest(self._run_dir)
            return config
        except OSError:
            return None
        except OperatorError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.error("%s", error)
            return None
