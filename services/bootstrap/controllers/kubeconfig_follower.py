"""Follows the kubeconfig, the files that it names and the end of a plugin's credentials; brings new credentials into
force.

A plugin is also run again when a service reports that the API server refused its credentials (RenewCredentials); then
the rotation of certificates is woken as well, because the certificate may have ended while the machine slept.

An invalid edit or a failed renewal is a log line and a trouble; the credentials in force stay, and it is tried again.
The same holds while there are no credentials, because a plugin failed at the first start.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

from asyncinotify import Inotify, Mask

from bus.messages.bootstrap import CredentialsRenewal, RenewCredentials
from services.bootstrap.adapters.kubeconfig import KubeconfigReport
from services.bootstrap.adapters.node_credentials import resolve_ordinary
from services.bootstrap.controllers.startup import BootstrapStartup, changed_since
from services.bootstrap.controllers.startup_credentials import report_not_renewed
from services.bootstrap.core.renewal import RefusalPace, retry_delay, seconds_until_renewal
from services.frame.launch import Context
from shared.model.frozen_copy import replace

log = logging.getLogger(__name__)

_SETTLE_SECONDS = 0.2  # without a further change before the files are read
_LOST = Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.UNMOUNT  # events after which a directory has to be watched again
_CHANGES = Mask.CLOSE_WRITE | Mask.MOVED_TO | Mask.MOVED_FROM | Mask.CREATE | Mask.DELETE | _LOST


class KubeconfigFollower:
    """Follows the credentials in one loop. `startup` has resolved the kubeconfig once, or kept earlier credentials;
    `on_refused` is called when the API server refused the credentials in force."""

    def __init__(self, context: Context, startup: BootstrapStartup, on_refused: Callable[[], None]) -> None:
        self._context, self._startup, self._on_refused = context, startup, on_refused
        self._kubeconfig = context.config.kubeconfig
        found = startup.credentials.report
        self._report = replace(found, material=None, inline=None)
        self._read_at = startup.evaluated_at  # wall seconds; what changed later has not been read
        self._in_force = startup.credentials.files.present() is not None
        self._failures = 0 if found.material else 1  # not looked at yet is one, too
        self._awaited = found.awaited  # a certificate is asked for; its file wakes this loop
        self._last_problems = found.problems
        if self._last_problems:
            context.bus.trouble("kubeconfig", self._last_problems[0])
        self._changed = asyncio.Event()
        self._pace, self._rerun = (
            RefusalPace(),
            False,
        )  # _rerun: whether a request waits for the exec plugin to run again, after a 401
        context.bus.answer(RenewCredentials, self._renew)
        context.resumption.subscribe(lambda _: self.wake())  # the credentials may have ended meanwhile
        self._missing: set[Path] = set()  # directories that do not exist
        self._lost = False  # a directory was replaced, and the new one is not watched yet

    def wake(self) -> None:
        """Look at the files again, because something has changed that inotify may not report."""
        self._changed.set()

    async def _renew(self, request: RenewCredentials) -> CredentialsRenewal:
        """Act on a refusal of the credentials in force by the API server; that of earlier credentials is ignored."""
        present = await asyncio.to_thread(self._startup.credentials.files.present)
        if present is None or present.version != request.version:
            return CredentialsRenewal(due=False)
        self._on_refused()
        if not self._report.plugin:
            return CredentialsRenewal(due=False)
        if not self._rerun:
            self._rerun = True
            now = self._context.clock.monotonic()
            asyncio.get_running_loop().call_later(self._pace.due_in(now), self._run_plugin)
        return CredentialsRenewal(due=True)

    def _run_plugin(self) -> None:
        log.info("the API server refuses what the exec plugin of %s gave: it is run again", self._kubeconfig)
        self._rerun = False
        self._pace.ran(self._context.clock.monotonic())
        self._changed.set()

    async def run(self) -> None:
        """Follow the credentials until cancelled."""
        while True:
            with Inotify() as inotify:
                self._lost = False
                watched = self._watch(inotify)
                listening = asyncio.create_task(self._listen(inotify, watched))
                try:
                    while watched == self._files() and not self._lost:
                        await self._wait()
                        await self._look()
                finally:
                    listening.cancel()
                    await asyncio.gather(listening, return_exceptions=True)

    def _files(self) -> set[Path]:
        """Return the named files and the targets of links: a certificate is often a link to its newest file."""
        named = {Path(self._kubeconfig), *map(Path, self._report.files)}
        return named | {Path(os.path.realpath(file)) for file in named}

    def _watch(self, inotify: Inotify) -> set[Path]:
        """Watch the directories, as files are replaced; a change from before the watch counts, too. For a missing
        directory, its parent is watched."""
        files = self._files()
        self._missing = {above for file in files for above in file.parents if not above.is_dir()}
        for directory in {next(above for above in file.parents if above.is_dir()) for file in files}:
            try:
                inotify.add_watch(directory, _CHANGES)
            except (FileNotFoundError, NotADirectoryError):  # gone since we looked
                self._missing.add(directory)
                self._lost = True
        self._lost = self._lost or any(directory.is_dir() for directory in self._missing)
        # The removal of the kubeconfig, or of its directory, changes the directory above.
        kubeconfig = Path(self._kubeconfig)
        nearest = next(found for found in (kubeconfig, *kubeconfig.parents) if found.exists())
        if self._lost or any(changed_since(found, self._read_at) for found in {*files, nearest}):
            self._changed.set()
        return files

    async def _listen(self, inotify: Inotify, files: set[Path]) -> None:
        async for event in inotify:
            # `..data` is how a mounted Secret replaces all of its files at once
            if event.mask & _LOST or event.path in self._missing:
                self._lost = True
                self._changed.set()
            elif event.path is not None and (event.path in files or event.path.name.startswith("..")):
                self._changed.set()

    async def _wait(self) -> None:
        """Wait until a file changes, or it is time to renew or to try again."""
        self._context.bus.progress("kubeconfig")
        wall = self._context.clock.wall()
        delay = None if self._awaited else retry_delay(self._failures, without=not self._in_force)
        delay = delay or seconds_until_renewal(self._report.expires_at, wall)
        try:
            async with asyncio.timeout(delay):
                await self._changed.wait()
        except TimeoutError:
            return
        while self._changed.is_set():  # a burst of changes is one
            self._changed.clear()
            await asyncio.sleep(_SETTLE_SECONDS)

    async def _look(self) -> None:
        self._read_at = self._context.clock.wall()
        credentials = self._startup.credentials.files
        try:
            await asyncio.to_thread(credentials.prepare)
            report = await asyncio.to_thread(resolve_ordinary, self._context.config, self._read_at)
            changed = report.material is not None and await asyncio.to_thread(credentials.put, report.material)
        except OSError as error:
            line = f"{credentials.directory}: cannot be written: {error.strerror} (free disk space or repair it)"
            report, changed = KubeconfigReport(problems=(line,), files=self._report.files), False
        if report.problems:
            self._keep(report)
            return
        if self._failures:
            log.info("%s is good again", self._kubeconfig)
        if changed:
            log.info("new credentials for the API server are in force")
        self._in_force = True
        self._context.bus.trouble("kubeconfig", None)
        self._report = replace(report, material=None, inline=None)
        self._failures, self._awaited, self._last_problems = 0, False, ()

    def _keep(self, report: KubeconfigReport) -> None:
        """Keep the credentials in force, and keep watching the files of the valid kubeconfig."""
        self._failures += 1
        self._awaited = report.awaited
        if report.problems != self._last_problems:
            report_not_renewed(report, in_force=self._in_force)
        self._last_problems = report.problems
        self._context.bus.trouble("kubeconfig", report.problems[0])
        files = tuple(dict.fromkeys((*report.files, *self._report.files[:16])))
        self._report = KubeconfigReport(files=files, expires_at=self._report.expires_at, plugin=self._report.plugin)
