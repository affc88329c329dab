"""bootstrap once the front door is open: answers the manifest, watches the configuration and the serving pair.

Decides nothing about values; a good edit is reported as waiting for a restart, a bad one as refused.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from asyncinotify import Inotify, Mask

from bus.interface import OwnedStream
from bus.lock import ServiceLock
from bus.manifest import read_manifest
from bus.messages.bootstrap import CertificateState, GetManifest, Manifest
from bus.messages.streams import CERTIFICATES
from services.bootstrap import front_door
from services.bootstrap.adapters import supervisord
from services.bootstrap.adapters.serving_pair import settle_in_child
from services.bootstrap.certificate_tasks import CertificateTasks
from services.bootstrap.front_door import (
    BootstrapDoor,
    certificate_state,
    changed_since,
    pair_request,
)
from services.bootstrap.kubeconfig_follower import KubeconfigFollower
from services.bootstrap.systemd import Systemd
from services.frame.launch import Context
from shared.config.findings import ConfigurationRefusedError
from shared.config.places import find_places

log = logging.getLogger(__name__)

_TURN = 5.0  # seconds: an idle loop turns at least this often, so that its progress can be judged
_SETTLE = 0.2  # seconds without a further change before an edit is looked at
_ASK_RETRY = 5.0  # seconds; nothing reports that supervisord can start a program again
_RESTORE_RETRY = 5.0  # seconds; nothing reports that a disk has room again
_COUNTS = "the change counts when the agent is restarted or reloaded (SIGHUP)"
_CHANGES = Mask.CLOSE_WRITE | Mask.MOVED_TO | Mask.MOVED_FROM | Mask.CREATE | Mask.DELETE


def build(context: Context, door: BootstrapDoor) -> "Bootstrap":
    """The service; `door` has been through `configure`."""
    return Bootstrap(context, door)


class Bootstrap:
    """Holds the stream `certificates` and answers GetManifest."""

    def __init__(self, context: Context, door: BootstrapDoor) -> None:
        self._context, self._config = context, context.config
        self._run_dir = Path(context.config.run_dir)
        self._certificates: OwnedStream[CertificateState] = context.bus.own(CERTIFICATES)
        self._door, self._evaluated_at = door, door.evaluated_at
        self._files_changed = asyncio.Event()
        self._reload = asyncio.Event()
        self._changed: set[Path] = set()
        self._last_lines: tuple[str, ...] = ()
        self._systemd = Systemd(context, door.generation, door.supervisor_process)
        self._follower = KubeconfigFollower(context, door) if self._config.joins_cluster else None
        self._certificate_tasks = CertificateTasks(context, door.credentials, self._certificates, self._client_changed)
        context.bus.answer(GetManifest, self._answer_manifest)
        if door.pair.not_after:
            self._certificates.put("serving", certificate_state(self._config, door.pair), "found at start")
        self._certificates.mark_complete()
        if door.refused:
            self._trouble(door.refused)

    async def run(self) -> None:
        """Wait for edits and SIGHUP, forever."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload.set)
        async with asyncio.TaskGroup() as tasks:
            if self._config.embedded_containerd or ServiceLock(self._run_dir, "containerd").holder():
                trouble = partial(self._context.bus.trouble, "containerd")
                tasks.create_task(keep_asking_for_containerd(trouble), name="containerd")
            if self._follower is not None:
                tasks.create_task(self._follower.run(), name="kubeconfig")
            tasks.create_task(self._systemd.run(), name="systemd")
            self._certificate_tasks.start(tasks)
            tasks.create_task(self._watch(), name="watch")
            tasks.create_task(self._react(), name="react")
            tasks.create_task(self._keep_files(), name="files")

    async def _answer_manifest(self, _: GetManifest) -> Manifest:
        return read_manifest(self._run_dir)

    def _client_changed(self) -> None:
        if self._follower is not None:
            self._follower.wake()

    async def _watch(self) -> None:
        """Note which of our files change. Directories are watched, for editors and mounts replace files whole."""
        with Inotify() as inotify:
            own = set(self._door.own_files())
            for directory in {path.parent for path in (*self._watched(), *own)}:
                if directory.is_dir():
                    inotify.add_watch(directory, _CHANGES)
            ours = set(self._watched())
            self._changed |= {path for path in ours if changed_since(path, self._evaluated_at)}
            if self._changed:
                self._reload.set()  # edited after they were read and before we looked
            self._files_changed.set()
            async for event in inotify:
                if event.path in own:
                    self._files_changed.set()
                # `..data` is how a mounted ConfigMap replaces all of its files at once
                if event.path is not None and (event.path in ours or event.path.name.startswith("..")):
                    self._changed.add(event.path)
                    self._reload.set()

    def _watched(self) -> list[Path]:
        config = self._config
        files = (config.config_file, find_places().args_file, config.tls_cert_file, config.tls_private_key_file)
        return [Path(file) for file in files if file]

    async def _keep_files(self) -> None:
        """Write config.json and manifest.json anew when somebody removed or changed them: services start by them."""
        while True:
            await self._files_changed.wait()
            self._files_changed.clear()
            try:
                for name in await asyncio.to_thread(self._door.restore_files):
                    log.warning("%s was removed or changed by somebody else: written anew", self._run_dir / name)
            except OSError as error:
                self._context.bus.trouble("files", f"{self._run_dir}: cannot be written: {error.strerror}")
                await asyncio.sleep(_RESTORE_RETRY)
                self._files_changed.set()
            else:
                self._context.bus.trouble("files", None)
                await asyncio.sleep(_SETTLE)  # whoever changes them again and again does not keep us busy

    async def _react(self) -> None:
        while True:
            self._context.bus.progress("reload")
            with contextlib.suppress(TimeoutError):  # idle is not hung: whoever judges us looks at our last turn
                async with asyncio.timeout(_TURN):
                    await self._reload.wait()
            if not self._reload.is_set():
                continue
            while self._reload.is_set():  # an editor's burst of changes is one edit
                self._reload.clear()
                await asyncio.sleep(_SETTLE)
            changed, self._changed = self._changed, set()
            pair = {Path(self._config.tls_cert_file), Path(self._config.tls_private_key_file)}
            if not changed or changed & pair:
                await self._look_at_pair()
            if not changed or changed - pair:
                await self._look_at_configuration()

    async def _look_at_pair(self) -> None:
        """A good new pair is announced; a bad one is logged, and the server keeps the one it has."""
        request = pair_request(self._config)
        report = await asyncio.to_thread(settle_in_child, request)
        for line in report.problems:
            log.error("%s; the server keeps the pair it has", line)
        self._context.bus.trouble("certificate", report.problems[0] if report.problems else None)
        if not report.problems and report.not_after:
            self._certificates.put("serving", certificate_state(self._config, report), "pair changed on disk")

    async def _look_at_configuration(self) -> None:
        server = ServiceLock(self._run_dir, "server").holder
        try:
            evaluation = await asyncio.to_thread(front_door.evaluate_all, server)
        except ConfigurationRefusedError as error:
            if error.lines != self._last_lines:
                front_door.report_kept(error.lines)
                self._trouble(error.lines)
            return
        self._last_lines = ()
        self._context.bus.trouble("configuration", None)
        if evaluation.resolved.config != self._config:
            log.warning("the configuration has changed since the agent was started: %s", _COUNTS)

    def _trouble(self, lines: tuple[str, ...]) -> None:
        self._last_lines = lines
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        self._context.bus.trouble("configuration", f"configuration refused: {lines[0]}{more}")


async def keep_asking_for_containerd(trouble: Callable[[str | None], None]) -> None:
    """Have supervisord run the program `containerd`; returns once it does. `trouble` gets what is wrong, or None."""
    while not await asyncio.to_thread(start_containerd):
        trouble("the embedded containerd was not started by supervisord")
        await asyncio.sleep(_ASK_RETRY)
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
