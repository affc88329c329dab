"""Evaluates the configurations that may be in force, and chooses the first one that can be used (config.md 4.3).

It blocks, because evaluation runs children. At a start of the agent the local configuration must be valid, even if it
is not the one in force. Later changes of the source do not depend on it.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from bus.lock import read_starts
from bus.messages.streams import SERVICES
from services.bootstrap.adapters.node_config_store import NodeConfigStore
from services.bootstrap.core.config_source import INTERNAL_ERROR, LOAD_ERROR, VALIDATE_ERROR
from services.bootstrap.core.node_config import Checkpoints, InForce, Rejection, crash_rejection
from shared.config.effective import EffectiveConfig
from shared.config.evaluation import check_readable, evaluate
from shared.config.findings import ConfigurationRefusedError
from shared.config.resolve import Resolved
from shared.errors import OperatorError
from shared.model.config_source import ConfigSource
from shared.model.frozen_copy import replace

log = logging.getLogger(__name__)

T = TypeVar("T")


class Choice(Struct, frozen=True):
    """A choice: the records on disk when it was made, and why it is not the assigned source, "" = it is.
    `local_refused`: the problems of the local configuration, which was not chosen."""

    checkpoints: Checkpoints
    error: str = ""
    local_refused: tuple[str, ...] = ()


def choose(
    arguments: list[str],
    complete: Callable[[Resolved], T],
    *,
    in_force: EffectiveConfig | None = None,
    rejection: Rejection | None = None,
) -> tuple[T, Choice | None]:
    """Return the result of `complete` for the first configuration that it accepts.

    `in_force`: the configuration until now; with it the local configuration may be invalid while the Node names
    another one. `rejection`: one that may not be on disk. `complete` raises ConfigurationRefusedError; that of the
    local configuration is raised here, as is that of its evaluation.
    """
    local, refused = _evaluate_local(arguments, in_force)
    if local is not None and not uses_node_config(local.config):
        return complete(local), None
    config = local.config if local is not None else in_force
    assert config is not None
    store = NodeConfigStore(config)
    try:
        checkpoints, problems = store.load()
    except OSError as unreadable:
        checkpoints, problems = Checkpoints(is_damaged=True), (f"{unreadable.filename}: {unreadable.strerror}",)
    for problem in problems:
        log.error("the configuration that the Node names: %s", problem)
    if rejection is not None:
        checkpoints = replace(checkpoints, rejection=rejection)
    error = checkpoints.rejection_error or (INTERNAL_ERROR if checkpoints.is_damaged else "")
    for source in checkpoints.candidates:
        if source is None and local is not None:
            return complete(local), Choice(checkpoints, error)
        if source is None:
            break
        try:
            return complete(_evaluate(arguments, store, source)), Choice(checkpoints, error, refused)
        except _UnusableError as unusable:
            error = error or unusable.error
        except ConfigurationRefusedError as invalid:
            _report(source, VALIDATE_ERROR, invalid.lines)
            error = error or VALIDATE_ERROR
    raise ConfigurationRefusedError(refused)


def uses_node_config(config: EffectiveConfig) -> bool:
    """Return whether the Node may name the configuration."""
    return bool(config.dynamic_config_dir) and not config.run_once


def reject_crashing(config: EffectiveConfig, generation: str) -> Rejection | None:
    """Reject the source in force if it makes a service crash, and return the rejection. It is saved, unless all disks
    are full. It is called at the start of bootstrap, which may be the service that crashes."""
    if config.config_source is None:
        return None
    store = NodeConfigStore(config)
    try:
        checkpoints, _ = store.load()
    except OSError as error:
        log.error("%s: cannot be read, so crashes reject nothing: %s", error.filename, error.strerror)
        return None
    if checkpoints.rejection is not None and checkpoints.rejection.source == config.config_source:
        return checkpoints.rejection
    in_force = InForce(config.config_source, config.config_source_since)
    rejection = crash_rejection(checkpoints, in_force, service_starts(config.run_dir, generation))
    if rejection is None:
        return None
    log.error("%s: %s", rejection.source.api_path, rejection.error)
    try:
        store.reject(rejection)
    except OSError as error:
        log.error("%s: this cannot be saved: %s (free disk space)", error.filename, error.strerror)
    return rejection


def _evaluate_local(arguments: list[str], in_force: EffectiveConfig | None) -> tuple[Resolved | None, tuple[str, ...]]:
    """Evaluate the local configuration. Return it, or None and its problems where another one may be used. Raises
    ConfigurationRefusedError."""
    try:
        return evaluate(arguments), ()
    except ConfigurationRefusedError as error:
        if in_force is None or not uses_node_config(in_force):
            raise
        return None, error.lines


def service_starts(run_dir: str, generation: str) -> Mapping[str, tuple[float, ...]]:
    """Return the starts of each service since it last ended on request, in CLOCK_MONOTONIC seconds."""
    return {service: read_starts(Path(run_dir), service, generation) for service in SERVICES}


def with_since(config: EffectiveConfig, old: EffectiveConfig | None, now: float) -> EffectiveConfig:
    """Return the configuration with the time since which its source is in force. `now`: CLOCK_MONOTONIC seconds."""
    if config.config_source is None:
        return config
    stays = old is not None and old.config_source == config.config_source
    return replace(config, config_source_since=old.config_source_since if old is not None and stays else now)


class _UnusableError(Exception):
    """The configuration cannot be used; it was logged. `error` is the text for status.config.error."""

    def __init__(self, error: str) -> None:
        self.error = error
        super().__init__(error)


def _evaluate(arguments: list[str], store: NodeConfigStore, source: ConfigSource) -> Resolved:
    file = str(store.file(source))
    error = LOAD_ERROR
    try:
        check_readable(file)
        error = VALIDATE_ERROR
        resolved = evaluate(arguments, file)
    except ConfigurationRefusedError as refused:
        _report(source, error, refused.lines)
        raise _UnusableError(error) from refused
    except OperatorError as refused:
        _report(source, error, (str(refused),))
        raise _UnusableError(error) from refused
    return replace(resolved, config=replace(resolved.config, config_source=source))


def _report(source: ConfigSource, error: str, lines: tuple[str, ...]) -> None:
    log.error("%s, version %s: %s", source.api_path, source.resource_version, error)
    for line in lines:
        log.error("%s", line)
