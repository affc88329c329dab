"""Follows edits of the configuration and of the serving pair, and SIGHUP; restores config.json and manifest.json.

A valid edit is applied at SIGHUP, with `--reload-config` at once; otherwise it is reported. An invalid edit is logged
and is a trouble in the beat. A valid new serving pair is published at once.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from asyncinotify import Inotify, Mask

from bus.interface import OwnedStream
from bus.lock import ServiceLock
from bus.messages.bootstrap import CertificateState
from services.bootstrap.adapters.serving_pair import ensure_pair_in_child, pair_request
from services.bootstrap.controllers import startup
from services.bootstrap.controllers.node_config_choice import with_since
from services.bootstrap.controllers.reload import reload
from services.bootstrap.controllers.startup import BootstrapStartup, certificate_state, changed_since
from services.frame.launch import Context
from shared.agent.places import find_places
from shared.config.findings import ConfigurationRefusedError
from shared.errors import OperatorError

log = logging.getLogger(__name__)

_TURN_SECONDS = 5.0  # after which an idle loop turns, so that its progress shows that it does not hang
_SETTLE_SECONDS = 0.2  # without a further change before an edit is read
_RESTORE_RETRY_SECONDS = 5.0  # nothing reports that a disk has room again
_COUNTS = "the change counts when the agent is restarted or reloaded (SIGHUP)"
_DROP_IN = ".conf"
_CHANGES = Mask.CLOSE_WRITE | Mask.MOVED_TO | Mask.MOVED_FROM | Mask.CREATE | Mask.DELETE


class ConfigurationWatch:
    """Follows the files. `configure` was called on `begun`; `certificates` receives the state of each valid serving
    pair."""

    def __init__(self, context: Context, begun: BootstrapStartup, certificates: OwnedStream[CertificateState]) -> None:
        self._context, self._config, self._startup = context, context.config, begun
        self._run_dir = Path(context.config.run_dir)
        self._certificates = certificates
        self._evaluated_at = begun.evaluated_at
        self._files_changed = asyncio.Event()
        self._reload = asyncio.Event()
        self._apply = False  # True = SIGHUP was received, and a change is to be applied
        self._changed: set[Path] = set()
        self._last_lines: tuple[str, ...] = ()
        self._evaluating = asyncio.Lock()
        self.on_reload: Callable[[], None] = lambda: None  # called after each reload
        if begun.pair.not_after:
            certificates.put("serving", certificate_state(self._config, begun.pair), "found at start")
        if begun.refused:
            self._trouble(begun.refused)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Add the loops to `tasks`."""
        tasks.create_task(self._take_hangups(), name="hangups")
        tasks.create_task(self._watch(), name="watch")
        tasks.create_task(self._react(), name="react")
        tasks.create_task(self._keep_files(), name="files")

    async def _take_hangups(self) -> None:
        """Note each SIGHUP, also one that came before this service was built."""
        while True:
            await self._context.hung_up.wait()
            self._context.hung_up.clear()
            self._apply = True
            self._reload.set()

    async def _watch(self) -> None:
        """Note which of our files change. Directories are watched: editors and mounts replace files."""
        with Inotify() as inotify:
            own = set(self._startup.own_files())
            drop_ins = {Path(self._config.config_dir)} if self._config.config_dir else set()
            for directory in {path.parent for path in (*self._watched(), *own)} | drop_ins:
                if directory.is_dir():
                    inotify.add_watch(directory, _CHANGES)
            ours = set(self._watched())
            ours_now = [*ours, *(file for directory in drop_ins for file in directory.glob(f"*{_DROP_IN}"))]
            made = self._startup.pair  # by the evaluation itself, which has checked it
            self._changed |= {
                path for path in ours_now if changed_since(path, self._evaluated_at) and not made.is_still_made(path)
            }
            if self._changed:
                self._reload.set()  # the files were edited after they were read and before they were watched
            self._files_changed.set()
            async for event in inotify:
                if event.path in own:
                    self._files_changed.set()
                # A mounted ConfigMap replaces all of its files at once by a new `..data`.
                if (path := event.path) is None:
                    continue
                drop_in = path.suffix == _DROP_IN and path.parent in drop_ins
                if path in ours or drop_in or path.name.startswith(".."):
                    self._changed.add(path)
                    self._reload.set()

    def _watched(self) -> list[Path]:
        config = self._config
        files = (config.config_file, find_places().args_file, config.tls_cert_file, config.tls_private_key_file)
        return [Path(file) for file in files if file]

    async def _keep_files(self) -> None:
        """Write config.json and manifest.json again after another process removed or changed them."""
        while True:
            await self._files_changed.wait()
            self._files_changed.clear()
            try:
                for name in await asyncio.to_thread(self._startup.restore_files):
                    log.warning("%s was removed or changed by another process: written again", self._run_dir / name)
            except OSError as error:
                self._context.bus.trouble("files", f"{self._run_dir}: cannot be written: {error.strerror}")
                await asyncio.sleep(_RESTORE_RETRY_SECONDS)
                self._files_changed.set()
            else:
                self._context.bus.trouble("files", None)
                await asyncio.sleep(_SETTLE_SECONDS)  # bounds the work when they are changed again and again

    async def _react(self) -> None:
        while True:
            self._context.bus.progress("reload")
            with contextlib.suppress(TimeoutError):  # other processes read from the last turn whether this one hangs
                async with asyncio.timeout(_TURN_SECONDS):
                    await self._reload.wait()
            if not self._reload.is_set():
                continue
            while self._reload.is_set():  # an editor's burst of changes counts as one
                self._reload.clear()
                await asyncio.sleep(_SETTLE_SECONDS)
            changed, self._changed = self._changed, set()
            apply, self._apply = self._apply or self._config.reload_config, False
            pair = {Path(self._config.tls_cert_file), Path(self._config.tls_private_key_file)}
            if apply or not changed or changed & pair:
                await self._look_at_pair()
            if apply or not changed or changed - pair:
                async with self._evaluating:
                    await self._look_at_configuration(apply)
                if apply:
                    self.on_reload()

    async def _look_at_pair(self) -> None:
        """Publish a valid new pair. An invalid one is logged, and server keeps its pair."""
        request = pair_request(self._config)
        report = await asyncio.to_thread(ensure_pair_in_child, request)
        for line in report.problems:
            log.error("%s; the server keeps the pair it has", line)
        self._context.bus.trouble("certificate", report.problems[0] if report.problems else None)
        if not report.problems and report.not_after:
            self._certificates.put("serving", certificate_state(self._config, report), "pair changed on disk")

    async def reload(self) -> bool:
        """Bring the present configuration into force; return False if it is refused, which is reported."""
        async with self._evaluating:
            return await self._look_at_configuration(apply=True)

    async def _look_at_configuration(self, apply: bool) -> bool:
        """Check the configuration, apply it if `apply`, and return whether it is valid."""
        try:
            if apply:
                self._config = await asyncio.to_thread(reload, self._startup, self._config)
                waiting = False
            else:
                server = ServiceLock(self._run_dir, "server").holder
                evaluation = await asyncio.to_thread(startup.evaluate_all, server)
                waiting = with_since(evaluation.resolved.config, self._config, 0.0) != self._config
        except (ConfigurationRefusedError, OperatorError) as error:
            lines = error.lines if isinstance(error, ConfigurationRefusedError) else (str(error),)
            if apply or lines != self._last_lines:
                startup.report_kept(lines)
                self._trouble(lines)
            return False
        self._last_lines = ()
        self._context.bus.trouble("configuration", None)
        choice = self._startup.choice
        if apply and choice is not None and choice.local_refused:
            for line in choice.local_refused:
                log.error("%s", line)
            log.error("the local configuration was refused; the one that the Node names does not depend on it")
            self._trouble(choice.local_refused)
        if waiting:
            log.warning("the configuration has changed since the agent was started: %s", _COUNTS)
        return True

    def _trouble(self, lines: tuple[str, ...]) -> None:
        self._last_lines = lines
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        self._context.bus.trouble("configuration", f"configuration refused: {lines[0]}{more}")
