"""Reloads: checks the present configuration, brings it into force, and lists the services that restart and why.

config.json is the only record: each service that has to be restarted for a change in it ends by itself
(`services.frame.configuration_in_force`), bootstrap as well. A kill before the file is replaced leaves all of them with
the old configuration, a kill after it none.
"""

import logging
import time
from pathlib import Path

from bus.lock import ServiceLock
from services.bootstrap.adapters.layout import make_layout
from services.bootstrap.adapters.node_credentials import find_refusal
from services.bootstrap.controllers import startup
from services.bootstrap.controllers.node_config_choice import with_since
from services.bootstrap.controllers.startup import BootstrapStartup
from shared.config.effective import EffectiveConfig
from shared.config.findings import ConfigurationRefusedError
from shared.config.readers import changes, restarted_by
from shared.process.crash import crash_point

log = logging.getLogger(__name__)


def reload(begun: BootstrapStartup, old: EffectiveConfig) -> EffectiveConfig:
    """Return the configuration in force after the reload. `old` is the one before it.

    Blocks: evaluation runs children and exec plugins. Raises ConfigurationRefusedError and OperatorError; then nothing
    has changed.
    """

    def prepare(config: EffectiveConfig) -> None:
        report(old, config)  # it raises for settings that a reload cannot change
        make_layout(config)

    server = ServiceLock(Path(old.run_dir), "server").holder
    evaluation = startup.evaluate_all(server, prepare=prepare, in_force=old)
    config = with_since(evaluation.resolved.config, old, time.monotonic())
    if config == old:
        log.info("reload: the configuration has not changed")
        begun.choice = evaluation.choice
        return old
    lines = report(old, config)
    others = config.joins_cluster and _credentials(old) != _credentials(config)
    if others and (refusal := find_refusal(config, time.time())):
        raise ConfigurationRefusedError(refusal)
    for line in lines:
        log.info("%s", line)
    crash_point("bootstrap.reload.checked")
    begun.replace_config(config)
    begun.choice = evaluation.choice
    crash_point("bootstrap.reload.written")
    begun.remark(evaluation)
    return config


def report(old: EffectiveConfig, new: EffectiveConfig) -> tuple[str, ...]:
    """Return one line for each changed setting with the services that restart for it, and a last line with all of them.

    Raises ConfigurationRefusedError for settings that are not changed while the agent runs.
    """
    found = changes(old, new)
    if fixed := [change.name for change in found if change.fixed]:
        what = "is not changed by a reload (restart the agent, or undo the change)"
        raise ConfigurationRefusedError(tuple(f"{name}: {what}" for name in fixed))
    lines = (f"reload: {change.name} has changed: {_restarts(change.services)}" for change in found)
    return (*lines, f"reload: {_restarts(restarted_by(found))}")


def _restarts(services: frozenset[str]) -> str:
    if not services:
        return "no service restarts"
    return f"{', '.join(sorted(services))} {'restarts' if len(services) == 1 else 'restart'}"


def _credentials(config: EffectiveConfig) -> tuple[object, ...]:
    """Return the settings that select the credentials for the API server."""
    return config.kubeconfig, config.bootstrap_kubeconfig, config.rotate_certificates, config.cert_dir
