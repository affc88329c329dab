"""bootstrap behind an orphaned one: what it confirms for its own supervisord, and what it asks that one for.

Decides no value; the orphan has. The containerd is asked for here and by the bootstrap that works.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from asyncinotify import Inotify, Mask

from services.bootstrap.adapters import supervisord
from services.bootstrap.adapters.service_notify import tell_ready
from shared.config.effective import EffectiveConfig
from shared.config.loader import CONFIG_NAME, load_generation
from shared.errors import OperatorError

log = logging.getLogger(__name__)

_RETRY = 5.0  # seconds; neither supervisord nor a full disk tells us when it is ready


async def stand_by(run_dir: Path, generation: str, confirm: Callable[[EffectiveConfig], None]) -> None:
    """Confirm the configuration for our supervisord (`generation`) whenever the orphan writes it, until cancelled.

    Not only once: it may have been about to write when we came, and what our supervisord restarts after that would
    wait for ever for a configuration of its own. `confirm` writes it and raises OSError.
    """
    asking = None
    try:
        with contextlib.ExitStack() as opened:
            changes = _watch(run_dir, opened)
            while True:
                config, complete = _look(run_dir, generation, confirm)
                if config is not None and config.embedded_containerd and asking is None:
                    asking = asyncio.create_task(keep_asking_for_containerd(lambda _: None))
                if changes is None:
                    await asyncio.sleep(_RETRY)
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if complete else _RETRY):
                        while (await changes.get()).path != run_dir / CONFIG_NAME:
                            pass
    finally:
        if asking is not None:
            asking.cancel()


def _watch(run_dir: Path, opened: contextlib.ExitStack) -> Inotify | None:
    """What happens in the run directory; None where the user's inotify instances or watches are used up."""
    try:
        changes = opened.enter_context(Inotify())
        changes.add_watch(run_dir, Mask.MOVED_TO | Mask.CLOSE_WRITE)
    except OSError as error:
        log.error("%s cannot be watched, and is looked at every %.0f s: %s", run_dir, _RETRY, error)
        return None
    return changes


def _look(
    run_dir: Path, generation: str, confirm: Callable[[EffectiveConfig], None]
) -> tuple[EffectiveConfig | None, bool]:
    """The configuration in force, if there is one, and whether there is nothing left to do until it changes."""
    try:
        config, found = load_generation(str(run_dir))
    except (OSError, OperatorError) as error:
        log.error("standing by without a configuration to confirm: %s", error)
        return None, isinstance(error, FileNotFoundError | OperatorError)  # any other says nothing of the file
    try:
        if found != generation:
            confirm(config)
    except OSError as error:
        log.error("the configuration of the bootstrap before us cannot be confirmed: %s", error)
        return config, False
    tell_ready(run_dir, generation)  # the orphans work: the agent is up
    return config, True


async def keep_asking_for_containerd(trouble: Callable[[str | None], None]) -> None:
    """Have supervisord run the program `containerd`; returns once it does. `trouble` is told what is wrong, or None."""
    while not await asyncio.to_thread(start_containerd):
        trouble("the embedded containerd was not started by supervisord")
        await asyncio.sleep(_RETRY)
    trouble(None)


def start_containerd() -> bool:
    """Have supervisord run the program `containerd`; False (and a line in the log) when it did not."""
    parent = supervisord.Supervisord.of_environment()
    if parent is None:
        log.warning("no supervisord here: start `python -P -m services.bootstrap.containerd` yourself")
        return True
    try:
        parent.start_program("containerd")
    except supervisord.SupervisordError as error:
        log.error("the embedded containerd was not started: %s", error)
        return False
    return True
