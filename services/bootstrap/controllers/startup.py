"""Evaluates flags and files, and writes config.json, manifest.json and containerd's files, or reports why not.

It decides whether an invalid configuration ends the start or leaves the last valid one in force. It runs before
bootstrap has a bus, in a thread.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec import Struct

from bus.lock import ServiceLock
from bus.manifest import MANIFEST_FILE, new_manifest, read_manifest, write_manifest
from bus.messages.bootstrap import CertificateState
from bus.messages.manifest import Manifest
from bus.messages.streams import SERVICES
from services.bootstrap.adapters import containerd_host, supervisord, taken_ports
from services.bootstrap.adapters.kernel_settings import change_kernel_settings
from services.bootstrap.adapters.layout import make_layout
from services.bootstrap.adapters.lock_contention import take_lock
from services.bootstrap.adapters.serving_pair import PairReport, ensure_pair_in_child, is_self_signed, pair_request
from services.bootstrap.controllers.containerd_files import write_containerd_files
from services.bootstrap.controllers.node_config_choice import Choice, choose, reject_crashing, with_since
from services.bootstrap.controllers.startup_credentials import StartupCredentials
from services.bootstrap.core.node_config import Rejection
from services.frame.generation import same_supervisord, supervisor_generation, supervisor_process
from services.frame.succession import is_orphan
from shared.agent.places import AgentPaths, find_arguments, find_places
from shared.agent.service_notify import watchdog_interval
from shared.config.effective import EffectiveConfig
from shared.config.excerpt import CONFIG_NAME
from shared.config.findings import DANGER, WARNING, ConfigurationRefusedError, Finding
from shared.config.loader import encode_effective, load_generation
from shared.config.resolve import Resolved
from shared.errors import OperatorError
from shared.files.atomic import write_atomically
from shared.model.frozen_copy import replace
from shared.process.crash import crash_point

log = logging.getLogger(__name__)


class Evaluation(Struct, frozen=True):
    """A valid configuration, and the results of its evaluation."""

    resolved: Resolved
    pair: PairReport
    choice: Choice | None = None  # of the configuration that the Node names, where it may name one


def evaluate_all(
    server: Callable[[], int | None],
    *,
    prepare: Callable[[EffectiveConfig], None] = lambda _: None,
    in_force: EffectiveConfig | None = None,
    rejection: Rejection | None = None,
) -> Evaluation:
    """Evaluate the configuration and everything that it depends on. Raises ConfigurationRefusedError with every
    problem.

    `prepare` is called with a configuration that is valid in itself, before anything is written or requested for it. It
    raises OperatorError, or ConfigurationRefusedError. `in_force` and `rejection`: see `choose`.
    """
    try:
        arguments = find_arguments(find_places())
    except OperatorError as error:
        raise ConfigurationRefusedError((str(error),)) from error
    complete = partial(_complete, server=server, prepare=prepare)
    evaluation, choice = choose(arguments, complete, in_force=in_force, rejection=rejection)
    return replace(evaluation, choice=choice)


def _complete(
    resolved: Resolved, *, server: Callable[[], int | None], prepare: Callable[[EffectiveConfig], None]
) -> Evaluation:
    """Look at the machine for one configuration. Raises ConfigurationRefusedError."""
    config = resolved.config
    try:
        prepare(config)
    except OperatorError as error:
        raise ConfigurationRefusedError((str(error),)) from error
    pair = ensure_pair_in_child(pair_request(config))
    problems, remarks = taken_ports.find_taken(config, server)
    missing = containerd_host.find_missing(config.embedded_containerd) if config.embedded_containerd else []
    if lines := (*pair.problems, *problems, *missing):
        place = config.config_file or "flags"
        raise ConfigurationRefusedError(tuple(f"{place}: {line}" for line in lines))
    found = (*resolved.found, *(Finding(WARNING, "", remark) for remark in remarks))
    return Evaluation(replace(resolved, found=found), pair)


def certificate_state(config: EffectiveConfig, pair: PairReport) -> CertificateState:
    """Return the message about a valid pair."""
    return CertificateState(
        certificate_file=config.tls_cert_file,
        private_key_file=config.tls_private_key_file,
        not_after=pair.not_after,
        self_signed=is_self_signed(config),
    )


class BootstrapStartup:
    """The startup of bootstrap for `services.frame.launch`; `pair` and `refused` then contain the results."""

    def __init__(self) -> None:
        self._places: AgentPaths = find_places()
        self._run_dir = Path(self._places.run_dir)
        self.generation = self._generation = supervisor_generation()
        self.supervisor_process = supervisor_process()
        self.evaluated_at = 0.0  # wall seconds; a file that changed later has not been read; 0 = no file was read
        self.pair = PairReport()
        self.credentials = StartupCredentials(self._run_dir)
        self._in_force: tuple[EffectiveConfig, bytes] | None = None  # the configuration, and its bytes in config.json
        self._is_locked = False  # the lock file was taken; a second call would wait for the first one
        self._writing = threading.Lock()  # so that a reload and a restoration do not write at the same time
        self.refused: tuple[str, ...] = ()  # why the last valid configuration is in force instead of the present one
        self.remarked = frozenset[str]()  # the lines of the last `remark`
        self.choice: Choice | None = None  # of the last evaluation; None = none was made, or the Node names none

    def configure(self) -> EffectiveConfig:
        """Return the configuration in force under our supervisord; at the first call under it, evaluate and write it.

        All services of one supervisord use the same configuration, whenever each of them is started.
        """
        begun = self._saved(lambda generation: generation == self._generation)
        rejection = reject_crashing(begun, self._generation) if begun is not None else None
        if begun is not None and rejection is None:
            self._go_on_with(begun)
            return begun
        removed = begun is None and self._services_work()  # checked now, because services start once it is written
        self.evaluated_at = time.time()
        try:
            server = ServiceLock(self._run_dir, "server").holder
            evaluation = evaluate_all(server, prepare=self._prepare, in_force=begun, rejection=rejection)
            self._use_credentials(evaluation.resolved.config)
            _change_kernel_settings(evaluation.resolved.config)
        except ConfigurationRefusedError as error:
            kept = self._last_good()
            if kept is None:
                raise
            report_kept(error.lines)
            self._go_on_with(kept)
            self.refused = (*error.lines, *self.refused)
            return kept
        self.pair, self.choice = evaluation.pair, evaluation.choice
        if self.choice is not None and self.choice.local_refused:
            self.refused = self.choice.local_refused
        config = with_since(evaluation.resolved.config, None, time.monotonic())
        self._write(config)
        self.remark(evaluation)
        if removed:
            self._restart_all()
        return config

    @property
    def config(self) -> EffectiveConfig:
        """Return the configuration in force. Call `configure` first."""
        assert self._in_force is not None
        return self._in_force[0]

    def replace_config(self, config: EffectiveConfig) -> None:
        """Bring a checked configuration into force by replacing config.json, which services follow. Raises
        OperatorError."""
        with self._writing:
            try:
                self._write_config(config)
            except OSError as error:
                raise _unwritable(error, self._run_dir) from error

    def remark(self, evaluation: Evaluation) -> None:
        """Log what was found and is no error, where the evaluation before this one did not find it."""
        found = {finding.line: finding.severity for finding in evaluation.resolved.found}
        if evaluation.resolved.without_effect:
            line = f"accepted, but without effect yet: {', '.join(evaluation.resolved.without_effect)}"
            found[line] = WARNING
        for line, severity in found.items():
            if line not in self.remarked:
                log.log(logging.ERROR if severity == DANGER else logging.WARNING, "%s", line)
        self.remarked = frozenset(found)
        if evaluation.pair.created:
            log.info("a self-signed serving certificate was made, valid until %s", evaluation.pair.not_after)

    def _go_on_with(self, config: EffectiveConfig) -> None:
        """Use a configuration that was evaluated earlier; `refused` gets the problems that it has now."""
        self._prepare(config)
        self.pair = ensure_pair_in_child(pair_request(config))
        try:
            self._use_credentials(config)
            _change_kernel_settings(config)
        except ConfigurationRefusedError as error:
            self.refused = error.lines
        self._write(config)

    def _use_credentials(self, config: EffectiveConfig) -> None:
        """Bring the node's credentials into force. Raises ConfigurationRefusedError, OperatorError."""
        try:
            self.credentials.bring_into_force(config, self._last_good())
        except OSError as error:
            raise _unwritable(error, self.credentials.files.directory) from error

    def log_dir(self) -> str:
        """Return the directory of the log when the configuration was refused: the default, because no flag is valid
        then."""
        return self._places.log_dir

    def _prepare(self, config: EffectiveConfig) -> None:
        """Do what a kubelet does before it writes or requests anything (config.md 5.1). Raises OperatorError."""
        watchdog_interval(os.environ, self.supervisor_process)
        if not self._is_locked:
            take_lock(config.lock_file)
            self._is_locked = True
        make_layout(config)
        self.credentials.begin(config)

    def refuse(self, lines: tuple[str, ...]) -> bool:
        """Show the lines once and end supervisord, for a crash loop would repeat them every second; whether we did.

        Where services work by an earlier configuration they are left alone, and we try again with back-off. So it is
        with a configuration that the Node names: it is rolled back, and never ends the agent.
        """
        if self._in_force is not None and self.config.config_source is not None:
            return False
        parent = supervisord.Supervisord.of_environment()
        if parent is None or self._last_good() is not None or self._services_work():
            return False
        if "BULKHEAD_STDERR_FD" not in os.environ:  # where there is one, the log has shown them
            supervisord.print_for_operator(tuple(f"bulkhead bootstrap: {line}" for line in lines))
        try:
            parent.shut_down()
        except supervisord.SupervisordError as error:
            log.error("%s (stop supervisord by hand)", error)
            return False
        return True

    def _write(self, config: EffectiveConfig) -> None:
        try:
            if config.embedded_containerd:
                write_containerd_files(config)
            self._write_config(config)
            crash_point("bootstrap.configured")
            write_manifest(self._manifest(config))
            crash_point("bootstrap.published")
        except OSError as error:
            raise _unwritable(error, self._run_dir) from error

    def _write_config(self, config: EffectiveConfig) -> None:
        content = encode_effective(config, self._generation)
        write_atomically(self._run_dir / CONFIG_NAME, content)
        self._in_force = config, content

    def _manifest(self, config: EffectiveConfig) -> Manifest:
        embedded = config.embedded_containerd is not None
        return new_manifest(self._run_dir, config_file=str(self._run_dir / CONFIG_NAME), embedded_containerd=embedded)

    def own_files(self) -> tuple[Path, Path]:
        """Return the paths of config.json and manifest.json."""
        return self._run_dir / CONFIG_NAME, self._run_dir / MANIFEST_FILE

    def restore_files(self) -> list[str]:
        """Write again those of our files that are gone or were changed. Returns their names.

        Raises OSError.
        """
        with self._writing:
            return self._restore_files()

    def _restore_files(self) -> list[str]:
        assert self._in_force is not None
        config, content = self._in_force
        config_file, _ = self.own_files()
        restored = []
        if not config_file.exists() or config_file.read_bytes() != content:
            write_atomically(config_file, content)
            restored.append(CONFIG_NAME)
        manifest = self._manifest(config)
        try:
            good = read_manifest(self._run_dir) == manifest
        except OperatorError:
            good = False
        if not good:
            write_manifest(manifest)
            restored.append(MANIFEST_FILE)
        return restored

    def _last_good(self) -> EffectiveConfig | None:
        """Return the configuration in force, if it was written under our supervisord or other services still use it."""
        return self._saved(lambda found: same_supervisord(found, self._generation) or self._orphans_work())

    def _saved(self, holds: Callable[[str], bool]) -> EffectiveConfig | None:
        """Return the configuration in config.json, if `holds` accepts its generation; None without a supervisord."""
        try:
            config, generation = load_generation(str(self._run_dir))
        except (OSError, OperatorError):
            return None
        return config if self._generation and holds(generation) else None

    def _services_work(self) -> bool:
        """Return whether a service of our own generation runs, so that there was a configuration before."""
        holders = (ServiceLock(self._run_dir, service).held_by() for service in SERVICES if service != "bootstrap")
        return bool(self._generation) and any(holder and holder.supervisord == self._generation for holder in holders)

    def _restart_all(self) -> None:
        """Restart all services, because config.json was removed while bootstrap did not run, and they may use another
        configuration."""
        log.error("%s was removed: all services are restarted", self._run_dir / CONFIG_NAME)
        if parent := supervisord.Supervisord.of_environment():
            try:
                parent.restart()
            except supervisord.SupervisordError as error:
                log.error("%s (restart the agent by hand)", error)

    def _orphans_work(self) -> bool:
        """Return whether a service runs that an earlier supervisord started."""
        holders = (ServiceLock(self._run_dir, service).held_by() for service in SERVICES)
        return any(holder is not None and is_orphan(holder) for holder in holders)


def _change_kernel_settings(config: EffectiveConfig) -> None:
    """Raises ConfigurationRefusedError."""
    try:
        change_kernel_settings(config)
    except OperatorError as error:
        raise ConfigurationRefusedError((str(error),)) from error


def _unwritable(error: OSError, where: Path) -> OperatorError:
    where_exactly = str(error.filename or where)
    return OperatorError(
        f"cannot be written: {error.strerror}", where=where_exactly, remedy="free disk space or repair it"
    )


def report_kept(lines: tuple[str, ...]) -> None:
    """Log a refused edit."""
    for line in lines:
        log.error("%s", line)
    log.error("the configuration was refused; the last good one stays in force")


def changed_since(path: Path, wall: float) -> bool:
    """Return whether the file was touched since; True if that is not certain, as time stamps are some milliseconds
    late."""
    try:
        return path.stat().st_ctime > wall - 0.05
    except OSError:
        return False
